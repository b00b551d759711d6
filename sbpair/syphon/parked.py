"""What does a message in a backlog queue say about itself, for people who look into it?

Everything but its body. A value that nobody can read is shown as what is wrong with it: looking must work
above all where the syphon could not go on. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from sbpair.amqp.message import Properties, decode_properties
from sbpair.amqp.sections import Sections, decode_map_section, split
from sbpair.amqp.types import DecodeError
from sbpair.pairing import aliases as names
from sbpair.pairing.iso8601 import format_duration, format_instant

from .alias import AliasError, read_duration, read_instant, read_key, read_text

T = TypeVar("T")

SEQUENCE_NUMBER, ENQUEUED_TIME = "x-opt-sequence-number", "x-opt-enqueued-time"
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"


@dataclass(frozen=True, slots=True)
class ParkedMessage:
    """One message of a backlog queue; None is what it does not say."""

    sequence_number: int | None
    message_id: str | None
    path: str | None
    aliases: dict[str, str]
    """What it was relieved of, and is given back on the way home: ISO 8601 for spans and instants."""

    parked_at: int | None
    """When the backlog took it: milliseconds since the epoch."""

    reason: str | None
    """Why it was dead-lettered."""

    description: str | None
    trouble: str | None
    """Why it cannot be read, where it cannot."""


def read_parked(payload: bytes) -> ParkedMessage:
    """Read one message as it was peeked or received. Never raises: what is wrong is part of the answer."""
    troubles: list[str] = []
    sections = _or(lambda: split(payload), Sections(), troubles)
    annotations = _or(
        lambda: decode_map_section(sections.message_annotations), dict[object, object](), troubles
    )
    properties = _or(lambda: decode_properties(sections.properties), Properties(), troubles)
    carried = _or(
        lambda: decode_map_section(sections.application_properties), dict[object, object](), troubles
    )
    message_id = properties.message_id
    return ParkedMessage(
        sequence_number=_whole(annotations.get(SEQUENCE_NUMBER)),
        message_id=None if message_id is None else str(message_id),
        path=_shown(names.PATH, carried[names.PATH]) if names.PATH in carried else None,
        aliases={name: _shown(name, carried[name]) for name in _ALIASES if name in carried},
        parked_at=_whole(annotations.get(ENQUEUED_TIME)),
        reason=_text(carried.get(REASON)),
        description=_text(carried.get(DESCRIPTION)),
        trouble=f"not well-formed AMQP: {troubles[0]}" if troubles else None,
    )


def _or(read: Callable[[], T], fallback: T, troubles: list[str]) -> T:
    """What ``read`` reads; where it cannot, the fallback, and the trouble is noted."""
    try:
        return read()
    except (DecodeError, IndexError) as error:
        troubles.append(str(error))
        return fallback


def _shown(name: str, value: object) -> str:
    try:
        return _READERS[name](name, value)
    except (AliasError, ValueError) as error:
        return f"unreadable: {error}"


def _span(name: str, value: object) -> str:
    milliseconds = read_duration(name, value)
    return "no limit" if milliseconds is None else format_duration(milliseconds)


def _instant(name: str, value: object) -> str:
    return format_instant(read_instant(name, value))


_READERS = {
    names.PATH: read_text,
    names.SESSION_ID: read_key,
    names.TIME_TO_LIVE: _span,
    names.SCHEDULED: _instant,
    names.PARTITION_KEY: read_key,
    names.DEADLINE: _instant,
    names.ABSOLUTE_EXPIRY: _instant,
    names.VERSION: read_text,
}
_ALIASES = tuple(name for name in _READERS if name != names.PATH)


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _text(value: object) -> str | None:
    return None if value is None else str(value)
