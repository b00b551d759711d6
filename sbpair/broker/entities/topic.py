"""A topic: who sends sees a queue, who receives sees its subscriptions.

    enqueue --> SCHEDULED --.          .--> Subscriptions/billing
       |                    v          |
       '--------------> published -----+--> Subscriptions/audit       the copies that its rules want
                                       '--> (nobody: it is gone)

It is a queue in what it does for senders (status, quota, schedule, duplicates, sequence numbers); of what
becomes active it keeps nothing. A copy carries the topic's number as the one it was enqueued with.
"""

from __future__ import annotations

from ..errors import NotAllowed
from .queue import Queue
from .rules import RuleSet
from .rules.message_properties import Reading
from .stored_message import Instant, StoredMessage
from .subscription import Subscription
from .surroundings import Surroundings
from .topic_description import SubscriptionDescription, TopicDescription
from .witness import Removal


class Topic(Queue):
    """A topic and its subscriptions, by name in lower case. ``asked`` is what was asked of it."""

    def __init__(self, path: str, asked: TopicDescription, now: Instant, surroundings: Surroundings) -> None:
        super().__init__(path, asked.as_queue(), now, surroundings)
        self.dead_letter_queue = None  # 3.2: its subscriptions have one each
        self.asked = asked
        self.subscriptions: dict[str, Subscription] = {}

    @property
    def size_in_bytes(self) -> int:
        """Bytes of what is scheduled, of every copy, and of what it could not hand on."""
        return super().size_in_bytes + sum(each.size_in_bytes for each in self.subscriptions.values())

    def look(self, now: Instant) -> None:
        """Raises NotAllowed: messages are received from a subscription."""
        raise NotAllowed(self.not_received_from)

    @property
    def not_received_from(self) -> str:
        """Why it hands no message to a receiver."""
        return f"Messages cannot be received from the topic '{self.path}': receive from its subscriptions."

    def _offer_fresh(self, message: StoredMessage) -> None:
        if not message.is_ping:  # P-31
            reading = Reading(message, self._form)
            for subscription in self.subscriptions.values():
                subscription.publish(message, reading)
        self._forget(message, Removal.PUBLISHED)

    def subscription(
        self,
        name: str,
        asked: SubscriptionDescription,
        now: Instant,
        surroundings: Surroundings,
        rules: RuleSet,
    ) -> Subscription:
        """Make a subscription; it gets nothing until it is added."""
        return Subscription(self, name, asked, now, surroundings, rules)

    def add(self, made: Subscription) -> None:
        """Publish to a subscription from now on."""
        self.subscriptions[made.name.casefold()] = made

    def drop(self, name: str) -> None:
        """Publish to a subscription no longer."""
        gone = self.subscriptions.pop(name.casefold())
        self.touch(max(gone.updated_at, gone.accessed_at or 0))  # T-21: that it is gone undoes no use

    def change(self, asked: TopicDescription, now: Instant) -> None:
        """Follow another description from now on, the subscriptions too.

        Raises InvalidDescription for a flag that is for ever.
        """
        self.redescribe(asked.as_queue(), now)
        self.asked = asked
        for subscription in self.subscriptions.values():
            subscription.topic_changed(now)

    @property
    def idle_since(self) -> Instant | None:
        """Since when nobody has used the topic or a subscription of it (T-21), or None while it is in use."""
        latest = super().idle_since
        for subscription in self.subscriptions.values():
            since = subscription.idle_since
            if latest is None or since is None:
                return None
            latest = max(latest, since)
        return latest
