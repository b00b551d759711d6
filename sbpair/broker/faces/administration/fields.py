"""How does a table of elements read and write a description of any kind?

A ``Setting`` and a ``Nested`` are read and written, a ``Report`` only written: a client sends it back with
an update, and it is ignored. The tables are in the order in which the service writes the elements: SDKs rely
on it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from xml.etree.ElementTree import Element

from ...entities import QueueCounts
from ...entities.entity import Entity
from ...errors import InvalidDescription
from . import atom
from .duration import format_duration, parse_duration

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Described = TypeVar("Described", bound=DataclassInstance)

Shown = TypeVar("Shown", bound=Entity)
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
    """An element that is an attribute of the description."""

    element: str
    attribute: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class Nested:
    """An element of elements that is an attribute of the description; left out, the attribute stays."""

    element: str
    attribute: str
    read: Callable[[Element], Any]
    write: Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Report(Generic[Shown]):
    """An element that tells of the entity as it is; ``show`` gives its markup."""

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
DURATION = Kind(parse_duration, _write_duration)
INTEGER = Kind(_read_integer, str)
BOOLEAN = Kind(_read_boolean, lambda value: "true" if value else "false")
TEXT = Kind(lambda text: text or None, _write_optional)
OPTIONAL = Kind(TEXT.read, TEXT.write)  # left out is how an update takes it off


def shown(name: str, show: Callable[[Shown, QueueCounts], str]) -> Report[Shown]:
    """A report of plain text."""
    return Report(name, lambda entity, counts: atom.element(name, atom.plain(show(entity, counts))))


def count_details(_: Entity, counts: QueueCounts) -> str:
    """The element CountDetails."""
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
    """``base`` with what ``fields`` set; what is not there stays, or is none if it is optional. Unchecked.

    Raises InvalidDescription that names an unknown or unreadable element.
    """
    by_name = {row.element: row for row in rows}
    optional = (row for row in rows if isinstance(row, Setting) and row.kind is OPTIONAL)
    values: dict[str, Any] = {row.attribute: None for row in optional}
    for name, found in fields.items():
        row = by_name.get(name)
        if row is None:
            raise InvalidDescription(f"A {kind} has no element {name}.")
        if isinstance(row, Setting):
            values[row.attribute] = _read(row, found)
        elif isinstance(row, Nested):
            values[row.attribute] = row.read(found)
    return replace(base, **values)


def write_fields(kind: str, rows: Sequence[Row[Shown]], entity: Shown, description: object, now: int) -> str:
    """The whole ``description`` of ``entity`` with its counts at ``now`` (ms since the epoch)."""
    counts = entity.counts(now)
    return atom.description(kind, (_write(row, entity, description, counts) for row in rows))


def _read(row: Setting, found: Element) -> Value:
    text = (found.text or "").strip()
    if len(found):
        raise InvalidDescription(f"The element {row.element} holds elements where text should stand.")
    try:
        return row.kind.read(text)
    except ValueError as problem:
        raise InvalidDescription(f"The element {row.element} is {text[:100]!r}: {problem}.") from None


def _write(row: Row[Shown], entity: Shown, description: object, counts: QueueCounts) -> str:
    if isinstance(row, Report):
        return row.show(entity, counts)
    if isinstance(row, Nested):
        return row.write(getattr(description, row.attribute))
    text = row.kind.write(getattr(description, row.attribute))
    return "" if text is None else atom.element(row.element, atom.plain(text))
