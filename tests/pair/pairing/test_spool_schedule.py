"""The schedule of replays of a spool, by entity."""

from __future__ import annotations

import pytest

from sbpair.pair.pairing.spool.schedule import MAX_CONCURRENT, MAX_TRIES, PAUSE, ReplaySchedule


@pytest.fixture
def schedule() -> ReplaySchedule:
    return ReplaySchedule(lambda: 1.0)


def test_an_empty_spool_needs_no_timer(schedule: ReplaySchedule) -> None:
    assert schedule.next_timer() is None
    assert schedule.due(1000.0) == []
    schedule.hurry(0.0)
    assert schedule.next_timer() is None


def test_spooled_messages_are_tried_after_a_pause_and_once_at_a_time(schedule: ReplaySchedule) -> None:
    schedule.spooled("Orders", 10.0)
    schedule.spooled("orders", 10.5)
    assert schedule.next_timer() == 10.0 + PAUSE
    assert schedule.due(10.9) == []
    assert schedule.due(11.0) == ["Orders"]
    assert schedule.due(99.0) == []
    assert schedule.next_timer() is None


@pytest.mark.spec("A-7")
def test_one_unaccepted_entity_is_tried_each_second(
    schedule: ReplaySchedule,
) -> None:
    schedule.spooled("orders", 0.0)
    now = 1.0
    for _ in range(3000):
        assert schedule.due(now) == ["orders"]
        schedule.finished("orders", now, is_empty=False, was_accepted=False)
        assert schedule.next_timer() == now + PAUSE
        now += PAUSE


@pytest.mark.spec("A-7")
def test_many_entities_share_the_tries_of_a_second_and_all_continue_on_a_success(
    schedule: ReplaySchedule,
) -> None:
    paths = [f"q{n}" for n in range(15 * MAX_TRIES)]
    for path in paths:
        schedule.spooled(path, 0.0)
    tries = 0
    for tenth in range(10, 610):
        for path in schedule.due(tenth / 10):
            tries += 1
            schedule.finished(path, tenth / 10, is_empty=False, was_accepted=False)
    assert tries <= 61 * MAX_TRIES
    (path, *_) = schedule.due(80.0)
    assert schedule.accepted(path, 80.0)
    schedule.finished(path, 80.0, is_empty=True, was_accepted=True)
    assert len(schedule.due(81.0)) == MAX_CONCURRENT - (MAX_CONCURRENT - 1)
    assert schedule.next_timer() is None


@pytest.mark.spec("A-8")
def test_messages_spooled_during_an_accepted_replay_are_sent_at_once(schedule: ReplaySchedule) -> None:
    schedule.spooled("orders", 0.0)
    schedule.due(1.0)
    schedule.finished("orders", 2.0, is_empty=False, was_accepted=True)
    assert schedule.due(2.0) == ["orders"]


@pytest.mark.spec("A-8")
def test_with_accept_first_spooled_messages_are_sent_at_once() -> None:
    schedule = ReplaySchedule(lambda: 1.0, first_pause=0.0)
    assert schedule.spooled("orders", 5.0)
    assert not schedule.spooled("orders", 5.0)
    assert schedule.due(5.0) == ["orders"]


@pytest.mark.spec("P-33")
def test_a_recovered_entity_is_tried_at_once_and_the_others_wait(schedule: ReplaySchedule) -> None:
    schedule.spooled("orders", 0.0)
    schedule.spooled("invoices", 0.0)
    schedule.hurry(0.1, "ORDERS")
    assert schedule.due(0.1) == ["orders"]
    schedule.hurry(0.2)
    assert schedule.due(0.2) == ["invoices"]


def test_a_wake_up_during_a_failing_replay_is_not_forgotten(schedule: ReplaySchedule) -> None:
    schedule.spooled("orders", 0.0)
    schedule.due(1.0)
    schedule.hurry(2.0)
    schedule.finished("orders", 3.0, is_empty=False, was_accepted=False)
    assert schedule.next_timer() == 3.0 + PAUSE


def test_continuous_wake_ups_do_not_make_a_failing_replay_a_busy_loop(schedule: ReplaySchedule) -> None:
    schedule.spooled("orders", 0.0)
    tries = 0
    for tenth in range(100):
        schedule.hurry(tenth / 10)
        for path in schedule.due(tenth / 10):
            tries += 1
            schedule.finished(path, tenth / 10, is_empty=False, was_accepted=False)
    assert tries == 10


def test_an_emptied_queue_is_forgotten_and_can_start_again(schedule: ReplaySchedule) -> None:
    schedule.spooled("orders", 0.0)
    schedule.due(1.0)
    schedule.finished("orders", 2.0, is_empty=True, was_accepted=True)
    assert schedule.next_timer() is None
    schedule.spooled("orders", 5.0)
    assert schedule.next_timer() == 6.0


def test_few_entities_are_replayed_concurrently_and_the_longest_waiting_first(
    schedule: ReplaySchedule,
) -> None:
    paths = [f"q{n}" for n in range(MAX_CONCURRENT + 2)]
    for n, path in enumerate(paths):
        schedule.spooled(path, float(n))
    assert schedule.due(100.0) == paths[:MAX_CONCURRENT]
    assert schedule.next_timer() is None
    assert schedule.due(100.0) == []
    schedule.finished("q0", 100.0, is_empty=True, was_accepted=True)
    assert schedule.due(100.0) == [paths[MAX_CONCURRENT]]
