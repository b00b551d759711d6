"""Entities as rows of the database: descriptions as JSON, rules as an AMQP list of maps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any, cast

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.encoding import encode

from ..entities.descriptions import (
    AccessRule,
    KeptText,
    Leftover,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ..entities.stored_message import Instant
from ..entities.topic import Subscription, Topic
from ..frontends.rule_form import amqp_of, value_of
from .schema import Row, with_checksum

KEPT = "kept"  # next to the fields of a description: text of the client that they cannot hold


def entity_row(number: int, entity: Queue) -> Row:
    """Return an entity as a row with id ``number``."""
    kind, topic, name, rules = "queue", None, entity.path, None
    requested: QueueDescription | TopicDescription | SubscriptionDescription = entity.description
    if isinstance(entity, Topic):
        kind, requested = "topic", entity.requested
    elif isinstance(entity, Subscription):
        kind, requested, topic, name = "subscription", entity.requested, entity.topic.path, entity.name
        rules = encoded_rules(entity.rules)
    kept = {} if entity.kept == KeptText() else {KEPT: asdict(entity.kept)}
    text = json.dumps({**asdict(requested), **kept}, sort_keys=True)
    return with_checksum(number, kind, topic, name, text, rules, entity.created_at, entity.updated_at)


def restore_entity(namespace: Namespace, row: Row) -> tuple[int, Queue]:
    """Create in ``namespace`` the entity that ``row`` describes, and return it with its id.

    Raises KeyError, TypeError, ValueError, DecodeError or a BrokerError when the row is damaged.
    """
    number, kind, topic, name, text, rules, created_at, updated_at = cast("tuple[Any, ...]", row)
    fields = json.loads(text)
    kept = fields.pop(KEPT, {})
    entity = _MAKERS[kind](namespace, topic, name, fields, rules, created_at)
    for partition in entity.all_partitions():
        partition.updated_at = updated_at
    entity.kept = KeptText(
        tuple(Leftover(**each) for each in kept.get("leftovers", ())),
        tuple((name, text) for name, text in kept.get("texts", ())),
    )
    return number, entity


_MAKERS: dict[str, Callable[[Namespace, str, str, dict[str, Any], bytes, Instant], Queue]] = {
    "queue": lambda namespace, _, name, fields, rules, at: namespace.restore_queue(
        name, QueueDescription(**_description_fields(fields)), at
    ),
    "topic": lambda namespace, _, name, fields, rules, at: namespace.restore_topic(
        name, TopicDescription(**_description_fields(fields)), at
    ),
    "subscription": lambda namespace, topic, name, fields, rules, at: namespace.restore_subscription(
        topic, name, SubscriptionDescription(**fields), decoded_rules(rules), at
    ),
}


def _description_fields(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a queue or topic with the authorization rules as objects."""
    rules = fields.pop("authorization_rules", ())
    made = (AccessRule(**{**rule, "rights": tuple(rule["rights"])}) for rule in rules)
    return {**fields, "authorization_rules": tuple(made)}


_KINDS = {"true": TrueFilter, "false": FalseFilter, "sql": SqlFilter, "correlation": CorrelationFilter}
_NAMES = {kind: name for name, kind in _KINDS.items()}


def encoded_rules(rules: Iterable[Rule]) -> bytes:
    """Encode rules as an AMQP list of maps, in order."""
    return encode([_rule_to_map(rule) for rule in rules])


def decoded_rules(stored: bytes) -> list[Rule]:
    """Decode stored rules. Raises InvalidRuleError, DecodeError, or KeyError for an unknown kind of filter."""
    return [
        _rule_from_map(cast("dict[str, Any]", each)) for each in cast("list[object]", decode(stored, 0)[0])
    ]


def _rule_to_map(rule: Rule) -> dict[str, object]:
    written: dict[str, object] = {"name": rule.name, "at": rule.created_at, "kind": _NAMES[type(rule.filter)]}
    match rule.filter:
        case SqlFilter(expression, parameters):
            written |= {"expression": expression, "parameters": _amqp_values(parameters)}
        case CorrelationFilter():
            fields = asdict(rule.filter)
            written |= {"parameters": _amqp_values(fields.pop("properties")), "fields": fields}
    if rule.action is not None:
        written |= {
            "action": rule.action.expression,
            "action_parameters": _amqp_values(rule.action.parameters),
        }
    return written


def _rule_from_map(written: Mapping[str, Any]) -> Rule:
    action = None
    if "action" in written:
        action = SqlAction(written["action"], _plain_values(written["action_parameters"]))
    return Rule(written["name"], _filter_from_map(written), action, int(written["at"]))


def _filter_from_map(written: Mapping[str, Any]) -> Filter:
    kind = _KINDS[written["kind"]]
    if kind is SqlFilter:
        return SqlFilter(written["expression"], _plain_values(written["parameters"]))
    if kind is CorrelationFilter:
        return CorrelationFilter(**written["fields"], properties=_plain_values(written["parameters"]))
    return TrueFilter() if kind is TrueFilter else FalseFilter()


def _amqp_values(values: Mapping[str, object]) -> dict[str, object]:
    return {name: amqp_of(value) for name, value in values.items()}


def _plain_values(values: Mapping[str, object]) -> dict[str, object]:
    return {name: value_of(value) for name, value in values.items()}
