"""A subscription: a queue that is filled by its topic, with what its rules take, and by nobody else (3.8)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import NotAllowed, SessionRequired
from .forwarding import REASONS, WITHOUT_SESSION
from .message_store import OUTGROWN
from .queue import DESCRIPTION, REASON, Queue
from .rules import RuleSet
from .rules.message_properties import HeaderOutgrown, Reading
from .rules.values import EvaluationError
from .stored_message import Instant, StoredMessage
from .surroundings import Surroundings
from .topic_description import SubscriptionDescription
from .witness import Arrival, Removal

if TYPE_CHECKING:
    from .topic import Topic

NO_SESSION = {REASON: REASONS[SessionRequired], DESCRIPTION: WITHOUT_SESSION}
FILTER_FAILED = "FilterException"


class Subscription(Queue):
    """Subscription ``name`` of ``topic``; ``asked`` was asked of it, ``description`` is what it follows.

    ``rules`` may be shared, with the other partitions of the same subscription.
    """

    def __init__(
        self,
        topic: Topic,
        name: str,
        asked: SubscriptionDescription,
        now: Instant,
        surroundings: Surroundings,
        rules: RuleSet,
    ) -> None:
        super().__init__(f"{topic.path}/Subscriptions/{name}", asked.under(topic.asked), now, surroundings)
        self.topic = topic
        self.name = name
        self.asked = asked
        self.rules = rules

    def enqueue_all(self, messages: Sequence[StoredMessage], now: Instant) -> list[int]:
        """Raises NotAllowed: a topic is sent to."""
        raise NotAllowed(self.not_sent_to)

    @property
    def not_sent_to(self) -> str:
        """Why it takes no message from a sender."""
        return f"A message cannot be sent to the subscription '{self.path}': send it to '{self.topic.path}'."

    def publish(self, message: StoredMessage, reading: Reading) -> None:
        """Take the copies that the rules want of what the topic was sent. No use of it (T-21)."""
        if self.rules.takes_all:
            self._accept(message.copy())
            return
        verdict = self.rules.judge(reading)
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
        if failure is not None and self.asked.dead_lettering_on_filter_evaluation_exceptions:
            self._refuse(message.copy(), {REASON: FILTER_FAILED, DESCRIPTION: failure})

    def _accept(self, copy: StoredMessage) -> None:
        if self.sessions is not None and copy.session_id is None:
            self._refuse(copy, NO_SESSION)
            return
        self._place(copy)
        self.size += copy.size
        if self._witness is not None:
            self._witness.stored(self.path, copy, Arrival.PUBLISHED)
        self._offer_fresh(copy)

    def _refuse(self, copy: StoredMessage, properties: Mapping[str, object]) -> None:
        assert self.dead_letter_queue is not None  # noqa: S101 - a subscription has one
        copy.dead_letter_source = self.path
        copy.amend(properties)  # 3.2: the sender cannot be told
        if self._witness is not None:
            self._witness.stored(self.path, copy, Arrival.PUBLISHED)
            self._witness.removed(self.path, copy, Removal.DEAD_LETTERED, str(properties[REASON]))
        self.dead_letter_queue._admit(copy)

    def change(self, asked: SubscriptionDescription, now: Instant) -> None:
        """Follow another description from now on. Raises InvalidDescription for a flag that is for ever."""
        self.redescribe(asked.under(self.topic.asked), now)
        self.asked = asked

    def topic_changed(self, now: Instant) -> None:
        """Follow what the topic was asked (T-9); nobody has used the subscription."""
        self.follow(self.asked.under(self.topic.asked), now)
