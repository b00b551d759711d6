"""Field tables: how the XML elements of a description map to its attributes.

    a PUT      elements  -->  in the order of the table: read       -->  the attributes
                              after a later one, or unknown: text   -->  kept with the entity, without effect
    an answer  the elements of the table in order, if the api-version and the kind of answer have them;
               each kept element after the one that it came after

The order is part of the protocol: the service reads a description from top to bottom and does not go back. An
element that comes late is given back as if it held, but the default holds. SDKs have shipped with such orders.
A ``Setting`` and a ``Nested`` are read and written, a ``Report`` only written: clients return it with an update, and
it is ignored. An ``Echoed`` is given back as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from xml.etree.ElementTree import Element

from sbpair.pair.ground.entity_settings import TARGETS

from ...clock import format_duration, format_ticks, parse_duration, parse_ticks
from ...entities import QueueCounts
from ...entities.descriptions import KeptText, Leftover, canonical_target
from ...entities.queue import Queue
from ...errors import InvalidDescriptionError, UnsupportedElementError
from . import atom

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    Described = TypeVar("Described", bound=DataclassInstance)

Shown = TypeVar("Shown", bound=Queue)
Value = int | bool | str | None
MAX_LEFTOVERS = 64 * 1024  # characters of kept elements
_INTEGER = re.compile(r"-?[0-9]{1,18}")
_BOOLEANS = {"true": True, "false": False, "1": True, "0": False}


# -- which answers have an element

OLDEST = ""  # the form of a request without an api-version
FIRST, LATEST_FORM = "2013-10", "2021-05"
_NEVER = "9999"


class Answer(Enum):
    """The kind of an answer with a description: to a PUT, which has fewer elements, or to a GET."""

    CHANGED = "changed"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True)
class Versions:
    """The api-versions, from ``since`` to before ``until``, whose answers contain an element.

    ``changed_since``: replaces ``since`` for answers to a PUT, if given.
    """

    since: str = FIRST
    until: str = _NEVER
    changed_since: str | None = None

    def include(self, version: str, answer: Answer) -> bool:
        """Whether an answer of this version and kind contains the element."""
        is_change = answer is Answer.CHANGED and self.changed_since is not None
        return (self.changed_since or "" if is_change else self.since) <= version < self.until


ALWAYS = Versions(OLDEST)
USUALLY = Versions()
ON_READING = Versions(changed_since=_NEVER)  # not in the answer to a PUT
STAMPED = Versions(changed_since=OLDEST)  # in the oldest form on creation only
SINCE_2021 = Versions(LATEST_FORM)
BEFORE_2021 = Versions(until=LATEST_FORM)
READ_SINCE_2024 = Versions("2024-05", changed_since=_NEVER)


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
    versions: Versions = USUALLY


@dataclass(frozen=True, slots=True)
class Nested:
    """An element with child elements that maps to an attribute; when it is omitted, the attribute stays."""

    element: str
    attribute: str
    read: Callable[[Element], Any]
    write: Callable[[Any], str]
    versions: Versions = USUALLY


@dataclass(frozen=True, slots=True)
class Report(Generic[Shown]):
    """An element that reports the entity's state; ``show`` produces its text, or markup if it ``is_markup``.

    ``on_change``: a different text for the answer to a PUT, if there is one.
    """

    element: str
    show: Callable[[Shown, QueueCounts], str]
    versions: Versions = USUALLY
    on_change: str | None = None
    is_markup: bool = False


@dataclass(frozen=True, slots=True)
class Echoed:
    """An element that has no effect and is given back as it was sent; ``usual`` gives its text where it was not."""

    element: str
    usual: Callable[[Queue], str]
    versions: Versions = USUALLY


@dataclass(frozen=True, slots=True)
class Placed:
    """An element that is read elsewhere and never written: only its position counts."""

    element: str
    versions: Versions = USUALLY


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


Row = Setting | Nested | Report[Shown] | Echoed | Placed
DURATION = ValueType(parse_duration, _write_duration)
INTEGER = ValueType(_read_integer, str)
BOOLEAN = ValueType(_read_boolean, lambda value: "true" if value else "false")
TEXT = ValueType(lambda text: text or None, _write_optional)
OPTIONAL = ValueType(TEXT.read, TEXT.write)  # an update clears the attribute by omitting the element


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


_TARGETS = frozenset(each.element for each in TARGETS)


@dataclass(frozen=True, slots=True)
class Arranged:
    """The elements of a request as the service reads them: effective ``fields``, and text kept with them."""

    fields: Mapping[str, Element]
    kept: KeptText


def arrange(rows: Sequence[Row[Shown]], elements: Sequence[Element]) -> Arranged:
    """Return the elements that are read, by name, without nil ones, and those that are only kept.

    Raises InvalidDescriptionError when too much would be kept.
    """
    places = {row.element: place for place, row in enumerate(rows)}
    durations = {row.element for row in rows if isinstance(row, Setting) and row.kind is DURATION}
    kept_as_sent = {row.element for row in rows if isinstance(row, Echoed)}
    fields: dict[str, Element] = {}
    leftovers: list[Leftover] = []
    texts: list[tuple[str, str]] = []
    reached = -1
    for each in elements:
        name = atom.field_name(each)
        place = places.get(name or "")
        if place is not None and place <= reached and isinstance(rows[place], Report):
            continue  # never read, and always shown as it is
        if name is None or place is None or place <= reached:
            after = "" if reached < 0 else rows[reached].element
            is_setting = place is not None and not isinstance(rows[place], Report | Echoed)
            known = name if name is not None and is_setting else ""
            leftovers.append(
                Leftover(known, after, atom.markup_of(_as_shown(each) if known in _TARGETS else each))
            )
            continue
        reached = place
        if atom.is_nil(each):
            continue
        fields[name] = each
        text = (each.text or "").strip()
        if name in kept_as_sent:
            texts.append((name, text))
        elif name in durations and (exact := _exact_span(text)) is not None:
            texts.append((name, exact))
    if sum(len(each.markup) for each in leftovers) + sum(len(text) for _, text in texts) > MAX_LEFTOVERS:
        raise InvalidDescriptionError(f"More than {MAX_LEFTOVERS} characters of unknown elements are sent.")
    return Arranged(fields, KeptText(tuple(leftovers), tuple(texts)))


def _as_shown(target: Element) -> Element:
    """Return a forwarding target in the form that descriptions show."""
    shown = copy(target)
    shown.text = canonical_target((target.text or "").strip())
    return shown


def _exact_span(text: str) -> str | None:
    """Return the text of a time span in the service's form, if its milliseconds would not give the same text."""
    try:
        exact = format_ticks(parse_ticks(text))
        return None if exact == format_duration(parse_duration(text)) else exact
    except ValueError:
        return None


def read_fields(rows: Sequence[Row[Shown]], fields: Mapping[str, Element], base: Described) -> Described:
    """Return ``base`` with the values in ``fields``, unvalidated; omitted ones stay, or become None if optional.

    Raises InvalidDescriptionError, which names an unreadable element.
    """
    optional = (row for row in rows if isinstance(row, Setting) and row.kind is OPTIONAL)
    values: dict[str, Any] = {row.attribute: None for row in optional}
    for row in rows:
        found = fields.get(row.element)
        if found is None:
            continue
        if isinstance(row, Setting):
            values[row.attribute] = _read(row, found)
        elif isinstance(row, Nested):
            values[row.attribute] = row.read(found)
    return replace(base, **values)


def check_versions(
    kind: str, rows: Sequence[Row[Shown]], fields: Mapping[str, Element], version: str
) -> None:
    """Raise UnsupportedElementError for an element that a newer api-version has added."""
    if any(row.versions is SINCE_2021 and row.element in fields and version < LATEST_FORM for row in rows):
        raise UnsupportedElementError(kind, version)


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an answer: its api-version, OLDEST by default, and the instant of the answer (ms since the epoch)."""

    version: str
    answer: Answer
    now: int


def write_fields(
    kind: str, rows: Sequence[Row[Shown]], entity: Shown, description: object, form: Form
) -> str:
    """Return the ``description`` of ``entity`` in that form, with its counts."""
    counts, kept = entity.counts(form.now), entity.kept
    following: dict[str, list[str]] = {}
    for each in kept.leftovers if form.version != OLDEST else ():  # that form has no place for them
        following.setdefault(each.after, []).append(each.markup)
    parts = following.get("", [])
    for row in rows:
        if row.versions.include(form.version, form.answer):
            parts.append(_write(row, entity, description, counts, form.answer))
        parts += following.get(row.element, ())
    return atom.description(kind, parts)


def sent_back(kind: str, elements: Sequence[Element]) -> str:
    """Return the description of a request as it came: the service's answer to an update of a queue or topic."""
    return atom.description(kind, map(atom.markup_of, elements))


def _read(row: Setting, found: Element) -> Value:
    text = (found.text or "").strip()
    if len(found):
        raise InvalidDescriptionError(f"The element {row.element} holds elements where text is expected.")
    try:
        return row.kind.read(text)
    except ValueError as problem:
        raise InvalidDescriptionError(f"The element {row.element} is {text[:100]!r}: {problem}.") from None


def _write(row: Row[Shown], entity: Shown, description: object, counts: QueueCounts, answer: Answer) -> str:
    match row:
        case Report(element=name, on_change=str(text)) if answer is Answer.CHANGED:
            return atom.element(name, text)
        case Report():
            text = row.show(entity, counts)
            return text if row.is_markup else atom.element(row.element, atom.plain(text))
        case Nested():
            return row.write(getattr(description, row.attribute))
        case Echoed():
            return atom.element(
                row.element, atom.plain(entity.kept.text_of(row.element) or row.usual(entity))
            )
        case Setting():
            return _write_setting(row, getattr(description, row.attribute), entity.kept)
        case _:
            return ""


def _write_setting(row: Setting, value: Value, kept: KeptText) -> str:
    sent = kept.text_of(row.element)
    if sent is not None and row.kind.read(sent) == value:
        return atom.element(row.element, sent)
    text = row.kind.write(value)
    return "" if text is None else atom.element(row.element, atom.plain(text))
