"""Reader for the ``config.json`` of Microsoft's Service Bus emulator.

    {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [...], "Topics": [...]}]}}

Queues, topics and subscriptions have a ``Name`` and ``Properties``, with the names of the administration API. The
Properties of a rule have a FilterType, Sql or Correlation, an SqlFilter or a CorrelationFilter, and optionally an
Action. The file is read as leniently as the vendor's reader reads it: with comments, commas before a closing bracket,
and keys in any case.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import NoReturn, TypeVar

import jsonc

from ..entities.descriptions import (
    AnyDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..entities.rules import Rule
from ..errors import InvalidRuleError
from .plan import NamespacePlan, SubscriptionPlan, TopicPlan
from .table import BadConfigurationError, Expression, Table, named_filter, rule

Entity = TypeVar("Entity")
_FILTERS = "Sql, Correlation, or nothing"


def read_emulator_file(
    file: str, text: str, warn: Callable[[str], None] | None = None
) -> list[NamespacePlan]:
    """Return the namespaces that the file defines.

    ``warn`` is called for each key that is ignored; without it, such a key is an error. Raises BadConfigurationError.
    """
    try:
        values = jsonc.loads(text.removeprefix("\ufeff"), object_pairs_hook=_once, parse_constant=_refused)
    except json.JSONDecodeError as error:  # its line is one of the text without comments
        near = error.doc[error.pos :].strip()[:40]
        where = f"at {near!r}" if near else "at the end"
        raise BadConfigurationError(f"{file}: expected JSON: {error.msg} {where}") from None
    except (ValueError, RecursionError) as error:
        raise BadConfigurationError(f"{file}: expected JSON: {str(error) or 'nested too deeply'}") from None
    if not isinstance(values, dict):
        raise BadConfigurationError(f"{file}: expected a JSON object with UserConfig")
    whole = Table(file, "", values, is_vendors=True, warn=warn)
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
    counted = Counter(key.casefold() for key, _ in pairs)
    twice = next((key for key, _ in reversed(pairs) if counted[key.casefold()] > 1), None)
    if twice is not None:
        raise ValueError(f"the key {twice!r:.60} is given twice in one object")
    return dict(pairs)


def _refused(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


def _namespace(table: Table) -> NamespacePlan:
    plan = NamespacePlan(
        table.required_text("Name"),
        queues=_by_name(table, "Queues", _queue),
        topics=_by_name(table, "Topics", _topic),
        source=table.file,
    )
    table.end()
    return plan


def _by_name(table: Table, key: str, read: Callable[[Table], tuple[str, Entity]]) -> dict[str, Entity]:
    found: dict[str, Entity] = {}
    for name, made in map(read, table.list_tables(key)):
        if name in found:
            raise table.wrong(key, f"each name once, not {name!r:.60} again")
        found[name] = made
    return found


def _queue(table: Table) -> tuple[str, QueueDescription]:
    found = table.required_text("Name"), _read_description(table, QueueDescription)
    table.end()
    return found


def _read_description(table: Table, kind: type[AnyDescription]) -> AnyDescription:
    properties = table.table("Properties")
    found = properties.description(kind)
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
    kind = properties.text("FilterType", _FILTERS)
    filters = {each: properties.table(f"{each}Filter") for each in ("Sql", "Correlation")}
    if kind is None:  # then the filter that is present decides
        kind = next((each for each, found in filters.items() if found.values), "")
    if kind and kind.title() not in filters:
        raise properties.wrong("FilterType", f"{_FILTERS}, not {kind!r:.60}")
    of_kind = filters.pop(kind.title(), None)
    for each, other in filters.items():
        if other.values:
            properties.ignore(f"{each}Filter", f"no filter of another type than {kind}")
    action = properties.table("Action")
    expression = _expression(properties, of_kind) if of_kind is not None and kind.title() == "Sql" else None
    changes = action.text("SqlExpression")
    done = Expression(changes, action.plain_values("Parameters")) if changes else None
    found = rule(table, name, expression, done)
    if of_kind is not None and expression is None:
        try:
            found = Rule(name, named_filter(of_kind), found.action)
        except InvalidRuleError as error:
            raise of_kind.wrong("", f"a valid filter: {error}") from error
    for read in (action, table, properties):
        read.end()
    return found


def _expression(properties: Table, sql: Table) -> Expression:
    expression, beside = sql.text("SqlExpression"), properties.text("SqlExpression")
    parameters = sql.plain_values("Parameters")
    sql.end()
    if beside:
        done = "ignored" if expression else "read as SqlFilter.SqlExpression"
        properties.ignore("SqlExpression", "no such key; did you mean SqlFilter.SqlExpression?", done)
    if not (expression or beside):
        raise sql.wrong("SqlExpression", "an SQL expression")
    return Expression(expression or beside or "", parameters)
