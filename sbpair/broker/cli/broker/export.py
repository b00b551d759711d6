"""`sbpair broker export`: print what a live namespace has as a file for `sbpair broker --config`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import click

from sbpair.pair.cli.errors import ConfigurationError
from sbpair.pair.cli.namespaces import ca_file_option, namespace_argument
from sbpair.pair.ground.entity_settings import MESSAGE_SIZE, PARTITIONING, SIZE, TARGETS

if TYPE_CHECKING:
    from azure.servicebus.management import RuleProperties, ServiceBusAdministrationClient

    from sbpair.broker.configuration import NamespacePlan
    from sbpair.broker.entities.descriptions import AnyDescription
    from sbpair.broker.entities.rules import Rule
    from sbpair.pair.cli.twins import EntityListing

FORMS = ("toml", "emulator")
PREMIUM = "Premium"
USUAL_MESSAGE = {PREMIUM: 1024}  # kilobytes; on the other tiers
OF_STANDARD = 256
SHARES = 16
PLAIN = (str, int, float)


@click.command("export")
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="NAME=SOURCE",
    help="The name in the file, and the namespace: env:NAME, file:PATH, its name, or a connection string; "
    "repeat for more.",
)
@click.option(
    "--form",
    type=click.Choice(FORMS),
    default=FORMS[0],
    show_default=True,
    help="TOML, or the config.json of Microsoft's emulator.",
)
@ca_file_option
def export(sources: tuple[str, ...], form: str, ca_file: str | None) -> None:
    """Print what a live namespace has as a file for --config.

    Reads queues, topics, subscriptions and rules through the administration API, which needs the Manage right; no
    message and no key. Settings with their default are left out. What the file cannot say is a warning.

    \b
    Examples:
      sbpair broker export --from contoso=env:CONTOSO
      sbpair broker export --from sbemulatorns=env:CONTOSO --form emulator
    """
    from sbpair.broker.configuration import write_emulator_file, write_toml
    from sbpair.pair.cli.connection import administering

    plans, tiers = [], set()
    for each in sources:
        name, _, source = each.partition("=")
        if not (name and source) or "/" in name or name.casefold() == "endpoint":
            raise click.UsageError(f"--from {name}: expected NAME=SOURCE", click.get_current_context())
        argument = namespace_argument(source, "--from", is_visible=True)
        with administering(), argument.administration("primary", ca_file) as client:
            tier = str(client.get_namespace_properties().messaging_sku or "Standard")
            tiers.add(tier)
            plans.append(plan_of(name, tier, client))
    if len(tiers) > 1:
        raise ConfigurationError(
            f"--from: namespaces of several tiers ({', '.join(sorted(tiers))}): export each by itself"
        )
    click.echo(write_emulator_file(plans) if form == "emulator" else write_toml(plans, *tiers), nl=False)
    if form == "emulator" and tiers != {"Standard"}:
        _warn(f"the file does not say the tier: run it with --tier {min(tiers)}")


def plan_of(name: str, tier: str, client: ServiceBusAdministrationClient) -> NamespacePlan:
    """Return the entities of the namespace of an administration client. Raises the errors of the SDK."""
    from sbpair.broker import QueueDescription, SubscriptionDescription, TopicDescription
    from sbpair.broker.configuration import NamespacePlan, SubscriptionPlan, TopicPlan
    from sbpair.pair.cli.twins import read

    found = read(client, with_backlogs=True)
    topics: dict[str, TopicPlan] = {
        topic.name: TopicPlan(_described(topic, TopicDescription, tier), {})
        for topic in found.topics.values()
    }
    for topic_name, subscription in found.subscriptions.values():
        described = _described(subscription, SubscriptionDescription, tier)
        rules = tuple(_rules(client, topic_name, subscription.name))
        plan = SubscriptionPlan(described, rules)
        topics[topic_name] = replace(
            topics[topic_name],
            subscriptions={**topics[topic_name].subscriptions, subscription.name: plan},
        )
    return NamespacePlan(
        name,
        partitions=_partitions(tier, found, client),
        queues={each.name: _described(each, QueueDescription, tier) for each in found.queues.values()},
        topics=topics,
    )


def _partitions(tier: str, found: EntityListing, client: ServiceBusAdministrationClient) -> int | None:
    """Return the partitions of a partitioned Premium namespace: one for each messaging unit; None for any other."""
    is_partitioned = any(each.enable_partitioning for each in found.queues.values()) or any(
        each.enable_partitioning for each in found.topics.values()
    )
    if tier != PREMIUM or not is_partitioned:
        return None
    return max(2, min(4, client.get_namespace_properties().messaging_units or 2))


def _described(found: object, kind: type[AnyDescription], tier: str) -> AnyDescription:
    from sbpair.broker.entities.descriptions import STANDARD_SIZES, settings_of
    from sbpair.pair.cli.twins import LIMITLESS, path_of

    given: dict[str, Any] = {}
    usual_size = USUAL_MESSAGE.get(tier, OF_STANDARD)
    for each in settings_of(kind):
        value = getattr(found, each.name, None)
        if isinstance(value, timedelta):
            value = None if value >= LIMITLESS else value // timedelta(milliseconds=1)
        elif isinstance(value, Enum):
            value = value.value
        elif each in TARGETS:
            value = path_of(value)
        elif (each, value) in ((MESSAGE_SIZE, usual_size), (PARTITIONING, tier == PREMIUM)):
            value = None
        if value is not None:
            given[each.name] = value
    if given.get(PARTITIONING.name) and given.get(SIZE.name, 0) > STANDARD_SIZES[-1]:
        given[SIZE.name] //= SHARES  # shown as the sum of all partitions
    return kind(**given)


def _rules(client: ServiceBusAdministrationClient, topic: str, subscription: str) -> Iterator[Rule]:
    """Yield the rules of a subscription; none if it has only the default rule."""
    from sbpair.broker.entities.rules import DEFAULT_RULE, FalseFilter, Rule

    listed = list(client.list_rules(topic, subscription))
    found = [_rule(each, f"{topic}/Subscriptions/{subscription}") for each in listed]
    if not listed:
        _warn(f"{topic}/Subscriptions/{subscription} has no rule: it gets one that matches nothing")
        yield Rule("none", FalseFilter())
    elif not (len(found) == 1 and found[0].name == DEFAULT_RULE and found[0].accepts_all):
        yield from found


def _rule(listed: RuleProperties, path: str) -> Rule:
    from azure.servicebus.management import (
        CorrelationRuleFilter,
        FalseRuleFilter,
        SqlRuleFilter,
        TrueRuleFilter,
    )

    from sbpair.broker.entities.rules import (
        CorrelationFilter,
        FalseFilter,
        Rule,
        SqlAction,
        SqlFilter,
        TrueFilter,
    )
    from sbpair.broker.entities.rules.rule import SYSTEM_FIELDS, Filter

    given, action = listed.filter, listed.action
    place = f"{path}/Rules/{listed.name}"
    found: Filter = TrueFilter()
    if isinstance(given, FalseRuleFilter):
        found = FalseFilter()
    elif isinstance(given, SqlRuleFilter) and not isinstance(given, TrueRuleFilter):
        found = SqlFilter(given.sql_expression or "", _plain(given.parameters, place))
    elif isinstance(given, CorrelationRuleFilter):
        named = {name: getattr(given, name) for name in SYSTEM_FIELDS}
        found = CorrelationFilter(**named, properties=_plain(given.properties, place))
    changes = getattr(action, "sql_expression", None)
    done = None if not changes else SqlAction(changes, _plain(getattr(action, "parameters", None), place))
    return Rule(listed.name, found, done)


def _plain(values: dict[str, Any] | None, place: str) -> dict[str, Any]:
    """Return the values, all of which a file can express. Raises ConfigurationError if one cannot be expressed."""
    texts = [
        [each.decode() if isinstance(each, bytes) else each for each in pair]
        for pair in (values or {}).items()
    ]
    given: dict[str, Any] = dict(texts)
    other = next((name for name, value in given.items() if not isinstance(value, PLAIN)), None)
    if other is not None:
        raise ConfigurationError(
            f"{place}: {other} is a {type(given[other]).__name__}, which the file cannot say"
        )
    return given


def _warn(text: str) -> None:
    click.echo(f"sbpair: warning: {text}", err=True)
