"""Twins: the entities of the primary as they are on the secondary, where parked messages may land (C-3).

An entity and its twin have the same path and kind. They may differ in operational settings, but must agree in
those that decide whether a message of one fits into the other: sessions, duplicate detection, and sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sbpair.pairing.partitions import create_as_the_namespace_asks

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
FORWARDS = ("forward_to", "forward_dead_lettered_messages_to")
COMPARED = (
    "requires_session",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "max_message_size_in_kilobytes",
    "max_size_in_megabytes",
)
OF_TOPICS = (
    "default_message_time_to_live",
    "max_size_in_megabytes",
    "max_message_size_in_kilobytes",
    "requires_duplicate_detection",
    "duplicate_detection_history_time_window",
    "enable_batched_operations",
    "enable_partitioning",
    "auto_delete_on_idle",
    "user_metadata",
)
OF_RECEIVED = (
    "requires_session",
    "lock_duration",
    "max_delivery_count",
    "dead_lettering_on_message_expiration",
    *FORWARDS,
)
COPIED = {
    "queue": (*OF_TOPICS, *OF_RECEIVED),
    "topic": (*OF_TOPICS, "support_ordering"),
    "subscription": (
        *OF_RECEIVED,
        "default_message_time_to_live",
        "dead_lettering_on_filter_evaluation_exceptions",
        "enable_batched_operations",
        "auto_delete_on_idle",
        "user_metadata",
    ),
}


@dataclass(frozen=True, slots=True)
class TwinComparison:
    """An entity of the primary, and how its twin differs."""

    path: str
    is_missing: bool = False
    differences: tuple[str, ...] = ()


@dataclass(slots=True)
class EntityListing:
    """The entities of a namespace by path in lower case, backlog queues left out."""

    queues: dict[str, QueueProperties] = field(default_factory=dict)
    topics: dict[str, TopicProperties] = field(default_factory=dict)
    subscriptions: dict[str, tuple[str, SubscriptionProperties]] = field(default_factory=dict)
    """With the name of their topic, by the path of the subscription."""

    def describe(self) -> Iterator[tuple[str, str, object]]:
        """Yield the kind, the path and the description of each entity; a topic before its subscriptions."""
        for queue in self.queues.values():
            yield "queue", queue.name, queue
        for topic in self.topics.values():
            yield "topic", topic.name, topic
        for topic_name, subscription in self.subscriptions.values():
            yield "subscription", f"{topic_name}/Subscriptions/{subscription.name}", subscription

    def find(self, kind: str, path: str) -> object | None:
        """Return the description of an entity of that kind; None when there is none."""
        key = path.casefold()
        if kind == "subscription":
            found = self.subscriptions.get(key)
            return None if found is None else found[1]
        return self.queues.get(key) if kind == "queue" else self.topics.get(key)

    def holds(self, path: str) -> bool:
        """Whether there is a queue or a topic of that path."""
        return path.casefold() in self.queues or path.casefold() in self.topics


def read(client: ServiceBusAdministrationClient) -> EntityListing:
    """Read all entities of a namespace. Raises the errors of the SDK's administration client."""
    found = EntityListing()
    for queue in client.list_queues():
        if BACKLOGS not in queue.name.casefold():
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
    for name in COMPARED:
        here, there = getattr(described, name, None), getattr(twin, name, None)
        is_window = name == "duplicate_detection_history_time_window"
        if is_window and not getattr(described, "requires_duplicate_detection", False):
            continue
        if here != there and here is not None:
            yield f"{name} is {there}, on the primary {here}"
    for name in FORWARDS:
        target, twin_target = (_path_of(getattr(each, name, None)) for each in (described, twin))
        if target is not None and target.casefold() != (twin_target or "").casefold():
            yield f"{name} is {twin_target}, on the primary {target}"


def create_missing(
    primary: ServiceBusAdministrationClient, secondary: ServiceBusAdministrationClient
) -> list[str]:
    """Create the twins that are missing, as the primary describes its entities; return their paths.

    Policies with keys are not copied. An entity that forwards is created after its target; one whose target exists on
    neither side is created without. Raises the errors of the SDK's administration client.
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
                properties.pop("max_message_size_in_kilobytes", None)
            if any(is_premium):  # chosen for the namespace, not for the entity
                properties.pop("enable_partitioning", None)
            _create(secondary, kind, path, properties)
            if kind == "subscription":
                _copy_rules(primary, secondary, path)
            names.add(path.casefold())
            made.append(path)
        waiting = [each for each in waiting if each not in ready]
    return made


def _targets(described: object) -> set[str]:
    paths = (_path_of(getattr(described, name, None)) for name in FORWARDS)
    return {path.casefold() for path in paths if path is not None}


def _path_of(target: str | None) -> str | None:
    """Return the path of an entity that the service names by its address; None without one."""
    return None if not target else urlsplit(target).path.strip("/")


def properties_of(kind: str, described: object, exists: Callable[[str], bool]) -> dict[str, Any]:
    """Return the keywords with which to create an entity like ``described``; ``exists`` takes a path in lower case."""
    found: dict[str, Any] = {}
    for name in COPIED[kind]:
        value = getattr(described, name, None)
        if name in FORWARDS:
            value = _path_of(value)
            value = value if value is not None and exists(value.casefold()) else None
        if value is not None and not (isinstance(value, timedelta) and value >= LIMITLESS):
            found[name] = value
    return found


def _create(
    client: ServiceBusAdministrationClient, kind: str, path: str, properties: Mapping[str, Any]
) -> None:
    if kind == "subscription":
        topic, name = _topic_and_name(path)
        client.create_subscription(topic, name, **properties)
        return
    create = client.create_queue if kind == "queue" else client.create_topic
    create_as_the_namespace_asks(
        lambda is_partitioned: create(path, **{"enable_partitioning": is_partitioned, **properties})
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
