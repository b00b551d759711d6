"""What becomes of one parked message: which path it is for, and which bytes go there?

    parked    header | delivery ann. | message ann. | properties | application properties | body | footer
                 |                         |             |                 |                 |       |
    forward   ttl back,      x  the broker's own out,  session id      aliases out,           bit for bit
              counts reset     key and schedule back      back        the rest bit for bit

Only what the park took away, or the backlog's broker added, is changed; what is not touched keeps its bytes,
and with them every AMQP type (G22). Pure: the caller says what time it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sbpair.amqp.message import (
    Header,
    Sections,
    decode_header,
    encode_header,
    join_entries,
    split,
    split_entries,
)
from sbpair.amqp.types import DecodeError, Symbol, Timestamp, decode, encode
from sbpair.pairing import aliases as names

from .alias import AliasError, read_duration, read_instant, read_key, read_text
from .destination_path import path_refusal
from .field import NULL, split_fields, with_fields

HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x72, 0x73, 0x74
ABSOLUTE_EXPIRY_TIME, CREATION_TIME, GROUP_ID = 8, 9, 10  # positions in the properties list (3.2.4)
LONGEST_HEADER_TTL = 0xFFFF_FFFF  # ms; the header's ttl is a uint, a longer one lives in the properties

PARTITION_KEY_ANNOTATION = Symbol(names.ANNOTATION_PARTITION_KEY)
SCHEDULED_ANNOTATION = Symbol(names.ANNOTATION_SCHEDULED)
LOCKED_UNTIL_ANNOTATION = "x-opt-locked-until"

# What a broker writes on what it delivers: true of the stay in the backlog only (08 6.17).
SERVER_ANNOTATIONS = frozenset(
    {
        "x-opt-deadletter-source",
        "x-opt-enqueue-sequence-number",
        "x-opt-enqueued-time",
        "x-opt-lock-token",
        "x-opt-message-state",
        "x-opt-partition-id",
        "x-opt-sequence-number",
        "x-opt-via-partition-key",
    }
)


@dataclass(frozen=True, slots=True)
class Forward:
    """Send ``payload`` to ``path`` on the primary, before the lock on the parked message ends.

    ``locked_until`` is in milliseconds since the epoch; None when the backlog's broker did not say.
    """

    path: str
    payload: bytes
    locked_until: int | None


@dataclass(frozen=True, slots=True)
class Poison:
    """Dead-letter the parked message on its backlog, for this reason; it can never be forwarded."""

    reason: str
    description: str


UNREADABLE, MISSING_PATH, INVALID_PATH = "UnreadableMessage", "MissingPath", "InvalidPath"
PATH_NOT_ALLOWED, INVALID_ALIAS, EXPIRED = "PathNotAllowed", "InvalidAlias", "TTLExpiredException"


@dataclass(frozen=True, slots=True)
class _Parked:
    """What the aliases of one message say; spans and instants in milliseconds."""

    path: str
    session_id: str | None
    time_to_live: int | None
    scheduled: int | None
    partition_key: str | None
    deadline: int | None


_READERS: Mapping[str, Callable[[str, object], object]] = {
    names.SESSION_ID: read_key,
    names.TIME_TO_LIVE: read_duration,
    names.SCHEDULED: read_instant,
    names.PARTITION_KEY: read_key,
    names.DEADLINE: read_instant,
}


def anywhere(path: str) -> bool:
    """The allow-list that allows every path that is not reserved."""
    return True


def restore(payload: bytes, now: int, is_allowed: Callable[[str], bool] = anywhere) -> Forward | Poison:
    """Turn a parked message, as a backlog delivered it, back into the one that was sent (P-21).

    ``now`` is in milliseconds since the epoch and matters to messages with a deadline only.
    """
    try:
        sections = split(payload)
        found, kept = _part(sections.application_properties)
        path = found.get(names.PATH)
        if names.PATH not in found:
            return Poison(MISSING_PATH, f"the message carries no {names.PATH}: its destination is unknown")
        refusal = _refusal(read_text(names.PATH, path), is_allowed)
        if refusal is not None:
            return refusal
        parked = _read_aliases(found)
        if parked.deadline is not None and parked.deadline <= now:
            return Poison(
                EXPIRED, f"the message was due at {parked.path} before its deadline, which has passed"
            )
        annotations, lock = _annotations(sections.message_annotations, parked)
        return Forward(parked.path, _rebuild(sections, annotations, parked, kept, now), lock)
    except AliasError as error:
        return Poison(INVALID_ALIAS, str(error))
    except DecodeError as error:
        return Poison(UNREADABLE, f"the message is not well-formed AMQP: {error}")


def _part(section: bytes) -> tuple[dict[str, object], list[tuple[object, bytes]]]:
    """The aliases with their values, and all other entries as they are."""
    found: dict[str, object] = {}
    kept: list[tuple[object, bytes]] = []
    for entry in split_entries(section) if section else ():
        key, raw = entry
        if key in names.RESERVED:
            found[str(key)] = decode(raw)[0]
        else:
            kept.append(entry)
    return found, kept


def _refusal(path: str, is_allowed: Callable[[str], bool]) -> Poison | None:
    why = path_refusal(path)
    if why is not None:
        return Poison(INVALID_PATH, f"{names.PATH} {printable(path)} cannot be sent to: {why}")
    if not is_allowed(path):
        return Poison(
            PATH_NOT_ALLOWED, f"{names.PATH} {printable(path)} is not among the allowed destinations"
        )
    return None


def printable(path: str) -> str:
    """``path`` fit for a log line or a dead-letter description: quoted, escaped, cut (08 6.14)."""
    return repr(path if len(path) <= 300 else path[:300] + "...")


def _read_aliases(found: Mapping[str, object]) -> _Parked:
    values = {name: read(name, found[name]) if name in found else None for name, read in _READERS.items()}
    return _Parked(str(found[names.PATH]), *values.values())  # type: ignore[arg-type]


def _rebuild(
    sections: Sections, annotations: bytes, parked: _Parked, kept: list[tuple[object, bytes]], now: int
) -> bytes:
    time_to_live = parked.time_to_live if parked.deadline is None else parked.deadline - now
    return b"".join(
        (
            _header(sections.header, time_to_live),
            annotations,
            _properties(sections.properties, parked, time_to_live, now),
            join_entries(APPLICATION_PROPERTIES, kept) if kept else b"",
            sections.body,
            sections.footer,
        )
    )


def _header(section: bytes, time_to_live: int | None) -> bytes:
    parked = decode_header(section) if section else Header()
    ttl = None if time_to_live is None else min(time_to_live, LONGEST_HEADER_TTL)
    header = Header(durable=parked.durable, priority=parked.priority, ttl=ttl)
    return b"" if header == Header() else encode_header(header)


def _annotations(section: bytes, parked: _Parked) -> tuple[bytes, int | None]:
    """The sender's annotations again, and until when the parked message is locked."""
    restored: dict[object, bytes] = {}
    if parked.partition_key is not None:
        restored[PARTITION_KEY_ANNOTATION] = encode(parked.partition_key)
    if parked.scheduled is not None:
        restored[SCHEDULED_ANNOTATION] = encode(Timestamp(parked.scheduled))
    entries: list[tuple[object, bytes]] = []
    locked_until: object = None
    for entry in split_entries(section) if section else ():
        key, raw = entry
        if key == LOCKED_UNTIL_ANNOTATION:
            locked_until = decode(raw)[0]
        elif key not in SERVER_ANNOTATIONS and key not in restored:
            entries.append(entry)
    entries.extend(restored.items())
    lock = int(locked_until) if isinstance(locked_until, int) else None
    return join_entries(MESSAGE_ANNOTATIONS, entries) if entries else b"", lock


def _properties(section: bytes, parked: _Parked, time_to_live: int | None, now: int) -> bytes:
    changes: dict[int, bytes] = {}
    if parked.session_id is not None:
        changes[GROUP_ID] = encode(parked.session_id)
    if time_to_live is not None:
        changes |= _lifetime(section, time_to_live, now)
    return with_fields(section, PROPERTIES, changes) if changes else section


def _lifetime(section: bytes, time_to_live: int, now: int) -> dict[int, bytes]:
    """The expiry that belongs to a creation-time, as senders write it; both when the header is too small."""
    fields = split_fields(section) if section else []
    raw = fields[CREATION_TIME] if len(fields) > CREATION_TIME else NULL
    created = decode(raw)[0]
    if created is None and time_to_live <= LONGEST_HEADER_TTL:
        return {}
    start = int(created) if isinstance(created, int) else now
    expiry = min(start + time_to_live, 253_402_300_799_999)
    return {CREATION_TIME: encode(Timestamp(start)), ABSOLUTE_EXPIRY_TIME: encode(Timestamp(expiry))}
