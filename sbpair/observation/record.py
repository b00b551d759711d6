"""What does an event look like to somebody who reads it later, in another program?

    EntityFailedOver(at=812.5, path="orders", cause="...")
        -> {"v": 1, "writer": "...", "role": "sender", "ordinal": 7, "at": "2026-11-21T06:34:00.125Z",
            "mono": 812.5, "pair": {...}, "event": "entity_failed_over", "path": "orders", "cause": "..."}

Any dataclass is an event; its name, in the past tense, becomes ``event``. The header's fields come first,
the event's own after them. Text is cut, keys in it are blanked, and bytes are refused: a journal holds no
bodies. Pure.
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

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
Record: TypeAlias = "dict[str, JsonValue]"

SCHEMA_VERSION = 1
LONGEST_TEXT = 4096  # characters; a broker's description can be of any length

_SECRET = re.compile(r"(?i)\b(SharedAccessKey|SharedAccessSignature|sig)\s*=\s*[^;&\s'\",)]+")
_WORD = re.compile(r"(?<!^)(?=[A-Z])")


class Role(Enum):
    """Who writes. A sender's events carry seconds of the monotonic clock, a syphon's since the epoch."""

    SENDER = "sender"
    SYPHON = "syphon"
    RECEIVER = "receiver"
    BROKER = "broker"


@dataclass(frozen=True, slots=True)
class PairLabels:
    """The two namespaces, by their short names."""

    primary: str
    secondary: str


@dataclass(frozen=True, slots=True)
class Instant:
    """One moment on both clocks: seconds since the epoch, and seconds of the monotonic clock."""

    epoch: float
    mono: float


@dataclass(frozen=True, slots=True)
class Origin:
    """Who writes: one ``writer`` (a uuid) is one open journal or webhook, in one process."""

    writer: str
    role: Role
    pair: PairLabels


# Field, type and meaning of what every record begins with; docs/journal.md shows this table.
HEADER: tuple[tuple[str, str, str], ...] = (
    ("v", "int", "version of this schema; fields may be added within a version, none changes or goes"),
    ("writer", "str", "uuid of the writer: one open journal in one process"),
    ("role", "str", "`sender`, `syphon`, `receiver` or `broker`"),
    ("ordinal", "int", "0, 1, 2, ... of this writer over all its files, without a gap"),
    ("at", "str", "when it happened, UTC, ISO-8601 with milliseconds"),
    ("mono", "float", "the same on the writer's monotonic clock, in seconds: for spans within one writer"),
    (
        "pair",
        "{primary: str, secondary: str}",
        "the short names of the two namespaces; of a broker, its own and none",
    ),
    ("event", "str", "what happened: the rest of the fields depends on it"),
    ("path", "str | None", 'the primary entity; "" for the whole pairing, null when none could be read'),
)
_RESERVED = frozenset(name for name, _, _ in HEADER) - {"at", "path"}


def event_name(kind: type) -> str:
    """``EntityFailedOver`` as ``entity_failed_over``."""
    return _WORD.sub("_", kind.__name__).lower()


def own_fields(event: object) -> dict[str, object]:
    """The fields of an event by name. Raises TypeError when it is no instance of a dataclass."""
    if not is_dataclass(event) or isinstance(event, type):
        raise TypeError(f"an event is an instance of a dataclass, not {type(event).__name__}")
    return {field.name: getattr(event, field.name) for field in fields(event)}


def to_record(event: object, origin: Origin, ordinal: int, now: Instant) -> Record:
    """The journal record of an event that is written at ``now``.

    Raises TypeError for what is no dataclass or holds bytes or other foreign values, and ValueError when a
    field has the name of one of the header's.
    """
    own = own_fields(event)
    if clash := _RESERVED & own.keys():
        raise ValueError(f"{type(event).__name__} has a field of the header's: {', '.join(sorted(clash))}")
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
    """A sender knows a backlog by its number, a syphon by its queue (P-10); records join on the number."""
    _, _, number = queue.rpartition("/")
    is_number = number.isascii() and number.isdigit() and len(number) < 10
    return {"backlog": int(number) if is_number else None, "backlog_queue": scrubbed(queue)}


def _instant(at: object, role: Role, now: Instant) -> Instant:
    """``now`` moved to when the event happened; the two clocks tell spans alike."""
    if not isinstance(at, int | float) or not math.isfinite(at):
        return now
    ago = (now.mono if role is Role.SENDER else now.epoch) - at
    return Instant(now.epoch - ago, now.mono - ago)


def iso(epoch: float) -> str:
    """``2026-11-21T06:34:00.125Z``."""
    return datetime.fromtimestamp(epoch, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def plain(value: object) -> JsonValue:
    """A value as JSON has it. Raises TypeError for bytes and whatever else has no plain form."""
    match value:
        case None | bool() | int():
            return value
        case str():
            return scrubbed(value)
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
        case list() | tuple():
            return [plain(inner) for inner in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {name: plain(inner) for name, inner in own_fields(value).items()}
    raise TypeError(f"a {type(value).__name__} has no place in a record")


def scrubbed(text: str) -> str:
    """The text without what looks like a key, and no longer than :data:`LONGEST_TEXT`."""
    if "=" not in text and len(text) <= LONGEST_TEXT:
        return text
    blanked = _SECRET.sub(lambda found: f"{found[1]}=***", text)
    return blanked if len(blanked) <= LONGEST_TEXT else f"{blanked[: LONGEST_TEXT - 3]}..."


def to_line(record: Record) -> bytes:
    """One line of ASCII: CR, LF, escape and other control characters of a text stand in it as ``\\uXXXX``."""
    text = json.dumps(record, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"
