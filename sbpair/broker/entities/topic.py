"""Topics and subscriptions.

    enqueue --> SCHEDULED --.          .--> Subscriptions/billing
       |                    v          |
       '--------------> published -----+--> Subscriptions/audit       a copy for each rule that matches
                                       '--> (no match: discarded)

To senders, a topic is a queue: status, quota, schedule, duplicate detection, sequence numbers. It publishes a
message as soon as it is active and keeps none. A copy carries the topic's sequence number as its enqueued
sequence number. A subscription is a queue that only its topic fills.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import NotAllowed, SessionRequired
from .descriptions import SubscriptionDescription, TopicDescription
from .forwarding import REASONS, WITHOUT_SESSION
from .message_store import OUTGROWN
from .queue import DESCRIPTION, REASON, Queue
from .queue_context import QueueContext
from .rules import FilterCounts, RuleSet
from .rules.message_properties import HeaderOutgrown, LazyProperties
from .rules.values import EvaluationError
from .stored_message import Instant, StoredMessage
from .audit_recorder import Arrival, Removal

NO_SESSION = {REASON: REASONS[SessionRequired], DESCRIPTION: WITHOUT_SESSION}
FILTER_FAILED = "FilterException"


class Subscription(Queue):
    """Subscription ``name`` of ``topic``; ``requested`` was requested of it, ``description`` is what it follows.

    ``rules`` may be shared, with the other partitions of the same subscription.
    """

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

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Raises NotAllowed: a topic is sent to."""
        raise NotAllowed(self.send_refusal)

    @property
    def send_refusal(self) -> str:
        """Why it takes no message from a sender."""
        return f"A message cannot be sent to the subscription '{self.path}': send it to '{self.topic.path}'."

    def publish(self, message: StoredMessage, properties: LazyProperties) -> None:
        """Take the copies that the rules want of what the topic was sent. No use of it (T-21)."""
        if self.rules.accepts_all:
            self._accept(message.copy())
            return
        verdict = self.rules.evaluate_message(properties)
        failure = verdict.failure
        if verdict.is_taken:
            self._accept(message.copy())
        for changes in verdict.changes:
            copy = message.copy()
            try:
                self._form.write(copy, changes)
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
        self._place(copy)
        self.size += copy.size
        if self._audit is not None:
            self._audit.stored(self.path, copy, Arrival.PUBLISHED)
        self._offer_new(copy)

    def _refuse(self, copy: StoredMessage, properties: Mapping[str, object]) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - a subscription has one
        copy.amend(properties)  # the sender cannot be told
        if self._audit is not None:
            self._audit.stored(self.path, copy, Arrival.PUBLISHED)
            self._audit.removed(self.path, copy, Removal.DEAD_LETTERED, str(properties[REASON]))
        self.dead_letter_queue._admit(copy)

    def change(self, requested: SubscriptionDescription, now: Instant) -> None:
        """Apply another description. Raises InvalidDescription when a fixed setting differs."""
        self.apply_description(requested.under(self.topic.requested), now)
        self.requested = requested

    def topic_changed(self, now: Instant) -> None:
        """Follow what the topic was requested (T-9); nobody has used the subscription."""
        self.follow(self.requested.under(self.topic.requested), now)


class Topic(Queue):
    """A topic and its subscriptions, by name in lower case. ``requested`` is what was requested of it."""

    def __init__(self, path: str, requested: TopicDescription, now: Instant, context: QueueContext) -> None:
        super().__init__(path, requested.as_queue(), now, context)
        self.dead_letter_queue = None  # its subscriptions have one each
        self.requested = requested
        self.subscriptions: dict[str, Subscription] = {}
        self.filters = FilterCounts()

    @property
    def size_in_bytes(self) -> int:
        """Bytes of what is scheduled, of every copy, and of what it could not hand on."""
        return super().size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def prepare_receive(self, now: Instant) -> None:
        """Raises NotAllowed: messages are received from a subscription."""
        raise NotAllowed(self.receive_refusal)

    @property
    def receive_refusal(self) -> str:
        """Why it hands no message to a receiver."""
        return f"Messages cannot be received from the topic '{self.path}': receive from its subscriptions."

    def _offer_new(self, message: StoredMessage) -> None:
        if not message.is_ping:  # P-31
            properties = LazyProperties(message, self._form)
            for subscription in self.subscriptions.values():
                subscription.publish(message, properties)
        self._forget(message, Removal.PUBLISHED)

    def subscription(
        self,
        name: str,
        requested: SubscriptionDescription,
        now: Instant,
        context: QueueContext,
        rules: RuleSet,
    ) -> Subscription:
        """Make a subscription; it gets nothing until it is added."""
        return Subscription(self, name, requested, now, context, rules)

    def add(self, made: Subscription) -> None:
        """Publish to a subscription from now on."""
        self.subscriptions[made.name.casefold()] = made

    def drop(self, name: str) -> None:
        """Publish to a subscription no longer."""
        gone = self.subscriptions.pop(name.casefold())
        self.touch(max(gone.updated_at, gone.accessed_at or 0))  # T-21: that it is gone undoes no use

    def change(self, requested: TopicDescription, now: Instant) -> None:
        """Apply another description, also to the subscriptions.

        Raises InvalidDescription when a setting differs that is fixed at creation.
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
