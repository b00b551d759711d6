"""The entities of a namespace by path.

Paths are case-insensitive and may contain slashes (``contoso/x-servicebus-transfer/0``). Queues and
topics share one set of paths. The path of a subscription is ``events/Subscriptions/billing``;
``/$DeadLetterQueue`` and ``/$Transfer/$DeadLetterQueue`` after a path address the sub-queues of an entity.
"""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.pair.ground.entity_settings import TARGETS

from ..errors import (
    EntityAlreadyExistsError,
    EntityNotFoundError,
    InvalidDescriptionError,
    TargetNotFoundError,
)
from .descriptions import MAX_PATH, AccessRule, QueueDescription, SubscriptionDescription, fold, path_of
from .queue import Queue
from .queue_partition import QueuePartition
from .topic import Subscription, Topic

DEAD_LETTER = "/$deadletterqueue"
TRANSFER_DEAD_LETTER = "/$transfer" + DEAD_LETTER


class Directory:
    """The queues, topics and subscriptions of a namespace, and their sub-queues."""

    __slots__ = ("_entities", "_order")

    def __init__(self) -> None:
        self._entities: dict[str, Queue] = {}
        self._order: list[str] | None = None  # sorted keys, computed on demand

    def __len__(self) -> int:
        return len(self._entities)

    def __iter__(self) -> Iterator[Queue]:
        """Iterate over the queues, topics and subscriptions, sorted by path."""
        return iter([self._entities[key] for key in self._in_order()])

    def __contains__(self, entity: Queue | QueuePartition) -> bool:
        """Whether an entity exists; for a sub-queue or partition, whether the entity that it belongs to does."""
        top = entity.top
        return self._entities.get(fold(top.path)) is top

    def add(self, entity: Queue) -> None:
        """Add an entity whose path is free: call :meth:`check_free` first."""
        self._entities[fold(entity.path)] = entity
        self._order = None

    def remove(self, entity: Queue) -> None:
        """Remove an entity."""
        del self._entities[fold(entity.path)]
        self._order = None

    def entity(self, path: str) -> Queue:
        """Return the queue, topic or subscription at a path. Raises EntityNotFoundError."""
        entity = self._entities.get(fold(path))
        if entity is None:
            raise EntityNotFoundError(path)
        return entity

    def at(self, path: str) -> Queue:
        """Return the queue, topic, subscription or sub-queue at a path. Raises EntityNotFoundError."""
        key = fold(path)
        if not key.endswith(DEAD_LETTER):
            return self.entity(path)
        if key.endswith(TRANSFER_DEAD_LETTER):
            queue = self._entities.get(key.removesuffix(TRANSFER_DEAD_LETTER))
            part = None if queue is None else queue.transfer_dead_letter_queue
        else:
            queue = self._entities.get(key.removesuffix(DEAD_LETTER))
            part = None if queue is None else queue.dead_letter_queue
        if part is None:
            raise EntityNotFoundError(path)
        return part

    def queue(self, path: str) -> Queue:
        """Return the queue at a path. Raises EntityNotFoundError."""
        entity = self.entity(path)
        if not is_queue(entity):
            raise EntityNotFoundError(path)
        return entity

    def topic(self, path: str) -> Topic:
        """Return the topic at a path. Raises EntityNotFoundError."""
        topic = self.entity(path)
        if not isinstance(topic, Topic):
            raise EntityNotFoundError(path)
        return topic

    def page(self, skip: int, limit: int, find: str = "") -> tuple[int, list[Queue]]:
        """Page through the queues, topics and subscriptions whose path contains ``find``, sorted by path.

        Returns the total and at most ``limit`` entities after the first ``skip``.
        """
        keys, word = self._in_order(), fold(find)
        if word:
            keys = [key for key in keys if word in key]
        return len(keys), [self._entities[key] for key in keys[skip : skip + limit]]

    def access_rules(self, path: str) -> Iterator[tuple[str, AccessRule]]:
        """Iterate over pairs of path and access rule, for the entity at ``path`` and those above it."""
        key = fold(path.strip("/")[: MAX_PATH + 1]) + "/"  # no entity has a longer path
        end = key.find("/")
        while end >= 0:
            entity = self._entities.get(key[:end])
            if entity is not None:
                yield from ((entity.path, rule) for rule in entity.description.authorization_rules)
            end = key.find("/", end + 1)

    def check_free(self, path: str) -> None:
        """Raise EntityAlreadyExistsError if an entity has that path."""
        if fold(path) in self._entities:
            raise EntityAlreadyExistsError(path)

    def check_targets(
        self,
        path: str,
        requested: QueueDescription | SubscriptionDescription,
        current: QueueDescription | SubscriptionDescription | None,
    ) -> None:
        """Check that the entities to which ``requested`` newly forwards exist; they may be deleted later.

        Raises TargetNotFoundError, and InvalidDescriptionError for a subscription.
        """
        for setting in TARGETS:
            name: str | None = getattr(requested, setting.name)
            if name is None or (current is not None and getattr(current, setting.name) == name):
                continue
            target = self._entities.get(path_of(name).casefold())
            if target is None:
                raise TargetNotFoundError(path_of(name), path, setting.name)
            if isinstance(target, Subscription):
                raise InvalidDescriptionError(
                    f"{setting.name} names the subscription '{target.path}': name its topic."
                )

    def _in_order(self) -> list[str]:
        if self._order is None:
            self._order = sorted(self._entities)
        return self._order


def is_queue(entity: Queue) -> bool:
    """Whether an entity is a queue, neither a topic nor a subscription."""
    return not isinstance(entity, Topic | Subscription)
