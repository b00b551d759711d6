"""Requests without a link: freezing, sending, and which part is parked where."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from sbpair.pair.envelope.copies import message_id_of, raw
from sbpair.pair.envelope.errors import ReservedPropertyError
from sbpair.pair.pairing.errors import ParkedScheduleError
from sbpair.pair.pairing.outcome import Location, Stored, StoredIn
from sbpair.pair.pairing.request.headroom import encoded_size
from sbpair.pair.pairing.request.request import (
    ENVELOPE_ROOM,
    PARKED,
    PairedMessageBatch,
    ScheduleRequest,
    SendRequest,
    cancellation,
    freeze,
    schedule_request,
)
from sbpair.pair.pairing.request.sdk import messages_of
from sbpair.pair.pairing.shared.base_sender import empty_batch, receipt

pytestmark = pytest.mark.spec("R-66")

AT = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)


def body(message: object) -> bytes:
    return b"".join(raw(message).body)  # type: ignore[arg-type]


def messages(count: int, size: int = 1) -> list[ServiceBusMessage]:
    return [ServiceBusMessage(b"x" * size, message_id=f"{number}") for number in range(count)]


@dataclass
class Maker:
    """The part of an SDK sender that creates batches; its link accepts ``limit`` bytes."""

    limit: int
    asked: list[int | None] = field(default_factory=list)

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        self.asked.append(max_size_in_bytes)
        return ServiceBusMessageBatch(max_size_in_bytes or self.limit)


@dataclass
class Primary:
    """An SDK sender that records its calls."""

    calls: list[tuple[object, ...]] = field(default_factory=list)

    def send_messages(self, message: object, *, timeout: float | None = None) -> object:
        self.calls.append(("send", message, timeout))
        return "sent"

    def create_message_batch(self) -> object:
        raise AssertionError("not asked for")

    def schedule_messages(self, messages: list, at: datetime, *, timeout: float | None = None) -> object:
        self.calls.append(("schedule", messages, at, timeout))
        return [7, 8]

    def cancel_scheduled_messages(self, numbers: list[int], *, timeout: float | None = None) -> object:
        self.calls.append(("cancel", numbers, timeout))
        return None


# --- freezing


def test_one_message_is_passed_singly_and_several_as_a_list() -> None:
    primary = Primary()
    one, many = freeze(ServiceBusMessage("a")), freeze(iter(messages(3)))
    assert (one.hand_over(primary, 2.5), many.hand_over(primary, 3.5)) == ("sent", "sent")
    (_, alone, first), (_, listed, second) = primary.calls
    assert isinstance(alone, AmqpAnnotatedMessage | ServiceBusMessage)
    assert body(alone) == b"a"
    assert [message_id_of(each) for each in listed] == ["0", "1", "2"]
    assert (first, second) == (2.5, 3.5)
    assert (len(one), len(many)) == (1, 3)
    assert many.message_ids() == ("0", "1", "2")


def test_a_batch_is_sent_unchanged_and_parked_message_by_message() -> None:
    batch = PairedMessageBatch()
    for message in messages(2):
        batch.add_message(message)
    plain = ServiceBusMessageBatch(1000)
    plain.add_message(ServiceBusMessage("p", message_id="p"))
    for each, ids in ((batch, ("0", "1")), (plain, ("p",))):
        request = freeze(each)
        assert request.outgoing is each
        assert request.message_ids() == ids
        assert request.encoding_fault() is None
    assert len(PairedMessageBatch().originals) == 0


def test_our_batch_accepts_lists_like_the_sdk_and_refuses_reserved_properties() -> None:
    batch = PairedMessageBatch(500)
    assert batch.max_size_in_bytes == 500
    batch._from_list(messages(2))  # as the SDK fills a batch from a list
    assert [message_id_of(each) for each in batch.originals] == ["0", "1"]
    with pytest.raises(ReservedPropertyError):
        batch.add_message(ServiceBusMessage("x", application_properties={"x-ms-path": "q"}))
    assert len(batch.originals) == len(batch) == 2


@pytest.mark.parametrize("given", [None, 5, "text", b"bytes", [5]], ids=repr)
def test_an_object_that_is_not_a_message_is_refused(given: object) -> None:
    with pytest.raises(TypeError):
        freeze(given)


def test_an_unencodable_message_is_found_before_it_is_sent() -> None:
    assert freeze(messages(2)).encoding_fault() is None
    fault = freeze(
        [*messages(1), ServiceBusMessage("x", application_properties={"a": object()})]
    ).encoding_fault()
    assert isinstance(fault, TypeError)


# --- parking


def parked_by(request: SendRequest, maker: Maker, backlog: int, most: int | None = None) -> list[list[str]]:
    """Park in a backlog that fails after ``most`` chunks; return what it accepted."""
    taken = []
    for chunk in request.chunks(maker, backlog):
        if most is not None and len(taken) == most:
            break  # the broker has not accepted this one
        inside = [chunk] if not isinstance(chunk, ServiceBusMessageBatch) else messages_of(chunk)
        taken.append([message_id_of(each) for each in inside])
    return taken


def a_request(count: int, size: int = 1) -> SendRequest:
    request = freeze(messages(count, size))
    request.fix_deadlines(1_000)
    request.rewrite("orders")
    return request


def test_a_single_message_is_parked_without_a_batch() -> None:
    request, maker = a_request(1), Maker(10_000)
    assert parked_by(request, maker, 3) == [["0"]]
    assert maker.asked == []
    assert request.parked == 1
    assert request.backlog_ends() == ((3, 1),)
    assert request.locations() == (Location(StoredIn.BACKLOG, 3, ("0",)),)
    assert request.unstored_messages() == []


@pytest.mark.parametrize(("limit", "room"), [(10_000, 10_000 - ENVELOPE_ROOM), (1_500, 750)])
def test_a_batch_leaves_room_for_the_envelope(limit: int, room: int) -> None:
    maker = Maker(limit)
    parked_by(a_request(2), maker, 0)
    assert maker.asked == [None, room]


@given(
    st.lists(st.sampled_from([1, 200, 900, 4_000]), min_size=1, max_size=8),
    st.sampled_from([700, 2_000, 5_000]),
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_each_message_is_parked_once_in_order_despite_backlog_failures(sizes, limit, failures) -> None:
    given = [ServiceBusMessage(b"x" * size, message_id=f"{number}") for number, size in enumerate(sizes)]
    request = freeze(given)
    request.rewrite("orders")
    taken: list[tuple[int, str]] = []
    for backlog, most in [*failures, (9, None)]:
        before = request.parked
        chunks = parked_by(request, Maker(limit), backlog, most)
        taken += [(backlog, each) for chunk in chunks for each in chunk]
        assert request.parked == before + sum(map(len, chunks))
        assert len(request.unstored_messages()) == len(sizes) - request.parked
    assert [each for _, each in taken] == [f"{number}" for number in range(len(sizes))]
    assert [(where.backlog, each) for where in request.locations() for each in where.message_ids] == taken
    assert all(
        one.backlog != two.backlog
        for one, two in zip(request.locations(), request.locations()[1:], strict=False)
    )
    assert request.backlog_ends()[-1][1] == len(sizes) == request.parked


def test_a_message_too_large_for_a_batch_is_tried_singly() -> None:
    request = a_request(2, size=4_000)
    assert parked_by(request, Maker(2_000), 0) == [["0"], ["1"]]


def test_deadlines_count_from_the_first_attempt_and_do_not_move() -> None:
    request = freeze([ServiceBusMessage("a", time_to_live=timedelta(seconds=5)), ServiceBusMessage("b")])
    assert [deadline for _, deadline in request.unstored_messages()] == [None, None]
    request.fix_deadlines(1_000)
    request.fix_deadlines(9_000)
    assert [deadline for _, deadline in request.unstored_messages()] == [6_000, None]
    request.rewrite("orders")
    once = request.rewritten
    request.rewrite("elsewhere")
    assert request.rewritten is once


# --- scheduling


def test_scheduled_messages_carry_their_time_and_are_copies() -> None:
    message = ServiceBusMessage("a")
    message.raw_amqp_message.annotations = {"x-opt-scheduled-enqueue-time": 1, b"x-opt-partition-key": b"k"}
    request = schedule_request([message, {"body": "b"}], AT)
    assert isinstance(request, ScheduleRequest)
    assert (len(request), request.at) == (2, AT)
    assert request.outgoing is request.messages
    assert [body(each) for each in request.messages] == [b"a", b"b"]
    assert raw(request.messages[0]).annotations == {
        b"x-opt-partition-key": b"k",
        b"x-opt-scheduled-enqueue-time": AT,
    }
    assert message.raw_amqp_message.annotations["x-opt-scheduled-enqueue-time"] == 1
    primary = Primary()
    assert request.hand_over(primary, 4.5) == [7, 8]
    ((_, sent, at, timeout),) = primary.calls
    assert [body(each) for each in sent] == [b"a", b"b"]
    assert not {id(each) for each in sent} & {id(each) for each in request.messages}
    assert (at, timeout) == (AT, 4.5)


@pytest.mark.parametrize(
    ("outcome", "numbers"),
    [
        (Stored(None, False), [7, 8]),
        (Stored(3, False), [PARKED] * 2),
        (Stored(None, False, True), [PARKED] * 2),
    ],
    ids=repr,
)
def test_only_the_primary_assigns_sequence_numbers(outcome: Stored, numbers: list[int]) -> None:
    request = schedule_request(messages(2), AT)
    request.answer = (7, 8)
    assert request.sequence_numbers(outcome) == numbers


@pytest.mark.parametrize("at", [None, 5.0, "2030-01-01"], ids=repr)
def test_a_time_that_is_not_a_datetime_is_refused(at: object) -> None:
    with pytest.raises(TypeError, match=r"^schedule_time_utc must be a datetime, not"):
        schedule_request(ServiceBusMessage("a"), at)  # type: ignore[arg-type]


def test_a_batch_cannot_be_scheduled() -> None:
    with pytest.raises(TypeError, match=r"^a batch cannot be scheduled; pass its messages as a list$"):
        schedule_request(PairedMessageBatch(), AT)


# --- cancelling


@pytest.mark.parametrize(
    ("given", "numbers"),
    [
        (5, [5]),
        ([5, 6], [5, 6]),
        (iter((0,)), [0]),
        (2**63 - 1, [2**63 - 1]),
        (-(2**63), [-(2**63)]),
        ([], []),
    ],
    ids=["one", "some", "iterator", "largest", "smallest", "none"],
)
def test_sequence_numbers_are_cancelled_only_on_the_primary(given: object, numbers: list[int]) -> None:
    request, primary = cancellation("orders", given), Primary()  # type: ignore[arg-type]
    assert request.is_for_primary_only
    assert (len(request), request.outgoing) == (0, [])
    request.hand_over(primary, 1.5)
    assert primary.calls == [("cancel", numbers, 1.5)]
    assert not freeze(ServiceBusMessage("a")).is_for_primary_only


@pytest.mark.parametrize(
    ("given", "error", "told"),
    [
        ([1, True], TypeError, "^a sequence number must be an int, not True$"),
        ([1, "2"], TypeError, "^a sequence number must be an int, not '2'$"),
        (2**63, ValueError, "^a sequence number must fit into 64 bits$"),
        ([-(2**63) - 1, 5], ValueError, "^a sequence number must fit into 64 bits$"),
        ([5, PARKED], ParkedScheduleError, "orders"),
    ],
)
def test_an_uncancellable_number_is_refused_before_any_is_cancelled(
    given: object, error: type, told: str
) -> None:
    with pytest.raises(error, match=told):
        cancellation("orders", given)  # type: ignore[arg-type]


# --- receipts and batches


@pytest.mark.parametrize(
    ("outcome", "stored_in", "backlog"),
    [
        (Stored(None, False), StoredIn.PRIMARY, None),
        (Stored(4, False), StoredIn.BACKLOG, 4),
        (Stored(None, True), StoredIn.PRIMARY, None),
        (Stored(None, False, True), StoredIn.SPOOL, None),
    ],
    ids=repr,
)
def test_a_receipt_says_where_the_messages_are(
    outcome: Stored, stored_in: StoredIn, backlog: int | None
) -> None:
    got = receipt(outcome, freeze(messages(2)))
    assert (got.stored_in, got.backlog, got.message_ids) == (stored_in, backlog, ("0", "1"))
    assert got.ambiguous is outcome.is_ambiguous
    assert got.locations == ()


def test_a_receipt_names_each_place_if_there_are_several() -> None:
    request = a_request(4, size=900)
    parked_by(request, Maker(2_000), 0, most=1)
    first = request.parked
    parked_by(request, Maker(2_000), 1, most=1)
    assert 0 < first < request.parked < 4
    ids = request.message_ids()
    found = request.locations()
    assert receipt(Stored(1, False), request).locations == found
    spooled = receipt(Stored(None, False, True), request)
    assert spooled.stored_in is StoredIn.SPOOL
    assert spooled.locations == (*found, Location(StoredIn.SPOOL, None, ids[request.parked :]))


@pytest.mark.parametrize(("asked", "size"), [(None, 1_000), (0, 1_000), (1, 1), (1_000, 1_000)])
def test_a_batch_has_the_requested_size_or_the_limit(asked: int | None, size: int) -> None:
    assert empty_batch(asked, 1_000).max_size_in_bytes == size


def test_a_batch_above_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^max_size_in_bytes must be at most 1000, not 1001$"):
        empty_batch(1_001, 1_000)


def test_the_size_of_a_message_excludes_the_overhead_of_its_batch() -> None:
    one = encoded_size(ServiceBusMessage(b"", message_id="m"))
    for size in (1, 100, 400):
        grown = encoded_size(ServiceBusMessage(b"x" * size, message_id="m"))
        assert grown - one == size + (3 if size > 255 else 0)
