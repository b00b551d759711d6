"""How do the rules of a subscription lie in its row? As an AMQP list of maps, as they were asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

from ...amqp.types import decode, encode
from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..faces.rule_form import amqp_of, value_of

_KINDS = {"true": TrueFilter, "false": FalseFilter, "sql": SqlFilter, "correlation": CorrelationFilter}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encoded(rules: Iterable[Rule]) -> bytes:
    """The rules, in their order."""
    return encode([_map(rule) for rule in rules])


def decoded(stored: bytes) -> list[Rule]:
    """The rules that were written. Raises InvalidRule, and KeyError for a kind that is not known."""
    return [_rule(cast("dict[str, Any]", each)) for each in cast("list[object]", decode(stored, 0)[0])]


def _map(rule: Rule) -> dict[str, object]:
    written: dict[str, object] = {"name": rule.name, "at": rule.created_at, "kind": _NAMES[type(rule.filter)]}
    match rule.filter:
        case SqlFilter(expression, parameters):
            written |= {"expression": expression, "parameters": _values(parameters)}
        case CorrelationFilter():
            fields = asdict(rule.filter)
            written |= {"parameters": _values(fields.pop("properties")), "fields": fields}
    if rule.action is not None:
        written |= {"action": rule.action.expression, "action_parameters": _values(rule.action.parameters)}
    return written


def _rule(written: Mapping[str, Any]) -> Rule:
    action = None
    if "action" in written:
        action = SqlAction(written["action"], _read(written["action_parameters"]))
    return Rule(written["name"], _filter(written), action, int(written["at"]))


def _filter(written: Mapping[str, Any]) -> Filter:
    kind = _KINDS[written["kind"]]
    if kind is SqlFilter:
        return SqlFilter(written["expression"], _read(written["parameters"]))
    if kind is CorrelationFilter:
        return CorrelationFilter(**written["fields"], properties=_read(written["parameters"]))
    return TrueFilter() if kind is TrueFilter else FalseFilter()


def _values(values: Mapping[str, object]) -> dict[str, object]:
    return {name: amqp_of(value) for name, value in values.items()}


def _read(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value_of(value) for name, value in values.items()}
