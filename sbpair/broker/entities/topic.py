"""Topics and subscriptions.

    enqueue --> SCHEDULED --.          .--> Subscriptions/billing
       |                    v          |
       '--------------> published -----+--> Subscriptions/audit       a copy for each rule that matches
                                       '--> (no match: discarded)

To senders, a topic is a queue: status, quota, schedule, duplicate detection, sequence numbers. It publishes a
message as soon as it is active and stores none. A copy carries the topic's sequence number as its enqueued
sequence number. A subscription is a queue that only its topic adds messages to.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import NotAllowed, SessionRequired
from .audit_recorder import Arrival, Removal
from .descriptions import SubscriptionDescription, TopicDescription
from .forwarding import REASONS, WITHOUT_SESSION
from .message_store import OUTGROWN
from .queue import DESCRIPTION, REASON, Queue
from .queue_context import QueueContext
from .rules import FilterCounts, RuleSet
from .rules.message_properties import HeaderOutgrown, LazyProperties
from .rules.values import EvaluationError
from .stored_message import Instant, StoredMessage

NO_SESSION = {REASON: REASONS[SessionRequired], DESCRIPTION: WITHOUT_SESSION}
FILTER_FAILED = "FilterEvaluationException"


class Subscription(Queue):
    """Subscription ``name`` of ``topic``.

    ``requested`` is the description as requested, ``description`` the one in effect, which depends on the
    topic's too. ``rules`` are shared by the partitions of a subscription. A new one counts as used (X-12).
    """

    kind = "Subscription"

    def __init__(
        self,
        topic: Topic,
        name: str,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> None:
        super().__init__(f"{topic.path}/Subscriptions/{name}", requested.under(topic.requested), now, context)
        self.topic = topic
        self.name = name
        self.requested = requested
        self.rules = rules
        self.accessed_at = now

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Raise NotAllowed: messages are sent to the topic."""
        raise NotAllowed(self.send_refusal)

    @property
    def send_refusal(self) -> str:
        """The error text for an attempt to send to the subscription."""
        return f"A message cannot be sent to the subscription '{self.path}': send it to '{self.topic.path}'."

    def publish(self, message: StoredMessage, properties: LazyProperties) -> None:
        """Store the copies of a message that the rules select. Does not count as use (T-21)."""
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
            except HeaderOutgrown:
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

    def change(self, requested: SubscriptionDescription, now: Instant) -> None:
        """Apply another description. Raises InvalidDescription when a fixed setting differs."""
        self.apply_description(requested.under(self.topic.requested), now)
        self.requested = requested

    def topic_changed(self, now: Instant) -> None:
        """Apply a change of the topic's description (T-9), without counting as use of the subscription."""
        self.set_description(self.requested.under(self.topic.requested), now)


class Topic(Queue):
    """A topic with its subscriptions by casefolded name; ``requested`` is its description as requested."""

    kind = "Topic"

    def __init__(self, path: str, requested: TopicDescription, now: Instant, context: QueueContext) -> None:
        super().__init__(path, requested.as_queue(), now, context)
        self.dead_letter_queue = None  # each subscription has its own
        self.requested = requested
        self.subscriptions: dict[str, Subscription] = {}
        self.filters = FilterCounts()

    @property
    def size_in_bytes(self) -> int:
        """Bytes of scheduled messages, subscriptions and the transfer dead-letter queue."""
        return super().size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def prepare_receive(self, now: Instant) -> None:
        """Raise NotAllowed: messages are received from a subscription."""
        raise NotAllowed(self.receive_refusal)

    @property
    def receive_refusal(self) -> str:
        """The error text for an attempt to receive from the topic."""
        return f"Messages cannot be received from the topic '{self.path}': receive from its subscriptions."

    def _offer_new(self, message: StoredMessage) -> None:
        if not message.is_ping:  # P-31
            properties = LazyProperties(message, self._codec)
            for subscription in self.subscriptions.values():
                subscription.publish(message, properties)
        self._remove(message, Removal.PUBLISHED)

    def _offer_run(self, messages: Sequence[StoredMessage]) -> None:
        for message in messages:
            self._offer_new(message)

    def subscription(
        self,
        name: str,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> Subscription:
        """Create a subscription, which receives messages once passed to :meth:`add`."""
        return Subscription(self, name, requested, now, context, rules)

    def add(self, made: Subscription) -> None:
        """Start publishing to a subscription."""
        self.subscriptions[made.name.casefold()] = made

    def drop(self, name: str) -> None:
        """Stop publishing to the subscription ``name``."""
        removed = self.subscriptions.pop(name.casefold())
        last_use = max(removed.updated_at, removed.accessed_at or 0)
        self.touch(last_use)  # T-21: it still counts as use of the topic

    def change(self, requested: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions.

        Raises InvalidDescription when a setting that is fixed at creation differs.
        """
        self.apply_description(requested.as_queue(), now)
        self.requested = requested
        for subscription in self.subscriptions.values():
            subscription.topic_changed(now)

    @property
    def idle_since(self) -> Instant | None:
        """The time of the last use of the topic or a subscription (T-21), or None while one is in use."""
        latest = super().idle_since
        for subscription in self.subscriptions.values():
            since = subscription.idle_since
            if latest is None or since is None:
                return None
            latest = max(latest, since)
        return latest
