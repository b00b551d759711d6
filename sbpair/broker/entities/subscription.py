"""A subscription: a queue that is filled by its topic, and by nobody else.

Its rule is ``$Default``, which takes every message (3.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import NotAllowed, SessionRequired
from .forwarding import REASONS, WITHOUT_SESSION
from .queue import DESCRIPTION, REASON, Queue
from .stored_message import Instant, StoredMessage
from .surroundings import Surroundings
from .topic_description import SubscriptionDescription

if TYPE_CHECKING:
    from .topic import Topic

DEFAULT_RULE = "$Default"
NO_SESSION = {REASON: REASONS[SessionRequired], DESCRIPTION: WITHOUT_SESSION}


class Subscription(Queue):
    """Subscription ``name`` of ``topic``; ``asked`` was asked of it, ``description`` is what it follows."""

    def __init__(
        self,
        topic: Topic,
        name: str,
        asked: SubscriptionDescription,
        now: Instant,
        surroundings: Surroundings,
    ) -> None:
        super().__init__(f"{topic.path}/Subscriptions/{name}", asked.under(topic.asked), now, surroundings)
        self.topic = topic
        self.name = name
        self.asked = asked

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Raises NotAllowed: a topic is sent to."""
        raise NotAllowed(self.not_sent_to)

    @property
    def not_sent_to(self) -> str:
        """Why it takes no message from a sender."""
        return f"A message cannot be sent to the subscription '{self.path}': send it to '{self.topic.path}'."

    def publish(self, message: StoredMessage) -> None:
        """Take a copy of what the topic was sent; the bytes are shared. No use of the subscription (T-21)."""
        copy = message.copy()
        if self.sessions is not None and copy.session_id is None:
            assert self.dead_letter_queue is not None  # noqa: S101 - a subscription has one
            copy.dead_letter_source = self.path
            copy.amend(NO_SESSION)  # 3.2: the sender cannot be told
            self.dead_letter_queue._admit(copy)
            return
        self._place(copy)
        self.size += copy.size
        self._offer_fresh(copy)

    def change(self, asked: SubscriptionDescription, now: Instant) -> None:
        """Follow another description from now on. Raises InvalidDescription for a flag that is for ever."""
        self.redescribe(asked.under(self.topic.asked), now)
        self.asked = asked

    def topic_changed(self, now: Instant) -> None:
        """Follow what the topic was asked (T-9); nobody has used the subscription."""
        self.follow(self.asked.under(self.topic.asked), now)
