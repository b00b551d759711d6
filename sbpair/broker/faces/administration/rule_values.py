"""How are the values of a rule's parameters and properties written in XML? By the types of XML Schema."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from ...entities.rules.values import Value
from ...errors import InvalidRule
from . import atom
from .duration import format_duration, parse_duration

SCHEMA = "http://www.w3.org/2001/XMLSchema"
PAIR = "KeyValueOfstringanyType"
MOST_PAIRS = 64
_TYPE = f"{{{atom.INSTANCE}}}type"
_INT32 = range(-(2**31), 2**31)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class _Unzoned(datetime):
    """An instant that was written without a zone: UTC, and written so again."""


def _read_instant(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.astimezone(UTC) if found.tzinfo else _Unzoned.fromisoformat(text).replace(tzinfo=UTC)


def _read_span(text: str) -> timedelta:
    return timedelta(milliseconds=parse_duration(text) or 0)


_READERS: Mapping[str, Callable[[str], Value]] = {
    "string": str,
    **dict.fromkeys(("int", "long", "short", "byte", "unsignedInt", "unsignedLong", "unsignedShort"), int),
    **dict.fromkeys(("double", "float", "decimal"), float),
    "boolean": lambda text: _BOOLEANS[text.lower()],
    "dateTime": _read_instant,
    "duration": _read_span,
    "guid": uuid.UUID,
}


def read_pairs(parent: Element | None) -> dict[str, Value]:
    """The names and values under an element. Raises InvalidRule."""
    pairs = {} if parent is None else dict(_read_pair(pair) for pair in parent)
    if len(pairs) > MOST_PAIRS:
        raise InvalidRule(f"A rule names {len(pairs)} values: at most {MOST_PAIRS} are allowed.")
    return pairs


def _read_pair(pair: Element) -> tuple[str, Value]:
    key, value = (pair.find(f"{{{atom.SERVICE_BUS}}}{name}") for name in ("Key", "Value"))
    if key is None or not key.text or value is None:
        raise InvalidRule(f"A {PAIR} has no Key, or no Value.")
    kind = value.get(_TYPE, "string").rpartition(":")[2]
    read = _READERS.get(kind)
    if read is None:
        raise InvalidRule(
            f"The value of {key.text[:100]!r} has the type {kind[:100]!r}: one of {', '.join(_READERS)}."
        )
    try:
        return key.text, read(value.text or "")
    except (ValueError, KeyError, OverflowError):
        raise InvalidRule(
            f"The value of {key.text[:100]!r} is no {kind}: {(value.text or '')[:100]!r}."
        ) from None


def write_pairs(name: str, pairs: Mapping[str, Value]) -> str:
    """An element of that name around the pairs; nothing when there are none."""
    return atom.element(name, "".join(_write_pairs(pairs))) if pairs else ""


def _write_pairs(pairs: Mapping[str, Value]) -> Iterable[str]:
    for key, value in pairs.items():
        kind, text = _written(value)
        typed = {"i:type": f"d6p1:{kind}", "xmlns:d6p1": SCHEMA}
        yield atom.element(
            PAIR, atom.element("Key", atom.plain(key)) + atom.element("Value", atom.plain(text), typed)
        )


def _written(value: Value) -> tuple[str, str]:
    match value:
        case bool():
            return "boolean", str(value).lower()
        case int():
            return ("int" if value in _INT32 else "long"), str(value)
        case float():
            return "double", repr(value)
        case _Unzoned():
            return "dateTime", value.replace(tzinfo=None).isoformat()
        case datetime():
            return "dateTime", value.isoformat().replace("+00:00", "Z")
        case timedelta():
            return "duration", format_duration(value // timedelta(milliseconds=1))
        case uuid.UUID():
            return "guid", str(value)
        case _:
            return "string", str(value)
