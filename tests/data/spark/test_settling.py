"""The messages that a settlement requests and completes."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.spark.claim import MAX_REQUESTED, MAX_RETURNS, Claim, EntityRenewedError
from sbpair.data.spark.glimpse import Glimpse, glimpse
from sbpair.data.spark.ranges import LANE_BITS, Mark
from sbpair.pair.amqp.message import Header, Message, Properties
from sbpair.pair.amqp.sections import Sections


def message(number: int, enqueued_at: int | None = 50, deliveries: int = 0) -> Glimpse:
    encoded = Message(header=Header(delivery_count=deliveries)).encode()
    return Glimpse(number, enqueued_at, 0, Sections(header=encoded))


def settle(claim: Claim, available: Iterable[int]) -> tuple[list[int], list[int]]:
    """Settle on a queue with the ``available`` messages; return the completed and the released numbers."""
    left, completed, returned = sorted(available), [], []
    while credit := claim.credit:
        arrived, left = left[:credit], left[credit:]
        for number in arrived:
            (completed if claim.take(message(number)) else returned).append(number)
        claim.end_round(len(arrived))
    return completed, returned


@pytest.mark.spec("R-77")
@given(st.sets(st.integers(1, 900)), st.sets(st.integers(1, 900)), st.integers(0, 900))
def test_read_and_receivable_messages_are_completed_and_few_others_are_locked(
    waiting: set[int], locked: set[int], upto: int
) -> None:
    known = {number for number in waiting if number <= upto}
    completed, returned = settle(Claim("q", (Mark("q", upto),), known), waiting - locked)

    assert set(completed) == known - locked
    assert len(returned) <= len(known & locked)
    if not known & locked:
        assert returned == []


@pytest.mark.spec("R-77")
def test_a_long_unreceivable_range_locks_only_one_other_message() -> None:
    claim = Claim("q", (Mark("q", 200),), range(1, 201))

    assert settle(claim, range(201, 400)) == ([], [201])
    assert claim.passed_over == 200


def test_a_successful_settlement_requests_more_each_time_up_to_a_limit() -> None:
    claim, asked, at = Claim("q", (Mark("q", 5000),), range(1, 5001)), [], 1
    while credit := claim.credit:
        asked.append(credit)
        for number in range(at, at + credit):
            assert claim.take(message(number))
        at += credit
        claim.end_round(credit)

    assert asked[:6] == [1, 4, 16, 64, 256, MAX_REQUESTED]
    assert max(asked) == MAX_REQUESTED


@pytest.mark.spec("R-77")
def test_pages_share_one_claim_and_an_ended_partition_requests_no_later_ones() -> None:
    claim = Claim("q", (Mark("q", 400),), range(1, 6))
    assert settle(claim, range(1, 6)) == ([1, 2, 3, 4, 5], [])
    claim.add(range(6, 11))
    assert claim.credit == 5, "the window stays open"
    assert settle(claim, [401]) == ([], [401])
    claim.add(range(11, 21))

    assert claim.credit == 0
    assert claim.passed_over == 15


@pytest.mark.spec("R-77")
def test_after_a_locked_message_only_one_more_is_requested() -> None:
    claim = Claim("q", (Mark("q", 100),), range(1, 101))
    assert claim.take(message(1))
    claim.end_round(1)
    assert claim.credit == 4

    assert all(claim.take(message(number)) for number in (2, 3, 5, 6))  # 4 is locked
    claim.end_round(4)

    assert (claim.credit, claim.passed_over) == (1, 1)


@pytest.mark.spec("R-77")
def test_a_finished_partition_ends_the_others_only_if_its_messages_came_too_often() -> None:
    third = 3 << LANE_BITS
    marks = (Mark("q", 5), Mark("q#3", third + 5))

    def claim() -> Claim:
        return Claim("q", marks, [1, 2, third + 1, third + 2])

    gentle, harsh = claim(), claim()
    assert not gentle.take(message(6, deliveries=MAX_RETURNS - 1))
    assert gentle.credit == 1
    assert gentle.take(message(third + 1))
    assert not harsh.take(message(6, deliveries=MAX_RETURNS))
    assert harsh.credit == 0
    assert harsh.passed_over == 4


@pytest.mark.spec("R-71")
def test_a_newer_message_under_a_number_already_read_ends_the_settlement() -> None:
    with pytest.raises(EntityRenewedError, match="q was deleted and created again"):
        Claim("q", (Mark("q", 5, until=40),), [1]).take(message(1, 41))
    assert not Claim("q", (Mark("q", 5, until=40),), [1]).take(message(1, None)), (
        "unknown whether it was read"
    )


@pytest.mark.parametrize("payload", [b"", Message().encode()], ids=["nothing", "no annotations"])
def test_a_message_without_a_sequence_number_is_released(payload: bytes) -> None:
    claim = Claim("orders", (Mark("orders", 100),), [7])
    assert not claim.take(glimpse(payload))
    assert claim.credit == 0


def test_the_position_of_a_message_is_read_without_its_body() -> None:
    annotations = {"x-opt-sequence-number": 7, "x-opt-enqueued-time": 50}
    properties = Properties(group_id="s")
    sent = Message(Header(delivery_count=2), None, annotations, properties)  # type: ignore[arg-type]
    found = glimpse(sent.encode())
    assert (found.number, found.enqueued_at, found.deliveries, found.session) == (7, 50, 2, "s")
    assert glimpse(b"\xff").number is None
