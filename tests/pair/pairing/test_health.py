"""Health of an entity: when it fails over and when it recovers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.pairing.decide.health import TRANSITIONS, EntityHealth, EntityState, Input

HEALTHY, SUSPECT, FAILED_OVER = EntityState.HEALTHY, EntityState.SUSPECT, EntityState.FAILED_OVER


def entity(interval: float = 60.0, ping: float = 60.0, jitter: float = 0.1) -> EntityHealth:
    return EntityHealth(interval, ping, lambda: jitter)


def failed_over(**settings: float) -> EntityHealth:
    health = entity(**settings)
    health.fail_over(0.0)
    return health


@pytest.mark.spec("P-3", "G-12")
def test_an_entity_fails_over_when_the_interval_ends_without_a_success() -> None:
    health = entity(interval=60)
    health.send_failed(10)
    assert health.next_timer() == 70
    health.handle_timer(69.999)
    assert health.state is SUSPECT
    health.handle_timer(70)
    assert health.state is FAILED_OVER


@pytest.mark.spec("P-3", "G-12")
def test_a_success_within_the_interval_ends_the_suspicion() -> None:
    health = entity()
    health.send_failed(0)
    health.send_succeeded(59)
    assert health.state is HEALTHY
    assert health.next_timer() is None


@pytest.mark.spec("P-3")
def test_a_second_failure_does_not_restart_the_interval() -> None:
    health = entity(interval=60)
    health.send_failed(0)
    health.send_failed(59)
    assert health.next_timer() == 60


@pytest.mark.spec("P-3")
def test_an_interval_of_zero_fails_over_at_the_first_failure() -> None:
    health = entity(interval=0)
    passed = health.send_failed(5)
    assert [step.after for step in passed] == [SUSPECT, FAILED_OVER]


@pytest.mark.spec("P-4", "P-32")
def test_the_first_ping_is_sent_at_once_and_then_one_per_interval() -> None:
    health = failed_over(ping=60, jitter=0.2)
    assert health.next_timer() == pytest.approx(0.2)
    pings = []
    while (timer := health.next_timer()) is not None and timer < 200:
        _, is_due = health.handle_timer(timer)
        pings.append((timer, is_due))
    assert [round(when, 1) for when, _ in pings] == [0.2, 60.2, 120.2, 180.2]
    assert all(is_due for _, is_due in pings)


@pytest.mark.spec("P-33")
def test_an_accepted_ping_fails_back_and_ends_the_pings() -> None:
    health = failed_over()
    health.ping_accepted(3)
    assert health.state is HEALTHY
    assert health.next_timer() is None


@pytest.mark.spec("P-4")
def test_a_late_success_of_an_older_send_does_not_end_the_failover() -> None:
    health = failed_over()
    health.send_succeeded(1)
    assert health.state is FAILED_OVER


@pytest.mark.spec("P-6")
def test_an_entity_fails_over_and_back_manually_from_any_state() -> None:
    for prepare in (lambda h: None, lambda h: h.send_failed(0), lambda h: h.fail_over(0)):
        health = entity()
        prepare(health)
        health.fail_over(1)
        assert health.state is FAILED_OVER
        health.mark_healthy(2)
        assert health.state is HEALTHY


FEEDS = {
    "success": EntityHealth.send_succeeded,
    "failure": EntityHealth.send_failed,
    "ping": EntityHealth.ping_accepted,
    "healthy": EntityHealth.mark_healthy,
    "time": EntityHealth.handle_timer,
}
walks = st.lists(st.tuples(st.sampled_from(sorted(FEEDS)), st.floats(0, 90)), max_size=40)


@pytest.mark.spec("P-3", "P-4")
@given(walk=walks, interval=st.sampled_from([0.0, 1.0, 60.0]))
def test_in_every_walk_a_timer_runs_exactly_while_unhealthy_and_failover_needs_a_failure(
    walk: list[tuple[str, float]], interval: float
) -> None:
    health, now, failures = entity(interval=interval), 0.0, 0
    for what, span in walk:
        now += span
        before = health.state
        FEEDS[what](health, now)
        failures += what == "failure"
        assert (health.next_timer() is None) == (health.state is HEALTHY)
        if health.state is FAILED_OVER:
            assert failures > 0
        if before is FAILED_OVER and health.state is not FAILED_OVER:
            assert what in ("ping", "healthy")
        if before is not SUSPECT and health.state is SUSPECT:
            assert what == "failure"


@pytest.mark.spec("P-3", "P-4", "P-6")
@pytest.mark.parametrize("state", EntityState)
@pytest.mark.parametrize("what", Input)
def test_an_input_missing_from_the_table_changes_nothing(state: EntityState, what: Input) -> None:
    health = entity()
    health.state = state
    passed = health._feed(what, 1.0)
    assert health.state is TRANSITIONS.get((state, what), state)
    assert bool(passed) == ((state, what) in TRANSITIONS)
