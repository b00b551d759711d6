"""Reader for Azure Resource Manager templates, as written by hand or by ``az bicep build``.

    {"resources": [{"type": "Microsoft.ServiceBus/namespaces/queues", "name": "contoso/orders", "properties": {...}}]}

The resources of Microsoft.ServiceBus describe namespaces: their queues, topics, subscriptions and rules. They may be in
the template itself, nested in one another, or in nested deployments (Bicep's modules). Resources for keys and networks,
and those of other providers, are skipped. Copy loops and conditions are evaluated (E-5).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields

from ..entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..entities.rules import Rule
from ..entities.rules.rule import SYSTEM_FIELDS
from ..errors import InvalidRuleError
from .arm_expression import BadExpressionError, Scope, evaluate
from .plan import NamespacePlan, SubscriptionPlan, TopicPlan
from .table import BadConfigurationError, Table, named_filter, rule

PROVIDER = "microsoft.servicebus/"
DEPLOYMENT = "microsoft.resources/deployments"
SKIPPED = frozenset(  # keys, networks, and the cloud's own pairing
    (
        "authorizationrules",
        "networkrulesets",
        "virtualnetworkrules",
        "ipfilterrules",
        "privateendpointconnections",
        "disasterrecoveryconfigs",
        "migrationconfigurations",
    )
)
KINDS = {
    ("namespaces",): "namespace",
    ("namespaces", "queues"): "queue",
    ("namespaces", "topics"): "topic",
    ("namespaces", "topics", "subscriptions"): "subscription",
    ("namespaces", "topics", "subscriptions", "rules"): "rule",
}
MAX_RESOURCES = 10_000  # copies included
MAX_DEPTH = 20  # deployments and resources within one another
_DESCRIPTIONS = (QueueDescription, TopicDescription, SubscriptionDescription)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.title() for part in rest)


_SPELLING = {
    name: _camel(name)
    for name in (*(each.name for kind in _DESCRIPTIONS for each in fields(kind)), *SYSTEM_FIELDS)
}
_OF_CLIENTS = ("isClientAffine", "clientAffineProperties")  # JMS only


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource with its expressions evaluated: the segments of its type and name, and its place in the file."""

    kinds: tuple[str, ...]
    names: tuple[str, ...]
    values: dict[str, object]
    where: str


@dataclass(slots=True)
class _Found:
    """The settings and entities found for one namespace."""

    partitions: int | None = None
    queues: dict[str, QueueDescription] = field(default_factory=dict)
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    subscriptions: dict[tuple[str, str], SubscriptionDescription] = field(default_factory=dict)
    rules: dict[tuple[str, str], list[Rule]] = field(default_factory=dict)


def is_arm_template(values: object) -> bool:
    """Whether a parsed JSON file is a template."""
    return isinstance(values, dict) and "resources" in values and "UserConfig" not in values


def read_arm_template(file: str, text: str, parameters: Mapping[str, str]) -> list[NamespacePlan]:
    """Return the namespaces that the template describes; ``parameters``: values by name.

    Raises BadConfigurationError.
    """
    try:
        values = json.loads(text)
        if not isinstance(values, dict):
            raise BadConfigurationError(f"{file}: expected a template")
        scope = _scope(file, values, "", _given_values(file, values, parameters))
        resources = list(_resources(file, values, scope, "", 0))
    except RecursionError:
        raise BadConfigurationError(f"{file}: nested too deeply") from None
    except ValueError as error:
        if isinstance(error, BadConfigurationError):
            raise
        raise BadConfigurationError(f"{file}: expected JSON: {error}") from None
    return _plans(file, resources)


# Parameters and variables.


def _given_values(file: str, template: dict[str, object], parameters: Mapping[str, str]) -> dict[str, object]:
    """Return the values from the command line, converted to the types that the template declares."""
    declared = _object(file, template, "parameters", "")
    given: dict[str, object] = {}
    for name, value in parameters.items():
        if name not in declared:
            there = ", ".join(declared) or "none"
            raise BadConfigurationError(f"{file}: no parameter {name!r:.60}; there are: {there:.300}")
        kind = _object(file, declared, name, "parameters").get("type")
        given[name] = (
            value if kind in ("string", "securestring", "secureString") else _json(file, name, value)
        )
    return given


def _json(file: str, name: str, value: str) -> object:
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise BadConfigurationError(f"{file}: parameters.{name}: expected JSON, not {value!r:.60}") from None


def _scope(file: str, template: dict[str, object], where: str, given: Mapping[str, object]) -> Scope:
    """Return the scope of a template: its parameters, given or by default, and its variables.

    A parameter without a value is missing from the scope, and is an error only where it is used.
    """
    parameters = dict(given)
    for name, declared in _object(file, template, "parameters", where).items():
        if name not in parameters and isinstance(declared, dict) and "defaultValue" in declared:
            place = f"{where}parameters.{name}.defaultValue"
            parameters[name] = _Late(file, place, declared["defaultValue"])
    variables = _object(file, template, "variables", where)
    return Scope(
        _Parameters(parameters), {name: value for name, value in variables.items() if name != "copy"}
    )


@dataclass(frozen=True, slots=True)
class _Late:
    """A default value that is evaluated when it is used, because one that needs Azure may be unused."""

    file: str
    where: str
    value: object


class _Parameters(dict[str, object]):
    """Parameters by name; defaults are evaluated on first use."""

    def __getitem__(self, name: str) -> object:
        found = super().__getitem__(name)
        if isinstance(found, _Late):
            # ends the evaluation of a default that refers to itself
            self[name] = _Late(found.file, found.where, f"[parameters('{name}')]")
            found = self[name] = _evaluate(found.file, found.where, found.value, Scope(self))
        return found


def _object(file: str, values: Mapping[str, object], key: str, where: str) -> dict[str, object]:
    found = values.get(key)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise BadConfigurationError(f"{file}: {where}{key}: expected an object")
    return found


def _evaluate(file: str, where: str, value: object, scope: Scope) -> object:
    try:
        return evaluate(value, scope)
    except BadExpressionError as error:
        shown = f"{value!r:.200}: " if isinstance(value, str) else ""
        raise BadConfigurationError(
            f"{file}: {where}: expected an expression that can be evaluated: {shown}{error}"
        ) from error


# Resources.


def _resources(
    file: str,
    template: dict[str, object],
    scope: Scope,
    where: str,
    depth: int,
    under: Resource | None = None,
) -> Iterator[Resource]:
    """Iterate over the Service Bus resources of the template, including children and nested deployments."""
    if depth > MAX_DEPTH:
        raise BadConfigurationError(f"{file}: {where}: nested too deeply")
    listed = template.get("resources")
    if not isinstance(listed, list | dict):
        raise BadConfigurationError(f"{file}: {where}resources: expected a list")
    named = (
        listed.items() if isinstance(listed, dict) else ((f"[{n}]", each) for n, each in enumerate(listed))
    )
    count = 0
    for key, values in named:
        place = f"{where}resources{key if key.startswith('[') else f'.{key}'}"
        if not isinstance(values, dict):
            raise BadConfigurationError(f"{file}: {place}: expected an object")
        for inner in _copies(file, values, scope, place):
            count += 1
            if count > MAX_RESOURCES:
                raise BadConfigurationError(f"{file}: {where}resources: more than {MAX_RESOURCES}")
            yield from _one(file, values, inner, place, depth, under)


def _copies(file: str, values: dict[str, object], scope: Scope, place: str) -> Iterator[Scope]:
    """Iterate over the scopes in which a resource is created: one for each copy whose condition is not false."""
    count: object = 1
    copy = values.get("copy")
    if isinstance(copy, dict):
        count = _evaluate(file, f"{place}.copy.count", copy.get("count"), scope)
        if not isinstance(count, int) or not 0 <= count <= MAX_RESOURCES:
            raise BadConfigurationError(
                f"{file}: {place}.copy.count: expected a number up to {MAX_RESOURCES}"
            )
    for index in range(count if isinstance(count, int) else 1):
        inner = scope if copy is None else scope.at(index)
        if _evaluate(file, f"{place}.condition", values.get("condition", True), inner) is not False:
            yield inner


def _one(
    file: str, values: dict[str, object], scope: Scope, place: str, depth: int, under: Resource | None
) -> Iterator[Resource]:
    kind = values.get("type")
    if not isinstance(kind, str):
        raise BadConfigurationError(f"{file}: {place}.type: expected a string")
    if kind.casefold() == DEPLOYMENT:
        yield from _deployment(file, values, scope, place, depth)
        return
    whole = kind if under is None else "/".join((PROVIDER.rstrip("/"), *under.kinds, kind))
    if values.get("existing") is True or not whole.casefold().startswith(PROVIDER):
        return
    kinds = tuple(whole.casefold().split("/")[1:])
    name = _evaluate(file, f"{place}.name", values.get("name"), scope)
    names = (*(under.names if under else ()), *(str(name).split("/") if isinstance(name, str) else ()))
    if len(names) != len(kinds) or not all(names):
        raise BadConfigurationError(
            f"{file}: {place}.name: expected {len(kinds)} names joined by '/', not {name!r:.100}"
        )
    if SKIPPED & set(kinds):
        return
    if kinds not in KINDS:
        raise BadConfigurationError(f"{file}: {place}.type: {whole!r:.100} is not supported by the broker")
    properties = _evaluate(file, f"{place}.properties", values.get("properties", {}), scope)
    found = Resource(kinds, names, properties if isinstance(properties, dict) else {}, place)
    yield found
    if "resources" in values:
        yield from _resources(file, values, scope, f"{place}.", depth + 1, found)


def _deployment(
    file: str, values: dict[str, object], scope: Scope, place: str, depth: int
) -> Iterator[Resource]:
    """Iterate over the resources of a nested template, evaluated with the parameters of its deployment."""
    properties = _object(file, values, "properties", f"{place}.")
    template = _object(file, properties, "template", f"{place}.properties.")
    if not template:
        raise BadConfigurationError(
            f"{file}: {place}.properties.template: expected a template in this file, not a link"
        )
    where = f"{place}.properties.parameters"
    given = {
        name: _evaluate(file, f"{where}.{name}.value", each.get("value"), scope)
        for name, each in _object(file, properties, "parameters", f"{place}.properties.").items()
        if isinstance(each, dict)
    }
    inside = f"{place}.properties.template."
    yield from _resources(file, template, _scope(file, template, inside, given), inside, depth + 1)


# From resources to namespaces.


def _plans(file: str, resources: list[Resource]) -> list[NamespacePlan]:
    found: dict[str, _Found] = {}
    for each in resources:
        _add(file, found.setdefault(each.names[0], _Found()), each)
    if not found:
        raise BadConfigurationError(
            f"{file}: resources: expected a namespace, or entities, of Microsoft.ServiceBus"
        )
    return [_plan(file, name, each) for name, each in found.items()]


def _add(file: str, namespace: _Found, resource: Resource) -> None:
    table = Table(file, f"{resource.where}.properties", dict(resource.values), is_iso=True)
    path = resource.names[1].replace("~", "/") if len(resource.names) > 1 else ""  # how ARM writes a slash
    under = (path, resource.names[2]) if len(resource.names) > 2 else ("", "")
    match KINDS[resource.kinds]:
        case "namespace":
            namespace.partitions = table.whole("premiumMessagingPartitions", (1, 2, 4))
        case "queue":
            namespace.queues[path] = table.description(QueueDescription, _SPELLING)
            table.end()
        case "topic":
            namespace.topics[path] = table.description(TopicDescription, _SPELLING)
            table.end()
        case "subscription":
            for name in _OF_CLIENTS:
                table.take(name)
            namespace.subscriptions[under] = table.description(SubscriptionDescription, _SPELLING)
            table.end()
        case "rule":
            namespace.rules.setdefault(under, []).append(_rule(table, resource.names[3]))


def _rule(table: Table, name: str) -> Rule:
    kinds = "SqlFilter or CorrelationFilter"
    kind = table.text("filterType", kinds)
    sql, named, action = (table.table(key) for key in ("sqlFilter", "correlationFilter", "action"))
    table.end()
    if kind not in ("SqlFilter", "CorrelationFilter", None):
        raise table.wrong("filterType", f"{kinds}, not {kind!r:.60}")
    is_named = kind == "CorrelationFilter" or (kind is None and bool(named.values))
    found = rule(
        table, name, None if is_named else sql.text("sqlExpression"), action.text("sqlExpression"), None
    )
    if not is_named:
        return found
    try:
        return Rule(name, named_filter(named, _SPELLING), found.action)
    except InvalidRuleError as error:
        raise named.wrong("", f"a valid filter: {error}") from error


def _plan(file: str, name: str, found: _Found) -> NamespacePlan:
    lost = [topic for topic, _ in (*found.subscriptions, *found.rules) if topic not in found.topics]
    lost += ["/".join(each) for each in found.rules if each not in found.subscriptions]
    if lost:
        raise BadConfigurationError(
            f"{file}: resources: expected {name}/{lost[0]:.100} too, because other resources belong to it"
        )
    topics = {
        topic: TopicPlan(
            description,
            {
                subscription: SubscriptionPlan(each, tuple(found.rules.get((topic, subscription), ())))
                for (owner, subscription), each in found.subscriptions.items()
                if owner == topic
            },
        )
        for topic, description in found.topics.items()
    }
    return NamespacePlan(name, partitions=found.partitions, queues=found.queues, topics=topics, source=file)
