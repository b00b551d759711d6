"""Which elements tell of a rule? Its filter and its action, each with its type, in a fixed order (3.8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from xml.etree.ElementTree import Element

from ...entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ...entities.rules.correlation_filter import SYSTEM_FIELDS
from ...errors import InvalidDescription, InvalidRule
from . import atom
from .rule_values import read_pairs, write_pairs

RULE = "RuleDescription"
COMPATIBILITY = "20"
_TYPE = f"{{{atom.INSTANCE}}}type"
_ELEMENTS = frozenset(("Filter", "Action", "CreatedAt", "Name"))
_NAMES = {name: "".join(part.title() for part in name.split("_")) for name in SYSTEM_FIELDS}


def read_rule(fields: Mapping[str, Element], name: str, now: int) -> Rule:
    """The rule that ``fields`` describe; what they leave out takes all, and changes nothing.

    Raises InvalidRule, InvalidDescription.
    """
    for unknown in fields.keys() - _ELEMENTS:
        raise InvalidDescription(f"A {RULE} has no element {unknown}.")
    return Rule(name, _read_filter(fields.get("Filter")), _read_action(fields.get("Action")), now)


def write_rule(rule: Rule) -> str:
    """The whole description of a rule."""
    return atom.description(
        RULE,
        (
            _write_filter(rule.filter),
            _write_action(rule.action),
            atom.element("CreatedAt", atom.instant(rule.created_at)),
            atom.element("Name", atom.plain(rule.name)),
        ),
    )


def _read_filter(found: Element | None) -> Filter:
    if found is None:
        return TrueFilter()
    kind = _kind(found, "TrueFilter")
    read = _FILTERS.get(kind)
    if read is None:
        raise InvalidRule(f"The type of Filter is {kind[:100]!r}: one of {', '.join(_FILTERS)}.")
    return read(found)


def _read_action(found: Element | None) -> SqlAction | None:
    kind = "EmptyRuleAction" if found is None else _kind(found, "EmptyRuleAction")
    if found is None or kind == "EmptyRuleAction":
        return None
    if kind != "SqlRuleAction":
        raise InvalidRule(f"The type of Action is {kind[:100]!r}: EmptyRuleAction or SqlRuleAction.")
    return SqlAction(_text(found, "SqlExpression") or "", read_pairs(_child(found, "Parameters")))


def _read_sql(found: Element) -> Filter:
    return SqlFilter(_text(found, "SqlExpression") or "", read_pairs(_child(found, "Parameters")))


def _read_correlation(found: Element) -> Filter:
    named = {name: _text(found, element) or None for name, element in _NAMES.items()}
    return CorrelationFilter(**named, properties=read_pairs(_child(found, "Properties")))


_FILTERS: Mapping[str, Callable[[Element], Filter]] = {
    "SqlFilter": _read_sql,
    "CorrelationFilter": _read_correlation,
    "TrueFilter": lambda _: TrueFilter(),
    "FalseFilter": lambda _: FalseFilter(),
}


def _write_filter(found: Filter) -> str:
    match found:
        case TrueFilter():
            return _typed("Filter", "TrueFilter", _sql("1=1"))
        case FalseFilter():
            return _typed("Filter", "FalseFilter", _sql("1=0"))
        case SqlFilter():
            parameters = write_pairs("Parameters", found.parameters)
            return _typed("Filter", "SqlFilter", _sql(found.expression) + parameters)
        case CorrelationFilter():
            named = ((element, getattr(found, name)) for name, element in _NAMES.items())
            texts = "".join(atom.element(name, atom.plain(text)) for name, text in named if text is not None)
            return _typed("Filter", "CorrelationFilter", texts + write_pairs("Properties", found.properties))


def _write_action(action: SqlAction | None) -> str:
    if action is None:
        return _typed("Action", "EmptyRuleAction", "")
    parameters = write_pairs("Parameters", action.parameters)
    return _typed("Action", "SqlRuleAction", _sql(action.expression) + parameters)


def _sql(expression: str) -> str:
    return atom.element("SqlExpression", atom.plain(expression)) + atom.element(
        "CompatibilityLevel", COMPATIBILITY
    )


def _typed(name: str, kind: str, markup: str) -> str:
    return atom.element(name, markup, {"i:type": kind})


def _kind(found: Element, usual: str) -> str:
    return found.get(_TYPE, usual).rpartition(":")[2]


def _child(found: Element, name: str) -> Element | None:
    return found.find(f"{{{atom.SERVICE_BUS}}}{name}")


def _text(found: Element, name: str) -> str | None:
    return found.findtext(f"{{{atom.SERVICE_BUS}}}{name}")
