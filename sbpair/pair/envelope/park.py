"""Parking: rewrite a message so that a backlog queue keeps it for later.

    message for "orders"                         parked copy
    ---------------------------                  --------------------------------------
    header.ttl                        cleared    x-ms-timetolive            PT5M, and x-sbpair-deadline
    properties.absolute-expiry-time   cleared    x-sbpair-absoluteexpirytime, where there is no header.ttl
    properties.group-id (session id)  cleared    x-ms-sessionid
    x-opt-scheduled-enqueue-time      cleared    x-ms-scheduledenqueuetimeutc
    x-opt-partition-key               cleared    x-sbpair-partitionkey
                                                 x-ms-path, x-sbpair-version

A message of an ordered session also gets ``x-sbpair-order`` and the session id of its place, for which its ordered
backlog queue keeps the order.

The deadline is written only under the policy that counts the time to live from the first attempt.
Everything else is copied unchanged, so that the SDK encodes it with the same AMQP types as for the primary.
The caller's object is never modified. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from azure.servicebus.amqp import (
    AmqpAnnotatedMessage,
    AmqpMessageHeader,
    AmqpMessageProperties,
)

from . import aliases as names
from .aliases import format_duration, format_instant, instant_of, parse_instant
from .copies import Message, raw, snapshot, text_of, unwrap

if TYPE_CHECKING:
    from .ordering import OrderStamp

Annotations = dict[str | bytes, object]

FOREVER = 922_337_203_685_477
"""Milliseconds; the service's value for an unlimited time to live."""
LAST_INSTANT = 253_402_300_799_999  # the end of the year 9999
MAX_HEADER_TTL = 0xFFFF_FFFF  # milliseconds; the most the SDK can encode
MAX_KEY = 128  # characters of a session id or partition key, the service's limit


def deadline_of(message: Message, first_attempt: int) -> int | None:
    """Return when a message first tried at ``first_attempt`` expires; None when it does not expire.

    Both are in milliseconds since the epoch. The time to live of a scheduled message starts at its scheduled time.
    Raises ValueError when a time property is not a time.
    """
    inner = raw(message)
    span = _span(inner)
    if span is None or span == FOREVER:
        return None
    annotations = inner.annotations or {}
    scheduled = _find(annotations, names.ANNOTATION_SCHEDULED)
    start = first_attempt if scheduled is None else max(first_attempt, _milliseconds(scheduled))
    return min(start + span, LAST_INSTANT)


def with_deadline(message: Message, deadline: int | None) -> AmqpAnnotatedMessage:
    """Return a copy that carries its deadline in an application property, as stored in the spool."""
    twin = snapshot(message)
    if deadline is not None:
        carried = twin.application_properties or {}
        twin.application_properties = {**carried, names.DEADLINE: format_instant(deadline)}
    return twin


def take_deadline(message: AmqpAnnotatedMessage, now: int) -> int | None:
    """Remove and return the deadline of a message from the spool; the rest becomes its time to live.

    ``now`` and the deadline are milliseconds since the epoch.
    """
    carried = message.application_properties
    written = None if carried is None else carried.pop(names.DEADLINE, None)
    if written is None:
        return None
    deadline = parse_instant(str(written))
    scheduled = _find(message.annotations or {}, names.ANNOTATION_SCHEDULED)
    start = now if scheduled is None else max(now, _milliseconds(scheduled))
    header = message.header or AmqpMessageHeader()
    header.time_to_live = min(max(deadline - start, 1), MAX_HEADER_TTL)
    message.header = header
    return deadline


def _span(message: AmqpAnnotatedMessage) -> int | None:
    """Return the time to live in milliseconds: the header's, or absolute expiry minus creation time."""
    if message.header is not None and message.header.time_to_live:
        return _milliseconds(message.header.time_to_live)
    properties = message.properties
    if properties is None or not properties.absolute_expiry_time or not properties.creation_time:
        return None
    span = _milliseconds(properties.absolute_expiry_time) - _milliseconds(properties.creation_time)
    return span if span > 0 else None


def park(
    message: Message,
    path: str,
    deadline: int | None = None,
    order: tuple[str, OrderStamp] | None = None,
) -> AmqpAnnotatedMessage:
    """Return the parked copy of ``message``, addressed to ``path``.

    ``deadline``, in milliseconds since the epoch, is when the message expires. ``order`` is the parked session
    id of an ordered session, and the stamp of this message. Raises ValueError when a time property is not
    a time, or a session id or partition key is longer than 128 characters.
    """
    twin = snapshot(message)
    aliases: dict[str, object] = {names.PATH: path.strip("/"), names.VERSION: names.ENVELOPE_VERSION}
    if deadline is not None:
        aliases[names.DEADLINE] = format_instant(deadline)
    if twin.header is not None:
        _take_time_to_live(twin.header, aliases)
    properties = twin.properties
    if properties is not None:
        _take_session(properties, aliases)
        if names.TIME_TO_LIVE in aliases:
            properties.creation_time = None  # with a time to live the SDK writes its own on every attempt
        if order is not None:
            properties.group_id, aliases[names.ORDER] = order[0], str(order[1])
    if twin.annotations is not None:
        _take_placement(twin.annotations, aliases)
        twin.annotations = twin.annotations or None
    carried: dict[str | bytes, object] = twin.application_properties or {}
    carried.update(aliases)
    twin.application_properties = carried
    return twin


def _take_time_to_live(header: AmqpMessageHeader, aliases: dict[str, object]) -> None:
    if header.time_to_live:  # the SDK takes zero for no time to live
        span = _milliseconds(header.time_to_live)
        if span > MAX_HEADER_TTL:
            raise ValueError(f"a time to live must be at most {MAX_HEADER_TTL} ms, not {span}")
        aliases[names.TIME_TO_LIVE] = format_duration(span)
    header.time_to_live = None


def _take_session(properties: AmqpMessageProperties, aliases: dict[str, object]) -> None:
    if properties.group_id is not None:
        aliases[names.SESSION_ID] = _key("session id", properties.group_id)
    if properties.absolute_expiry_time and names.TIME_TO_LIVE not in aliases:
        # With a time to live the SDK overwrites it.
        aliases[names.ABSOLUTE_EXPIRY] = format_instant(_milliseconds(properties.absolute_expiry_time))
    properties.group_id = None
    properties.absolute_expiry_time = None  # or it would expire in the backlog


def _take_placement(annotations: Annotations, aliases: dict[str, object]) -> None:
    scheduled = _take(annotations, names.ANNOTATION_SCHEDULED)
    if scheduled is not None:
        aliases[names.SCHEDULED] = format_instant(_milliseconds(scheduled))
    key = _take(annotations, names.ANNOTATION_PARTITION_KEY)
    if key is not None:
        binary = unwrap(key)
        text = _key("partition key", binary if not isinstance(binary, bytes) else binary.decode("latin-1"))
        # Binary stays binary: the SDK encodes a bare byte string in a property as text.
        is_binary = isinstance(binary, bytes)
        aliases[names.PARTITION_KEY] = {"TYPE": "BINARY", "VALUE": binary} if is_binary else text


def _find(annotations: Mapping[str | bytes, object], name: str) -> object | None:
    return annotations.get(name.encode(), annotations.get(name))


def _take(annotations: Annotations, name: str) -> object | None:
    return annotations.pop(name.encode(), annotations.pop(name, None))


def _key(what: str, value: object) -> str:
    # A backlog queue accepts any length; the destination would not.
    text = text_of(value)
    if len(text) > MAX_KEY:
        raise ValueError(f"a {what} must have at most {MAX_KEY} characters, not {len(text)}")
    return text


def _milliseconds(value: object) -> int:
    value = unwrap(value)
    if isinstance(value, datetime):
        return instant_of(value)
    if isinstance(value, (int, float)):
        return int(value)
    raise ValueError(f"not a time: {value!r}")
