"""Writer of configuration files that :mod:`.toml_file` and :mod:`.emulator_file` can read, from the same plans.

A field that has its default is left out. Keys of policies and authorization rules are never written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping

from sbpair.pair.ground.entity_settings import ValueKind, element_name

from ..clock import format_duration
from ..entities.descriptions import (
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    settings_of,
)
from ..entities.rules import CorrelationFilter, FalseFilter, Rule, SqlFilter
from ..entities.rules.rule import SYSTEM_FIELDS
from .plan import NamespacePlan, SubscriptionPlan

Described = QueueDescription | TopicDescription | SubscriptionDescription
_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)
Json = dict[str, object]


def write_emulator_file(plans: Iterable[NamespacePlan]) -> str:
    """Return the text of a ``config.json`` of the vendor's emulator with the namespaces."""
    namespaces = [
        {
            "Name": plan.name,
            "Queues": [
                {"Name": path, "Properties": _spelt(queue)} for path, queue in sorted(plan.queues.items())
            ],
            "Topics": [
                {
                    "Name": path,
                    "Properties": _spelt(topic.description),
                    "Subscriptions": [
                        _subscription(name, each) for name, each in sorted(topic.subscriptions.items())
                    ],
                }
                for path, topic in sorted(plan.topics.items())
            ],
        }
        for plan in plans
    ]
    whole = {"UserConfig": {"Namespaces": namespaces, "Logging": {"Type": "File"}}}
    return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"


def _spelt(described: Described) -> Json:
    return {element_name(name): value for name, value in _settings(described)}


def _settings(described: Described) -> Iterator[tuple[str, object]]:
    usual = type(described)()
    for each in settings_of(type(described)):
        value = getattr(described, each.name)
        if value != getattr(usual, each.name):
            yield each.name, format_duration(value) if each.kind is ValueKind.SPAN else value


def _subscription(name: str, plan: SubscriptionPlan) -> Json:
    found: Json = {"Name": name, "Properties": _spelt(plan.description)}
    if plan.rules:
        found["Rules"] = [{"Name": each.name, "Properties": _rule(each)} for each in plan.rules]
    return found


def _rule(rule: Rule) -> Json:
    if isinstance(rule.filter, CorrelationFilter):
        named = {element_name(name): value for name, value in _conditions(rule.filter).items()}
        found: Json = {"FilterType": "Correlation", "CorrelationFilter": named}
    else:
        text, parameters = _sql(rule)
        found = {"FilterType": "Sql", "SqlFilter": _expression(text, parameters)}
    if rule.action is not None:
        found["Action"] = _expression(rule.action.expression, rule.action.parameters)
    return found


def _expression(text: str, parameters: Mapping[str, object]) -> Json:
    return {"SqlExpression": text} | ({"Parameters": dict(parameters)} if parameters else {})


def _conditions(found: CorrelationFilter) -> Json:
    named: Json = {name: value for name in SYSTEM_FIELDS if (value := getattr(found, name)) is not None}
    return named | ({"properties": dict(found.properties)} if found.properties else {})


def _sql(rule: Rule) -> tuple[str, Mapping[str, object]]:
    if isinstance(rule.filter, SqlFilter):
        return rule.filter.expression, rule.filter.parameters
    return "1=0" if isinstance(rule.filter, FalseFilter) else "1=1", {}


def write_toml(plans: Iterable[NamespacePlan], tier: str) -> str:
    """Return the text of a TOML file with the namespaces and their tier."""
    lines = ["[broker]", f"tier = {_text(tier)}"]
    for plan in plans:
        at = ("broker", "namespaces", plan.name)
        numbers = {"port": plan.port, "partitions": plan.partitions}
        lines += _table(at, {name: value for name, value in numbers.items() if value is not None})
        for path, queue in sorted(plan.queues.items()):
            lines += _table((*at, "queues", path), dict(_settings(queue)))
        for path, topic in sorted(plan.topics.items()):
            of_topic = (*at, "topics", path)
            lines += _table(of_topic, dict(_settings(topic.description)))
            for name, subscription in sorted(topic.subscriptions.items()):
                rules = {f"rules.{_key(each.name)}": _toml_rule(each) for each in subscription.rules}
                lines += _table(
                    (*of_topic, "subscriptions", name), dict(_settings(subscription.description)) | rules
                )
    return "\n".join(lines) + "\n"


def _toml_rule(rule: Rule) -> Json:
    found: Json
    if isinstance(rule.filter, CorrelationFilter):
        found = {"correlation": _conditions(rule.filter)}
    else:
        text, parameters = _sql(rule)
        found = {"sql": text} | ({"parameters": dict(parameters)} if parameters else {})
    if rule.action is not None:
        found["action"] = rule.action.expression
        found |= {"action_parameters": dict(rule.action.parameters)} if rule.action.parameters else {}
    return found


def _table(path: Iterable[str], values: Json) -> list[str]:
    return [
        "",
        f"[{'.'.join(map(_text, path))}]",
        *(f"{key} = {_value(value)}" for key, value in values.items()),
    ]


def _value(value: object) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items()) + " }"
    return _text(value) if isinstance(value, str) else json.dumps(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _text(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")  # the same in TOML, but for this character
