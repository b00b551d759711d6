"""An entity that recovers and fails again repeatedly (F-38, F-51)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from sbpair.pair.pairing.decide.health import EntityHealth, EntityState, HealthPolicy
from sbpair.pair.pairing.events import EntityFailedOver, EntityRecovered
from sbpair.pair.pairing.outcome import Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

HOUR = 3600.0


def entity(ping: float = 10.0) -> EntityHealth:
    return EntityHealth(0.0, ping, lambda: 0.0, policy=HealthPolicy(return_over=0))


def relapse(health: EntityHealth, now: float) -> float:
    """Fail, ping when due and recover at once; return how long the first ping waited."""
    health.send_failed(now)
    due = health.next_timer()
    assert due is not None
    health.handle_timer(due)
    health.ping_accepted(due)
    return due - now


@pytest.mark.spec("F-51", "P-32")
def test_the_first_ping_is_sent_at_once_and_each_relapse_doubles_its_delay() -> None:
    health, now, waited = entity(ping=10), 0.0, []
    for _ in range(8):
        waited.append(relapse(health, now))
        now += waited[-1] + 1  # a second at home
    assert waited == [0, 10, 20, 40, 80, 160, 300, 300]


@pytest.mark.spec("F-51")
def test_a_ping_interval_longer_than_the_longest_delay_is_kept() -> None:
    health = entity(ping=1800)
    assert [relapse(health, 0.0), relapse(health, 1.0), relapse(health, 1802.0)] == [0, 1800, 1800]


@pytest.mark.spec("F-51")
def test_a_healthy_minute_resets_the_relapse_delay() -> None:
    health = entity(ping=10)
    relapse(health, 0.0)
    assert relapse(health, 1.0) == 10
    assert relapse(health, 11 + 60.5) == 0


@pytest.mark.spec("F-51", "P-6")
@pytest.mark.parametrize("by_hand", [EntityHealth.mark_healthy, EntityHealth.fail_over])
def test_a_manual_failover_resets_the_relapse_delay(by_hand: Callable[[EntityHealth, float], object]) -> None:
    health = entity(ping=10)
    relapse(health, 0.0)
    relapse(health, 1.0)
    by_hand(health, 12.0)
    health.mark_healthy(12.0)
    assert relapse(health, 13.0) == 0


@pytest.mark.spec("F-51")
def test_pings_after_a_relapse_continue_at_the_interval() -> None:
    health = entity(ping=10)
    relapse(health, 0.0)
    health.send_failed(1.0)
    pings = []
    while (due := health.next_timer()) is not None and due < 50:
        assert health.handle_timer(due) == ([], True)
        pings.append(due)
    assert pings == [11, 21, 31, 41]


@pytest.mark.spec("F-51", "G-1")
@pytest.mark.parametrize(("interval", "most"), [(0.0, 25), (60.0, 20)])
def test_keyed_sends_that_fail_while_pings_succeed_cause_few_failovers_in_an_hour(
    pair_of: Callable[..., Driver], interval: float, most: int
) -> None:
    """One send a second goes to the partition that is down, and each ping to another."""
    driver = pair_of(interval=interval, ping=1.0)
    landed = Counter[type]()
    while driver.now < HOUR:
        landed[type(driver.primary(driver.fail))] += 1
        pass_a_second(driver, is_up=True)
    told = Counter(type(event) for event in driver.pair.events())
    assert 0 < told[EntityFailedOver] <= most
    assert abs(told[EntityFailedOver] - told[EntityRecovered]) <= 1  # visible, each of them
    assert landed[Stored] > 0.5 * HOUR
    assert set(landed) <= {Stored, Refused}


@pytest.mark.spec("F-38", "G-1", "P-34")
@pytest.mark.parametrize("interval", [0.0, 5.0, 60.0])
def test_an_hour_of_ten_seconds_down_and_twenty_up_causes_few_failovers(
    pair_of: Callable[..., Driver], interval: float
) -> None:
    driver = pair_of(interval=interval, ping=1.0)
    refused = 0
    while driver.now < HOUR:
        is_up = driver.now % 30 >= 10
        outcome = driver.primary(driver.ok if is_up else driver.fail)
        refused += isinstance(outcome, Refused)
        assert isinstance(outcome, Stored | Refused)
        pass_a_second(driver, is_up=is_up)
    told = Counter(type(event) for event in driver.pair.events())
    assert told[EntityFailedOver] <= 40, "of 120 times that it went down"
    assert (interval == 60.0) == (told[EntityFailedOver] == 0)  # less than the interval each time
    assert interval > 0 or refused == 0
    assert (driver.pair.next_timer() is None) == (driver.pair.state_of("orders") is EntityState.HEALTHY)


def pass_a_second(driver: Driver, *, is_up: bool) -> None:
    """Advance by a second, in which due pings are accepted or refused."""
    until = driver.now + 1.0
    while (timer := driver.pair.next_timer()) is not None and timer <= until:
        driver.now = max(driver.now, timer)
        for path in driver.pair.handle_timer(driver.now):
            refusal = None if is_up else driver.fail().classification
            driver.pair.ping_finished(path, refusal, driver.now)
    driver.now = until
