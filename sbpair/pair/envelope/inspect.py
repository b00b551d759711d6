"""A readable summary of a parked message: everything but its body.

Inspection must work above all on messages that the syphon cannot restore, so an unreadable value is shown with
the reason it is unreadable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Properties, decode_message_id, decode_properties
from sbpair.pair.amqp.sections import Sections, decode_map_section, split

from . import aliases as names
from .aliases import format_duration, format_instant
from .values import (
    AliasError,
    read_duration,
    read_instant,
    read_key,
    read_partition_key,
    read_schedule,
    read_text,
)

T = TypeVar("T")

SEQUENCE_NUMBER, ENQUEUED_TIME = "x-opt-sequence-number", "x-opt-enqueued-time"
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """One message of a backlog queue; absent values are None."""

    sequence_number: int | None
    message_id: str | None
    path: str | None
    """Its destination; from the annotation if the message could not be transferred."""

    aliases: dict[str, str]
    """The aliases other than the path, as text; ISO 8601 for spans and instants."""

    parked_at: int | None
    """When the backlog queue accepted it: milliseconds since the epoch."""

    reason: str | None
    """Why it was dead-lettered."""

    description: str | None
    trouble: str | None
    """Why the message cannot be decoded; None if it can."""


def read_parked(payload: bytes) -> ParkedMessage:
    """Summarise the bytes of a peeked or received message. Never raises: problems are part of the summary."""
    troubles: list[str] = []
    sections = _or(lambda: split(payload), Sections(), troubles)
    annotations = _or(
        lambda: decode_map_section(sections.message_annotations), dict[object, object](), troubles
    )
    properties = _or(lambda: decode_properties(sections.properties), Properties(), troubles)
    carried = _or(
        lambda: decode_map_section(sections.application_properties), dict[object, object](), troubles
    )
    return ParkedMessage(
        sequence_number=_whole(annotations.get(SEQUENCE_NUMBER)),
        message_id=_id_text(properties.message_id),
        path=_show(names.PATH, carried[names.PATH])
        if names.PATH in carried
        else _text(annotations.get(names.ANNOTATION_DESTINATION)),
        aliases={name: _show(name, carried[name]) for name in _ALIASES if name in carried},
        parked_at=_whole(annotations.get(ENQUEUED_TIME)),
        reason=_text(carried.get(REASON)),
        description=_text(carried.get(DESCRIPTION)),
        trouble=f"not well-formed AMQP: {troubles[0]}" if troubles else None,
    )


def _or(read: Callable[[], T], fallback: T, troubles: list[str]) -> T:
    """Return the result of ``read``; if it fails, add the problem to ``troubles`` and return ``fallback``."""
    try:
        return read()
    except (DecodeError, IndexError) as error:
        troubles.append(str(error))
        return fallback


def _show(name: str, value: object) -> str:
    try:
        return _READERS[name](name, value)
    except (AliasError, ValueError) as error:
        return f"unreadable: {error}"


def _span(name: str, value: object) -> str:
    milliseconds = read_duration(name, value)
    return "no limit" if milliseconds is None else format_duration(milliseconds)


def _instant(name: str, value: object) -> str:
    return format_instant(read_instant(name, value))


def _schedule(name: str, value: object) -> str:
    milliseconds = read_schedule(name, value)
    return "past" if milliseconds is None else format_instant(milliseconds)


def _partition_key(name: str, value: object) -> str:
    key = read_partition_key(name, value)
    return key if isinstance(key, str) else key.decode("utf-8", "backslashreplace")


_READERS = {
    names.PATH: read_text,
    names.SESSION_ID: read_key,
    names.TIME_TO_LIVE: _span,
    names.SCHEDULED: _schedule,
    names.PARTITION_KEY: _partition_key,
    names.DEADLINE: _instant,
    names.ABSOLUTE_EXPIRY: _instant,
    names.VERSION: read_text,
}
_ALIASES = tuple(name for name in _READERS if name != names.PATH)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def message_id_of(payload: bytes) -> str:
    """Return the message-id as text; "" when absent or unreadable."""
    try:
        return _id_text(decode_message_id(split(payload).properties)) or ""
    except DecodeError:
        return ""


def _id_text(value: object) -> str | None:
    match value:
        case bytes():
            return value.hex()
        case int():
            return str(int(value))  # without the name of its AMQP type
    return _text(value)
