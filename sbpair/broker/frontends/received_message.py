"""Received messages: from the bytes of a delivery to stored messages.

    received:   header · delivery annotations · annotations · [properties · app properties · body · footer]
    stored:     the fields that the broker uses, extracted  ·  the bare message, unchanged

A section of the bare message is re-encoded only when it lacks a message-id, or has a footer with strings as keys;
sections out of order are put in order. A batch (message format 0x80013700)
contains one data section for each message.

Nearly every message has a common form: an optional header, optional annotations, properties with a short string as
the id and ASCII strings, optional application properties, and one data section. One pass over the section heads
extracts the few facts that the broker needs, at a fraction of the cost of decoding. The properties after the id are
mostly equal from message to message, so their parse is cached. Any other message, and any malformed one, is left to the
decoder.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import TypeAlias

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import (
    PLACES,
    Header,
    MessageId,
    Properties,
    decode_header,
    decode_properties,
    encode_properties,
    usual_values,
)
from sbpair.pair.amqp.performatives import MAX_UINT
from sbpair.pair.amqp.sections import Section, Sections, join_entries, split, split_entries
from sbpair.pair.amqp.types import Described, Symbol, Timestamp

from ..entities.queue import Queue
from ..entities.stored_message import Instant, StoredMessage
from ..errors import (
    BrokerError,
    HeaderTooLargeError,
    InvalidArgumentError,
    MalformedMessageError,
    MessageTooLargeError,
    PropertyTooLargeError,
)
from ..faults import Operation
from .namespace_frontend import NamespaceFrontend

BATCH = 0x80013700
MAX_IN_BATCH = 4_500  # messages
PING = "application/vnd.ms-servicebus-ping"
MAX_ID_LENGTH = 128
MAX_PROPERTY_BYTES, MAX_HEADER_BYTES = 32 * 1024, 64 * 1024  # bytes, of one property and of all together
_NO_HEADER = Header()
SCHEDULED = "x-opt-scheduled-enqueue-time"
PARTITION_KEY = "x-opt-partition-key"
VIA_PARTITION_KEY = "x-opt-via-partition-key"
# Bytes by which a delivery may exceed the limit, as the envelope of the SDK's full batches does.
TOLERANCE = 32
OVERHEAD = 64  # bytes of a stored message beyond the sender's

# Written by the broker on delivery; the sender's values, for example of a forwarded message, are dropped.
_OURS = frozenset(
    {
        "x-opt-sequence-number",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-locked-until",
        "x-opt-lock-token",
        "x-opt-message-state",
        "x-opt-deadletter-source",
        "x-opt-partition-id",
    }
)

Fields: TypeAlias = tuple[str | None, str, bool]
"""Group-id, content-type (or ""), and whether the properties contain a creation or expiry time."""
PlainMessage: TypeAlias = tuple[int, int, str, Fields]
"""End of the header, start of the bare message, message-id, and the fields after it."""

_HEAD = struct.Struct(">IB").unpack_from  # descriptor and form of a section, then its size: a byte, or four
_SIZE = struct.Struct(">I").unpack_from
# descriptor and form of the properties, then their size and count, and form and size of the message-id
_ID_HEAD = struct.Struct(">IBBBB").unpack_from
_HEADER, _ANNOTATIONS, _LONG_ANNOTATIONS = 0x005370C0, 0x005372C1, 0x005372D1
_PROPERTIES = 0x005373C0  # as a list with sizes of one byte
_APPLICATION_PROPERTIES, _LONG_APPLICATION_PROPERTIES = 0x005374C1, 0x005374D1
_LONG_DATA = 0x005375B0
_DATA = frozenset((0x005375A0, _LONG_DATA))

_STRING = 0xA1
# the message-id is not among the fields behind it
_CONTENT_TYPE, _GROUP_ID = PLACES["content_type"] - 1, PLACES["group_id"] - 1
_EXPIRY, _CREATION = PLACES["absolute_expiry_time"] - 1, PLACES["creation_time"] - 1


def messages_of(
    frontend: NamespaceFrontend,
    queue: Queue,
    payload: bytes,
    message_format: int,
    now: Instant,
    visible_at: Instant | None = None,
) -> list[StoredMessage]:
    """Return the messages of one delivery, hidden until ``visible_at`` if given (ms of entity time).

    Raises StoreFullError, ServerBusyError, MessageTooLargeError, and everything ``stored_messages`` raises.
    """
    frontend.check_room()
    credits = frontend.namespace.credits
    if credits.per_second is not None:
        credits.check(now)
    description = queue.description
    limit = description.max_batch_size if message_format == BATCH else description.max_message_size
    if len(payload) > limit + TOLERANCE:
        raise MessageTooLargeError(len(payload), limit)
    messages = stored_messages(payload, message_format)
    if credits.per_second is not None:
        credits.charge_messages(queue, len(messages), now)
    if visible_at is not None:
        for message in messages:
            message.scheduled_for = max(message.scheduled_for or 0, visible_at)
    return messages


def messages_of_run(
    frontend: NamespaceFrontend, queue: Queue, events: Sequence[MessageReceived]
) -> list[StoredMessage] | None:
    """Return the messages of deliveries that arrived together, at half the cost of processing each.

    Returns None if they must be processed one by one: when faults or credits apply, when the entity is partitioned or a
    topic, for a batch, in a transaction, and when one of them is refused, since the others may be accepted.
    """
    if (
        type(queue) is not Queue
        or queue.is_partitioned
        or frontend.needs_single_messages(Operation.SEND, queue.path)
    ):
        return None
    limit = queue.description.max_message_size + TOLERANCE
    messages: list[StoredMessage] = []
    try:
        frontend.check_room()
        for _link, _number, _tag, payload, _settled, message_format, state in events:
            if message_format or state is not None or len(payload) > limit:
                return None
            messages.append(stored_message(payload))
    except (BrokerError, DecodeError):
        return None
    return messages


def stored_messages(payload: bytes, message_format: int) -> list[StoredMessage]:
    """Return the messages of one delivery. Raises MalformedMessageError, InvalidArgumentError."""
    try:
        if message_format != BATCH:
            return [stored_message(payload)]
        return [stored_message(data) for data in _split_batch(split(payload).body)]
    except DecodeError as error:
        raise MalformedMessageError(f"The message could not be decoded: {error}.") from error


def _split_batch(body: bytes) -> list[bytes]:
    messages: list[bytes] = []
    position = 0
    while position < len(body):
        section, position = decode(body, position)
        if not isinstance(section, Described) or not isinstance(section.value, bytes):
            raise DecodeError("a batch holds data sections only")
        messages.append(section.value)
        if len(messages) > MAX_IN_BATCH:
            raise InvalidArgumentError(f"The batch has more than {MAX_IN_BATCH} messages.")
    if not messages:
        raise DecodeError("a batch holds no message")
    return messages


def stored_message(payload: bytes) -> StoredMessage:
    """Return the message encoded in these bytes.

    Raises DecodeError, InvalidArgumentError, HeaderTooLargeError, PropertyTooLargeError.
    """
    # a larger message is decoded, which checks the sizes of its properties
    plain = plain_message(payload) if len(payload) <= MAX_PROPERTY_BYTES else None
    if plain is None:
        return decoded_message(payload)
    header_end, bare_at, message_id, (session_id, content_type, has_instant) = plain
    header = _header_of(payload[:header_end]) if header_end else _NO_HEADER
    if has_instant and (header.ttl is None or header.ttl >= MAX_UINT):
        return decoded_message(payload)  # two instants may carry a long time to live
    annotations, scheduled_for, partition_key, via_key = (
        _NOT_ANNOTATED if bare_at == header_end else _kept_annotations(payload[header_end:bare_at])
    )
    if session_id is not None:
        _check_session_id(session_id)
    return StoredMessage(
        payload[bare_at:] if bare_at else payload,
        annotations,
        message_id,
        session_id,
        partition_key,
        via_key,
        header.ttl or None,  # clients that count seconds send half a second as 0
        scheduled_for,
        header.durable,
        header.priority,
        content_type.lower() == PING,
        OVERHEAD + len(annotations),
        header.first_acquirer,
    )


def decoded_message(payload: bytes) -> StoredMessage:
    """Return the message encoded in these bytes, in any form, but slower than ``stored_message``. Raises as it does."""
    sections = split(payload)
    if len(sections.application_properties) > MAX_PROPERTY_BYTES or len(payload) > MAX_HEADER_BYTES:
        _check_sizes(sections)
    header = decode_header(sections.header) if sections.header else _NO_HEADER
    annotations, scheduled_for, partition_key, via_key = _kept_annotations(sections.message_annotations)
    bare = _bare_of(payload, sections)
    if sections.delivery_annotations:
        annotations = _annotations_for_delivery(sections.delivery_annotations) + annotations
    properties = _check_id(decode_properties(sections.properties))
    message_id: MessageId = uuid.uuid4().hex if properties.message_id is None else properties.message_id
    if properties.message_id is None:
        named = encode_properties(replace(properties, message_id=message_id))
        bare = named + bare[len(sections.properties) :]
    if properties.group_id is not None:
        _check_session_id(properties.group_id)
    return StoredMessage(
        bare=bare,
        annotations=annotations,
        message_id=message_id,
        session_id=properties.group_id,
        partition_key=partition_key,
        via_partition_key=via_key,
        time_to_live=_time_to_live(header.ttl, properties),
        scheduled_for=scheduled_for,
        durable=header.durable,
        priority=header.priority,
        is_ping=(properties.content_type or "").lower() == PING,
        overhead=OVERHEAD + len(annotations),
        first_acquirer=header.first_acquirer,
    )


def _bare_of(payload: bytes, sections: Sections) -> bytes:
    """Return the bare message, its sections in the order of the standard and the keys of its footer as symbols."""
    footer = _with_symbols(sections.footer)
    at, is_in_order = 0, footer is sections.footer and not sections.delivery_annotations
    for section in sections if is_in_order else ():
        is_in_order = is_in_order and payload.startswith(section, at)
        at += len(section)
    if not is_in_order:
        return b"".join((*sections[3:6], footer))
    before = len(sections.header) + len(sections.message_annotations)
    return payload[before:] if before else payload


def _with_symbols(footer: bytes) -> bytes:
    """Return the footer with symbols in place of strings as keys, as the service returns it."""
    entries = split_entries(footer)
    if all(isinstance(key, Symbol) or not isinstance(key, str) for key, _ in entries):
        return footer
    keyed = [(Symbol(key) if isinstance(key, str) else key, value) for key, value in entries]
    return join_entries(Section.FOOTER, keyed)


def _check_session_id(session_id: str) -> None:
    if len(session_id) > MAX_ID_LENGTH:
        raise InvalidArgumentError(f"The session id (group-id) is longer than {MAX_ID_LENGTH} characters.")


@lru_cache(maxsize=256)
def _header_of(section: bytes) -> Header:
    return decode_header(section)


def _check_sizes(sections: Sections) -> None:
    """Raise HeaderTooLargeError or PropertyTooLargeError if the properties exceed their limits."""
    size = len(sections.message_annotations) + len(sections.properties) + len(sections.application_properties)
    if size > MAX_HEADER_BYTES:
        raise HeaderTooLargeError("its header", size, MAX_HEADER_BYTES)
    for key, value in split_entries(sections.application_properties):
        if len(value) > MAX_PROPERTY_BYTES:
            raise PropertyTooLargeError(f"{key!r:.60}", len(value), MAX_PROPERTY_BYTES)


def _check_id(properties: Properties) -> Properties:
    name = properties.message_id
    if isinstance(name, str | bytes) and len(name) > MAX_ID_LENGTH:
        raise InvalidArgumentError(f"The message-id is longer than {MAX_ID_LENGTH} characters.")
    return properties


def _time_to_live(ttl: int | None, properties: Properties) -> int | None:
    # A uint of milliseconds ends at 49.7 days: longer spans travel as two instants.
    expiry, creation = properties.absolute_expiry_time, properties.creation_time
    if ttl is not None and ttl < MAX_UINT:
        return ttl or None
    if expiry is not None and creation is not None and expiry > creation:
        return expiry - creation
    return ttl


_NOT_ANNOTATED = (b"", None, None, None)


def _kept_annotations(section: bytes) -> tuple[bytes, int | None, str | None, str | None]:
    if not section:
        return _NOT_ANNOTATED
    scheduled_for = partition_key = via_key = None
    kept: list[tuple[object, bytes]] = []
    for key, value in split_entries(section):
        if key == SCHEDULED:
            at = decode(value)[0]
            scheduled_for = int(at) if isinstance(at, Timestamp) else None
        elif key == PARTITION_KEY:
            partition_key = _partition_key(decode(value)[0])
        elif key == VIA_PARTITION_KEY:
            via_key = _partition_key(decode(value)[0])
        if key not in _OURS:
            kept.append((key, value))
    return join_entries(Section.MESSAGE_ANNOTATIONS, kept), scheduled_for, partition_key, via_key


def _annotations_for_delivery(section: bytes) -> bytes:
    """Return the sender's delivery annotations, which the service passes on; they are stored before the others."""
    kept = [(key, value) for key, value in split_entries(section) if key not in _OURS]
    return join_entries(Section.DELIVERY_ANNOTATIONS, kept)


def _partition_key(value: object) -> str | None:
    # Clients that resend a received message may encode the key as a binary or a symbol: it is the same key.
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"The partition key is a {type(value).__name__}: use a string.")
    if value is not None and len(value) > MAX_ID_LENGTH:
        raise InvalidArgumentError(f"The partition key is longer than {MAX_ID_LENGTH} characters.")
    return value or None


# -- the common form


def plain_message(payload: bytes) -> PlainMessage | None:
    """Return the parsed facts of a message in the common form; None for any other, which the decoder must read."""
    try:
        header_end = bare_at = 0
        word, size, count, code, length = _ID_HEAD(payload)
        if word != _PROPERTIES:
            header_end, bare_at = _before_properties(payload)
            word, size, count, code, length = _ID_HEAD(payload, bare_at)
        body_at, id_at = bare_at + 5 + size, bare_at + 8
        id_end = id_at + length
        if word != _PROPERTIES or code != _STRING or length > MAX_ID_LENGTH or id_end > body_at:
            return None
        fields = _fields_behind_id(count, payload[id_end:body_at])
        word, size = _HEAD(payload, body_at)
        if word == _APPLICATION_PROPERTIES:
            body_at += 5 + size
            word, size = _HEAD(payload, body_at)
        elif word == _LONG_APPLICATION_PROPERTIES:
            body_at += 8 + _SIZE(payload, body_at + 4)[0]
            word, size = _HEAD(payload, body_at)
        end = body_at + (8 + _SIZE(payload, body_at + 4)[0] if word == _LONG_DATA else 5 + size)
        if fields is None or end != len(payload) or word not in _DATA:
            return None
        return header_end, bare_at, payload[id_at:id_end].decode("ascii"), fields
    except (struct.error, IndexError, UnicodeDecodeError):
        return None  # truncated, for which the decoder reports the error, or an id that is not ASCII


def _before_properties(payload: bytes) -> tuple[int, int]:
    """Return the end of the header and that of the annotations; 0 without a header. Raises struct.error."""
    header_end = at = 0
    word, size = _HEAD(payload)
    if word == _HEADER:
        header_end = at = 5 + size
        word, size = _HEAD(payload, at)
    if word == _ANNOTATIONS:
        at += 5 + size
    elif word == _LONG_ANNOTATIONS:
        at += 8 + _SIZE(payload, at + 4)[0]
    return header_end, at


@lru_cache(maxsize=512)
def _fields_behind_id(count: int, fields: bytes) -> Fields | None:
    """Return the group-id, the content-type, and whether the properties after the first contain an instant.

    None for properties in another than the common form. Raises IndexError, UnicodeDecodeError.
    """
    values = usual_values(fields, 0, 1, count)
    if values is None:
        return None
    values += [None] * (len(PLACES) - count)
    group_id, content_type = values[_GROUP_ID], values[_CONTENT_TYPE]
    is_dated = values[_EXPIRY] is not None or values[_CREATION] is not None
    return group_id, content_type or "", is_dated
