"""Reader for the ``[broker.namespaces]`` tables of sbpair's TOML file.

    [broker.namespaces.contoso]
    port = 5672
    policies = [{ name = "sender", key = "env:SENDER_KEY", rights = ["Send"] }]

    [broker.namespaces.contoso.queues.orders]
    lock_duration = "30s"

    [broker.namespaces.contoso.topics.events.subscriptions.billing]
    max_delivery_count = 3
    rules.large = { sql = "amount > 100", action = "SET size = 'large'" }
    rules.paid = { correlation = { label = "paid", properties = { region = "eu" } } }

The fields of entities are those of docs/reference/broker.md, with durations as ``"90s"`` or ``"PT5M"``.
"""

from __future__ import annotations

from collections.abc import Callable

from ..auth import ROOT_POLICY_NAME, Right, SharedAccessPolicy
from ..entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..entities.rules import Rule
from .plan import NamespacePlan, SubscriptionPlan, TopicPlan
from .table import Expression, Table, rule

Resolve = Callable[[str, str], str]
"""Returns the value of ``env:NAME`` or ``file:PATH``; the second argument names the setting in errors.

Raises ValueError when there is none.
"""

MAX_POLICIES = 12  # including the root policy


def read_namespaces(file: str, values: dict[str, object], resolve: Resolve) -> list[NamespacePlan]:
    """Return the namespaces of the table ``[broker.namespaces]``. Raises BadConfigurationError."""
    table = Table(file, "broker", {"namespaces": values})
    return [_namespace(name, inner, resolve) for name, inner in table.tables("namespaces")]


def _namespace(name: str, table: Table, resolve: Resolve) -> NamespacePlan:
    plan = NamespacePlan(
        name,
        port=table.whole("port", range(65_536)),
        partitions=table.whole("partitions", (1, 2, 4)),
        policies=tuple(_policy(each, resolve) for each in table.list_tables("policies")),
        queues={path: _read_description(each, QueueDescription) for path, each in table.tables("queues")},
        topics={path: _topic(each) for path, each in table.tables("topics")},
        source=table.file,
    )
    names = [policy.name for policy in plan.policies]
    if len(names) >= MAX_POLICIES or len({*names, ROOT_POLICY_NAME}) <= len(names):
        expected = f"at most {MAX_POLICIES - 1} policies, with unique names other than the root policy's"
        raise table.wrong("policies", expected)
    table.end()
    return plan


def _policy(table: Table, resolve: Resolve) -> SharedAccessPolicy:
    name = table.required_text("name")
    reference = "env:NAME or file:PATH, which contains the key"
    keys = [table.required_text("key", reference), table.text("secondary_key", reference)]
    for key, given in zip(("key", "secondary_key"), keys, strict=True):
        if given is not None and not given.startswith(("env:", "file:")):
            raise table.wrong(key, reference)
    known = {right.value: right for right in Right}
    rights = table.take("rights")
    if not isinstance(rights, list) or not rights or any(each not in known for each in rights):
        raise table.wrong("rights", f"a list of {', '.join(known)}")
    if Right.MANAGE.value in rights and set(rights) != set(known):
        raise table.wrong("rights", "Send and Listen in addition to Manage")
    table.end()
    found = []
    for given in keys:
        try:
            found.append("" if given is None else resolve(given, f"{table.file}: {table.where}"))
        except ValueError as error:
            raise table.wrong("key", f"a key: {error}") from None
    return SharedAccessPolicy(name, found[0], found[1] or found[0], frozenset(known[each] for each in rights))


def _read_description(table: Table, kind: type[QueueDescription]) -> QueueDescription:
    found = table.description(kind)
    table.end()
    return found


def _topic(table: Table) -> TopicPlan:
    subscriptions = {name: _subscription(each) for name, each in table.tables("subscriptions")}
    plan = TopicPlan(table.description(TopicDescription), subscriptions)
    table.end()
    return plan


def _subscription(table: Table) -> SubscriptionPlan:
    rules = tuple(_rule(name, each) for name, each in table.tables("rules"))
    plan = SubscriptionPlan(table.description(SubscriptionDescription), rules)
    table.end()
    return plan


def _rule(name: str, table: Table) -> Rule:
    named = table.table("correlation") if "correlation" in table.values else None
    sql, action = (
        _expression(table, *keys) for keys in (("sql", "parameters"), ("action", "action_parameters"))
    )
    if sql is not None and named is not None:
        raise table.wrong("sql", "sql or correlation, not both")
    found = rule(table, name, sql, action, named)
    table.take("correlation")
    table.end()
    return found


def _expression(table: Table, key: str, parameters: str) -> Expression | None:
    text = table.text(key)
    if text is None or (key == "action" and not text):
        return None
    return Expression(text, table.plain_values(parameters))
