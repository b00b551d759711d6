"""Rewriting a message for a backlog queue.

The tests decode the bytes that the SDK encodes for a parked message.
"""

from __future__ import annotations

import copy
import uuid
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageHeader, AmqpMessageProperties

from sbpair.pair.amqp.message import Message as WireMessage
from sbpair.pair.amqp.types import Int
from sbpair.pair.envelope import aliases
from sbpair.pair.envelope.copies import message_id_of, prepare, raw, snapshot
from sbpair.pair.envelope.park import deadline_of, park, take_deadline, with_deadline
from sbpair.pair.pairing.errors import ReservedPropertyError
from sbpair.pair.pairing.request.request import PairedMessageBatch, freeze
from sbpair.pair.pairing.request.sdk import messages_of
from sbpair.pair.pairing.shared import base_runtime
from sbpair.pair.pairing.shared.base_runtime import wall_clock


def encoded(message: ServiceBusMessage | AmqpAnnotatedMessage) -> bytes:
    """Return the bytes that the SDK sends."""
    out = bytearray()
    inner = PyamqpTransport.to_outgoing_amqp_message(raw(message))
    from azure.servicebus._pyamqp._encode import encode_payload

    return bytes(encode_payload(out, inner))


def wire(message: ServiceBusMessage | AmqpAnnotatedMessage) -> WireMessage:
    return WireMessage.decode(encoded(message))


def full_message() -> ServiceBusMessage:
    message = ServiceBusMessage(
        b"body",
        application_properties={
            "text": "t",
            "int": 5,
            "float": 1.5,
            "yes": True,
            "id": uuid.UUID(int=7),
            "when": datetime(2026, 1, 1, tzinfo=UTC),
            "long": {"TYPE": "LONG", "VALUE": 2**40},
            "none": None,
        },
        session_id="s-1",
        message_id="m-1",
        scheduled_enqueue_time_utc=datetime(2026, 11, 21, tzinfo=UTC),
        time_to_live=timedelta(minutes=5),
        content_type="text/plain",
        correlation_id="c-1",
        subject="sub",
        partition_key="s-1",
        to="somewhere",
        reply_to="back",
        reply_to_session_id="r-1",
    )
    assert message.raw_amqp_message.header is not None
    message.raw_amqp_message.header.priority = 3
    message.raw_amqp_message.header.durable = True
    assert message.raw_amqp_message.annotations is not None
    message.raw_amqp_message.annotations[b"x-opt-mine"] = "kept"
    message.raw_amqp_message.footer = {"x-foot": "print"}
    return message


@pytest.mark.spec("P-20")
def test_properties_that_the_broker_would_act_on_move_to_aliases() -> None:
    parked = wire(park(full_message(), "Orders/EU"))
    carried = parked.application_properties
    assert carried[aliases.PATH] == "Orders/EU"
    assert carried[aliases.SESSION_ID] == "s-1"
    assert carried[aliases.TIME_TO_LIVE] == "PT5M"
    assert carried[aliases.SCHEDULED] == "2026-11-21T00:00:00Z"
    assert carried[aliases.PARTITION_KEY] == "s-1"
    assert carried[aliases.VERSION] == aliases.ENVELOPE_VERSION
    assert parked.header is not None
    assert parked.header.ttl is None
    assert parked.properties is not None
    assert parked.properties.group_id is None
    assert list(parked.message_annotations) == ["x-opt-mine"]


@pytest.mark.spec("P-20")
def test_slashes_around_a_path_which_the_primary_does_not_mind_are_not_parked() -> None:
    parked = park(ServiceBusMessage("x"), "/eu/Orders/")
    assert (parked.application_properties or {})["x-ms-path"] == "eu/Orders"


@pytest.mark.spec("G-16")
def test_the_parked_copy_cannot_expire() -> None:
    parked = wire(park(ServiceBusMessage("x", time_to_live=timedelta(seconds=1)), "orders"))
    assert parked.properties is not None
    assert parked.properties.absolute_expiry_time is None
    assert parked.header is None or parked.header.ttl is None


@pytest.mark.spec("G-22")
def test_all_other_properties_are_parked_with_the_types_of_a_direct_send() -> None:
    straight, parked = wire(full_message()), wire(park(full_message(), "orders"))
    own = {key: value for key, value in parked.application_properties.items() if key not in aliases.RESERVED}
    assert own == straight.application_properties
    assert {key: type(value) for key, value in own.items()} == {
        key: type(value) for key, value in straight.application_properties.items()
    }
    assert isinstance(own["int"], Int)
    assert parked.body == straight.body
    assert parked.footer == straight.footer
    assert (parked.header.priority, parked.header.durable) == (3, True)
    for name in ("message_id", "to", "subject", "reply_to", "correlation_id", "content_type"):
        assert getattr(parked.properties, name) == getattr(straight.properties, name)
    assert parked.properties.reply_to_group_id == "r-1"


BODIES: list[dict[str, Any]] = [
    {"data_body": b"one"},
    {"data_body": [b"one", b"two"]},
    {"data_body": "text"},
    {"sequence_body": [1, "two", None]},
    {"sequence_body": [[1], ["two"]]},
    {"value_body": {"a": [1, 2]}},
    {"value_body": "text"},
    {"value_body": None},
]


@pytest.mark.spec("G-22")
@pytest.mark.parametrize("body", BODIES, ids=str)
def test_all_three_kinds_of_body_are_parked_bit_for_bit(body: dict[str, Any]) -> None:
    message = AmqpAnnotatedMessage(**body, properties={"message_id": "m"})
    assert wire(park(message, "orders")).body == wire(message).body


@pytest.mark.spec("G-22")
@pytest.mark.parametrize("message_id", ["text", uuid.UUID(int=5), b"\x01\xff", 2**40])
def test_a_message_id_keeps_its_type(message_id: Any) -> None:
    message = AmqpAnnotatedMessage(
        data_body=b"", properties=AmqpMessageProperties(message_id=message_id, correlation_id=message_id)
    )
    straight, parked = wire(message).properties, wire(park(message, "orders")).properties
    assert parked.message_id == straight.message_id
    assert type(parked.message_id) is type(straight.message_id)
    assert parked.correlation_id == straight.correlation_id


@pytest.mark.spec("P-20", "F-84")
def test_the_callers_message_is_not_changed_by_parking() -> None:
    message = full_message()
    message.application_properties["raw"] = b"bytes"
    inner = message.raw_amqp_message
    before = copy.deepcopy(
        (inner.header, inner.properties, inner.application_properties, inner.annotations, inner.footer)
    )
    encoded(park(message, "orders"))
    assert before == (
        inner.header,
        inner.properties,
        inner.application_properties,
        inner.annotations,
        inner.footer,
    )
    assert message.session_id == "s-1"


@pytest.mark.spec("G-5")
def test_a_message_id_is_assigned_to_a_copy_before_the_first_attempt() -> None:
    bare = AmqpAnnotatedMessage(data_body=b"x")
    prepared = prepare(bare)
    assert uuid.UUID(message_id_of(prepared))
    assert bare.properties is None
    assert wire(park(prepared, "orders")).properties.message_id == message_id_of(prepared)
    cleared = ServiceBusMessage("x")
    cleared.message_id = None
    assert uuid.UUID(message_id_of(prepare(cleared)))
    assert cleared.message_id is None


@pytest.mark.spec("P-20")
@pytest.mark.parametrize("name", sorted(aliases.RESERVED))
@pytest.mark.parametrize("as_bytes", [False, True])
def test_a_reserved_name_is_refused_by_name(name: str, as_bytes: bool) -> None:
    key: Any = name.encode() if as_bytes else name
    with pytest.raises(ReservedPropertyError, match=name):
        freeze([ServiceBusMessage("x"), ServiceBusMessage("x", application_properties={key: "mine"})])


class Keyed:
    """An object that behaves like a mapping without being registered as one; the SDK accepts it."""

    def __init__(self, **fields: Any) -> None:
        self._fields = fields

    def keys(self) -> list[str]:
        return list(self._fields)

    def __getitem__(self, name: str) -> object:
        return self._fields[name]


@pytest.mark.spec("P-2")
def test_a_mapping_is_accepted_as_a_message_as_by_the_sdk() -> None:
    one, two = Keyed(body="one", message_id="1"), Keyed(body="two", message_id="2", subject="s")
    assert [str(each) for each in (*freeze(one).messages, *freeze([one, two]).messages)] == [
        "one",
        "one",
        "two",
    ]
    batch = PairedMessageBatch()
    batch._from_list([one, two])
    batch.add_message(one)
    assert [each.properties.message_id for each in batch.originals] == ["1", "2", "1"]
    with pytest.raises(TypeError, match="body"):
        freeze(Keyed(message_id="1"))


@pytest.mark.parametrize("wrong", [None, 5, b"bytes", "text", object(), [None], [b"x"]])
def test_an_invalid_message_is_refused_by_type(wrong: object) -> None:
    with pytest.raises(TypeError, match="a message must be"):
        freeze(wrong)


@pytest.mark.spec("P-20", "G-16")
@pytest.mark.parametrize(
    ("milliseconds", "alias"), [(1, "PT0.001S"), (25 * 86_400_000, "P25D"), (49 * 86_400_000, "P49D")]
)
def test_every_time_to_live_finds_its_alias(milliseconds: int, alias: str) -> None:
    message = AmqpAnnotatedMessage(data_body=b"", header=AmqpMessageHeader(time_to_live=milliseconds))
    assert park(message, "orders").application_properties[aliases.TIME_TO_LIVE] == alias


@pytest.mark.spec("P-20")
@pytest.mark.parametrize(
    "scheduled",
    [
        datetime(2026, 11, 21, 1, 2, 3, 4000, tzinfo=UTC),
        datetime(2026, 11, 21, 1, 2, 3, 4000),  # noqa: DTZ001
        {"TYPE": "TIMESTAMP", "VALUE": 1795222923004},
        1795222923004,
    ],
)
@pytest.mark.parametrize("key", ["x-opt-scheduled-enqueue-time", b"x-opt-scheduled-enqueue-time"])
def test_a_scheduled_time_moves_to_its_alias_however_it_was_set(scheduled: Any, key: Any) -> None:
    message = AmqpAnnotatedMessage(data_body=b"", annotations={key: scheduled})
    parked = park(message, "orders")
    assert parked.application_properties[aliases.SCHEDULED] == "2026-11-21T01:02:03.004Z"
    assert not parked.annotations


@pytest.mark.spec("P-22")
def test_the_rewrite_adds_at_most_six_hundred_bytes() -> None:
    message = ServiceBusMessage(
        "x",
        session_id="s" * 128,
        partition_key="s" * 128,
        time_to_live=timedelta(days=48, hours=23, minutes=59, seconds=59),
        scheduled_enqueue_time_utc=datetime(2026, 1, 1, 1, 1, 1, 1000, tzinfo=UTC),
    )
    assert len(encoded(park(message, "p" * 260))) - len(encoded(message)) <= 600


@pytest.mark.spec("P-20", "F-83")
def test_a_generator_is_read_once_and_a_mapping_becomes_a_message() -> None:
    request = freeze({"body": str(number)} for number in range(3))
    assert len(request) == 3
    assert len(set(request.message_ids())) == 3
    request.rewrite("orders")
    assert request.rewritten is not None
    assert [bytes(next(iter(parked.body))) for parked in request.rewritten] == [b"0", b"1", b"2"]


@pytest.mark.spec("P-20")
def test_a_batch_keeps_its_messages_as_they_were_when_added() -> None:
    batch = PairedMessageBatch()
    message = ServiceBusMessage("x", subject="first")
    batch.add_message(message)
    message.subject = "second"
    batch.add_message(message)
    request = freeze(batch)
    request.rewrite("orders")
    assert request.rewritten is not None
    assert [parked.properties.subject for parked in request.rewritten] == ["first", "second"]


def test_a_batch_that_the_sdk_fills_knows_its_messages() -> None:
    batch = PairedMessageBatch()
    batch._from_list([ServiceBusMessage("x", message_id="one"), ServiceBusMessage("y", message_id="two")])
    assert freeze(batch).message_ids() == ("one", "two")


@pytest.mark.spec("P-20")
def test_a_reserved_name_is_refused_when_added_to_a_batch() -> None:
    batch = PairedMessageBatch()
    with pytest.raises(ReservedPropertyError):
        batch.add_message(ServiceBusMessage("x", application_properties={aliases.PATH: "mine"}))
    assert len(batch) == 0


class SmallBatches:
    """A link that takes batches of 2 KiB."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        return ServiceBusMessageBatch(max_size_in_bytes or 2048)


def ids_of(piece: AmqpAnnotatedMessage | ServiceBusMessageBatch) -> list[str]:
    messages = messages_of(piece) if isinstance(piece, ServiceBusMessageBatch) else [piece]
    return [message_id_of(message) for message in messages or []]


@pytest.mark.spec("P-22")
def test_an_oversized_batch_is_split_in_order_and_continues_after_a_failure() -> None:
    request = freeze([ServiceBusMessage("x" * 200, message_id=str(number)) for number in range(9)])
    request.rewrite("orders")
    pieces = request.chunks(SmallBatches(), 0)
    first = next(pieces)
    failed = next(pieces)  # asks for more: the first was accepted
    pieces.close()  # the second was not
    rest = list(request.chunks(SmallBatches(), 0))
    assert ids_of(failed) == ids_of(rest[0])
    assert [one for piece in (first, *rest) for one in ids_of(piece)] == [str(number) for number in range(9)]
    assert len(rest) >= 2
    assert list(request.chunks(SmallBatches(), 0)) == []


@pytest.mark.spec("P-22")
def test_a_message_too_large_for_a_batch_is_sent_alone() -> None:
    request = freeze(
        [ServiceBusMessage("x" * 2000, message_id="large"), ServiceBusMessage("x", message_id="small")]
    )
    request.rewrite("orders")
    assert [ids_of(piece) for piece in request.chunks(SmallBatches(), 0)] == [["large"], ["small"]]


NOW = 1_800_000_000_000


@pytest.mark.spec("G-15")
def test_a_deadline_is_counted_from_the_first_attempt_or_from_the_scheduled_time() -> None:
    live = ServiceBusMessage("x", time_to_live=timedelta(minutes=5))
    assert deadline_of(live, NOW) == NOW + 300_000
    assert deadline_of(ServiceBusMessage("for ever"), NOW) is None
    live.scheduled_enqueue_time_utc = datetime.fromtimestamp(NOW / 1000 + 60, UTC)
    assert deadline_of(live, NOW) == NOW + 360_000
    live.scheduled_enqueue_time_utc = datetime.fromtimestamp(NOW / 1000 - 60, UTC)
    assert deadline_of(live, NOW) == NOW + 300_000


@pytest.mark.spec("G-15")
def test_a_span_between_two_instants_is_a_time_to_live_too() -> None:
    message = ServiceBusMessage("x")
    properties = message.raw_amqp_message.properties
    assert properties is not None
    properties.absolute_expiry_time = NOW + 10_000
    assert deadline_of(message, NOW) is None  # the service reads it with a creation time only
    properties.creation_time = NOW - 20_000
    assert deadline_of(message, NOW) == NOW + 30_000


@pytest.mark.spec("G-15", "P-20")
def test_the_deadline_stands_beside_the_time_to_live() -> None:
    message = ServiceBusMessage("x", time_to_live=timedelta(minutes=5))
    carried = wire(park(message, "orders", NOW)).application_properties
    assert carried[aliases.DEADLINE] == "2027-01-15T08:00:00Z"
    assert carried[aliases.TIME_TO_LIVE] == "PT5M"


@pytest.mark.spec("G-16", "P-20")
def test_an_absolute_expiry_time_without_a_time_to_live_is_kept_under_its_alias() -> None:
    message = ServiceBusMessage("x")
    properties = message.raw_amqp_message.properties
    assert properties is not None
    properties.absolute_expiry_time = NOW
    parked = wire(park(message, "orders"))
    assert parked.properties.absolute_expiry_time is None
    assert parked.application_properties[aliases.ABSOLUTE_EXPIRY] == "2027-01-15T08:00:00Z"
    message.time_to_live = timedelta(minutes=5)  # then the SDK writes its own
    assert aliases.ABSOLUTE_EXPIRY not in wire(park(message, "orders")).application_properties


@pytest.mark.spec("F-79")
@pytest.mark.parametrize("field", ["group_id", "partition key"])
def test_a_key_above_the_service_limit_is_the_callers_error_before_parking(field: str) -> None:
    for length in (128, 129):
        message = AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties())
        if field == "group_id":
            assert message.properties is not None
            message.properties.group_id = "s" * length
        else:
            message.annotations = {b"x-opt-partition-key": "p" * length}
        if length == 128:
            park(message, "orders")
        else:
            with pytest.raises(ValueError, match="at most 128 characters, not 129"):
                park(message, "orders")


@pytest.mark.spec("G-16")
def test_a_time_to_live_above_the_service_limit_is_the_callers_error() -> None:
    with pytest.raises(ValueError, match="time to live must be at most"):
        park(ServiceBusMessage("x", time_to_live=timedelta.max), "orders")


@pytest.mark.spec("F-88")
def test_the_first_attempt_is_dated_by_the_monotonic_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    started, hour = 1000.0, 3_600_000
    clocks = SimpleNamespace(monotonic=lambda: started + 30, time_ns=lambda: NOW * 1_000_000)
    monkeypatch.setattr(base_runtime, "time", clocks)
    assert wall_clock(started) == NOW - 30_000
    clocks.time_ns = lambda: (NOW + hour) * 1_000_000
    assert wall_clock(started) == NOW + hour - 30_000  # by the clock of now, 30 s ago on ours


@pytest.mark.spec("G-15")
def test_a_spooled_message_keeps_its_remaining_time_to_live() -> None:
    spooled = with_deadline(ServiceBusMessage("x", time_to_live=timedelta(minutes=5)), NOW + 2500)
    assert take_deadline(spooled, NOW) == NOW + 2500
    assert spooled.header is not None
    assert spooled.header.time_to_live == 2500
    assert not spooled.application_properties
    assert take_deadline(with_deadline(ServiceBusMessage("x"), None), NOW) is None
    assert take_deadline(with_deadline(ServiceBusMessage("x"), None), NOW) is None


@pytest.mark.parametrize("section", ["header", "properties", "application_properties", "annotations"])
def test_a_snapshot_and_the_callers_message_change_independently(section: str) -> None:
    def sections(message: AmqpAnnotatedMessage) -> dict[str, str]:
        return {
            "header": str(message.header),
            "properties": str(message.properties),
            "application_properties": str(message.application_properties),
            "annotations": str(message.annotations),
        }

    def change(message: AmqpAnnotatedMessage) -> None:
        if section in ("header", "properties"):
            name = {"header": "priority", "properties": "subject"}[section]
            setattr(getattr(message, section), name, 9)
        else:
            getattr(message, section)["later"] = "changed"

    original = AmqpAnnotatedMessage(
        data_body=[b"x"],
        header=AmqpMessageHeader(priority=4),
        properties=AmqpMessageProperties(message_id="m", subject="s"),
        application_properties={"a": 1},
        annotations={"x-opt-b": 2},
    )
    twin = snapshot(original)
    before = sections(original)
    assert sections(twin) == before
    change(original)
    assert sections(twin) == before
    changed = sections(original)
    assert changed != before
    change(twin)
    assert sections(original) == changed
