"""$management of rules: add one, remove one, list them (3.8).

Descriptions come as maps of names, and leave as lists behind the numbers that the SDKs know.
"""

from __future__ import annotations

from collections.abc import Mapping

from ....amqp.types import Described, Timestamp, ULong
from ...entities.kinds import AnySubscription
from ...entities.rule_operations import add_rule, remove_rule
from ...entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ...entities.rules.correlation_filter import SYSTEM_FIELDS
from ...entities.rules.values import Value
from ...errors import InvalidArgument, InvalidRule, NotAllowed
from ..rule_form import amqp_of, value_of
from .management_call import ManagementCall, nothing, ok
from .request_node import Answer

MOST_RULES = 1_000  # in one answer, which is one message
RULE, NO_ACTION, ACTION = ULong(0x13700000004), ULong(0x13700000005), ULong(0x13700000006)
SQL, TRUE, FALSE, CORRELATION = (ULong(0x1370000006 + offset) for offset in range(4))


def add(call: ManagementCall) -> Answer:
    """Publish by one more rule."""
    described = _map(call.body, "rule-description")
    rule = Rule(_name(call), _filter(described), _action(described), call.now)
    add_rule(_subscription(call), rule, call.now)
    return ok({})


def remove(call: ManagementCall) -> Answer:
    """Publish by that rule no longer."""
    remove_rule(_subscription(call), _name(call))
    return ok({})


def enumerate_rules(call: ManagementCall) -> Answer:
    """A page of the rules, by name."""
    skip, top = call.count("skip", 0, 0), min(call.count("top", 1, MOST_RULES), MOST_RULES)
    page = list(_subscription(call).rules)[skip : skip + top]
    return ok({"rules": [{"rule-description": _described(rule)} for rule in page]}) if page else nothing()


def _subscription(call: ManagementCall) -> AnySubscription:
    if not isinstance(call.queue, AnySubscription):
        raise NotAllowed(f"The entity '{call.queue.path}' has no rules: a subscription has.")
    return call.queue


def _name(call: ManagementCall) -> str:
    return _text(call.body, "rule-name") or ""


def _map(body: Mapping[object, object], name: str) -> dict[object, object]:
    found = body.get(name)
    if not isinstance(found, dict):
        raise InvalidArgument(f"{name} is not a map.")
    return found


def _text(body: Mapping[object, object], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r:.60}: a text is needed.")
    return value


def _filter(described: dict[object, object]) -> Filter:
    if "sql-filter" in described:
        return SqlFilter(_text(_map(described, "sql-filter"), "expression") or "")
    if "correlation-filter" not in described:
        raise InvalidRule("The rule-description has neither a sql-filter nor a correlation-filter.")
    named = _map(described, "correlation-filter")
    texts = {name: _text(named, name.replace("_", "-")) for name in SYSTEM_FIELDS}
    return CorrelationFilter(**texts, properties=_properties(named))


def _properties(named: dict[object, object]) -> dict[str, Value]:
    if named.get("properties") is None:
        return {}
    return {str(name): value_of(value) for name, value in _map(named, "properties").items()}


def _action(described: dict[object, object]) -> SqlAction | None:
    if described.get("sql-rule-action") is None:
        return None
    return SqlAction(_text(_map(described, "sql-rule-action"), "expression") or "")


def _described(rule: Rule) -> Described:
    action = Described(NO_ACTION, []) if rule.action is None else Described(ACTION, [rule.action.expression])
    return Described(RULE, [_described_filter(rule.filter), action, rule.name, Timestamp(rule.created_at)])


def _described_filter(found: Filter) -> Described:
    match found:
        case TrueFilter():
            return Described(TRUE, [])
        case FalseFilter():
            return Described(FALSE, [])
        case SqlFilter():
            return Described(SQL, [found.expression])
        case CorrelationFilter():
            texts = [getattr(found, name) for name in SYSTEM_FIELDS]
            return Described(CORRELATION, [*texts, {k: amqp_of(v) for k, v in found.properties.items()}])
