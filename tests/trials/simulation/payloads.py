"""The bytes of messages: as the SDK writes them, as a broker stores them, and as they must be delivered."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.frontends.received_message import stored_messages
from sbpair.pair.amqp.message import decode_properties, encode_properties
from sbpair.pair.amqp.sections import Section, map_section, split
from sbpair.pair.envelope.aliases import ANNOTATION_DESTINATION
from sbpair.pair.envelope.copies import Message, raw
from sbpair.pair.envelope.scan import part_entries

from .virtual_loop import EPOCH

BODIES = (b"", b"x", b"\x00\xff" * 40, b"order " * 60)


def encoded(message: Message) -> bytes:
    """What the SDK would put on the wire."""
    out = bytearray()
    encode_payload(out, PyamqpTransport.to_outgoing_amqp_message(raw(message)))
    return bytes(out)


def stored(payload: bytes) -> StoredMessage:
    """What a broker makes of it."""
    return stored_messages(payload, 0)[0]


def drawn_message(
    rng: Random, message_id: str, path: str, now: float, spans: tuple[int, ...]
) -> ServiceBusMessage:
    """A message fit for ``path``, with a random choice of what a parked copy must not show.

    ``spans``: seconds that it may live.
    """
    session = f"s{rng.randrange(3)}" if path.endswith("ordered") or rng.random() < 0.2 else None
    message = ServiceBusMessage(rng.choice(BODIES), message_id=message_id, session_id=session)
    if rng.random() < 0.4:
        message.time_to_live = timedelta(seconds=rng.choice(spans))
    if rng.random() < 0.2:
        message.partition_key = session or f"k{rng.randrange(3)}"
    if rng.random() < 0.15:
        due = EPOCH + now + rng.uniform(1, 60)
        message.scheduled_enqueue_time_utc = datetime.fromtimestamp(int(due), UTC)
    if rng.random() < 0.5:
        message.application_properties = {"number": rng.randrange(2**31), "text": "ä" * rng.randrange(9)}
    if rng.random() < 0.3:
        message.correlation_id, message.subject = f"c-{message_id}", "subject"
    return message


def fingerprint(message: StoredMessage, *, has_deadline: bool = False) -> tuple[object, ...]:
    """All that a receiver may look at (G-22): the properties field by field, all else in bytes.

    With a deadline, a time to live is what was left of it (G-15): only that there is one must come through.

    A list may leave out the nulls at its end (1.4), and the SDK stamps its own now on each encoding of a
    message with a time to live: these two instants are left out. So is the destination of one that landed. The time
    that a message is scheduled for is in the annotations, and stays when it has passed.
    """
    section = split(message.bare).properties
    properties = decode_properties(section)
    if message.time_to_live is not None:
        properties = replace(properties, creation_time=None, absolute_expiry_time=None)
    return (
        encode_properties(properties),
        message.bare[len(section) :],
        _without_destination(message.annotations),
        message.message_id,
        message.session_id,
        message.partition_key,
        message.time_to_live is not None if has_deadline else message.time_to_live,
        message.durable,
        message.priority,
    )


def _without_destination(annotations: bytes) -> bytes:
    parted = part_entries(annotations, frozenset((ANNOTATION_DESTINATION.encode(),)))
    if not parted.found:
        return annotations
    return map_section(Section.MESSAGE_ANNOTATIONS, parted.kept, parted.kept_values)
