"""The rotation of backlog queues: where a sender parks."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from sbpair.pair.pairing.decide.backlogs import FIRST_QUARANTINE, MAX_QUARANTINE_SECONDS, Rotation
from sbpair.pair.pairing.decide.steps import Choice


def rotation(count: int = 10, seed: int = 1) -> Rotation:
    return Rotation(count, random.Random(seed))


@pytest.mark.spec("P-7")
def test_a_sender_stays_with_its_chosen_backlog() -> None:
    backlogs, choice = rotation(), Choice()
    first = backlogs.pick(choice, 0.0)
    assert {backlogs.pick(choice, float(now)) for now in range(100)} == {first}


@pytest.mark.spec("P-4", "P-7")
def test_unrelated_senders_spread_over_all_backlogs() -> None:
    picked = Counter(rotation(10, seed).pick(Choice(), 0.0) for seed in range(1000))
    assert set(picked) == set(range(10))
    assert min(picked.values()) > 60


@pytest.mark.spec("P-5", "G-19")
def test_a_failed_backlog_is_withdrawn_for_every_sender() -> None:
    backlogs = rotation(3)
    backlogs.failed(1, now=0.0)
    picks = {backlogs.pick(Choice(), 1.0) for _ in range(50)}
    assert picks == {0, 2}


@pytest.mark.spec("P-5")
def test_a_quarantine_doubles_with_each_failure_up_to_a_cap() -> None:
    backlogs, now, spans = rotation(2), 0.0, []
    for _ in range(9):
        until = backlogs.failed(0, now)
        spans.append(until - now)
        now = until
    assert spans[:3] == [FIRST_QUARANTINE, 2 * FIRST_QUARANTINE, 4 * FIRST_QUARANTINE]
    assert spans[-1] == MAX_QUARANTINE_SECONDS


@pytest.mark.spec("P-5")
def test_one_failure_seen_by_many_senders_counts_once() -> None:
    backlogs = rotation(2)
    assert {backlogs.failed(0, now) for now in (0.0, 1.0, 2.0)} == {FIRST_QUARANTINE}


@pytest.mark.spec("P-5")
def test_a_success_ends_a_series_of_failures() -> None:
    backlogs = rotation(2)
    backlogs.failed(0, 0.0)
    assert backlogs.succeeded(0, 0.0)
    assert not backlogs.succeeded(0, 0.0)
    assert backlogs.failed(0, 100.0) == 100.0 + FIRST_QUARANTINE


@pytest.mark.spec("P-5")
def test_with_all_backlogs_out_the_first_to_return_is_tried() -> None:
    backlogs = rotation(3)
    for now, index in enumerate((2, 0, 1)):
        backlogs.failed(index, float(now))
    assert backlogs.pick(Choice(), 3.0) == 2


@pytest.mark.spec("P-5")
def test_no_backlog_is_left_after_every_one_was_tried() -> None:
    assert rotation(2).pick(Choice(), 0.0, frozenset({0, 1})) is None


@pytest.mark.spec("P-13")
def test_a_backlog_beyond_the_count_is_never_picked() -> None:
    backlogs = rotation(3)
    assert {backlogs.pick(Choice(), 0.0) for _ in range(100)} == {0, 1, 2}


@pytest.mark.spec("P-5")
def test_a_backlog_that_fails_for_weeks_is_still_tried_every_five_minutes() -> None:
    backlogs, now = rotation(2), 0.0
    for _ in range(2000):
        now = backlogs.failed(0, now)
    assert backlogs.failed(0, now) == now + MAX_QUARANTINE_SECONDS


def parked(backlogs: Rotation, choices: Sequence[Choice], now: float) -> Counter[int | None]:
    """Send one message of each sender while all backlogs accept; return where they go."""
    rests: Counter[int | None] = Counter()
    for choice in choices:
        index = backlogs.pick(choice, now)
        assert index is not None
        backlogs.begun(index, now + 30.0)
        backlogs.succeeded(index, now)
        rests[index] += 1
    return rests


def fail_all(backlogs: Rotation, choices: Sequence[Choice], now: float) -> None:
    """Send one message of each sender while the secondary is down."""
    for choice in choices:
        tried: frozenset[int] = frozenset()
        while (index := backlogs.pick(choice, now, tried)) is not None:
            backlogs.begun(index, now + 30.0)
            backlogs.failed(index, now)
            tried |= {index}


@pytest.mark.spec("R-10", "P-7")
@pytest.mark.parametrize("outage", [1.0, 60.0, 3600.0])
def test_senders_spread_over_the_backlogs_again_after_a_secondary_outage(outage: float) -> None:
    backlogs, choices = rotation(10, seed=3), [Choice() for _ in range(100)]
    before = parked(backlogs, choices, 0.0)
    now = 1.0
    while now < 1.0 + outage:
        fail_all(backlogs, choices, now)
        now += max(1.0, outage / 30)
    parked(backlogs, choices, now)  # the first messages find out that the secondary is back
    assert parked(backlogs, choices, now + 1.0) == before


@pytest.mark.spec("R-10", "P-7")
def test_senders_that_start_while_one_backlog_is_left_do_not_stay_there() -> None:
    backlogs, choices = rotation(10), [Choice() for _ in range(200)]
    for index in range(9):
        backlogs.failed(index, 0.0)
    assert parked(backlogs, choices, 1.0) == {9: 200}
    assert max(parked(backlogs, choices, 1.0 + FIRST_QUARANTINE).values()) < 50


@pytest.mark.spec("R-10", "P-5")
def test_a_sender_uses_one_substitute_while_its_backlog_is_out_and_then_returns() -> None:
    backlogs, choice = rotation(10), Choice()
    own = backlogs.pick(choice, 0.0)
    assert own is not None
    backlogs.failed(own, 0.0)
    stand_ins = {backlogs.pick(choice, now) for now in (1.0, 2.0, 3.0)}
    assert len(stand_ins) == 1
    assert own not in stand_ins
    assert backlogs.pick(choice, FIRST_QUARANTINE) == own


@pytest.mark.spec("R-10", "P-5")
def test_one_sender_at_a_time_probes_a_withdrawn_backlog() -> None:
    backlogs, first, second = rotation(2), Choice(0), Choice(0)
    backlogs.failed(0, 0.0)
    assert backlogs.pick(first, 5.0) == 0
    backlogs.begun(0, 20.0)
    assert backlogs.pick(second, 6.0) == 1  # whatever silence there is, one sender waits it out
    assert backlogs.pick(second, 20.0) == 0  # the first never came back
    backlogs.begun(0, 30.0)
    assert backlogs.failed(0, 25.0) == 25.0 + 2 * FIRST_QUARANTINE
    assert backlogs.pick(second, 26.0) == 1
    backlogs.begun(0, 40.0)
    assert backlogs.succeeded(0, 36.0)
    assert backlogs.pick(second, 36.0) == 0


@pytest.mark.spec("R-10", "P-5")
def test_a_returning_backlog_does_not_shorten_the_quarantine_of_others() -> None:
    backlogs = rotation(3)
    backlogs.failed(0, 0.0)
    backlogs.failed(1, 4.0)
    assert backlogs.succeeded(0, 5.0)
    assert backlogs.available(5.0) == [0, 2]
