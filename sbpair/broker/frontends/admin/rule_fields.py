"""The XML fields of a rule: its filter and its action, each with its type, in a fixed order."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from xml.etree.ElementTree import Element

from ...clock import format_duration, parse_duration
from ...entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ...entities.rules.rule import SYSTEM_FIELDS
from ...entities.rules.values import Value
from ...errors import InvalidRuleError
from . import atom
from .fields import ALWAYS, OLDEST, Answer, Form, Placed

SCHEMA = "http://www.w3.org/2001/XMLSchema"
PAIR = "KeyValueOfstringanyType"
MAX_PAIRS = 64
_TYPE = f"{{{atom.INSTANCE}}}type"
_INT32 = range(-(2**31), 2**31)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}


class _Unzoned(datetime):
    """An instant that was written without a time zone: read as UTC, and written the same way."""


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
    """Return the names and values in an element. Raises InvalidRuleError."""
    pairs = {} if parent is None else dict(_read_pair(pair) for pair in parent)
    if len(pairs) > MAX_PAIRS:
        raise InvalidRuleError(f"A rule names {len(pairs)} values: at most {MAX_PAIRS} are allowed.")
    return pairs


def _read_pair(pair: Element) -> tuple[str, Value]:
    key, value = (pair.find(f"{{{atom.SERVICE_BUS}}}{name}") for name in ("Key", "Value"))
    if key is None or not key.text or value is None:
        raise InvalidRuleError(f"A {PAIR} has no Key, or no Value.")
    kind = value.get(_TYPE, "string").rpartition(":")[2]
    read = _READERS.get(kind)
    if read is None:
        raise InvalidRuleError(
            f"The value of {key.text[:100]!r} has the type {kind[:100]!r}: use one of {', '.join(_READERS)}."
        )
    try:
        return key.text, read(value.text or "")
    except (ValueError, KeyError, OverflowError):
        raise InvalidRuleError(
            f"The value of {key.text[:100]!r} is not a valid {kind}: {(value.text or '')[:100]!r}."
        ) from None


def write_pairs(name: str, pairs: Mapping[str, Value]) -> str:
    """Return an element of that name with the pairs; empty when there are none."""
    return atom.element(name, "".join(_write_pairs(pairs))) if pairs else ""


def _write_pairs(pairs: Mapping[str, Value]) -> Iterable[str]:
    for key, value in pairs.items():
        kind, text = _type_and_text(value)
        typed = {"i:type": f"d6p1:{kind}", "xmlns:d6p1": SCHEMA}
        yield atom.element(
            PAIR, atom.element("Key", atom.plain(key)) + atom.element("Value", atom.plain(text), typed)
        )


def _type_and_text(value: Value) -> tuple[str, str]:
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


RULE = "RuleDescription"
COMPATIBILITY = "20"
_TYPE = f"{{{atom.INSTANCE}}}type"
RULE_ELEMENTS = (
    Placed("Filter", ALWAYS),
    Placed("Action", ALWAYS),
    Placed("CreatedAt"),
    Placed("Name"),
)
_NAMES = {name: "".join(part.title() for part in name.split("_")) for name in SYSTEM_FIELDS}


def read_rule(fields: Mapping[str, Element], name: str, now: int) -> Rule:
    """Return the rule in ``fields``; by default it matches every message and changes nothing.

    Raises InvalidRuleError, InvalidDescriptionError.
    """
    return Rule(name, _read_filter(fields.get("Filter")), _read_action(fields.get("Action")), now)


def write_rule(rule: Rule, form: Form) -> str:
    """Return the description of a rule in that form."""
    written = {
        "Filter": _write_filter(rule.filter, form),
        "Action": _write_action(rule.action, form),
        "CreatedAt": atom.element("CreatedAt", atom.instant(rule.created_at)),
        "Name": atom.element("Name", atom.plain(rule.name)),
    }
    rows = (row for row in RULE_ELEMENTS if row.versions.include(form.version, form.answer))
    return atom.description(RULE, (written[row.element] for row in rows))


def _read_filter(found: Element | None) -> Filter:
    if found is None:
        return TrueFilter()
    return _FILTERS[_checked_kind("Filter", found, "TrueFilter", _FILTERS)](found)


def _checked_kind(name: str, found: Element, usual: str, known: Iterable[str]) -> str:
    """Return the type of an element ``name``.

    Raises InvalidRuleError for an unknown type, and for a child element that this type does not have.
    """
    kind = _kind(found, "" if len(found) else usual)
    if kind not in known:
        raise InvalidRuleError(f"The type of {name} is {kind[:100]!r}: use one of {', '.join(known)}.")
    parts = (*_NAMES.values(), "Properties") if kind == "CorrelationFilter" else _SQL_PARTS
    for child in found:
        if (part := child.tag.rpartition("}")[2]) not in parts:
            raise InvalidRuleError(
                f"A {name} of the type {kind} has no {part[:100]!r}: use {', '.join(parts)}."
            )
    return kind


def _read_action(found: Element | None) -> SqlAction | None:
    if (
        found is None
        or _checked_kind("Action", found, _NO_ACTION, (_NO_ACTION, "SqlRuleAction")) == _NO_ACTION
    ):
        return None
    return SqlAction(_text(found, "SqlExpression") or "", read_pairs(_child(found, "Parameters")))


def _read_sql(found: Element) -> Filter:
    return SqlFilter(_text(found, "SqlExpression") or "", read_pairs(_child(found, "Parameters")))


def _read_correlation(found: Element) -> Filter:
    named = {name: _text(found, element) or None for name, element in _NAMES.items()}
    return CorrelationFilter(**named, properties=read_pairs(_child(found, "Properties")))


_SQL_PARTS = ("SqlExpression", "Parameters", "CompatibilityLevel", "RequiresPreprocessing")
_NO_ACTION = "EmptyRuleAction"
_FILTERS: Mapping[str, Callable[[Element], Filter]] = {
    "SqlFilter": _read_sql,
    "CorrelationFilter": _read_correlation,
    "TrueFilter": lambda _: TrueFilter(),
    "FalseFilter": lambda _: FalseFilter(),
}


def _write_filter(found: Filter, form: Form) -> str:
    match found:
        case TrueFilter():
            return _typed_element("Filter", "TrueFilter", _sql("1=1"))
        case FalseFilter():
            return _typed_element("Filter", "FalseFilter", _sql("1=0"))
        case SqlFilter():
            return _typed_element("Filter", "SqlFilter", _sql_with(found.expression, found.parameters, form))
        case CorrelationFilter():
            named = ((element, getattr(found, name)) for name, element in _NAMES.items())
            texts = "".join(atom.element(name, atom.plain(text)) for name, text in named if text is not None)
            return _typed_element(
                "Filter", "CorrelationFilter", texts + write_pairs("Properties", found.properties)
            )


def _write_action(action: SqlAction | None, form: Form) -> str:
    if action is None:
        return _typed_element("Action", "EmptyRuleAction", "")
    return _typed_element("Action", "SqlRuleAction", _sql_with(action.expression, action.parameters, form))


def _sql(expression: str) -> str:
    return atom.element("SqlExpression", atom.plain(expression)) + atom.element(
        "CompatibilityLevel", COMPATIBILITY
    )


def _sql_with(expression: str, parameters: Mapping[str, Value], form: Form) -> str:
    """Return an expression with its parameters; a GET contains the element even if there are none."""
    shown = write_pairs("Parameters", parameters)
    if form.version == OLDEST:
        return _sql(expression) + shown
    preprocessing = atom.element("RequiresPreprocessing", "true")
    if shown:
        return _sql(expression) + shown + preprocessing
    empty = atom.element("Parameters") if form.answer is Answer.SHOWN else ""
    return _sql(expression) + preprocessing + empty


def _typed_element(name: str, kind: str, markup: str) -> str:
    return atom.element(name, markup, {"i:type": kind})


def _kind(found: Element, usual: str) -> str:
    return found.get(_TYPE, usual).rpartition(":")[2]


def _child(found: Element, name: str) -> Element | None:
    return found.find(f"{{{atom.SERVICE_BUS}}}{name}")


def _text(found: Element, name: str) -> str | None:
    return found.findtext(f"{{{atom.SERVICE_BUS}}}{name}")
