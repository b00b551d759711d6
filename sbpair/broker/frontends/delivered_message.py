"""Delivered and peeked messages: from stored messages to the bytes that receivers get.

    stored:     the fields that the broker uses, extracted  ·  the bare message, unchanged
    delivered:  new header · annotations of the broker, then of the sender  ·  the same bytes

The section of application properties is encoded again only when they were changed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache

from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Header, encode_header
from sbpair.pair.amqp.performatives import MAX_UINT
from sbpair.pair.amqp.sections import (
    MAPS,
    Section,
    Sections,
    encode_map_section,
    join_entries,
    map_section,
    open_section,
    split,
    split_entries,
)
from sbpair.pair.amqp.types import Symbol

from ..entities.queue import Queue
from ..entities.stored_message import LockToken, MessageState, StoredMessage
from ..entities.topic import Subscription

_Entries = tuple[int, list[bytes]]  # the number of keys and values of a map, and their bytes
_LONG, _TIMESTAMP = b"\x81", b"\x83"


def _entry_head(key: str, code: bytes) -> bytes:
    return encode(Symbol(key)) + code


_ENQUEUED = _entry_head("x-opt-enqueued-time", _TIMESTAMP)
_SEQUENCE = _entry_head("x-opt-sequence-number", _LONG)
_ENQUEUE_SEQUENCE = _entry_head("x-opt-enqueue-sequence-number", _LONG)
_LOCKED_UNTIL = _entry_head("x-opt-locked-until", _TIMESTAMP)
_SOURCE = encode(Symbol("x-opt-deadletter-source"))
_PARTITION = _entry_head("x-opt-partition-id", b"\x61")  # a short
_NUMBERS = struct.Struct(f">{len(_ENQUEUED)}sq{len(_SEQUENCE)}sQ").pack
ACTIVE, DEFERRED, LOCKED = MessageState.ACTIVE, MessageState.DEFERRED, MessageState.LOCKED
SCHEDULED = MessageState.SCHEDULED
_WIDE_MAP = 0x00530000 | Section.MESSAGE_ANNOTATIONS << 8 | 0xD1  # a map with a size of four bytes
_MAP_HEAD = struct.Struct(">III").pack
_TOKEN_KEY = _entry_head("x-opt-lock-token", b"\x98")  # of a uuid, of 16 bytes
_TOKEN = map_section(Section.DELIVERY_ANNOTATIONS, _TOKEN_KEY + bytes(16), 2)[:-16]
_NO_TOKEN = encode_map_section(Section.DELIVERY_ANNOTATIONS, {})
_DELIVERY = _NO_TOKEN[:3]
_GUID = struct.Struct("<IHH8s").unpack  # a lock token, in .NET's byte order
_USUAL_LOCKED = _ENQUEUE_SEQUENCE + bytes(8) + _LOCKED_UNTIL  # of a message that was not forwarded
_USUAL_SIZE = 4 + len(_ENQUEUED) + len(_SEQUENCE) + len(_USUAL_LOCKED) + 3 * 8
_USUAL_ENQUEUED = _MAP_HEAD(_WIDE_MAP, _USUAL_SIZE, 8) + _ENQUEUED
_USUAL = struct.Struct(
    f">{len(_TOKEN)}sIHH8s{len(_USUAL_ENQUEUED)}sq{len(_SEQUENCE)}sQ{len(_USUAL_LOCKED)}sQ"
).pack
_STATES = {
    state: encode(Symbol("x-opt-message-state")) + bytes((0x54, state))
    for state in (ACTIVE, DEFERRED, SCHEDULED)
}


def encode_delivered(message: StoredMessage, queue: Queue) -> bytes:
    """Return the message as a receiver gets it, locked or, with receive-and-delete, removed.

    It carries exactly the annotations that the service writes: the lock token, or empty delivery
    annotations without one; the state only of a message that is deferred or was scheduled; the original sequence
    number (``x-opt-enqueue-sequence-number``). Of a message that was not forwarded, copied or scheduled it is 0, and
    absent where the sender gave annotations, such as a partition key: so the SDKs' own tests count the annotations of
    one, and no recording says otherwise.
    """
    return _encode_delivered(message, queue, isinstance(queue.top, Subscription))


def delivered_run(messages: Iterable[StoredMessage], queue: Queue) -> list[bytes]:
    """Return the messages as receivers get them, see :func:`encode_delivered`."""
    is_copy = isinstance(queue.top, Subscription)
    return [_encode_delivered(message, queue, is_copy) for message in messages]


def _encode_delivered(message: StoredMessage, queue: Queue, is_copy: bool) -> bytes:
    token, number = message.lock_token, message.sequence_number
    has_first_number = is_copy or message.enqueued_sequence_number != number or message.hops > 0
    if not (
        token is None
        or has_first_number
        or message.annotations
        or message.is_deferred
        or message.amended is not None
        or message.dead_letter_source is not None
        or message.partition_id is not None
    ):
        head = _header(
            message.durable,
            message.priority,
            shown_time_to_live(message, queue),
            message.delivery_count,
            message.first_acquirer,
        )
        return (
            head + _usual_annotations(token, message.enqueued_at, number, message.locked_until) + message.bare
        )
    is_bare = message.partition_key is None and not message.annotations
    first = message.enqueued_sequence_number if has_first_number else 0 if is_bare else None
    own = _own(message, token is not None, first, _delivered_state(message))
    return _encode(
        message, shown_time_to_live(message, queue), _NO_TOKEN if token is None else _with_token(token), own
    )


def _delivered_state(message: StoredMessage) -> bytes:
    """Return the entry with the state: deferred, or scheduled for a message that was scheduled; b"" otherwise."""
    if message.is_deferred:
        return _STATES[DEFERRED]
    return b"" if message.scheduled_for is None else _STATES[SCHEDULED]


def _usual_annotations(token: LockToken, enqueued_at: int, number: int, locked_until: int) -> bytes:
    """Return the annotations of a locked message that needs no others."""
    return _USUAL(
        _TOKEN,
        *_GUID(token),
        _USUAL_ENQUEUED,
        enqueued_at,
        _SEQUENCE,
        number,
        _USUAL_LOCKED,
        locked_until,
    )


def first_number(message: StoredMessage, queue: Queue) -> int:
    """Return the sequence number that a message had in the first entity; 0 while it is there, as the service does."""
    is_copy = isinstance(queue.top, Subscription)
    is_elsewhere = is_copy or message.enqueued_sequence_number != message.sequence_number or message.hops > 0
    return message.enqueued_sequence_number if is_elsewhere else 0


def shown_time_to_live(message: StoredMessage, queue: Queue) -> int | None:
    """Return the time to live that receivers see (ms): the entity's default when the sender gave none."""
    expires_at = None if queue.parent is not None else queue.expires_at(message)
    return message.time_to_live if expires_at is None else expires_at - message.enqueued_at


def encode_peeked(message: StoredMessage, *, with_body: bool = True) -> bytes:
    """Return the message as peek returns it: always with its state and original sequence number, never a lock token.

    It has a TTL only when the sender gave one, capped at the entity's maximum.
    """
    span = message.time_to_live
    if message.expires_at is not None:
        span = message.expires_at - message.enqueued_at
    is_locked = message.state is LOCKED
    shown = (DEFERRED if message.is_deferred else ACTIVE) if is_locked else message.state
    own = _own(message, is_locked, message.enqueued_sequence_number, _STATES.get(shown, _STATES[ACTIVE]))
    return _encode(message, span, b"", own, with_body=with_body)


def _encode(
    message: StoredMessage, ttl: int | None, for_delivery: bytes, own: _Entries, *, with_body: bool = True
) -> bytes:
    annotations, bare = message.annotations, message.bare
    if message.amended is not None:
        bare = _amend(bare, message.amended)
    if annotations.startswith(_DELIVERY):
        sections = split(annotations)
        for_delivery, annotations = _join(for_delivery, sections[1]), sections[2]
    return b"".join(
        (
            _header(message.durable, message.priority, ttl, message.delivery_count, message.first_acquirer),
            for_delivery,
            _annotations(own, annotations),
            bare if with_body else _without_body(bare),
        )
    )


@lru_cache(maxsize=1024)
def _header(
    durable: bool | None,
    priority: int | None,
    ttl: int | None,
    delivery_count: int,
    first_acquirer: bool | None,
) -> bytes:
    span = None if ttl is None else min(ttl, MAX_UINT)
    return encode_header(Header(durable, priority, span, first_acquirer, delivery_count))


def _with_token(token: LockToken) -> bytes:
    """Return delivery annotations with the lock token as a UUID; the delivery tag has it in .NET's byte order."""
    return _TOKEN + token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def _join(ours: bytes, theirs: bytes) -> bytes:
    return join_entries(Section.DELIVERY_ANNOTATIONS, [*split_entries(ours), *split_entries(theirs)])


def _own(message: StoredMessage, is_locked: bool, first_number: int | None, state: bytes) -> _Entries:
    """Return the broker's own message annotations, encoded, and the number of their keys and values."""
    entries = [_NUMBERS(_ENQUEUED, message.enqueued_at, _SEQUENCE, message.sequence_number)]
    count = 4
    if first_number is not None:
        entries += (_ENQUEUE_SEQUENCE, first_number.to_bytes(8, "big"))
        count += 2
    if is_locked:
        entries += (_LOCKED_UNTIL, message.locked_until.to_bytes(8, "big"))
        count += 2
    if state:
        entries.append(state)
        count += 2
    if message.partition_id is not None:
        entries.append(_PARTITION + message.partition_id.to_bytes(2, "big"))
        count += 2
    if message.dead_letter_source is not None:
        entries.append(_SOURCE + encode(message.dead_letter_source))
        count += 2
    return count, entries


def _annotations(own: _Entries, kept: bytes) -> bytes:
    """Return the section of message annotations: the broker's own, then the sender's."""
    count, entries = own
    if kept:
        at, theirs = open_section(kept, MAPS)
        entries.append(kept[at:])
        count += theirs
    content = b"".join(entries)
    return _MAP_HEAD(_WIDE_MAP, len(content) + 4, count) + content


def _without_body(bare: bytes) -> bytes:
    sections = split(bare)
    return sections.properties + sections.application_properties + sections.footer


def _amend(bare: bytes, changes: Mapping[str, object]) -> bytes:
    sections = split(bare)
    return sections.properties + amended_section(sections, changes) + sections.body + sections.footer


def amended_section(sections: Sections, changes: Mapping[str, object]) -> bytes:
    """Return the section of application properties with ``changes`` set on it."""
    entries: Sequence[tuple[object, bytes]] = ()
    with suppress(DecodeError):  # unreadable: only the changes set since remain
        entries = split_entries(sections.application_properties)
    kept = [(key, value) for key, value in entries if key not in changes]
    kept += [(key, encode(value)) for key, value in changes.items()]
    return join_entries(Section.APPLICATION_PROPERTIES, kept)
