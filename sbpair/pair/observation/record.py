"""Audit records: the JSON form of events, schema version 1.

    EntityFailedOver(at=812.5, path="orders", cause="...")
        -> {"v": 1, "writer": "...", "role": "sender", "ordinal": 7, "at": "2026-11-21T06:34:00.125Z",
            "mono": 812.5, "pair": {...}, "event": "entity_failed_over", "path": "orders", "cause": "..."}

Any dataclass is an event; its name, in the past tense, becomes ``event``. The header fields come first, followed by the
event's own fields. Long text is truncated, keys are redacted, and bytes are refused, so that a journal never contains
message bodies. No I/O.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import TypeAlias

from sbpair.pair.auth.redaction import blank_keys

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Record: TypeAlias = "dict[str, JsonValue]"

SCHEMA_VERSION = 1
SHORT = 8  # characters; no key fits in fewer, and most values of records are so short
MAX_TEXT = 4096  # characters; a broker's error description can be arbitrarily long

_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class WriterRole(Enum):
    """The writer's role. Sender events are timed by the monotonic clock, syphon events by the epoch clock."""

    SENDER = "sender"
    SYPHON = "syphon"
    RECEIVER = "receiver"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class PairLabels:
    """The short names of the two namespaces."""

    primary: str
    secondary: str


@dataclass(frozen=True, slots=True)
class Instant:
    """One reading of both clocks: seconds since the epoch, and seconds of the monotonic clock."""

    epoch: float
    mono: float


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of records. ``writer`` is the UUID of one open journal in one process."""

    writer: str
    role: WriterRole
    pair: PairLabels


# Field, type and meaning of the header of every record; docs/reference/journal.md shows this table.
HEADER: tuple[tuple[str, str, str], ...] = (
    (
        "v",
        "int",
        "version of this schema; within a version, fields may be added, but none is changed or removed",
    ),
    ("writer", "str", "uuid of the writer: one open journal in one process"),
    ("role", "str", "`sender`, `syphon`, `receiver` or `broker`"),
    ("ordinal", "int", "0, 1, 2, ... for this writer, without a gap over all its files"),
    ("at", "str", "when it happened, UTC, ISO 8601 with milliseconds"),
    (
        "mono",
        "float",
        "the same on the writer's monotonic clock, in seconds: for durations within one writer",
    ),
    (
        "pair",
        "{primary: str, secondary: str}",
        'the short names of the two namespaces; for a broker, its own and ""',
    ),
    ("event", "str", "what happened; the remaining fields depend on it"),
    ("path", "str | None", 'the primary entity; "" for the whole pair, null if it could not be read'),
)
_RESERVED = frozenset(name for name, _, _ in HEADER) - {"at", "path"}


def event_name(kind: type) -> str:
    """Return the name of an event class in a record: ``EntityFailedOver`` becomes ``entity_failed_over``."""
    return _WORD.sub("_", kind.__name__).lower()


def own_fields(event: object) -> dict[str, object]:
    """Return the fields of an event by name. Raises TypeError unless it is an instance of a dataclass."""
    if not is_dataclass(event) or isinstance(event, type):
        raise TypeError(f"an event is an instance of a dataclass, not {type(event).__name__}")
    return {field.name: getattr(event, field.name) for field in fields(event)}


def to_record(event: object, origin: Origin, ordinal: int, now: Instant) -> Record:
    """Return the record of an event written at ``now``.

    ``ordinal``: the record's number, from 0. Raises TypeError if the event is not a dataclass or contains bytes or
    other values without a JSON form, and ValueError if one of its fields has the name of a header field.
    """
    own = own_fields(event)
    if clash := _RESERVED & own.keys():
        raise ValueError(f"{type(event).__name__} redefines header fields: {', '.join(sorted(clash))}")
    happened = _instant(own.pop("at", None), origin.role, now)
    record: Record = {
        "v": SCHEMA_VERSION,
        "writer": origin.writer,
        "role": origin.role.value,
        "ordinal": ordinal,
        "at": iso(happened.epoch),
        "mono": round(happened.mono, 6),
        "pair": {"primary": origin.pair.primary, "secondary": origin.pair.secondary},
        "event": event_name(type(event)),
        "path": plain(own.pop("path", "")),
    }
    for name, value in own.items():
        record |= _backlog(value) if name == "backlog" and isinstance(value, str) else {name: plain(value)}
    return record


def _backlog(queue: str) -> Record:
    """Return the fields for a backlog queue. Senders name it by number, syphons by path; both get a number."""
    _, _, number = queue.rpartition("/")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    return {"backlog": int(number) if is_number else None, "backlog_queue": scrub(queue)}


def _instant(at: object, role: WriterRole, now: Instant) -> Instant:
    """Return when the event happened, on both clocks; ``at`` is read as the clock of the writer's role."""
    if not isinstance(at, int | float) or not math.isfinite(at):
        return now
    ago = (now.mono if role is WriterRole.SENDER else now.epoch) - at
    return Instant(now.epoch - ago, now.mono - ago)


def iso(epoch: float) -> str:
    """Return an instant (seconds since the epoch) in the form ``2026-11-21T06:34:00.125Z``."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: object) -> JsonValue:
    """Return the JSON form of a value. Raises TypeError for bytes and other values without one."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return scrub(value)
        case float():
            return value if math.isfinite(value) else None
        case Enum():
            return plain(value.value)
        case timedelta():
            return value.total_seconds()
        case datetime():
            return iso(value.timestamp())
        case Mapping():
            return {str(key): plain(inner) for key, inner in value.items()}
        case Set():
            return sorted((plain(inner) for inner in value), key=str)
        case tuple() if hasattr(value, "_asdict"):  # with named fields
            return plain(value._asdict())
        case list() | tuple():
            return [plain(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(inner) for name, inner in own_fields(value).items()}
    raise TypeError(f"a {type(value).__name__} cannot be written to a record")


def scrub(text: str) -> str:
    """Return the text with keys redacted, truncated to :data:`MAX_TEXT` characters."""
    if len(text) < SHORT:
        return text
    blanked = blank_keys(text)
    return blanked if len(blanked) <= MAX_TEXT else f"{blanked[: MAX_TEXT - 3]}..."


def to_line(record: Record) -> bytes:
    """Return one line of ASCII; control characters such as CR, LF and ESC are escaped as ``\\uXXXX``."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"
