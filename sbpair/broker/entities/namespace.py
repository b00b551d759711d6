"""A namespace: which entities there are, by which paths, and which of them has something due next.

Paths are compared without regard to case and may hold slashes (``contoso/x-servicebus-transfer/0``, P-10).
A dead-letter queue is reached through its queue: ``orders/$DeadLetterQueue``, and what it could not hand on
by ``orders/$Transfer/$DeadLetterQueue``; a subscription through its
topic: ``events/Subscriptions/billing``. Queues and topics share one space of paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TypeVar

from ..errors import BrokerError, EntityAlreadyExists, EntityNotFound, InvalidDescription, TargetNotFound
from .deadlines import Deadlines
from .description import QueueDescription, validated_path
from .message_session import SessionLock
from .operations import OperationCounts
from .paths import path_of
from .queue import Queue
from .stored_message import Instant, LockToken, StoredMessage
from .subscription import Subscription
from .surroundings import Surroundings
from .topic import Topic
from .topic_description import TARGETS, SubscriptionDescription, TopicDescription, validated_name

DEAD_LETTER = "/$deadletterqueue"
TRANSFER_DEAD_LETTER = "/$transfer" + DEAD_LETTER
Entity = TypeVar("Entity", bound=Queue)


def random_token() -> LockToken:
    """A lock token nobody can guess."""
    return LockToken(os.urandom(16))


class Namespace:
    """The entities of one namespace, in memory."""

    def __init__(
        self, name: str, *, created_at: Instant = 0, new_token: Callable[[], LockToken] = random_token
    ) -> None:
        self.name = name
        self.created_at = created_at
        self._queues: dict[str, Queue] = {}
        self._surroundings = Surroundings(new_token)
        self._timers = Deadlines[Queue]()
        self._idle = Deadlines[str]()  # looked at again then, not deleted then

    def transfer(self, messages: Sequence[StoredMessage], via: Queue, to: str, now: Instant) -> None:
        """Hand on what was sent via one entity to the one at ``to``; what that refuses, ``via`` keeps."""
        try:
            self.queue(to).enqueue_all(messages, now)
        except BrokerError as error:
            for message in messages:
                via.keep_untransferred(message, error, now)

    # -- queues

    def create_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Make a queue. Raises InvalidDescription, NotSupported, EntityAlreadyExists, TargetNotFound."""
        validated_path(path)
        description = description.validated()
        self._check_free(path)
        self._check_targets(path, description, None)
        return self._add(Queue(path, description, now, self._surroundings))

    def update_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Give a queue another description.

        Raises EntityNotFound, InvalidDescription, NotSupported, TargetNotFound.
        """
        queue = self._plain_queue(path)
        description = description.validated()
        self._check_targets(queue.path, description, queue.description)
        queue.redescribe(description, now)
        self._watch(queue)
        return queue

    def delete_queue(self, path: str, now: Instant) -> Queue:
        """Remove a queue with all of its messages and return it. Raises EntityNotFound."""
        queue = self._plain_queue(path)
        self._remove(queue)
        return queue

    def queue(self, path: str) -> Queue:
        """What keeps messages at that path: queue, topic, subscription, or a dead-letter queue.

        Raises EntityNotFound.
        """
        key = path.casefold()
        if not key.endswith(DEAD_LETTER):
            return self._existing(path)
        if key.endswith(TRANSFER_DEAD_LETTER):
            queue = self._queues.get(key.removesuffix(TRANSFER_DEAD_LETTER))
            part = None if queue is None else queue.transfer_dead_letter_queue
        else:
            queue = self._queues.get(key.removesuffix(DEAD_LETTER))
            part = None if queue is None else queue.dead_letter_queue
        if part is None:
            raise EntityNotFound(path)
        return part

    def queues(self) -> list[Queue]:
        """All queues, by path; dead-letter queues are reached through them."""
        return [queue for queue in self._sorted(Queue) if not isinstance(queue, Topic | Subscription)]

    # -- topics and subscriptions

    def create_topic(self, path: str, description: TopicDescription, now: Instant) -> Topic:
        """Make a topic. Raises InvalidDescription, NotSupported, EntityAlreadyExists."""
        validated_path(path)
        description = description.validated()
        self._check_free(path)
        return self._add(Topic(path, description, now, self._surroundings))

    def update_topic(self, path: str, description: TopicDescription, now: Instant) -> Topic:
        """Give a topic another description. Raises EntityNotFound, InvalidDescription, NotSupported."""
        topic = self.topic(path)
        topic.change(description.validated(), now)
        self._watch(topic)
        return topic

    def delete_topic(self, path: str) -> Topic:
        """Remove a topic and its subscriptions and return it. Raises EntityNotFound."""
        topic = self.topic(path)
        self._remove(topic)
        return topic

    def topic(self, path: str) -> Topic:
        """The topic of that path. Raises EntityNotFound."""
        topic = self._existing(path)
        if not isinstance(topic, Topic):
            raise EntityNotFound(path)
        return topic

    def topics(self) -> list[Topic]:
        """All topics, by path."""
        return self._sorted(Topic)

    def create_subscription(
        self, topic_path: str, name: str, description: SubscriptionDescription, now: Instant
    ) -> Subscription:
        """Make a subscription, which gets what is published from now on.

        Raises EntityNotFound without the topic, and as :meth:`create_queue`.
        """
        topic = self.topic(topic_path)
        description = description.validated()
        made = Subscription(topic, validated_name(name), description, now, self._surroundings)
        self._check_free(made.path)
        self._check_targets(made.path, description, None)
        topic.subscriptions[name.casefold()] = made
        return self._add(made)

    def update_subscription(
        self, topic_path: str, name: str, description: SubscriptionDescription, now: Instant
    ) -> Subscription:
        """Give a subscription another description. Raises as :meth:`update_queue`."""
        subscription = self.subscription(topic_path, name)
        description = description.validated()
        self._check_targets(subscription.path, description, subscription.asked)
        subscription.change(description, now)
        self._watch(subscription)
        return subscription

    def delete_subscription(self, topic_path: str, name: str) -> Subscription:
        """Remove a subscription with all of its messages and return it. Raises EntityNotFound."""
        subscription = self.subscription(topic_path, name)
        self._remove(subscription)
        return subscription

    def subscription(self, topic_path: str, name: str) -> Subscription:
        """The subscription of that name. Raises EntityNotFound."""
        found = self.topic(topic_path).subscriptions.get(name.casefold())
        if found is None:
            raise EntityNotFound(f"{topic_path}/Subscriptions/{name}")
        return found

    def subscriptions(self, topic_path: str) -> list[Subscription]:
        """All subscriptions of a topic, by name. Raises EntityNotFound."""
        found = self.topic(topic_path).subscriptions
        return [found[name] for name in sorted(found)]

    # -- all of them

    def delete(self, path: str) -> Queue:
        """Remove the queue, topic or subscription of that path. Raises EntityNotFound."""
        entity = self._existing(path)
        self._remove(entity)
        return entity

    def holds(self, queue: Queue) -> bool:
        """False once the queue, or the queue this dead-letter queue belongs to, was deleted."""
        top = queue.parent or queue
        return self._queues.get(top.path.casefold()) is top

    @property
    def operations(self) -> OperationCounts:
        """Billed operations up to now (P-34, P-43)."""
        return self._surroundings.operations.counts()

    def receive_began(self) -> None:
        """Count a receive: a link's credit was granted from zero (P-41)."""
        self._surroundings.operations.polls += 1

    def management_requested(self) -> None:
        """Count an operation on a $management node."""
        self._surroundings.operations.management += 1

    def forward(self, now: Instant) -> None:
        """Let everything go on that is to be forwarded (3.7)."""
        forwards = self._surroundings.forwards
        while forwards:
            source = next(iter(forwards))
            del forwards[source]
            if self.holds(source):
                source.forwarding.run(self.queue, now)

    def new_token(self) -> LockToken:
        """16 bytes that no other token of the namespace has."""
        return self._surroundings.new_token()

    def take_ready(self) -> list[Queue | SessionLock]:
        """What got something to deliver, was deleted, or was lost, since this was last asked."""
        ready = self._surroundings.ready
        if not ready:
            return []
        taken = list(ready)
        ready.clear()
        return taken

    def next_timer(self) -> Instant | None:
        """The earliest deadline of any entity; None for never."""
        self._look_at_stirred()
        return min((at for at in (self._timers.next(), self._idle.next()) if at is not None), default=None)

    def handle_timer(self, now: Instant) -> None:
        """Let everything happen that is due up to ``now``."""
        self._look_at_stirred()
        for queue in self._timers.take_due(now):
            queue.handle_timer(now)
        for key in self._idle.take_due(now):
            if key in self._queues:  # not gone meanwhile with its topic
                self._retire(key, self._queues[key], now)
        self.forward(now)

    def _look_at_stirred(self) -> None:
        stirred = self._surroundings.stirred
        for queue in stirred:
            at = queue.next_timer()
            if at is None or not self.holds(queue):
                self._timers.drop(queue)
            else:
                self._timers.set(queue, at)
        stirred.clear()

    def _retire(self, key: str, queue: Queue, now: Instant) -> None:
        span, since = queue.description.auto_delete_on_idle, queue.idle_since
        if span is None:
            return
        if since is not None and since + span <= now:
            self._remove(queue)  # T-20
        else:
            self._idle.set(key, (now if since is None else since) + span)

    def _watch(self, queue: Queue) -> None:
        key, span = queue.path.casefold(), queue.description.auto_delete_on_idle
        if span is None:
            self._idle.drop(key)
        else:
            self._idle.set(key, queue.updated_at + span)

    def _add(self, made: Entity) -> Entity:
        self._queues[made.path.casefold()] = made
        self._watch(made)
        return made

    def _remove(self, queue: Queue) -> None:
        if isinstance(queue, Topic):
            for subscription in list(queue.subscriptions.values()):
                self._remove(subscription)
        elif isinstance(queue, Subscription):
            del queue.topic.subscriptions[queue.name.casefold()]
        key = queue.path.casefold()
        del self._queues[key]
        self._idle.drop(key)
        for part in (queue, *queue.sub_queues):
            self._timers.drop(part)
            self._surroundings.ready.add(part)  # so that its links learn of it

    def _check_targets(
        self,
        path: str,
        asked: QueueDescription | SubscriptionDescription,
        current: QueueDescription | SubscriptionDescription | None,
    ) -> None:
        for field in TARGETS:  # 3.7: a target is to be there when it is named, and may go later
            name = getattr(asked, field)
            if name is None or (current is not None and getattr(current, field) == name):
                continue
            target = self._queues.get(path_of(name).casefold())
            if target is None:
                raise TargetNotFound(path_of(name), path, field)
            if isinstance(target, Subscription):
                raise InvalidDescription(f"{field} names the subscription '{target.path}': name its topic.")
            if field == "forward_to" and target.path.casefold() == path.casefold():
                raise InvalidDescription(f"{field} names '{path}' itself.")

    def _check_free(self, path: str) -> None:
        if path.casefold() in self._queues:
            raise EntityAlreadyExists(path)

    def _sorted(self, kind: type[Entity]) -> list[Entity]:
        entities = (self._queues[key] for key in sorted(self._queues))
        return [entity for entity in entities if isinstance(entity, kind)]

    def _plain_queue(self, path: str) -> Queue:
        queue = self._existing(path)
        if isinstance(queue, Topic | Subscription):
            raise EntityNotFound(path)
        return queue

    def _existing(self, path: str) -> Queue:
        queue = self._queues.get(path.casefold())
        if queue is None:
            raise EntityNotFound(path)
        return queue
