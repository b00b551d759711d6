"""Partitioned queues, topics and subscriptions, and the types that cover plain and partitioned ones.

A subscription has the partitions of its topic: partition 3 of the topic publishes to partition 3 of each
subscription, so a copy stays in the partition it was published in.
"""

from __future__ import annotations

from .descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from .partition import Layout
from .partitioned import Partitioned
from .queue import Queue
from .queue_context import QueueContext
from .rules import FilterCounts, RuleSet
from .stored_message import Instant
from .topic import Subscription, Topic


class PartitionedQueue(Partitioned[Queue]):
    """A partitioned queue in a namespace with the given layout."""

    def __init__(
        self, path: str, resolved: QueueDescription, now: Instant, context: QueueContext, layout: Layout
    ) -> None:
        self._layout = layout
        each = layout.partition_description(resolved)
        partitions = [
            Queue(path, each, now, own_context) for own_context in layout.partition_contexts(context)
        ]
        super().__init__(path, layout.reported_description(resolved), partitions, context, layout.first)

    def apply_description(self, resolved: QueueDescription, now: Instant) -> None:
        """Apply another description.

        Raises InvalidDescription when a setting that is fixed at creation differs.
        """
        resolved.check_successor_of(self._description)
        self._description = self._layout.reported_description(resolved)
        for partition in self.partitions:
            partition.apply_description(self._layout.partition_description(resolved), now)


class PartitionedTopic(Partitioned[Topic]):
    """A partitioned topic; ``requested`` is its description as reported to clients."""

    def __init__(
        self, path: str, resolved: TopicDescription, now: Instant, context: QueueContext, layout: Layout
    ) -> None:
        self.layout = layout
        self.requested = layout.reported_description(resolved)
        self.subscriptions: dict[str, PartitionedSubscription] = {}
        self.filters = FilterCounts()
        each = layout.partition_description(resolved)
        partitions = [
            Topic(path, each, now, own_context) for own_context in layout.partition_contexts(context)
        ]
        super().__init__(path, self.requested.as_queue(), partitions, context, layout.first)

    @property
    def receive_refusal(self) -> str:
        """The error text for an attempt to receive from the topic."""
        return self.partitions[0].receive_refusal

    def change(self, resolved: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions. Raises InvalidDescription."""
        requested = self.layout.reported_description(resolved)
        requested.as_queue().check_successor_of(self._description, "Topic")
        self.requested, self._description = requested, requested.as_queue()
        for topic in self.partitions:
            topic.change(self.layout.partition_description(resolved), now)
        for subscription in self.subscriptions.values():
            subscription.topic_changed()

    def subscription(
        self,
        name: str,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> PartitionedSubscription:
        """Create a subscription, which receives messages once passed to :meth:`add`."""
        return PartitionedSubscription(self, name, requested, now, context, rules)

    def add(self, made: PartitionedSubscription) -> None:
        """Start publishing to a subscription."""
        self.subscriptions[made.name.casefold()] = made
        for topic, subscription in zip(self.partitions, made.partitions, strict=True):
            topic.add(subscription)

    def drop(self, name: str) -> None:
        """Stop publishing to the subscription ``name``."""
        del self.subscriptions[name.casefold()]
        for topic in self.partitions:
            topic.drop(name)

    def health_changed(self) -> None:
        """Apply a change of health to the topic and its subscriptions, which share its stores."""
        super().health_changed()
        for subscription in self.subscriptions.values():
            subscription.health_changed()


class PartitionedSubscription(Partitioned[Subscription]):
    """Subscription ``name`` of a partitioned topic."""

    def __init__(
        self,
        topic: PartitionedTopic,
        name: str,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> None:
        self.topic = topic
        self.name = name
        self.requested = requested
        self.rules = rules
        partitions = [
            Subscription(each, name, requested, now, context.for_partition(each.partition), rules)
            for each in topic.partitions
            if each.partition is not None
        ]
        path = f"{topic.path}/Subscriptions/{name}"
        super().__init__(path, requested.under(topic.requested), partitions, context)

    @property
    def send_refusal(self) -> str:
        """The error text for an attempt to send to the subscription."""
        return self.partitions[0].send_refusal

    def change(self, requested: SubscriptionDescription, now: Instant) -> None:
        """Apply another description. Raises InvalidDescription when a fixed setting differs."""
        follows = requested.under(self.topic.requested)
        follows.check_successor_of(self._description, "Subscription")
        self.requested, self._description = requested, follows
        for subscription in self.partitions:
            subscription.change(requested, now)

    def topic_changed(self) -> None:
        """Apply a change of the topic's description (T-9).

        The partitions are updated by those of the topic.
        """
        self._description = self.requested.under(self.topic.requested)


AnyQueue = Queue | PartitionedQueue
AnyTopic = Topic | PartitionedTopic
AnySubscription = Subscription | PartitionedSubscription
