"""Thousands of entities of one client: turns by what is due, and pings of a namespace that is out of reach."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.pairing.decide.due import MOST, SPARE, Pings, Timers
from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.outcome import Classification, Failure
from tests.costs import cpu_of

if TYPE_CHECKING:
    from conftest import Driver

REFUSED = Classification(Failure.UNAVAILABLE, "connection refused", is_of_side=True)
OF_ENTITY = Classification(Failure.UNAVAILABLE, "the link was refused")


def live(
    driver: Driver, seconds: float, answer: Callable[[str], Classification | None]
) -> list[tuple[float, str]]:
    """Let the time pass, and end each ping at once with this answer; return when each entity was pinged."""
    pings, until = [], driver.now + seconds
    while (timer := driver.pair.next_timer()) is not None and timer <= until:
        driver.now = max(driver.now, timer)
        for path in driver.pair.handle_timer(driver.now):
            driver.pair.ping_left(path, driver.now)
            driver.pair.ping_finished(path, answer(path), driver.now)
            pings.append((driver.now, path))
        driver.pair.events()
    driver.now = until
    return pings


@pytest.mark.spec("B-11")
def test_the_cost_of_a_turn_depends_on_due_timers_and_not_on_all_entities(
    pair_of: Callable[..., Driver],
) -> None:
    def turn_of(entities: int) -> float:
        driver = pair_of()
        for number in range(entities):
            driver.pair.fail_over(f"q{number}", 0.0)
        live(driver, 65.0, lambda _: REFUSED)

        def turns() -> None:
            for _ in range(1000):
                driver.pair.handle_timer(driver.now)
                driver.pair.next_timer()

        return min(cpu_of(turns) for _ in range(3))

    assert turn_of(5000) < 5 * turn_of(50)


@pytest.mark.spec("B-11")
@given(st.lists(st.tuples(st.sampled_from("abcd"), st.none() | st.integers(0, 20)), max_size=60))
def test_the_last_set_timers_apply(changes: list[tuple[str, int | None]]) -> None:
    timers, model = Timers(), dict[str, int]()
    for key, at in changes:
        timers.set(key, at)
        model.pop(key, None)
        if at is not None:
            model[key] = at
        assert timers.next() == min(model.values(), default=None)
    due = []
    for key in timers.due(10):
        due.append(key)
        timers.set(key, None)
    assert sorted(due) == sorted(key for key, at in model.items() if at <= 10)


@pytest.mark.spec("B-11")
def test_timers_that_are_moved_again_and_again_take_no_more_room() -> None:
    timers = Timers()
    for number in range(10_000):
        timers.set("a", float(number))
    assert len(timers._heap) <= SPARE + 3


@pytest.mark.spec("B-11")
def test_a_key_that_is_due_again_at_once_has_its_next_turn_later() -> None:
    timers = Timers()
    timers.set("a", 1.0)
    for key in timers.due(5.0):
        timers.set(key, 2.0)
    assert timers.next() == 2.0


@pytest.mark.spec("B-25")
def test_one_ping_per_interval_detects_an_unreachable_namespace(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(ping=5.0)
    for number in range(2000):
        driver.pair.fail_over(f"q{number}", 0.0)
    pings = live(driver, 60.0, lambda _: REFUSED)
    assert len(pings) <= 2 + 13
    assert len({path for _, path in pings}) > 5  # not always the same


@pytest.mark.spec("B-25")
def test_a_namespace_that_answers_has_each_entity_pinged_within_an_interval(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(ping=60.0)
    for number in range(500):
        driver.pair.fail_over(f"q{number}", 0.0)
    live(driver, 200.0, lambda _: REFUSED)
    pings = live(driver, 60.0 + 6.0 + 5.0, lambda _: None)
    assert {driver.pair.state_of(f"q{number}") for number in range(500)} == {EntityState.HEALTHY}
    assert max(Counter(path for _, path in pings).values()) == 1


@pytest.mark.spec("P-32", "B-25")
@pytest.mark.parametrize("entities", [1, 3])
def test_a_namespace_out_of_reach_is_pinged_once_an_interval_by_however_few_entities(
    pair_of: Callable[..., Driver], entities: int
) -> None:
    """An entity that was due a little early waited for another interval: with one entity, nearly two."""
    driver = pair_of(ping=60.0)
    for number in range(entities):
        driver.pair.fail_over(f"q{number}", 0.0)
    times = [at for at, _ in live(driver, 36_000.0, lambda _: REFUSED)][2:]
    gaps = [later - each for each, later in pairwise(times)]
    assert max(gaps) <= 60.0 * 1.1 + 0.01
    assert min(gaps) >= 60.0 * 0.9 - 0.01


@pytest.mark.spec("B-25")
def test_a_refused_entity_says_nothing_about_the_others(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(ping=10.0)
    for number in range(50):
        driver.pair.fail_over(f"q{number}", 0.0)
    pings = Counter(path for _, path in live(driver, 60.0, lambda _: OF_ENTITY))
    assert min(pings.values()) >= 5
    assert len(pings) == 50


@pytest.mark.spec("B-25")
def test_pings_that_could_not_be_sent_say_nothing_about_the_namespace(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(ping=10.0)
    for number in range(50):
        driver.pair.fail_over(f"q{number}", 0.0)
    own = Classification(Failure.UNAVAILABLE, "no thread was free", is_own=True)
    pings = Counter(path for _, path in live(driver, 60.0, lambda _: own))
    assert min(pings.values()) >= 5


@pytest.mark.spec("B-25")
def test_an_accepted_send_shows_that_the_namespace_is_reachable(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(ping=60.0)
    for number in range(50):
        driver.pair.fail_over(f"q{number}", 0.0)
    live(driver, 100.0, lambda _: REFUSED)
    driver.primary(driver.ok, path="another")
    pings = live(driver, 6.0, lambda _: None)
    assert len(pings) == 50


@pytest.mark.spec("B-10")
def test_pings_that_get_no_answer_are_few_at_a_time_and_the_others_have_their_turn() -> None:
    pings = Pings(60.0)
    for number in range(100):
        pings.due(str(number), 0.0)
    first = list(pings.take(0.0))
    assert first == [str(number) for number in range(MOST)]
    assert list(pings.take(1.0)) == []
    pings.finished("0", is_answered=True)
    pings.lost("1")
    assert list(pings.take(1.0)) == [str(MOST), str(MOST + 1)]
    pings.due("5", 1.0)  # in progress
    for key in first:
        pings.lost(key)
    assert "5" not in list(pings.take(2.0))


@pytest.mark.spec("B-10")
def test_pings_that_a_fork_lost_leave_room_for_others() -> None:
    pings = Pings(60.0)
    for number in range(2 * MOST):
        pings.due(str(number), 0.0)
    list(pings.take(0.0))
    pings.all_lost()
    assert len(list(pings.take(1.0))) == MOST
