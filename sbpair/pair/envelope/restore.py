"""Restoring: turn the bytes of a parked message back into the message that was sent, with its destination.

    parked    header | delivery ann. | message ann. | properties | application properties | body | footer
                 |                         |             |                 |                 |       |
    forward   ttl back,      x  the broker's own out,  session id      aliases out,           bit for bit
              counts reset     key and schedule back      back        the rest bit for bit

Only the properties that parking moved and the annotations that the backlog's broker added change. Everything
else keeps its bytes, and with them its AMQP types.

A dead-lettered message goes back into its backlog by :func:`redriven`, which keeps the aliases. No I/O and no
clock: the current time is an argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import PLACES, DataBody, Message, Properties, decode_properties
from sbpair.pair.amqp.sections import (
    NULL,
    Section,
    Sections,
    is_needlessly_wide,
    join_fields,
    map_section,
    split,
    split_fields,
)
from sbpair.pair.amqp.types import Symbol, Timestamp, UInt

from . import aliases as names
from .inspect import DESCRIPTION, REASON
from .names import path_refusal
from .ordering import OrderStamp, parse_stamp
from .scan import Parted, Parts, Plan, Shapes, part_entries, walk_entries, walk_fields
from .values import (
    LAST_INSTANT_MS,
    AliasError,
    read_duration,
    read_instant,
    read_key,
    read_partition_key,
    read_schedule,
    read_text,
)

DURABLE, PRIORITY, TTL = 0, 1, 2  # positions in the header list (AMQP part 3, 3.2.1)
ABSOLUTE_EXPIRY_TIME, CREATION_TIME = PLACES["absolute_expiry_time"], PLACES["creation_time"]
GROUP_ID = PLACES["group_id"]
MAX_HEADER_TTL = 0xFFFF_FFFF  # ms; header.ttl is a uint, a longer span needs the properties

PARTITION_KEY_ANNOTATION = names.ANNOTATION_PARTITION_KEY.encode()
SCHEDULED_ANNOTATION = names.ANNOTATION_SCHEDULED.encode()
LOCKED_UNTIL_ANNOTATION = b"x-opt-locked-until"
PATH = names.PATH.encode()
VERSION = names.VERSION.encode()
ORDER = names.ORDER.encode()
KNOWN_VERSIONS = frozenset({encode(names.ENVELOPE_VERSION), b"\xb1\x00\x00\x00\x011"})  # str8 and str32
RESERVED = frozenset(name.encode() for name in names.RESERVED)

# Added by a broker on delivery; they describe the stay in the backlog only.
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
DEAD_LETTER_PROPERTIES = frozenset({REASON.encode(), DESCRIPTION.encode()})


class Forward(NamedTuple):
    """Send ``payload`` to ``path`` on the primary, before the lock on the parked message expires.

    ``locked_until`` is in milliseconds since the epoch; None when the backlog's broker did not set it. With
    ``has_deadline``, the time to live in ``payload`` is the time that remained when it was restored. ``order`` is the
    stamp of a message of an ordered session.
    """

    path: str
    payload: bytes
    locked_until: int | None
    has_deadline: bool = False
    order: OrderStamp | None = None


_REPLACED = {  # by (restores a partition key, restores a schedule)
    (key, schedule): SERVER_ANNOTATIONS
    | ({PARTITION_KEY_ANNOTATION} if key else set())
    | ({SCHEDULED_ANNOTATION} if schedule else set())
    for key in (False, True)
    for schedule in (False, True)
}


@dataclass(frozen=True, slots=True)
class Poison:
    """Dead-letter the parked message on its backlog with this reason: it can never be forwarded."""

    reason: str
    description: str


BATCH = 0x80013700
"""The message format of several messages in one transfer."""
BATCH_OVERHEAD, MEMBER_OVERHEAD = 1024, 8
"""Bytes in a batch beside its messages, at most: in all, and for each of them."""
UNKNOWN_VERSION = "(an unknown x-sbpair-version)"
"""Stands for the path of a message parked in a newer format: no entity has it, so the message waits."""
_SHAPES = Shapes()
MAX_REMEMBERED = 1024
"""Bytes, because senders choose the length of the values that are remembered."""
UNREADABLE, MISSING_PATH, INVALID_PATH = "UnreadableMessage", "MissingPath", "InvalidPath"
PATH_NOT_ALLOWED, INVALID_ALIAS, EXPIRED = "PathNotAllowed", "InvalidAlias", "TTLExpiredException"


@dataclass(frozen=True, slots=True)
class _Parked:
    """The aliases of one message; spans and instants in milliseconds."""

    path: str
    is_ours: bool
    session_id: str | None
    time_to_live: int | None
    scheduled: int | None
    partition_key: str | bytes | None
    deadline: int | None
    absolute_expiry: int | None


_READERS: tuple[tuple[bytes, str, Callable[[str, object], object]], ...] = tuple(
    (name.encode(), name, read)
    for name, read in (  # in field order of _Parked
        (names.SESSION_ID, read_key),
        (names.TIME_TO_LIVE, read_duration),  # in full, it restarts on the primary
        (names.SCHEDULED, read_schedule),  # a past time too, the primary's broker decides
        (names.PARTITION_KEY, read_partition_key),
        (names.DEADLINE, read_instant),
        (names.ABSOLUTE_EXPIRY, read_instant),
    )
)


def anywhere(path: str) -> bool:
    """An allow-list of every path."""
    return True


def restore(payload: bytes, now: int, is_allowed: Callable[[str], bool] = anywhere) -> Forward | Poison:
    """Turn a parked message, as a backlog delivered it, back into the message that was sent.

    ``now`` is in milliseconds since the epoch and matters only to messages with a deadline. Never raises,
    whatever the bytes (except MemoryError): otherwise anyone who may send to a backlog could stop the syphon.
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
    except MemoryError:
        raise
    except Exception as error:
        return Poison(UNREADABLE, f"the message cannot be restored: {type(error).__name__}: {error}")


def _restore_at_length(payload: bytes, now: int, is_allowed: Callable[[str], bool]) -> Forward | Poison:
    sections = split(payload)
    carried = part_entries(sections.application_properties, RESERVED)
    version = carried.found.get(VERSION)
    if version is not None and version not in KNOWN_VERSIONS:
        return Forward(UNKNOWN_VERSION, payload, locked_until_of(payload))
    if PATH not in carried.found:
        return Poison(MISSING_PATH, f"the message carries no {names.PATH}: its destination is unknown")
    refusal = _refusal(_read_path(carried.found[PATH]), is_allowed)
    if refusal is not None:
        return refusal
    stamp = carried.found.pop(ORDER, None)  # it differs in each message, and is not restored
    parked = _read_aliases(tuple(carried.found.items()))
    if parked.deadline is not None and parked.deadline <= now:
        return Poison(EXPIRED, f"the message was due at {parked.path} before its deadline, which has passed")
    annotations, lock = _annotations(sections.message_annotations, parked)
    rebuilt = _rebuild(sections, annotations, parked, carried, now)
    if rebuilt.properties is sections.properties and parked.deadline is None and stamp is None:
        plan = Plan(parked.path, rebuilt.header + rebuilt.message_annotations)
        _SHAPES.learn(payload, plan, lambda: _parts(sections, parked, carried, rebuilt))
    order = None if stamp is None else parse_stamp(decode(stamp)[0])
    return Forward(parked.path, b"".join(rebuilt), lock, parked.deadline is not None, order)


def _parts(sections: Sections, parked: _Parked, carried: Parted, rebuilt: Sections) -> Parts:
    layouts = (
        walk_entries(sections.message_annotations, _entries_to_replace(parked)),
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


def locked_until_of(payload: bytes) -> int | None:
    """Return when the lock on a message expires: milliseconds by its broker's clock, or None if not set."""
    try:
        found = part_entries(split(payload).message_annotations, frozenset({LOCKED_UNTIL_ANNOTATION})).found
        raw = found.get(LOCKED_UNTIL_ANNOTATION)
        value = None if raw is None else decode(raw)[0]
    except (DecodeError, IndexError):
        return None
    return int(value) if isinstance(value, int) else None


def printable(path: str) -> str:
    """Return ``path`` for a log line or a dead-letter description: quoted, escaped, at most 300 characters."""
    return repr(path if len(path) <= 300 else path[:300] + "...")


def _read_path(raw: bytes) -> str:
    return _remembered_path(raw) if len(raw) <= MAX_REMEMBERED else _path(raw)


def _path(raw: bytes) -> str:
    return read_text(names.PATH, decode(raw)[0])


_remembered_path = lru_cache(maxsize=1024)(_path)  # many messages, few paths


def _read_aliases(entries: tuple[tuple[bytes, bytes], ...]) -> _Parked:
    is_short = sum(len(value) for _, value in entries) <= MAX_REMEMBERED
    return _remembered_aliases(entries) if is_short else _aliases(entries)


def _aliases(entries: tuple[tuple[bytes, bytes], ...]) -> _Parked:
    found = dict(entries)
    path = _read_path(found[PATH])
    values = [read(name, decode(found[key])[0]) if key in found else None for key, name, read in _READERS]
    return _Parked(path, VERSION in found, *values)  # type: ignore[arg-type]


_remembered_aliases = lru_cache(maxsize=1024)(_aliases)  # most messages share path and time to live


def _rebuild(sections: Sections, annotations: bytes, parked: _Parked, carried: Parted, now: int) -> Sections:
    time_to_live = parked.time_to_live if parked.deadline is None else _left(parked, parked.deadline, now)
    wide = is_needlessly_wide(sections.application_properties) or is_needlessly_wide(sections.properties)
    return Sections(
        header=_header(sections.header, time_to_live, keeps_ttl=not parked.is_ours),
        message_annotations=annotations,
        properties=_properties(sections.properties, parked, time_to_live, now, wide),
        application_properties=map_section(
            Section.APPLICATION_PROPERTIES, carried.kept, carried.kept_values, wide
        ),
        body=sections.body,
        footer=sections.footer,
    )


def _left(parked: _Parked, deadline: int, now: int) -> int:
    """Return the remaining time to live; that of a scheduled message starts when it is enqueued."""
    left = max(deadline - max(now, parked.scheduled or now), 1)
    return left if parked.time_to_live is None else min(left, parked.time_to_live)  # clocks may differ


def _header(section: bytes, time_to_live: int | None, *, keeps_ttl: bool) -> bytes:
    """Return a header with the sender's fields, without the delivery counts of the backlog.

    sbpair moves the time to live into an alias; other senders that park may leave it in the header.
    """
    build = _remembered_header if len(section) <= MAX_REMEMBERED else _built_header
    return build(section, time_to_live, keeps_ttl)


def _built_header(section: bytes, time_to_live: int | None, keeps_ttl: bool) -> bytes:
    is_kept = keeps_ttl and time_to_live is None
    fields = split_fields(section)[: TTL + 1 if is_kept else PRIORITY + 1] if section else []
    if time_to_live is not None:
        fields += [NULL] * (PRIORITY + 1 - len(fields))
        fields.append(encode(UInt(min(time_to_live, MAX_HEADER_TTL))))
    return join_fields(Section.HEADER, fields)


_remembered_header = lru_cache(maxsize=256)(_built_header)  # most messages share flags and time to live


def _entries_to_replace(parked: _Parked) -> frozenset[bytes]:
    return _REPLACED[parked.partition_key is not None, parked.scheduled is not None]


def _annotations(section: bytes, parked: _Parked) -> tuple[bytes, int | None]:
    """Return the sender's annotations, and when the lock on the parked message expires."""
    restored: dict[bytes, bytes] = {}
    if parked.partition_key is not None:
        restored[PARTITION_KEY_ANNOTATION] = encode(parked.partition_key)
    if parked.scheduled is not None:
        restored[SCHEDULED_ANNOTATION] = encode(Timestamp(parked.scheduled))
    parted = part_entries(section, _entries_to_replace(parked))
    raw = parted.found.get(LOCKED_UNTIL_ANNOTATION)
    locked_until = None if raw is None else decode(raw)[0]
    added = b"".join(encode(Symbol(name.decode())) + value for name, value in restored.items())
    values = parted.kept_values + 2 * len(restored)
    lock = int(locked_until) if isinstance(locked_until, int) else None
    return map_section(Section.MESSAGE_ANNOTATIONS, parted.kept + added, values), lock


def _properties(section: bytes, parked: _Parked, time_to_live: int | None, now: int, wide: bool) -> bytes:
    if parked.session_id is None and time_to_live is None and parked.absolute_expiry is None:
        return section
    fields = split_fields(section) if section else []
    fields += [NULL] * (GROUP_ID + 1 - len(fields))
    if parked.session_id is None and time_to_live is not None and _header_suffices(fields, time_to_live):
        return section
    if parked.session_id is not None:
        fields[GROUP_ID] = encode(parked.session_id)
    if time_to_live is not None:
        _restore_lifetime(fields, time_to_live, now)
    elif parked.absolute_expiry is not None:
        fields[ABSOLUTE_EXPIRY_TIME] = encode(Timestamp(parked.absolute_expiry))
    return join_fields(Section.PROPERTIES, fields, wide)


def _header_suffices(fields: list[bytes], time_to_live: int) -> bool:
    """Whether the header alone holds the lifetime: no creation-time, and a span that fits a uint."""
    return fields[CREATION_TIME] == NULL and time_to_live <= MAX_HEADER_TTL


def _restore_lifetime(fields: list[bytes], time_to_live: int, now: int) -> None:
    """Set absolute-expiry-time from creation-time, as senders do; set both when the header cannot hold the value."""
    if _header_suffices(fields, time_to_live):
        return
    created = decode(fields[CREATION_TIME])[0]
    start = int(created) if isinstance(created, int) else now
    fields[CREATION_TIME] = encode(Timestamp(start))
    fields[ABSOLUTE_EXPIRY_TIME] = encode(Timestamp(min(start + time_to_live, LAST_INSTANT_MS)))


def batched(payloads: Sequence[bytes]) -> bytes:
    """Return one message of format BATCH that contains these messages of one session: all of them are stored, or none.

    Like the SDK's batch, it has the message id and session id of the first message.
    """
    first = decode_properties(split(payloads[0]).properties)
    envelope = Properties(message_id=first.message_id, group_id=first.group_id)
    return Message(properties=envelope, body=DataBody(tuple(payloads))).encode()


def redriven(payload: bytes) -> bytes:
    """Return the message to send to the backlog in place of this dead letter.

    Leaves out what the backlog's broker added: the delivery count, its annotations and the two dead-letter properties.
    The aliases and the application's bytes are unchanged. Raises DecodeError or IndexError when the message is
    malformed.
    """
    sections = split(payload)
    fields = split_fields(sections.header)[: TTL + 1] if sections.header else []
    annotations = part_entries(sections.message_annotations, SERVER_ANNOTATIONS)
    carried = part_entries(sections.application_properties, DEAD_LETTER_PROPERTIES)
    wide = is_needlessly_wide(sections.application_properties)
    return b"".join(
        (
            join_fields(Section.HEADER, fields),
            map_section(Section.MESSAGE_ANNOTATIONS, annotations.kept, annotations.kept_values),
            sections.properties,
            map_section(Section.APPLICATION_PROPERTIES, carried.kept, carried.kept_values, wide),
            sections.body,
            sections.footer,
        )
    )
