"""Entities as rows of the database: descriptions as JSON, the rules of a subscription as an AMQP list of maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

from ...amqp.decoding import decode
from ...amqp.encoding import encode
from ..entities.descriptions import AccessRule, QueueDescription, SubscriptionDescription, TopicDescription
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..entities.partitioned_entities import AnySubscription, AnyTopic
from ..entities.queue import Queue
from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..entities.stored_message import Instant
from ..frontends.rule_form import amqp_of, value_of
from .schema import Row, sealed


def stores_of(entity: Entity) -> list[Queue]:
    """What keeps the messages of an entity, always in the same order."""
    return [part for part in entity.parts() if isinstance(part, Queue)]


def entity_row(number: int, entity: Entity) -> Row:
    kind, topic, name, rules = "queue", None, entity.path, None
    asked: QueueDescription | TopicDescription | SubscriptionDescription = entity.description
    if isinstance(entity, AnyTopic):
        kind, asked = "topic", entity.asked
    elif isinstance(entity, AnySubscription):
        kind, asked, topic, name = "subscription", entity.asked, entity.topic.path, entity.name
        rules = encoded_rules(entity.rules)
    text = json.dumps(asdict(asked), sort_keys=True)
    return sealed(number, kind, topic, name, text, rules, entity.created_at, entity.updated_at)


def restore_entity(namespace: Namespace, row: Row) -> tuple[int, Entity]:
    number, kind, topic, name, text, rules, created_at, updated_at = cast("tuple[Any, ...]", row)
    fields = json.loads(text)
    entity = _MAKERS[kind](namespace, topic, name, fields, rules, created_at)
    for queue in stores_of(entity):
        queue.updated_at = updated_at
    return number, entity


_MAKERS: dict[str, Callable[[Namespace, str, str, dict[str, Any], bytes, Instant], Entity]] = {
    "queue": lambda namespace, _, name, fields, rules, at: namespace.restore_queue(
        name, QueueDescription(**_described(fields)), at
    ),
    "topic": lambda namespace, _, name, fields, rules, at: namespace.restore_topic(
        name, TopicDescription(**_described(fields)), at
    ),
    "subscription": lambda namespace, topic, name, fields, rules, at: namespace.restore_subscription(
        topic, name, SubscriptionDescription(**fields), decoded_rules(rules), at
    ),
}


def _described(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a queue or topic: its rules were written as what they are made of."""
    rules = fields.pop("authorization_rules", ())
    made = (AccessRule(**{**rule, "rights": tuple(rule["rights"])}) for rule in rules)
    return {**fields, "authorization_rules": tuple(made)}


_KINDS = {"true": TrueFilter, "false": FalseFilter, "sql": SqlFilter, "correlation": CorrelationFilter}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encoded_rules(rules: Iterable[Rule]) -> bytes:
    """The rules, in their order."""
    return encode([_map(rule) for rule in rules])


def decoded_rules(stored: bytes) -> list[Rule]:
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
