"""The entities that a namespace starts with, independent of the file format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from ..auth import SharedAccessPolicy
from ..entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..entities.rule_operations import add_rule
from ..entities.rules import Rule
from ..entities.stored_message import Instant
from ..errors import BrokerError
from .table import BadConfigurationError


@dataclass(frozen=True, slots=True)
class SubscriptionPlan:
    """A subscription. Without ``rules`` it receives every message."""

    description: SubscriptionDescription
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """A topic and its subscriptions, by name."""

    description: TopicDescription
    subscriptions: Mapping[str, SubscriptionPlan] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NamespacePlan:
    """A namespace and its entities.

    ``port``: None for the default. ``partitions``: 1, 2 or 4 for a partitioned Premium namespace, else None.
    ``policies``: policies in addition to the root policy. ``source``: the file, for error messages.
    """

    name: str
    port: int | None = None
    partitions: int | None = None
    policies: tuple[SharedAccessPolicy, ...] = ()
    queues: Mapping[str, QueueDescription] = field(default_factory=dict)
    topics: Mapping[str, TopicPlan] = field(default_factory=dict)
    source: str = ""

    def create_entities(self, namespace: Namespace, now: Instant) -> None:
        """Create the entities that do not exist yet, all or none; existing ones stay unchanged.

        Raises BadConfigurationError, which names the entity.
        """
        there = {each.path for each in _all(namespace)}
        try:
            self._make_missing(namespace, {path.casefold() for path in there}, now)
        except BadConfigurationError:
            for each in reversed(_all(namespace)):  # subscriptions before their topics
                if each.path not in there:
                    namespace.delete(each.path)
            raise

    def _make_missing(self, namespace: Namespace, there: set[str], now: Instant) -> None:
        queues = {
            path: replace(each, enable_partitioning=self._is_partitioned(each))
            for path, each in self.queues.items()
            if path.casefold() not in there
        }
        for path, queue in queues.items():
            self._make(path, partial(namespace.create_queue, path, _without_forwarding(queue), now))
        for path, topic in self.topics.items():
            if path.casefold() not in there:
                described = topic.description
                described = replace(described, enable_partitioning=self._is_partitioned(described))
                self._make(path, partial(namespace.create_topic, path, described, now))
        # Forwarding targets exist by now.
        for path, queue in queues.items():
            if queue != _without_forwarding(queue):
                self._make(path, partial(namespace.update_queue, path, queue, now))
        for path, topic in self.topics.items():
            for name, plan in topic.subscriptions.items():
                make = partial(_subscribe, namespace, path, name, plan, now)
                self._make(f"{path}/Subscriptions/{name}", make)

    def _is_partitioned(self, requested: QueueDescription | TopicDescription) -> bool:
        # all entities of a partitioned Premium namespace are partitioned
        return self.partitions is not None or requested.enable_partitioning

    def _make(self, path: str, make: Callable[[], object]) -> None:
        try:
            make()
        except BrokerError as error:
            raise BadConfigurationError(f"{self.source}: {self.name}/{path}: {error}") from error


def _all(namespace: Namespace) -> list[Queue]:
    return namespace.directory.page(0, len(namespace.directory))[1]


def _subscribe(namespace: Namespace, topic: str, name: str, plan: SubscriptionPlan, now: Instant) -> None:
    if name.casefold() in (each.name.casefold() for each in namespace.subscriptions(topic)):
        return
    first = plan.rules[0] if plan.rules else None
    made = namespace.create_subscription(topic, name, plan.description, now, first)
    for rule in plan.rules[1:]:
        add_rule(made, rule, now)


def _without_forwarding(description: QueueDescription) -> QueueDescription:
    return replace(description, forward_to=None, forward_dead_lettered_messages_to=None)
