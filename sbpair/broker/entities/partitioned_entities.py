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
    """A partitioned queue, as a namespace of this layout makes it."""

    def __init__(
        self, path: str, settled: QueueDescription, now: Instant, context: QueueContext, layout: Layout
    ) -> None:
        self._layout = layout
        each = layout.of_partition(settled)
        partitions = [Queue(path, each, now, spread) for spread in layout.spread(context)]
        super().__init__(path, layout.of_whole(settled), partitions, context, layout.first)

    def apply_description(self, settled: QueueDescription, now: Instant) -> None:
        """Follow another description. Raises InvalidDescription when a setting differs that is fixed at creation."""
        settled.check_successor_of(self._description)
        self._description = self._layout.of_whole(settled)
        for partition in self.partitions:
            partition.apply_description(self._layout.of_partition(settled), now)


class PartitionedTopic(Partitioned[Topic]):
    """A partitioned topic; ``requested`` was requested of it, with the size that it tells of itself."""

    def __init__(
        self, path: str, settled: TopicDescription, now: Instant, context: QueueContext, layout: Layout
    ) -> None:
        self.layout = layout
        self.requested = layout.of_whole(settled)
        self.subscriptions: dict[str, PartitionedSubscription] = {}
        self.filters = FilterCounts()
        each = layout.of_partition(settled)
        partitions = [Topic(path, each, now, spread) for spread in layout.spread(context)]
        super().__init__(path, self.requested.as_queue(), partitions, context, layout.first)

    @property
    def receive_refusal(self) -> str:
        """Why it hands no message to a receiver."""
        return self.partitions[0].receive_refusal

    def change(self, settled: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions. Raises InvalidDescription."""
        requested = self.layout.of_whole(settled)
        requested.as_queue().check_successor_of(self._description)
        self.requested, self._description = requested, requested.as_queue()
        for topic in self.partitions:
            topic.change(self.layout.of_partition(settled), now)
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
        """Make a subscription; it gets nothing until it is added."""
        return PartitionedSubscription(self, name, requested, now, context, rules)

    def add(self, made: PartitionedSubscription) -> None:
        """Publish to a subscription from now on."""
        self.subscriptions[made.name.casefold()] = made
        for topic, subscription in zip(self.partitions, made.partitions, strict=True):
            topic.add(subscription)

    def drop(self, name: str) -> None:
        """Publish to a subscription no longer."""
        del self.subscriptions[name.casefold()]
        for topic in self.partitions:
            topic.drop(name)

    def health_changed(self) -> None:
        """A partition came or went, and with it that of every subscription: they share its store."""
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
            Subscription(each, name, requested, now, context.of(each.partition), rules)
            for each in topic.partitions
            if each.partition is not None
        ]
        path = f"{topic.path}/Subscriptions/{name}"
        super().__init__(path, requested.under(topic.requested), partitions, context)

    @property
    def send_refusal(self) -> str:
        """Why it takes no message from a sender."""
        return self.partitions[0].send_refusal

    def change(self, requested: SubscriptionDescription, now: Instant) -> None:
        """Apply another description. Raises InvalidDescription when a fixed setting differs."""
        follows = requested.under(self.topic.requested)
        follows.check_successor_of(self._description)
        self.requested, self._description = requested, follows
        for subscription in self.partitions:
            subscription.change(requested, now)

    def topic_changed(self) -> None:
        """Follow what the topic was requested (T-9); its partitions were told by theirs."""
        self._description = self.requested.under(self.topic.requested)


AnyQueue = Queue | PartitionedQueue
AnyTopic = Topic | PartitionedTopic
AnySubscription = Subscription | PartitionedSubscription
