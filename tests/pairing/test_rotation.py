"""Which backlog queue does a sender park in?"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from sbpair.pairing.rotation import FIRST_QUARANTINE, LONGEST_QUARANTINE, Choice, Rotation


def rotation(count: int = 10, seed: int = 1) -> Rotation:
    return Rotation(count, random.Random(seed))


@pytest.mark.spec("P-7")
def test_a_sender_stays_with_the_backlog_it_has_picked() -> None:
    backlogs, choice = rotation(), Choice()
    first = backlogs.pick(choice, 0.0)
    assert {backlogs.pick(choice, float(now)) for now in range(100)} == {first}


@pytest.mark.spec("P-4", "P-7")
def test_senders_that_do_not_know_each_other_spread_over_all_backlogs() -> None:
    picked = Counter(rotation(10, seed).pick(Choice(), 0.0) for seed in range(1000))
    assert set(picked) == set(range(10))
    assert min(picked.values()) > 60


@pytest.mark.spec("P-5", "G-19")
def test_a_failed_backlog_is_out_for_every_sender() -> None:
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
    assert spans[-1] == LONGEST_QUARANTINE


@pytest.mark.spec("P-5")
def test_one_failure_seen_by_many_senders_is_one_failure() -> None:
    backlogs = rotation(2)
    assert {backlogs.failed(0, now) for now in (0.0, 1.0, 2.0)} == {FIRST_QUARANTINE}


@pytest.mark.spec("P-5")
def test_a_success_ends_the_series_of_failures() -> None:
    backlogs = rotation(2)
    backlogs.failed(0, 0.0)
    assert backlogs.succeeded(0)
    assert not backlogs.succeeded(0)
    assert backlogs.failed(0, 100.0) == 100.0 + FIRST_QUARANTINE


@pytest.mark.spec("P-5")
def test_when_all_are_out_the_one_that_returns_first_is_tried() -> None:
    backlogs = rotation(3)
    for now, index in enumerate((2, 0, 1)):
        backlogs.failed(index, float(now))
    assert backlogs.pick(Choice(), 3.0) == 2


@pytest.mark.spec("P-5")
def test_nothing_is_left_when_every_backlog_was_tried() -> None:
    assert rotation(2).pick(Choice(), 0.0, frozenset({0, 1})) is None


@pytest.mark.spec("P-13")
def test_a_backlog_beyond_the_count_is_never_picked() -> None:
    backlogs = rotation(3)
    assert {backlogs.pick(Choice(), 0.0) for _ in range(100)} == {0, 1, 2}
