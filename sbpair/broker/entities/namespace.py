"""A namespace: creates, changes and deletes its entities, and runs their timers and forwarding."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ..errors import BrokerError, EntityNotFoundError, InvalidDescriptionError, ReroutingError
from .audit_recorder import AuditRecorder
from .change_log import ChangeLog
from .descriptions import (
    Description,
    KeptText,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    validated_name,
    validated_path,
)
from .directory import Directory, is_queue
from .forwarding import OF_TARGET
from .partition import Health, Layout
from .queue import Queue, new_queue
from .queue_context import SLICE, OperationCounts, QueueContext
from .queue_partition import QueuePartition
from .quotas import Credits, EntityLimits, Tier
from .rules import Rule, RuleSet
from .rules.message_properties import ExtractedFieldCodec, PropertyCodec
from .sessions import SessionLock
from .stored_message import Instant, LockToken, StoredMessage
from .timers import Call, Timers
from .topic import Subscription, Topic

AnyEntity = TypeVar("AnyEntity", bound=Queue)
TOKEN_SIZE = 16  # bytes


def random_tokens() -> Iterator[LockToken]:
    """Iterate over lock tokens that cannot be guessed. Random bytes are requested for 256 tokens at a time."""
    while True:
        drawn = os.urandom(256 * TOKEN_SIZE)
        for at in range(0, len(drawn), TOKEN_SIZE):
            yield LockToken(drawn[at : at + TOKEN_SIZE])


class Namespace:
    """The entities of one namespace, in memory.

    * ``created_at``: milliseconds since the epoch.
    * ``new_token``: creates unique lock tokens; by default they are random.
    * ``legacy_forward_tdlq``: move messages that cannot be forwarded to the transfer dead-letter queue of their
      source, as documented until 2021, instead of its dead-letter queue.
    * ``codec``: reads messages for rules.
    * ``change_log``: collects changes for a store.
    * ``audit``: records what happens to each message.
    * ``credits_per_second``: limits operations, see :class:`Credits`; None for no limit.

    If the attribute ``updates_take_locks`` is True, changing the description of a queue or subscription ends the locks
    in it, as may happen in the service.
    """

    def __init__(
        self,
        name: str,
        *,
        created_at: Instant = 0,
        new_token: Callable[[], LockToken] | None = None,
        layout: Layout | None = None,
        tier: Tier = Tier.STANDARD,
        legacy_forward_tdlq: bool = False,
        codec: PropertyCodec | None = None,
        change_log: ChangeLog | None = None,
        audit: AuditRecorder | None = None,
        credits_per_second: int | None = None,
    ) -> None:
        self.name = name
        self.created_at = created_at
        self.layout = layout or Layout()
        self.tier = Tier.PREMIUM if self.layout.is_premium else tier
        self.credits = Credits(credits_per_second if self.tier.has_credits else None)
        self.directory = Directory()
        self._limits = EntityLimits(self.layout)
        self._context = QueueContext(
            new_token or partial(next, random_tokens()),
            codec or ExtractedFieldCodec(),
            legacy_forward_tdlq=legacy_forward_tdlq,
            change_log=change_log,
            audit=audit,
        )
        self.change_log = change_log
        self.audit = audit
        self._timers = Timers(self._context, self.directory)
        self.updates_take_locks = False
        self._blocked_forwards: dict[
            QueuePartition, None
        ] = {}  # sources whose forwarding waits for a partition

    @property
    def messaging_units(self) -> int | None:
        """The messaging units of a Premium namespace, one for each partition; None for another tier."""
        return len(self.layout.stores) if self.layout.is_premium else 1 if self.tier is Tier.PREMIUM else None

    def transfer(self, messages: Sequence[StoredMessage], via: Queue, to: str, now: Instant) -> None:
        """Transfer messages sent via ``via`` to the entity at ``to``.

        If the destination refuses them, they go to the transfer dead-letter queue of ``via``.
        """
        try:
            self.queue(to).enqueue_all(messages, now)
        except ReroutingError as rerouting:
            self.call_at(rerouting.at, lambda then: self.transfer(messages, via, to, then))
        except BrokerError as error:
            for message in messages:
                via.dead_letter_untransferred(message, error, now)

    # -- queues

    def create_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Create a queue.

        Raises InvalidDescriptionError, NotSupportedError, EntityAlreadyExistsError, TargetNotFoundError,
        TooManyEntitiesError, PartitionUnavailableError.
        """
        resolved = self._check_creatable(path, description)
        self.directory.check_targets(path, resolved, None)
        return self._create_queue(path, resolved, now)

    def _create_queue(self, path: str, resolved: QueueDescription, now: Instant) -> Queue:
        return self._add(new_queue(path, resolved, now, self._context, self.layout))

    def update_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Change the description of a queue.

        Raises EntityNotFoundError, InvalidDescriptionError, NotSupportedError, TargetNotFoundError,
        PartitionUnavailableError.
        """
        queue = self.directory.queue(path)
        description.check_successor_of(queue.description)
        resolved = self._resolve(description)
        self.directory.check_targets(queue.path, resolved, queue.description)
        queue.check_manageable()
        before = queue.description
        queue.apply_description(resolved, now)
        self._description_changed(queue, before, now)
        return queue

    def delete_queue(self, path: str, now: Instant) -> Queue:
        """Delete a queue with all of its messages and return it.

        Raises EntityNotFoundError, and PartitionUnavailableError while a partition is down.
        """
        queue = self.directory.queue(path)
        self._delete(queue)
        return queue

    def queue(self, path: str) -> Queue:
        """Return the entity at a path: a queue, topic, subscription or sub-queue.

        Raises EntityNotFoundError.
        """
        return self.directory.at(path)

    def queues(self) -> list[Queue]:
        """Return all queues, without sub-queues, sorted by path."""
        return [entity for entity in self.directory if is_queue(entity)]

    # -- topics and subscriptions

    def create_topic(self, path: str, description: TopicDescription, now: Instant) -> Topic:
        """Create a topic. Raises as :meth:`create_queue`."""
        return self._create_topic(path, self._check_creatable(path, description), now)

    def _create_topic(self, path: str, resolved: TopicDescription, now: Instant) -> Topic:
        return self._add(Topic(path, resolved, now, self._context, self.layout))

    def update_topic(self, path: str, description: TopicDescription, now: Instant) -> Topic:
        """Change the description of a topic. Raises as :meth:`update_queue`."""
        topic = self.topic(path)
        description.as_queue().check_successor_of(topic.description, "Topic")
        resolved = self._resolve(description)
        topic.check_manageable()
        topic.change(resolved, now)
        self._described(topic)
        return topic

    def delete_topic(self, path: str) -> Topic:
        """Delete a topic with its subscriptions and return it. Raises as :meth:`delete_queue`."""
        topic = self.topic(path)
        self._delete(topic)
        return topic

    def topic(self, path: str) -> Topic:
        """Return the topic at a path. Raises EntityNotFoundError."""
        return self.directory.topic(path)

    def topics(self) -> list[Topic]:
        """Return all topics, sorted by path."""
        return [entity for entity in self.directory if isinstance(entity, Topic)]

    def create_subscription(
        self,
        topic_path: str,
        name: str,
        description: SubscriptionDescription,
        now: Instant,
        rule: Rule | None = None,
    ) -> Subscription:
        """Create a subscription, which receives messages published from now on.

        ``rule`` is its first rule; None for one that matches all messages.

        Raises EntityNotFoundError when the topic does not exist, TooManyEntitiesError when it has too many
        subscriptions, and as :meth:`create_queue`.
        """
        topic = self.topic(topic_path)
        resolved = description.normalize()
        self.directory.check_free(f"{topic.path}/Subscriptions/{validated_name(name)}")
        self.directory.check_targets(f"{topic.path}/Subscriptions/{name}", resolved, None)
        self._limits.check_subscriptions(topic.path, len(topic.subscriptions))
        topic.check_manageable()
        return self._create_subscription(topic, name, resolved, now, RuleSet(rule or Rule(created_at=now)))

    def _create_subscription(
        self, topic: Topic, name: str, resolved: SubscriptionDescription, now: Instant, rules: RuleSet
    ) -> Subscription:
        made = Subscription(topic, name, resolved, now, self._context, rules)
        topic.add(made)
        self._add(made)
        made.rules.counts = topic.filters
        topic.filters.add(made.rules)

        def changed() -> None:
            if self.change_log is not None and self.holds(made):
                self.change_log.entity_described(made)

        if self.change_log is not None:
            made.rules.on_change = changed
        return made

    def update_subscription(
        self, topic_path: str, name: str, description: SubscriptionDescription, now: Instant
    ) -> Subscription:
        """Change the description of a subscription. Raises as :meth:`update_queue`."""
        subscription = self.subscription(topic_path, name)
        resolved = description.normalize()
        self.directory.check_targets(subscription.path, resolved, subscription.requested)
        subscription.check_manageable()
        before = subscription.description
        subscription.change(resolved, now)
        self._description_changed(subscription, before, now)
        return subscription

    def delete_subscription(self, topic_path: str, name: str) -> Subscription:
        """Delete a subscription with all of its messages and return it. Raises as :meth:`delete_queue`."""
        subscription = self.subscription(topic_path, name)
        self._delete(subscription)
        return subscription

    def subscription(self, topic_path: str, name: str) -> Subscription:
        """Return a subscription of a topic by name. Raises EntityNotFoundError."""
        found = self.topic(topic_path).subscriptions.get(name.casefold())
        if found is None:
            raise EntityNotFoundError(f"{topic_path}/Subscriptions/{name}")
        return found

    def subscriptions(self, topic_path: str) -> list[Subscription]:
        """Return all subscriptions of a topic, sorted by name. Raises EntityNotFoundError."""
        found = self.topic(topic_path).subscriptions
        return [found[name] for name in sorted(found)]

    # -- all entities

    def delete(self, path: str) -> Queue:
        """Delete the queue, topic or subscription at a path and return it. Raises as :meth:`delete_queue`."""
        entity = self.directory.entity(path)
        self._delete(entity)
        return entity

    def holds(self, entity: Queue | QueuePartition) -> bool:
        """Whether an entity exists; for a sub-queue or partition, whether the entity that it belongs to does."""
        return entity in self.directory

    # -- restoring from a store, without repeating the checks of creation

    def restore_queue(self, path: str, description: QueueDescription, created_at: Instant) -> Queue:
        """Restore a queue from a store. Raises InvalidDescriptionError."""
        return self._create_queue(path, self._resolve(description), created_at)

    def restore_topic(self, path: str, description: TopicDescription, created_at: Instant) -> Topic:
        """Restore a topic, without its subscriptions. Raises InvalidDescriptionError."""
        return self._create_topic(path, self._resolve(description), created_at)

    def restore_subscription(
        self,
        topic_path: str,
        name: str,
        description: SubscriptionDescription,
        rules: Sequence[Rule],
        created_at: Instant,
    ) -> Subscription:
        """Restore a subscription with its rules. Raises EntityNotFoundError, InvalidDescriptionError."""
        rule_set = RuleSet(*rules[:1])
        for rule in rules[1:]:
            rule_set.put(rule)
        return self._create_subscription(
            self.topic(topic_path), name, description.normalize(), created_at, rule_set
        )

    # -- partitions

    def set_health(self, path: str, index: int, health: Health, known_from: Instant = 0) -> None:
        """Set the health of one partition of an entity, its dead-letter queue and subscriptions.

        Raises EntityNotFoundError, and InvalidDescriptionError when there is no such partition.
        """
        entity = self.queue(path).top
        if not entity.is_partitioned:
            raise InvalidDescriptionError(f"The entity '{entity.path}' is not partitioned.")
        self._check_index(index)
        entity.set_health(index, health, known_from)
        self._context.forwards.update(self._blocked_forwards)

    def set_store_health(self, index: int, health: Health, known_from: Instant = 0) -> None:
        """Set the health of a store, which affects that partition of every partitioned entity.

        Raises InvalidDescriptionError when there is no such store.
        """
        self._check_index(index)
        self.layout.stores[index].set(health, known_from)
        for entity in self.directory:
            if entity.is_partitioned:
                entity.health_changed()
        self._context.forwards.update(self._blocked_forwards)

    def _check_index(self, index: int) -> None:
        if not 0 <= index < len(self.layout.stores):
            raise InvalidDescriptionError(
                f"There is no partition {index!r}: use 0 to {len(self.layout.stores) - 1}."
            )

    def impose_status(self, path: str, status: str | None, now: Instant) -> None:
        """Override the status of a queue, topic or subscription without storing it; None ends the override.

        Raises EntityNotFoundError.
        """
        partitions = self.directory.entity(path).all_partitions()
        for partition in partitions:
            partition.imposed_status = status
        for partition in partitions:
            partition.set_description(partition.description, now)  # notifies receivers
        self._wake(path)

    def let_front_ends_cache(self, cache: bool) -> None:
        """Set whether each connection's front end caches messages of partitioned entities."""
        self._context.front_ends_cache = cache

    def impose_front_end_cache(self, is_on: bool) -> None:
        """Begin or end a fault by which front ends cache, regardless of the setting."""
        self._context.is_cache_imposed = is_on

    # -- operations, timers and notifications

    @property
    def operations(self) -> OperationCounts:
        """Billed operations so far."""
        return self._context.operations.counts()

    def receive_began(self) -> None:
        """Count a receive: a link's credit was granted from zero."""
        self._context.operations.polls += 1

    def management_requested(self) -> None:
        """Count an operation on a $management node."""
        self._context.operations.management += 1

    @property
    def work_done(self) -> int:
        """Messages processed so far; bulk work checks it to end a slice."""
        return self._context.work.steps

    def worked(self, steps: int) -> None:
        """Count ``steps`` delivered messages as work."""
        self._context.work.steps += steps

    def forward(self, now: Instant, limit: int | None = None) -> bool:
        """Forward about ``limit`` waiting messages, None for all; return whether there are more."""
        forwards, until = self._context.forwards, None if limit is None else self.work_done + limit
        while forwards:
            if until is not None and self.work_done >= until:
                return True
            source = next(iter(forwards))
            del forwards[source]
            obstacle = source.forwarding.run(self.queue, now) if self.holds(source) else None
            if obstacle is not None:
                forwards.pop(source, None)  # else it would be retried at once
            if obstacle is not None and not isinstance(obstacle, OF_TARGET):
                self._blocked_forwards[source] = None
            if isinstance(obstacle, ReroutingError):
                self.call_at(obstacle.at, self._retry_forwarding)
        return False

    def _wake(self, target: str) -> None:
        """Resume forwarding of the messages that wait for the entity at the path ``target``."""
        for source in self._context.awaited.pop(target.casefold(), ()):
            source.forwarding.target_changed()
            self._context.forwards[source] = None

    def _retry_forwarding(self, now: Instant) -> None:
        """Retry messages that could not be forwarded."""
        self._context.forwards.update(self._blocked_forwards)
        self._blocked_forwards.clear()

    def new_token(self) -> LockToken:
        """Return a unique token of 16 bytes."""
        return self._context.new_token()

    def take_ready(self) -> list[Queue | SessionLock]:
        """Return the entities and session locks with something to deliver or report since the last call.

        That is a message, the deletion of the entity or the end of the session lock.
        """
        ready = self._context.ready
        if not ready:
            return []
        taken = list(ready)
        ready.clear()
        return taken

    def take_updated(self) -> list[Queue]:
        """Return the queues and subscriptions whose description an update has changed since the last call."""
        updated = self._context.updated
        if not updated:
            return []
        taken = list(updated)
        updated.clear()
        return taken

    def next_timer(self) -> Instant | None:
        """Return when the next timer is due, or None."""
        return self._timers.next()

    def take_moved_timer(self) -> Instant | None:
        """Return when the next timer is due if that may have changed since the last call; None otherwise."""
        if not (self._context.rescheduled or self._timers.have_moved):
            return None
        at = self._timers.next()
        self._timers.have_moved = False
        return at

    def call_at(self, at: Instant, call: Call) -> None:
        """Call ``call`` once, at the time ``at`` or later, with the current time."""
        self._timers.call_at(at, call)

    def handle_timer(self, now: Instant) -> None:
        """Run the timers due at ``now``: one slice of work, the rest remains due."""
        self._timers.run(now)
        for entity in self._timers.take_idle(now):
            self._remove(entity)
        self.forward(now, SLICE)

    def _resolve(self, requested: Description) -> Description:
        if self.tier is Tier.PREMIUM and requested.enable_partitioning and not self.layout.is_premium:
            raise InvalidDescriptionError(
                "enable_partitioning is chosen for a whole namespace on the Premium tier."
            )
        return self.tier.resolve(self.layout.resolve(requested)).normalize()

    def _check_creatable(self, path: str, requested: Description) -> Description:
        """Check that an entity can be created at ``path`` and return its resolved description."""
        validated_path(path)
        resolved = self._resolve(requested)
        self.directory.check_free(path)
        self._limits.check(resolved.enable_partitioning)
        if resolved.enable_partitioning:
            self.layout.check_creatable(path)
        return resolved

    def _add(self, made: AnyEntity) -> AnyEntity:
        self.directory.add(made)
        self._limits.count(made, 1)
        self._described(made)
        return made

    def keep(self, entity: Queue, kept: KeptText) -> None:
        """Store with an entity the parts of a client's request that its description does not contain."""
        if entity.kept != kept:
            entity.kept = kept
            self._described(entity)

    def _described(self, entity: Queue) -> None:
        self._timers.described(entity)
        self._wake(entity.path)
        if self.change_log is not None:
            self.change_log.entity_described(entity)

    def _description_changed(self, entity: Queue, before: QueueDescription, now: Instant) -> None:
        self._described(entity)
        if (
            replace(entity.description, status=before.status) != before
        ):  # a status detaches only the links that it bars
            self._context.updated[entity] = None
        if self.updates_take_locks and entity.description != before:
            for partition in entity.all_partitions():
                partition.lose_locks(now)

    def _delete(self, entity: Queue) -> None:
        entity.check_manageable()
        self._remove(entity)

    def _remove(self, entity: Queue) -> None:
        if isinstance(entity, Topic):
            for name in list(entity.subscriptions):
                self._remove(entity.subscriptions[name])
        elif isinstance(entity, Subscription):
            entity.topic.drop(entity.name)
            entity.topic.filters.add(entity.rules, -1)
            entity.rules.counts = None
        self.directory.remove(entity)
        self._limits.count(entity, -1)
        self._timers.deleted(entity)
        if self.change_log is not None:
            self.change_log.entity_deleted(entity)
        if self.audit is not None:
            for partition in entity.all_partitions():
                partition.record_deleted(self.audit)
        self._context.ready.update(entity.parts())  # so that their links are notified
