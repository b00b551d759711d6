"""Topics and subscriptions.

    enqueue --> SCHEDULED --.          .--> Subscriptions/billing
       |                    v          |
       '--------------> published -----+--> Subscriptions/audit       a copy for each rule that matches
                                       '--> (no match: discarded)

To senders, a topic is a queue: status, quota, schedule, duplicate detection, sequence numbers. It publishes a
message as soon as it is active and stores none. A copy carries the topic's sequence number as its enqueued
sequence number. A subscription is a queue that only its topic adds messages to. It has the partitions of its
topic: partition 3 of the topic publishes to partition 3 of each subscription, so a copy stays in the partition it
was published in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import NotAllowedError, ReceivedFromTopicError, SessionRequiredError
from .audit_recorder import Arrival, Removal
from .descriptions import SubscriptionDescription, TopicDescription
from .forwarding import REASONS, WITHOUT_SESSION
from .message_store import DESCRIPTION, OUTGROWN, REASON
from .partition import Layout
from .queue import Queue
from .queue_context import QueueContext
from .queue_partition import QueuePartition
from .rules import FilterCounts, RuleSet
from .rules.message_properties import HeaderOutgrownError, LazyProperties
from .rules.values import EvaluationError
from .stored_message import Instant, StoredMessage

NO_SESSION = {REASON: REASONS[SessionRequiredError], DESCRIPTION: WITHOUT_SESSION}
FILTER_FAILED = "FilterEvaluationException"


class SubscriptionPartition(QueuePartition):
    """The partition of a subscription that holds the copies published by the partition ``topic``.

    ``requested`` and ``rules`` are those of the subscription. A new one counts as used.
    """

    def __init__(
        self,
        path: str,
        topic: TopicPartition,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> None:
        super().__init__(path, requested.under(topic.requested), now, context)
        self.requested = requested
        self.rules = rules
        self.accessed_at = now

    def publish(self, message: StoredMessage, properties: LazyProperties) -> None:
        """Store the copies of a message that the rules select. Does not count as use."""
        if self.rules.accepts_all:
            self._accept(message.copy())
            return
        outcome = self.rules.evaluate_message(properties)
        failure = outcome.failure
        if outcome.is_selected:
            self._accept(message.copy())
        for changes in outcome.changes:
            copy = message.copy()
            try:
                self._codec.write(copy, changes)
            except HeaderOutgrownError:
                self._refuse(message.copy(), OUTGROWN)
            except EvaluationError as error:
                failure = failure or f"An action could not be written: {error}."
            else:
                self._accept(copy)
        if failure is not None and self.requested.dead_lettering_on_filter_evaluation_exceptions:
            self._refuse(message.copy(), {REASON: FILTER_FAILED, DESCRIPTION: failure})

    def _accept(self, copy: StoredMessage) -> None:
        if self.sessions is not None and copy.session_id is None:
            self._refuse(copy, NO_SESSION)
            return
        self._store(copy)
        self.size += copy.size
        if self._audit is not None:
            self._audit.stored(self.path, copy, Arrival.PUBLISHED)
        self._offer_new(copy)

    def _refuse(self, copy: StoredMessage, properties: Mapping[str, object]) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - every subscription has one
        copy.amend(properties)  # dead-lettered, since the sender has its answer already
        if self._audit is not None:
            self._audit.stored(self.path, copy, Arrival.PUBLISHED)
            self._audit.removed(self.path, copy, Removal.DEAD_LETTERED, str(properties[REASON]))
        self.dead_letter_queue._admit(copy)


class TopicPartition(QueuePartition):
    """A partition of a topic; it publishes to ``subscriptions``, by casefolded name."""

    def __init__(self, path: str, requested: TopicDescription, now: Instant, context: QueueContext) -> None:
        super().__init__(path, requested.as_queue(), now, context)
        self.dead_letter_queue = None  # each subscription has its own
        self.requested = requested
        self.subscriptions: dict[str, SubscriptionPartition] = {}

    @property
    def size_in_bytes(self) -> int:
        """Bytes of scheduled messages, subscriptions and the transfer dead-letter queue."""
        return super().size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def prepare_receive(self, now: Instant) -> None:
        """Raise ReceivedFromTopicError: messages are received from a subscription."""
        raise ReceivedFromTopicError(self.path)

    def _offer_new(self, message: StoredMessage) -> None:
        if not message.is_ping:
            properties = LazyProperties(message, self._codec)
            for subscription in self.subscriptions.values():
                subscription.publish(message, properties)
        self._remove(message, Removal.PUBLISHED)

    def _offer_run(self, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            self._offer_new(message)

    def drop(self, name: str) -> None:
        """Stop publishing to the subscription ``name``."""
        removed = self.subscriptions.pop(name)
        self.touch(max(removed.updated_at, removed.accessed_at or 0))  # it still counts as use of the topic

    def change(self, requested: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions, without counting as use of them."""
        self.requested = requested
        self.apply_description(requested.as_queue(), now)
        for each in self.subscriptions.values():
            each.set_description(each.requested.under(requested), now)

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use of the topic or a subscription, or None while one is in use."""
        latest = super().idle_since
        for subscription in self.subscriptions.values():
            since = subscription.idle_since
            if latest is None or since is None:
                return None
            latest = max(latest, since)
        return latest


class Topic(Queue):
    """A topic with its subscriptions by casefolded name.

    ``requested`` is its description as clients see it, ``filters`` the number of rules of all subscriptions.
    """

    partitions: tuple[TopicPartition, ...]

    def __init__(
        self, path: str, resolved: TopicDescription, now: Instant, context: QueueContext, layout: Layout
    ) -> None:
        self.requested = layout.reported_description(resolved)
        self.subscriptions: dict[str, Subscription] = {}
        self.filters = FilterCounts()
        each = layout.partition_description(resolved)
        partitions = [
            TopicPartition(path, each, now, its_context)
            for its_context in layout.partition_contexts(resolved, context)
        ]
        super().__init__(path, self.requested.as_queue(), partitions, context, layout)

    def change(self, resolved: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions."""
        self.requested = self.layout.reported_description(resolved)
        self._describe(self.requested.as_queue())
        for partition in self.partitions:
            partition.change(self.layout.partition_description(resolved), now)
        for subscription in self.subscriptions.values():
            subscription.topic_changed()

    def add(self, made: Subscription) -> None:
        """Start publishing to a subscription."""
        name = made.name.casefold()
        self.subscriptions[name] = made
        for topic, subscription in zip(self.partitions, made.partitions, strict=True):
            topic.subscriptions[name] = subscription

    def drop(self, name: str) -> None:
        """Stop publishing to the subscription ``name``."""
        del self.subscriptions[name.casefold()]
        for topic in self.partitions:
            topic.drop(name.casefold())

    def health_changed(self) -> None:
        """Apply a change of health to the topic and its subscriptions, which share its stores."""
        super().health_changed()
        for subscription in self.subscriptions.values():
            subscription.health_changed()


class Subscription(Queue):
    """Subscription ``name`` of ``topic``.

    ``requested`` is the description as requested, ``description`` the one in effect, which depends on the
    topic's too.
    """

    partitions: tuple[SubscriptionPartition, ...]

    def __init__(
        self,
        topic: Topic,
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
        path = f"{topic.path}/Subscriptions/{name}"
        partitions = [
            SubscriptionPartition(path, each, requested, now, context.for_partition(each.partition), rules)
            for each in topic.partitions
        ]
        super().__init__(path, requested.under(topic.requested), partitions, context, topic.layout)

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Raise NotAllowedError: messages are sent to the topic."""
        raise NotAllowedError(self.send_refusal)

    @property
    def counted_at(self) -> str:
        """The path of the topic, whose size limit holds for all of its subscriptions."""
        return self.topic.path

    @property
    def send_refusal(self) -> str:
        """The error text for an attempt to send to the subscription."""
        return f"A message cannot be sent to the subscription '{self.path}': send it to '{self.topic.path}'."

    def change(self, requested: SubscriptionDescription, now: Instant) -> None:
        """Apply another description. Raises InvalidDescriptionError when a fixed setting differs."""
        follows = requested.under(self.topic.requested)
        follows.check_successor_of(self.description, "Subscription")
        self.requested = requested
        self._describe(follows)
        for topic, partition in zip(self.topic.partitions, self.partitions, strict=True):
            partition.requested = requested
            partition.apply_description(requested.under(topic.requested), now)

    def topic_changed(self) -> None:
        """Follow a change of the topic's description; the partitions follow those of the topic."""
        self._describe(self.requested.under(self.topic.requested))
