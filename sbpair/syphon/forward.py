"""What becomes of one parked message: which path it is for, and which bytes go there?

    parked    header | delivery ann. | message ann. | properties | application properties | body | footer
                 |                         |             |                 |                 |       |
    forward   ttl back,      x  the broker's own out,  session id      aliases out,           bit for bit
              counts reset     key and schedule back      back        the rest bit for bit

Only what the park took away, or the backlog's broker added, is changed; what is not touched keeps its bytes,
and with them every AMQP type (G-22). Pure: the caller says what time it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sbpair.amqp.message import Sections, split
from sbpair.amqp.types import DecodeError, Symbol, Timestamp, UInt, decode, encode
from sbpair.pairing import aliases as names

from .alias import LAST_INSTANT_MS, AliasError, read_duration, read_instant, read_key, read_text
from .destination_path import path_refusal
from .raw import (
    NULL,
    Parted,
    is_needlessly_wide,
    join_entries,
    join_fields,
    part_entries,
    split_fields,
    walk_entries,
    walk_fields,
)
from .shape import Parts, Plan, Shapes

HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = 0x70, 0x72, 0x73, 0x74
DURABLE, PRIORITY = 0, 1  # positions in the header's list (3.2.1)
ABSOLUTE_EXPIRY_TIME, CREATION_TIME, GROUP_ID = 8, 9, 10  # and in the properties' (3.2.4)
LONGEST_HEADER_TTL = 0xFFFF_FFFF  # ms; the header's ttl is a uint, a longer one lives in the properties

PARTITION_KEY_ANNOTATION = names.ANNOTATION_PARTITION_KEY.encode()
SCHEDULED_ANNOTATION = names.ANNOTATION_SCHEDULED.encode()
LOCKED_UNTIL_ANNOTATION = b"x-opt-locked-until"
PATH = names.PATH.encode()
RESERVED = frozenset(name.encode() for name in names.RESERVED)

# What a broker writes on what it delivers: true of the stay in the backlog only.
SERVER_ANNOTATIONS = frozenset(
    {
        b"x-opt-deadletter-source",
        b"x-opt-enqueue-sequence-number",
        b"x-opt-enqueued-time",
        b"x-opt-lock-token",
        LOCKED_UNTIL_ANNOTATION,
        b"x-opt-message-state",
        b"x-opt-partition-id",
        b"x-opt-sequence-number",
        b"x-opt-via-partition-key",
    }
)


class Forward(NamedTuple):
    """Send ``payload`` to ``path`` on the primary, before the lock on the parked message ends.

    ``locked_until`` is in milliseconds since the epoch; None when the backlog's broker did not say.
    ``has_deadline``: its time to live is what was left at the time it was restored.
    """

    path: str
    payload: bytes
    locked_until: int | None
    has_deadline: bool = False


_REPLACED = {  # by whether the key and the schedule come back
    (key, schedule): SERVER_ANNOTATIONS
    | ({PARTITION_KEY_ANNOTATION} if key else set())
    | ({SCHEDULED_ANNOTATION} if schedule else set())
    for key in (False, True)
    for schedule in (False, True)
}


@dataclass(frozen=True, slots=True)
class Poison:
    """Dead-letter the parked message on its backlog, for this reason; it can never be forwarded."""

    reason: str
    description: str


_SHAPES = Shapes()
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
    absolute_expiry: int | None


_READERS: tuple[tuple[bytes, str, Callable[[str, object], object]], ...] = tuple(
    (name.encode(), name, read)
    for name, read in (  # in the order of _Parked
        (names.SESSION_ID, read_key),
        (names.TIME_TO_LIVE, read_duration),  # G-14: in full, it starts again on the primary
        (names.SCHEDULED, read_instant),  # G-17: past or not, the primary's broker decides
        (names.PARTITION_KEY, read_key),
        (names.DEADLINE, read_instant),
        (names.ABSOLUTE_EXPIRY, read_instant),
    )
)


def anywhere(path: str) -> bool:
    """The allow-list that allows every path that is not reserved."""
    return True


def restore(payload: bytes, now: int, is_allowed: Callable[[str], bool] = anywhere) -> Forward | Poison:
    """Turn a parked message, as a backlog delivered it, back into the one that was sent (P-21).

    ``now`` is in milliseconds since the epoch and matters to messages with a deadline only.
    """
    shape = _SHAPES.find(payload)
    plan = None if shape is None else shape.plans.get(shape.aliases(payload))
    if shape is not None and plan is not None and is_allowed(plan.path):
        return Forward(plan.path, shape.forward(payload, plan), shape.locked_until(payload))
    try:
        return _restore_at_length(payload, now, is_allowed)
    except AliasError as error:
        return Poison(INVALID_ALIAS, str(error))
    except (DecodeError, IndexError) as error:
        return Poison(UNREADABLE, f"the message is not well-formed AMQP: {error}")


def _restore_at_length(payload: bytes, now: int, is_allowed: Callable[[str], bool]) -> Forward | Poison:
    sections = split(payload)
    carried = part_entries(sections.application_properties, RESERVED)
    if PATH not in carried.found:
        return Poison(MISSING_PATH, f"the message carries no {names.PATH}: its destination is unknown")
    refusal = _refusal(_read_path(carried.found[PATH]), is_allowed)
    if refusal is not None:
        return refusal
    parked = _read_aliases(tuple(carried.found.items()))
    if parked.deadline is not None and parked.deadline <= now:
        return Poison(EXPIRED, f"the message was due at {parked.path} before its deadline, which has passed")
    annotations, lock = _annotations(sections.message_annotations, parked)
    rebuilt = _rebuild(sections, annotations, parked, carried, now)
    if rebuilt.properties is sections.properties and parked.deadline is None:
        plan = Plan(parked.path, rebuilt.header + rebuilt.message_annotations)
        _SHAPES.learn(payload, plan, lambda: _parts(sections, parked, carried, rebuilt))
    return Forward(parked.path, b"".join(rebuilt), lock, parked.deadline is not None)


def _parts(sections: Sections, parked: _Parked, carried: Parted, rebuilt: Sections) -> Parts:
    layouts = (
        walk_entries(sections.message_annotations, _replaced(parked)),
        walk_fields(sections.properties),
        walk_entries(sections.application_properties, RESERVED),
    )
    kept_head = rebuilt.application_properties.removesuffix(carried.kept)
    return Parts(sections, layouts, LOCKED_UNTIL_ANNOTATION, kept_head)


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
    """``path`` fit for a log line or a dead-letter description: quoted, escaped, cut."""
    return repr(path if len(path) <= 300 else path[:300] + "...")


@lru_cache(maxsize=1024)  # many messages, few paths
def _read_path(raw: bytes) -> str:
    return read_text(names.PATH, decode(raw)[0])


@lru_cache(maxsize=1024)  # few differ: the same path, the same time to live
def _read_aliases(entries: tuple[tuple[bytes, bytes], ...]) -> _Parked:
    found = dict(entries)
    path = _read_path(found[PATH])
    values = [read(name, decode(found[key])[0]) if key in found else None for key, name, read in _READERS]
    return _Parked(path, *values)  # type: ignore[arg-type]


def _rebuild(sections: Sections, annotations: bytes, parked: _Parked, carried: Parted, now: int) -> Sections:
    time_to_live = parked.time_to_live if parked.deadline is None else _left(parked, parked.deadline, now)
    wide = is_needlessly_wide(sections.application_properties) or is_needlessly_wide(sections.properties)
    return Sections(
        header=_header(sections.header, time_to_live),
        message_annotations=annotations,
        properties=_properties(sections.properties, parked, time_to_live, now, wide),
        application_properties=join_entries(APPLICATION_PROPERTIES, carried.kept, carried.kept_values, wide),
        body=sections.body,
        footer=sections.footer,
    )


def _left(parked: _Parked, deadline: int, now: int) -> int:
    """What is left of the time to live; a scheduled message's begins when it is enqueued (T-5, G-15)."""
    return max(deadline - max(now, parked.scheduled or now), 1)


@lru_cache(maxsize=256)  # few differ: the same flags, the same time to live
def _header(section: bytes, time_to_live: int | None) -> bytes:
    """What the sender said of the transfer; the counts of the stay in the backlog are left out."""
    fields = split_fields(section)[: PRIORITY + 1] if section else []
    if time_to_live is not None:
        fields += [NULL] * (PRIORITY + 1 - len(fields))
        fields.append(encode(UInt(min(time_to_live, LONGEST_HEADER_TTL))))
    return join_fields(HEADER, fields, wide=False)


def _replaced(parked: _Parked) -> frozenset[bytes]:
    return _REPLACED[parked.partition_key is not None, parked.scheduled is not None]


def _annotations(section: bytes, parked: _Parked) -> tuple[bytes, int | None]:
    """The sender's annotations again, and until when the parked message is locked."""
    restored: dict[bytes, bytes] = {}
    if parked.partition_key is not None:
        restored[PARTITION_KEY_ANNOTATION] = encode(parked.partition_key)
    if parked.scheduled is not None:
        restored[SCHEDULED_ANNOTATION] = encode(Timestamp(parked.scheduled))
    parted = part_entries(section, _replaced(parked))
    raw = parted.found.get(LOCKED_UNTIL_ANNOTATION)
    locked_until = None if raw is None else decode(raw)[0]
    added = b"".join(encode(Symbol(name.decode())) + value for name, value in restored.items())
    values = parted.kept_values + 2 * len(restored)
    lock = int(locked_until) if isinstance(locked_until, int) else None
    return join_entries(MESSAGE_ANNOTATIONS, parted.kept + added, values, wide=False), lock


def _properties(section: bytes, parked: _Parked, time_to_live: int | None, now: int, wide: bool) -> bytes:
    if parked.session_id is None and time_to_live is None and parked.absolute_expiry is None:
        return section
    fields = split_fields(section) if section else []
    fields += [NULL] * (GROUP_ID + 1 - len(fields))
    if parked.session_id is None and time_to_live is not None and _is_told_by_header(fields, time_to_live):
        return section
    if parked.session_id is not None:
        fields[GROUP_ID] = encode(parked.session_id)
    if time_to_live is not None:
        _restore_lifetime(fields, time_to_live, now)
    elif parked.absolute_expiry is not None:
        fields[ABSOLUTE_EXPIRY_TIME] = encode(Timestamp(parked.absolute_expiry))
    return join_fields(PROPERTIES, fields, wide)


def _is_told_by_header(fields: list[bytes], time_to_live: int) -> bool:
    """No instants are needed: the sender wrote none, and the header has room for the span."""
    return fields[CREATION_TIME] == NULL and time_to_live <= LONGEST_HEADER_TTL


def _restore_lifetime(fields: list[bytes], time_to_live: int, now: int) -> None:
    """The expiry that belongs to a creation-time, as senders write it; both when the header is too small."""
    if _is_told_by_header(fields, time_to_live):
        return
    created = decode(fields[CREATION_TIME])[0]
    start = int(created) if isinstance(created, int) else now
    fields[CREATION_TIME] = encode(Timestamp(start))
    fields[ABSOLUTE_EXPIRY_TIME] = encode(Timestamp(min(start + time_to_live, LAST_INSTANT_MS)))
