"""Field tables: how the XML elements of a description map to its attributes.

A ``Setting`` and a ``Nested`` are read and written, a ``Report`` only written: clients return it with an
update, and it is ignored. The tables keep the order in which the service writes the elements, because SDKs
rely on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from xml.etree.ElementTree import Element

from ...clock import format_duration, parse_duration
from ...entities import QueueCounts
from ...entities.queue import Queue
from ...errors import InvalidDescriptionError
from . import atom

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Described = TypeVar("Described", bound=DataclassInstance)

Shown = TypeVar("Shown", bound=Queue)
Value = int | bool | str | None
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


@dataclass(frozen=True, slots=True)
class ValueType:
    """How values of a type are read (raising ``ValueError``) and written (None: the element is omitted)."""

    read: Callable[[str], Value]
    write: Callable[[Value], str | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """An element that maps to an attribute of the description."""

    element: str
    attribute: str
    kind: ValueType


@dataclass(frozen=True, slots=True)
class Nested:
    """An element with child elements that maps to an attribute; when it is omitted, the attribute stays."""

    element: str
    attribute: str
    read: Callable[[Element], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Report(Generic[Shown]):
    """An element that reports the entity's state; ``show`` produces its markup."""

    element: str
    show: Callable[[Shown, QueueCounts], str]


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


Row = Setting | Nested | Report[Shown]
DURATION = ValueType(parse_duration, _write_duration)
INTEGER = ValueType(_read_integer, str)
BOOLEAN = ValueType(_read_boolean, lambda value: "true" if value else "false")
TEXT = ValueType(lambda text: text or None, _write_optional)
OPTIONAL = ValueType(TEXT.read, TEXT.write)  # an update clears the attribute by omitting the element


def text_report(name: str, show: Callable[[Shown, QueueCounts], str]) -> Report[Shown]:
    """Return a report of plain text."""
    return Report(name, lambda entity, counts: atom.element(name, atom.plain(show(entity, counts))))


def count_details(_: Queue, counts: QueueCounts) -> str:
    """Return the element CountDetails."""
    pairs = (
        ("ActiveMessageCount", counts.active),
        ("DeadLetterMessageCount", counts.dead_letter),
        ("ScheduledMessageCount", counts.scheduled),
        ("TransferMessageCount", counts.transfer),
        ("TransferDeadLetterMessageCount", counts.transfer_dead_letter),
    )
    inner = "".join(atom.element(f"d2p1:{name}", str(count)) for name, count in pairs)
    return atom.element("CountDetails", inner, {"xmlns:d2p1": atom.COUNTS})


def read_fields(
    kind: str, rows: Sequence[Row[Shown]], fields: Mapping[str, Element], base: Described
) -> Described:
    """Return ``base`` with the values in ``fields``, unvalidated; omitted ones stay, or become None if optional.

    Raises InvalidDescriptionError, which names an unknown or unreadable element.
    """
    by_name = {row.element: row for row in rows}
    optional = (row for row in rows if isinstance(row, Setting) and row.kind is OPTIONAL)
    values: dict[str, Any] = {row.attribute: None for row in optional}
    for name, found in fields.items():
        row = by_name.get(name)
        if row is None:
            raise InvalidDescriptionError(f"A {kind} has no element {name}.")
        if isinstance(row, Setting):
            values[row.attribute] = _read(row, found)
        elif isinstance(row, Nested):
            values[row.attribute] = row.read(found)
    return replace(base, **values)


def write_fields(kind: str, rows: Sequence[Row[Shown]], entity: Shown, description: object, now: int) -> str:
    """Return the complete ``description`` of ``entity`` with its counts at ``now`` (ms since the epoch)."""
    counts = entity.counts(now)
    return atom.description(kind, (_write(row, entity, description, counts) for row in rows))


def _read(row: Setting, found: Element) -> Value:
    text = (found.text or "").strip()
    if len(found):
        raise InvalidDescriptionError(f"The element {row.element} holds elements where text is expected.")
    try:
        return row.kind.read(text)
    except ValueError as problem:
        raise InvalidDescriptionError(f"The element {row.element} is {text[:100]!r}: {problem}.") from None


def _write(row: Row[Shown], entity: Shown, description: object, counts: QueueCounts) -> str:
    if isinstance(row, Report):
        return row.show(entity, counts)
    if isinstance(row, Nested):
        return row.write(getattr(description, row.attribute))
    text = row.kind.write(getattr(description, row.attribute))
    return "" if text is None else atom.element(row.element, atom.plain(text))
