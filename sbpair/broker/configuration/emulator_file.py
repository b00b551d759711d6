"""Reader for the ``config.json`` of Microsoft's Service Bus emulator.

    {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [...], "Topics": [...]}]}}

Queues, topics and subscriptions have a ``Name`` and ``Properties``, with the names of the administration API. The
Properties of a rule have a FilterType, Sql or Correlation, an SqlFilter or a CorrelationFilter, and optionally an
Action.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from ..entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..entities.rules import Rule
from ..entities.rules.rule import SYSTEM_FIELDS
from ..errors import InvalidRuleError
from .plan import NamespacePlan, SubscriptionPlan, TopicPlan
from .table import BadConfigurationError, Description, Table, named_filter, rule

Made = TypeVar("Made")
_KINDS = (QueueDescription, TopicDescription, SubscriptionDescription)
_SPELLING = {"properties": "Properties"} | {
    name: "".join(part.title() for part in name.split("_"))
    for name in (*(each.name for kind in _KINDS for each in fields(kind)), *SYSTEM_FIELDS)
}


def read_emulator_file(file: str, text: str) -> list[NamespacePlan]:
    """Return the namespaces that the file defines. Raises BadConfigurationError."""
    try:
        values = json.loads(text, object_pairs_hook=_once)
    except (ValueError, RecursionError) as error:
        raise BadConfigurationError(f"{file}: expected JSON: {str(error) or 'nested too deeply'}") from None
    if not isinstance(values, dict):
        raise BadConfigurationError(f"{file}: expected a JSON object with UserConfig")
    whole = Table(file, "", values, is_iso=True)
    config = whole.table("UserConfig")
    whole.end()
    config.take("Logging")
    plans = [_namespace(table) for table in config.list_tables("Namespaces")]
    config.end()
    names = [plan.name.casefold() for plan in plans]
    if not names or len(set(names)) < len(names):
        raise config.wrong("Namespaces", "one or more namespaces with unique names")
    return plans


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key is given twice in one object")
    return found


def _namespace(table: Table) -> NamespacePlan:
    plan = NamespacePlan(
        table.required_text("Name"),
        queues=_by_name(table, "Queues", _queue),
        topics=_by_name(table, "Topics", _topic),
        source=table.file,
    )
    table.end()
    return plan


def _by_name(table: Table, key: str, read: Callable[[Table], tuple[str, Made]]) -> dict[str, Made]:
    found: dict[str, Made] = {}
    for name, made in map(read, table.list_tables(key)):
        if name in found:
            raise table.wrong(key, f"each name once, not {name!r:.60} again")
        found[name] = made
    return found


def _queue(table: Table) -> tuple[str, QueueDescription]:
    found = table.required_text("Name"), _read_description(table, QueueDescription)
    table.end()
    return found


def _read_description(table: Table, kind: type[Description]) -> Description:
    properties = table.table("Properties")
    found = properties.description(kind, _SPELLING)
    properties.end()
    return found


def _topic(table: Table) -> tuple[str, TopicPlan]:
    name, described = table.required_text("Name"), _read_description(table, TopicDescription)
    subscriptions = _by_name(table, "Subscriptions", _subscription)
    table.end()
    return name, TopicPlan(described, subscriptions)


def _subscription(table: Table) -> tuple[str, SubscriptionPlan]:
    name, described = table.required_text("Name"), _read_description(table, SubscriptionDescription)
    rules = tuple(_rule(each) for each in table.list_tables("Rules"))
    table.end()
    return name, SubscriptionPlan(described, rules)


def _rule(table: Table) -> Rule:
    name, properties = table.required_text("Name"), table.table("Properties")
    kinds = "Sql, Correlation, or nothing"
    kind = properties.text("FilterType", kinds)
    if kind not in ("Sql", "Correlation", None):
        raise properties.wrong("FilterType", f"{kinds}, not {kind!r:.60}")
    sql, named = properties.table("SqlFilter"), properties.table("CorrelationFilter")
    action = properties.table("Action")
    expression = sql.text("SqlExpression") if kind == "Sql" else None
    if kind == "Sql" and not expression:
        raise sql.wrong("SqlExpression", "an SQL expression")
    found = rule(table, name, expression, action.text("SqlExpression"), None)
    if kind == "Correlation":
        try:
            found = Rule(name, named_filter(named, _SPELLING), found.action)
        except InvalidRuleError as error:
            raise named.wrong("", f"a valid filter: {error}") from error
    for each in (table, properties):
        each.end()
    return found
