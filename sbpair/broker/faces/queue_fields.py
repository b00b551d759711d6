"""Which element of a QueueDescription is which attribute of ours?

One table, in the order in which the service writes them (SDKs rely on it). A ``Setting`` is read and written,
a ``Report`` only written: a client sends it back with an update, and it is ignored.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.etree.ElementTree import Element

from ..entities import Queue, QueueCounts, QueueDescription
from ..errors import InvalidDescription, NotSupported
from . import atom
from .duration import format_duration, parse_duration

Value = int | bool | str | None
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of value reads (raising ``ValueError``) and writes (None: the element is left out)."""

    read: Callable[[str], Value]
    write: Callable[[Value], str | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """An element that is an attribute of ``QueueDescription``."""

    element: str
    attribute: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Report:
    """An element that tells of the queue as it is; ``show`` gives its markup."""

    element: str
    show: Callable[[Queue, QueueCounts], str]


def _read_integer(text: str) -> Value:
    if not _INTEGER.fullmatch(text):
        raise ValueError("it is not a whole number")
    return int(text)


def _read_boolean(text: str) -> Value:
    if text.lower() not in _BOOLEANS:
        raise ValueError("it is neither true nor false")
    return _BOOLEANS[text.lower()]


def _write_duration(value: Value) -> str:
    return format_duration(None if value is None else int(value))


def _write_optional(value: Value) -> str | None:
    return None if value is None else str(value)


DURATION = Kind(parse_duration, _write_duration)
INTEGER = Kind(_read_integer, str)
BOOLEAN = Kind(_read_boolean, lambda value: "true" if value else "false")
TEXT = Kind(lambda text: text or None, _write_optional)


def _count_details(_: Queue, counts: QueueCounts) -> str:
    pairs = (
        ("ActiveMessageCount", counts.active),
        ("DeadLetterMessageCount", counts.dead_letter),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", 0),  # nothing forwards yet
        ("TransferDeadLetterMessageCount", 0),
    )
    inner = "".join(atom.element(f"d2p1:{name}", str(count)) for name, count in pairs)
    return atom.element("CountDetails", inner, {"xmlns:d2p1": atom.COUNTS})


def _shown(name: str, show: Callable[[Queue, QueueCounts], str]) -> Report:
    return Report(name, lambda queue, counts: atom.element(name, atom.plain(show(queue, counts))))


ELEMENTS: tuple[Setting | Report, ...] = (
    Setting("LockDuration", "lock_duration", DURATION),
    Setting("MaxSizeInMegabytes", "max_size_in_megabytes", INTEGER),
    Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOLEAN),
    Setting("RequiresSession", "requires_session", BOOLEAN),
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", BOOLEAN),
    Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", DURATION),
    Setting("MaxDeliveryCount", "max_delivery_count", INTEGER),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    _shown("SizeInBytes", lambda _, counts: str(counts.size_in_bytes)),
    _shown("MessageCount", lambda _, counts: str(counts.total)),
    _shown("IsAnonymousAccessible", lambda *_: "false"),
    _shown("AuthorizationRules", lambda *_: ""),
    Setting("Status", "status", TEXT),
    _shown("CreatedAt", lambda queue, _: atom.instant(queue.created_at)),
    _shown("UpdatedAt", lambda queue, _: atom.instant(queue.updated_at)),
    _shown("AccessedAt", lambda queue, _: atom.instant(queue.accessed_at)),
    _shown("SupportOrdering", lambda *_: "true"),
    Report("CountDetails", _count_details),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    Setting("EnablePartitioning", "enable_partitioning", BOOLEAN),
    _shown("EntityAvailabilityStatus", lambda *_: "Available"),
    Setting("EnableExpress", "enable_express", BOOLEAN),
    Setting("ForwardTo", "forward_to", TEXT),
    Setting("UserMetadata", "user_metadata", TEXT),
    Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", TEXT),
    Setting("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", INTEGER),
)
_BY_NAME = {row.element: row for row in ELEMENTS}


def read_queue_description(fields: Mapping[str, Element], base: QueueDescription) -> QueueDescription:
    """``base`` with what ``fields`` set; an element that is not there changes nothing. Not yet validated.

    Raises InvalidDescription that names an unknown or unreadable element, NotSupported for access rules.
    """
    values: dict[str, Any] = {}
    for name, found in fields.items():
        row = _BY_NAME.get(name)
        if row is None:
            raise InvalidDescription(f"A QueueDescription has no element {name}.")
        if isinstance(row, Setting):
            values[row.attribute] = _read(row, found)
        elif name == "AuthorizationRules" and len(found):
            raise NotSupported(name)
    return replace(base, **values)


def write_queue_description(queue: Queue, now: int) -> str:
    """The whole description of ``queue`` with its counts at ``now`` (ms since the epoch)."""
    counts = queue.counts(now)
    return atom.description("QueueDescription", (_write(row, queue, counts) for row in ELEMENTS))


def _read(row: Setting, found: Element) -> Value:
    text = (found.text or "").strip()
    if len(found):
        raise InvalidDescription(f"The element {row.element} holds elements where text should stand.")
    try:
        return row.kind.read(text)
    except ValueError as problem:
        raise InvalidDescription(f"The element {row.element} is {text[:100]!r}: {problem}.") from None


def _write(row: Setting | Report, queue: Queue, counts: QueueCounts) -> str:
    if isinstance(row, Report):
        return row.show(queue, counts)
    text = row.kind.write(getattr(queue.description, row.attribute))
    return "" if text is None else atom.element(row.element, atom.plain(text))
