"""A received message compared with the SDK's: the same names, kinds of values and types."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import GeneratorType
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceivedMessage,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.types import Int, Timestamp
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.ground.side import Side
from sbpair.pair.processor.message import ReceivedMessage
from tests.waiting import until

Delivered = dict[str, tuple[ServiceBusReceivedMessage, ReceivedMessage]]
NAMES = sorted(
    name for name in dir(ServiceBusReceivedMessage) if not name.startswith("_") and name != "message"
)
OF_ONE_DELIVERY = {"lock_token", "locked_until_utc"}  # these differ from subscription to subscription
WITH_TYPES = {
    "application_properties",
    "body",
    "raw_amqp_message",
}  # the SDK returns bytes for strings, see below
TAG = bytes(range(16))

EVERYTHING = ServiceBusMessage(
    b"caf\xc3\xa9",
    application_properties={
        "text": "é",
        "int": 7,
        "float": 1.5,
        "flag": True,
        "id": UUID(int=7),
        "when": datetime(2026, 1, 2, tzinfo=UTC),
    },
    message_id="m-1",
    content_type="application/json",
    correlation_id="c-1",
    subject="created",
    partition_key="p-1",
    to="there",
    reply_to="answers",
    reply_to_session_id="s-9",
    time_to_live=timedelta(hours=2),
)
BARE = ServiceBusMessage("nothing else")
VALUE = AmqpAnnotatedMessage(value_body={"key": ["value", 1]})
SEQUENCE = AmqpAnnotatedMessage(sequence_body=[["a", 1], [None]])
PARTS = AmqpAnnotatedMessage(data_body=[b"one", b"two"], application_properties={"n": 1})
SENT = {"everything": EVERYTHING, "bare": BARE, "value": VALUE, "sequence": SEQUENCE, "parts": PARTS}


@pytest.fixture(scope="module")
def namespace() -> Iterator[NamespaceControl]:
    """A topic whose two subscriptions get the same message, with the same numbers and times."""
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_topic("events")
        for name in ("theirs", "ours"):
            contoso.create_subscription("events", name)
        for name in ("copies", "orders"):
            contoso.create_queue(name)
        yield contoso


@pytest.fixture(scope="module")
def client(namespace: NamespaceControl) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        yield client


@pytest.fixture(scope="module")
def delivered(namespace: NamespaceControl, client: ServiceBusClient) -> Iterator[Delivered]:
    """Receive each message with the SDK and with sbpair."""
    theirs: list[ServiceBusReceivedMessage] = []
    with client.get_topic_sender("events") as sender:
        for message in SENT.values():
            sender.send_messages(message)
    with client.get_subscription_receiver("events", "theirs", max_wait_time=30) as receiver:
        while len(theirs) < len(SENT):
            theirs += receiver.receive_messages(len(SENT) - len(theirs))
        ours = asyncio.run(received(namespace, "events/Subscriptions/ours", len(SENT)))
        yield dict(zip(SENT, zip(theirs, ours, strict=True), strict=True))


async def received(namespace: NamespaceControl, path: str, count: int = 1) -> list[ReceivedMessage]:
    events: list[MessageReceived] = []
    connection = await connect(parse(namespace.connection_string))
    try:
        receiver = await connection.open_receiver(path, events.append)
        receiver.flow(count)
        await until(lambda: len(events) == count)
    finally:
        connection.abort()
    return [ReceivedMessage(event.payload, event.tag) for event in events]


def shown(value: object) -> object:
    """Return a comparable form of a value: with its type, a body as a list, a delivery id only as its type."""
    if isinstance(value, GeneratorType):
        return GeneratorType, [shown(each) for each in value]
    return type(value), value


@pytest.mark.spec("C-11")
@pytest.mark.parametrize("sent", SENT)
def test_each_name_of_the_sdk_message_has_the_same_value(delivered: Delivered, sent: str) -> None:
    theirs, ours = delivered[sent]
    assert len(NAMES) > 25
    for name in NAMES:
        a, b = getattr(theirs, name), getattr(ours, name)
        if name in OF_ONE_DELIVERY or name == "from_bytes":
            assert type(a) is type(b), name
        elif name not in WITH_TYPES:
            assert shown(a) == shown(b), name
    assert str(ours) == str(theirs) or sent in ("value", "sequence")


@pytest.mark.spec("C-11")
def test_values_have_the_types_that_were_sent(delivered: Delivered) -> None:
    _, ours = delivered["everything"]
    properties = ours.application_properties
    assert properties == EVERYTHING.application_properties | {"when": 1_767_312_000_000}
    assert {name: type(value) for name, value in properties.items()} == {
        "text": str,
        "int": Int,
        "float": float,
        "flag": bool,
        "id": UUID,
        "when": Timestamp,
    }


@pytest.mark.spec("C-11")
def test_the_body_equals_the_one_sent(delivered: Delivered) -> None:
    bodies = {name: ours.body for name, (_, ours) in delivered.items()}
    assert bodies["value"] == {"key": ["value", 1]}
    assert list(bodies["sequence"]) == [["a", 1], [None]]
    assert list(bodies["parts"]) == [b"one", b"two"]


@pytest.mark.spec("C-11")
def test_a_body_can_be_read_again(delivered: Delivered) -> None:
    _, ours = delivered["parts"]
    assert [b"".join(ours.body) for _ in range(2)] == [b"onetwo", b"onetwo"]


@pytest.mark.spec("C-11")
async def test_a_received_message_can_be_sent_again(
    namespace: NamespaceControl, client: ServiceBusClient, delivered: Delivered
) -> None:
    _, ours = delivered["everything"]
    with client.get_queue_sender("copies") as sender:
        sender.send_messages(ours.raw_amqp_message)
    (copy,) = await received(namespace, "copies")
    same = ("message_id", "subject", "correlation_id", "content_type", "reply_to", "session_id", "body_type")
    assert [getattr(copy, name) for name in same] == [getattr(ours, name) for name in same]
    assert copy.application_properties == ours.application_properties
    assert b"".join(copy.body) == b"caf\xc3\xa9"


@pytest.mark.spec("C-11")
async def test_the_dead_letter_reason_can_be_read(
    namespace: NamespaceControl, client: ServiceBusClient
) -> None:
    with client.get_queue_sender("orders") as sender, client.get_queue_receiver("orders") as receiver:
        sender.send_messages(ServiceBusMessage("bad"))
        (first,) = receiver.receive_messages(1)
        receiver.dead_letter_message(first, "Broken", "it does not parse")
    (dead,) = await received(namespace, "orders/$DeadLetterQueue")
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == ("Broken", "it does not parse")


def test_a_message_names_the_side_it_came_from() -> None:
    assert ReceivedMessage(b"", side=Side.SECONDARY).side is Side.SECONDARY


def test_nothing_is_decoded_before_it_is_read() -> None:
    message = ReceivedMessage(b"not AMQP", TAG)
    assert message.lock_token == UUID(bytes_le=TAG)
    with pytest.raises(DecodeError):
        _ = message.subject
    assert "unreadable" in repr(message)


def test_a_settled_message_has_no_lock() -> None:
    message = ReceivedMessage(Message().encode(), TAG, locked_until=datetime(2026, 1, 1, tzinfo=UTC))
    message.settled()
    assert (message.lock_token, message.locked_until_utc) == (None, None)


def test_a_renewed_lock_replaces_the_time_in_the_message() -> None:
    encoded = Message(message_annotations={"x-opt-locked-until": Timestamp(1_000)}).encode()
    message, later = ReceivedMessage(encoded, TAG), datetime(2026, 1, 1, tzinfo=UTC)
    before = message.locked_until_utc
    message.renewed(later)
    assert (before, message.locked_until_utc) == (datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC), later)


@pytest.mark.parametrize("message_id", [None, "text", b"\x00\x01", UUID(int=3)])
@pytest.mark.parametrize("more", [{}, {"to": "x" * 300}])
def test_the_message_id_has_the_type_it_was_sent_with(message_id: Any, more: dict[str, str]) -> None:
    encoded = Message(properties=Properties(message_id=message_id, **more)).encode()
    assert ReceivedMessage(encoded).message_id == message_id


def test_a_message_without_properties_has_no_message_id() -> None:
    assert ReceivedMessage(Message(body=DataBody((b"x",))).encode()).message_id is None


def test_a_message_decoded_from_bytes_equals_that_of_the_sdk() -> None:
    encoded = Message(properties=Properties(subject="s"), body=DataBody((b"x",))).encode()
    message = ReceivedMessage.from_bytes(encoded)
    assert (message.subject, b"".join(message.body), message.lock_token) == ("s", b"x", None)


@pytest.mark.parametrize(
    ("payload", "error"), [("text", TypeError), (b"", ValueError), (b"\xff", ValueError)]
)
def test_an_invalid_message_is_refused_as_by_the_sdk(payload: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        ReceivedMessage.from_bytes(payload)


def test_the_deprecated_name_warns_and_still_works() -> None:
    with pytest.warns(DeprecationWarning, match="raw_amqp_message"):
        assert ReceivedMessage(Message().encode()).message.body_type is AmqpMessageBodyType.VALUE


def test_a_deferred_message_has_the_state_deferred() -> None:
    encoded = Message(message_annotations={"x-opt-message-state": Int(1)}).encode()
    assert ReceivedMessage(encoded).state is ServiceBusMessageState.DEFERRED


def test_a_message_survives_pickling() -> None:
    message = ReceivedMessage(Message(properties=Properties(subject="s")).encode(), TAG, Side.SECONDARY)
    assert message.subject == "s"
    copy = pickle.loads(pickle.dumps(message))
    assert (copy.subject, copy.side, copy.lock_token) == ("s", Side.SECONDARY, message.lock_token)
