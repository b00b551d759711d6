"""Twins: the entities of the primary as they are on the secondary, where parked messages may land.

An entity and its twin have the same path and kind. They may differ in operational settings, but must agree in those
that decide whether a message for one can be stored in the other: sessions, duplicate detection, and sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sbpair.pair.ground import entity_settings as settings
from sbpair.pair.pairing.shared.partitions import create_as_the_namespace_asks

if TYPE_CHECKING:
    from azure.servicebus.management import (
        QueueProperties,
        ServiceBusAdministrationClient,
        SubscriptionProperties,
        TopicProperties,
    )

BACKLOGS = "/x-servicebus-transfer/"
LIMITLESS = timedelta(days=10_000_000)  # the SDK parses the service's notation for no limit as more than this
DEFAULT_RULE = "$Default"
PREMIUM = "Premium"


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """An entity of the primary, and how its twin differs."""

    path: str
    is_missing: bool = False
    differences: tuple[str, ...] = ()


@dataclass(slots=True)
class EntityListing:
    """The entities of a namespace by path in lower case, without backlog queues unless requested."""

    queues: dict[str, QueueProperties] = field(default_factory=dict)
    topics: dict[str, TopicProperties] = field(default_factory=dict)
    subscriptions: dict[str, tuple[str, SubscriptionProperties]] = field(default_factory=dict)
    """With the name of their topic, by the path of the subscription."""

    def describe(self) -> Iterator[tuple[str, str, object]]:
        """Yield the kind, the path and the description of each entity; a topic before its subscriptions."""
        for queue in self.queues.values():
            yield settings.QUEUE, queue.name, queue
        for topic in self.topics.values():
            yield settings.TOPIC, topic.name, topic
        for topic_name, subscription in self.subscriptions.values():
            yield settings.SUBSCRIPTION, f"{topic_name}/Subscriptions/{subscription.name}", subscription

    def find(self, kind: str, path: str) -> object | None:
        """Return the description of an entity of that kind; None when there is none."""
        key = path.casefold()
        if kind == settings.SUBSCRIPTION:
            found = self.subscriptions.get(key)
            return None if found is None else found[1]
        return self.queues.get(key) if kind == settings.QUEUE else self.topics.get(key)

    def holds(self, path: str) -> bool:
        """Whether there is a queue or a topic of that path."""
        return path.casefold() in self.queues or path.casefold() in self.topics


def read(client: ServiceBusAdministrationClient, *, with_backlogs: bool = False) -> EntityListing:
    """Read all entities of a namespace. Raises the errors of the SDK's administration client."""
    found = EntityListing()
    for queue in client.list_queues():
        if with_backlogs or BACKLOGS not in queue.name.casefold():
            found.queues[queue.name.casefold()] = queue
    for topic in client.list_topics():
        found.topics[topic.name.casefold()] = topic
        for subscription in client.list_subscriptions(topic.name):
            path = f"{topic.name}/Subscriptions/{subscription.name}".casefold()
            found.subscriptions[path] = (topic.name, subscription)
    return found


def compare(primary: EntityListing, secondary: EntityListing) -> list[TwinComparison]:
    """Compare each entity of the primary with its twin."""
    twins = []
    for kind, path, described in primary.describe():
        twin = secondary.find(kind, path)
        if twin is None:
            twins.append(TwinComparison(path, is_missing=True))
        else:
            twins.append(TwinComparison(path, differences=tuple(_differences(described, twin))))
    return twins


def _differences(described: object, twin: object) -> Iterator[str]:
    status = str(getattr(getattr(twin, "status", None), "value", "Active"))
    if status != "Active":
        yield f"status is {status}, not Active"
    for setting in (each for each in settings.SETTINGS.values() if each.is_compared):
        if setting is settings.DUPLICATE_WINDOW and not settings.DUPLICATE_DETECTION.value_in(described):
            continue
        here, there = setting.value_in(described), setting.value_in(twin)
        if here != there and here is not None:
            yield f"{setting.name} is {there}, on the primary {here}"
    for setting in settings.TARGETS:
        target, twin_target = (path_of(getattr(each, setting.name, None)) for each in (described, twin))
        if target is not None and target.casefold() != (twin_target or "").casefold():
            yield f"{setting.name} is {twin_target}, on the primary {target}"


def create_missing(
    primary: ServiceBusAdministrationClient, secondary: ServiceBusAdministrationClient
) -> list[str]:
    """Create the missing twins with the settings of the primary's entities; return their paths.

    Policies with keys are not copied. An entity that forwards messages is created after its target; if the target
    exists on neither side, without forwarding. Raises the errors of the SDK's administration client.
    """
    here, there = read(primary), read(secondary)
    waiting = [each for each in here.describe() if there.find(each[0], each[1]) is None]
    made: list[str] = []
    is_premium = [each.get_namespace_properties().messaging_sku == PREMIUM for each in (primary, secondary)]
    names = {path.casefold() for path in there.queues} | {path.casefold() for path in there.topics}
    while waiting:
        ready = [each for each in waiting if _targets(each[2]) <= names] or waiting
        for kind, path, described in ready:
            properties = properties_of(kind, described, names.__contains__)
            if not all(is_premium):  # a size that only Premium lets one choose
                properties.pop(settings.MESSAGE_SIZE.name, None)
            if any(is_premium):  # chosen for the namespace, not for the entity
                properties.pop(settings.PARTITIONING.name, None)
            _create(secondary, kind, path, properties)
            if kind == settings.SUBSCRIPTION:
                _copy_rules(primary, secondary, path)
            names.add(path.casefold())
            made.append(path)
        waiting = [each for each in waiting if each not in ready]
    return made


def _targets(described: object) -> set[str]:
    paths = (path_of(getattr(described, each.name, None)) for each in settings.TARGETS)
    return {path.casefold() for path in paths if path is not None}


def path_of(target: str | None) -> str | None:
    """Return the path of an entity that the service names by its address; None without one."""
    return None if not target else urlsplit(target).path.strip("/")


def properties_of(kind: str, described: object, exists: Callable[[str], bool]) -> dict[str, Any]:
    """Return the keywords with which to create an entity like ``described``; ``exists`` takes a path in lower case."""
    found: dict[str, Any] = {}
    for each in (each for each in settings.SETTINGS.values() if each.is_copied and kind in each.of):
        value = getattr(described, each.name, None)
        if each in settings.TARGETS:
            value = path_of(value)
            value = value if value is not None and exists(value.casefold()) else None
        if value is not None and not (isinstance(value, timedelta) and value >= LIMITLESS):
            found[each.name] = value
    return found


def _create(
    client: ServiceBusAdministrationClient, kind: str, path: str, properties: Mapping[str, Any]
) -> None:
    if kind == settings.SUBSCRIPTION:
        topic, name = _topic_and_name(path)
        client.create_subscription(topic, name, **properties)
        return
    create = client.create_queue if kind == settings.QUEUE else client.create_topic
    create_as_the_namespace_asks(
        lambda is_partitioned: create(path, **{**settings.PARTITIONING.set_to(is_partitioned), **properties})
    )


def _copy_rules(
    primary: ServiceBusAdministrationClient, secondary: ServiceBusAdministrationClient, path: str
) -> None:
    topic, name = _topic_and_name(path)
    secondary.delete_rule(topic, name, DEFAULT_RULE)
    for rule in primary.list_rules(topic, name):
        if rule.filter is not None:  # it always is; the SDK's model allows None
            secondary.create_rule(topic, name, rule.name, filter=rule.filter, action=rule.action)


def _topic_and_name(path: str) -> tuple[str, str]:
    topic, _, name = path.rpartition("/Subscriptions/")
    return topic, name
