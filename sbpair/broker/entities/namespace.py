"""A namespace: which entities there are, by which paths, and which of them has something due next.

Paths are compared without regard to case and may hold slashes (``contoso/x-servicebus-transfer/0``, P-10).
A dead-letter queue is reached through its queue: ``orders/$DeadLetterQueue``, and what it could not hand on
by ``orders/$Transfer/$DeadLetterQueue``; a subscription through its
topic: ``events/Subscriptions/billing``. Queues and topics share one space of paths.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard, TypeVar

from ..errors import (
    BrokerError,
    EntityAlreadyExists,
    EntityNotFound,
    InvalidDescription,
    Rerouting,
    TargetNotFound,
)
from .descriptions import (
    TARGETS,
    AccessRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from .entity import Entity
from .indexes import Deadlines
from .change_log import ChangeLog
from .partition import Health, Layout
from .partitioned import Partitioned
from .partitioned_entities import AnyQueue, AnySubscription, AnyTopic, PartitionedQueue, PartitionedTopic
from .paths import MAX_PATH, path_of, validated_name, validated_path
from .queue import Queue
from .queue_context import SLICE, OperationCounts, QueueContext
from .quotas import Credits, EntityLimits, Tier
from .rules import Rule, RuleSet
from .rules.message_properties import LiftedForm, MessageForm
from .sessions import SessionLock
from .stored_message import Instant, LockToken, StoredMessage
from .topic import Topic
from .audit_recorder import AuditRecorder

DEAD_LETTER = "/$deadletterqueue"
TRANSFER_DEAD_LETTER = "/$transfer" + DEAD_LETTER
Call = Callable[[Instant], None]
Made = TypeVar("Made", bound=Entity)


def random_token() -> LockToken:
    """A lock token nobody can guess."""
    return LockToken(os.urandom(16))


class Namespace:
    """The entities of one namespace, in memory.

    ``legacy_forward_tdlq``: what cannot be forwarded goes to the transfer dead-letter queue of its source, as
    the documentation had it until 2021, and not to the dead-letter queue. ``form`` reads messages for rules.
    ``change_log`` collects changes for a store. ``audit`` records what happens to each message.
    ``credits_per_second``: see ``credits``. ``updates_take_locks``, an attribute: whether what is held of a
    queue or subscription is lost as its description becomes another, as it may be in the service.
    """

    def __init__(
        self,
        name: str,
        *,
        created_at: Instant = 0,
        new_token: Callable[[], LockToken] = random_token,
        layout: Layout | None = None,
        tier: Tier = Tier.STANDARD,
        legacy_forward_tdlq: bool = False,
        form: MessageForm | None = None,
        change_log: ChangeLog | None = None,
        audit: AuditRecorder | None = None,
        credits_per_second: int | None = None,
    ) -> None:
        self.name = name
        self.created_at = created_at
        self.layout = layout or Layout()
        self.tier = Tier.PREMIUM if self.layout.is_premium else tier
        self.credits = Credits(credits_per_second if self.tier.has_credits else None)
        self._queues: dict[str, Entity] = {}
        self._order: list[str] | None = None  # of their keys; made when it is requested for
        self._limits = EntityLimits(self.layout)
        self._context = QueueContext(
            new_token,
            form or LiftedForm(),
            legacy_forward_tdlq=legacy_forward_tdlq,
            change_log=change_log,
            audit=audit,
        )
        self.change_log = change_log
        self.audit = audit
        self._timers = Deadlines[Entity]()
        self._calls = Deadlines[Call]()
        self.updates_take_locks = False
        self._held_up: dict[Queue, None] = {}  # forward to, or from, a partition that is not available
        self._idle = Deadlines[str]()  # looked at again then, not deleted then

    def transfer(self, messages: Sequence[StoredMessage], via: Entity, to: str, now: Instant) -> None:
        """Hand on what was sent via one entity to the one at ``to``; what that refuses, ``via`` keeps."""
        try:
            self.queue(to).enqueue_all(messages, now)
        except Rerouting as rerouting:
            self.call_at(rerouting.at, lambda then: self.transfer(messages, via, to, then))
        except BrokerError as error:
            for message in messages:
                via.dead_letter_untransferred(message, error, now)

    # -- queues

    def create_queue(self, path: str, description: QueueDescription, now: Instant) -> AnyQueue:
        """Make a queue.

        Raises InvalidDescription, NotSupported, EntityAlreadyExists, TargetNotFound, TooManyEntities,
        PartitionUnavailable.
        """
        settled = self._layout_of(path, description)
        self._check_targets(path, settled, None)
        return self._make_queue(path, settled, now)

    def _make_queue(self, path: str, settled: QueueDescription, now: Instant) -> AnyQueue:
        if settled.enable_partitioning:
            return self._add(PartitionedQueue(path, settled, now, self._context, self.layout))
        return self._add(Queue(path, settled, now, self._context))

    def update_queue(self, path: str, description: QueueDescription, now: Instant) -> AnyQueue:
        """Give a queue another description.

        Raises EntityNotFound, InvalidDescription, NotSupported, TargetNotFound, PartitionUnavailable.
        """
        queue = self._plain_queue(path)
        description.check_successor_of(queue.description)
        settled = self._settled(description)
        self._check_targets(queue.path, settled, queue.description)
        queue.check_manageable()
        before = queue.description
        queue.apply_description(settled, now)
        self._redescribed(queue, before, now)
        return queue

    def delete_queue(self, path: str, now: Instant) -> AnyQueue:
        """Remove a queue with all of its messages and return it. Raises EntityNotFound.

        Raises PartitionUnavailable while a partition is down (Q-17).
        """
        queue = self._plain_queue(path)
        self._delete(queue)
        return queue

    def queue(self, path: str) -> Entity:
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

    def queues(self) -> list[AnyQueue]:
        """All queues, by path; dead-letter queues are reached through them."""
        return [entity for entity in self._sorted() if _is_queue(entity)]

    # -- topics and subscriptions

    def create_topic(self, path: str, description: TopicDescription, now: Instant) -> AnyTopic:
        """Make a topic. Raises as :meth:`create_queue`."""
        return self._make_topic(path, self._layout_of(path, description), now)

    def _make_topic(self, path: str, settled: TopicDescription, now: Instant) -> AnyTopic:
        if settled.enable_partitioning:
            return self._add(PartitionedTopic(path, settled, now, self._context, self.layout))
        return self._add(Topic(path, settled, now, self._context))

    def update_topic(self, path: str, description: TopicDescription, now: Instant) -> AnyTopic:
        """Give a topic another description. Raises as :meth:`update_queue`."""
        topic = self.topic(path)
        description.as_queue().check_successor_of(topic.description)
        settled = self._settled(description)
        topic.check_manageable()
        topic.change(settled, now)
        self._described(topic)
        return topic

    def delete_topic(self, path: str) -> AnyTopic:
        """Remove a topic and its subscriptions and return it. Raises as :meth:`delete_queue`."""
        topic = self.topic(path)
        self._delete(topic)
        return topic

    def topic(self, path: str) -> AnyTopic:
        """The topic of that path. Raises EntityNotFound."""
        topic = self._existing(path)
        if not isinstance(topic, AnyTopic):
            raise EntityNotFound(path)
        return topic

    def access_rules(self, path: str) -> Iterator[tuple[str, AccessRule]]:
        """The rules of the entities at ``path`` and above it, each with its entity's path."""
        folded = path.strip("/")[: MAX_PATH + 1].casefold() + "/"  # a longer prefix is no entity's path
        end = folded.find("/")
        while end >= 0:
            entity = self._queues.get(folded[:end])
            if entity is not None:
                yield from ((entity.path, rule) for rule in entity.description.authorization_rules)
            end = folded.find("/", end + 1)

    def topics(self) -> list[AnyTopic]:
        """All topics, by path."""
        return [entity for entity in self._sorted() if isinstance(entity, AnyTopic)]

    def create_subscription(
        self,
        topic_path: str,
        name: str,
        description: SubscriptionDescription,
        now: Instant,
        rule: Rule | None = None,
    ) -> AnySubscription:
        """Make a subscription, which gets what is published from now on: by ``rule``, else all of it.

        Raises EntityNotFound without the topic, and as :meth:`create_queue`; TooManyEntities counts those of
        the topic.
        """
        topic = self.topic(topic_path)
        settled = description.validated()
        self._check_free(f"{topic.path}/Subscriptions/{validated_name(name)}")
        self._check_targets(f"{topic.path}/Subscriptions/{name}", settled, None)
        self._limits.check_subscriptions(topic.path, len(topic.subscriptions))
        topic.check_manageable()
        return self._make_subscription(topic, name, settled, now, RuleSet(rule or Rule(created_at=now)))

    def _make_subscription(
        self, topic: AnyTopic, name: str, settled: SubscriptionDescription, now: Instant, rules: RuleSet
    ) -> AnySubscription:
        if isinstance(topic, Topic):
            made = topic.subscription(name, settled, now, self._context, rules)
            topic.add(made)
            return self._watch_rules(self._add(made))
        partitioned = topic.subscription(name, settled, now, self._context, rules)
        topic.add(partitioned)
        return self._watch_rules(self._add(partitioned))

    def _watch_rules(self, made: AnySubscription) -> AnySubscription:
        made.rules.counts = made.topic.filters
        made.topic.filters.add(made.rules)

        def changed() -> None:
            if self.change_log is not None and self.holds(made):
                self.change_log.described(made)

        if self.change_log is not None:
            made.rules.on_change = changed
        return made

    def update_subscription(
        self, topic_path: str, name: str, description: SubscriptionDescription, now: Instant
    ) -> AnySubscription:
        """Give a subscription another description. Raises as :meth:`update_queue`."""
        subscription = self.subscription(topic_path, name)
        settled = description.validated()
        self._check_targets(subscription.path, settled, subscription.requested)
        subscription.check_manageable()
        before = subscription.description
        subscription.change(settled, now)
        self._redescribed(subscription, before, now)
        return subscription

    def delete_subscription(self, topic_path: str, name: str) -> AnySubscription:
        """Remove a subscription with all of its messages and return it. Raises as :meth:`delete_queue`."""
        subscription = self.subscription(topic_path, name)
        self._delete(subscription)
        return subscription

    def subscription(self, topic_path: str, name: str) -> AnySubscription:
        """The subscription of that name. Raises EntityNotFound."""
        found = self.topic(topic_path).subscriptions.get(name.casefold())
        if found is None:
            raise EntityNotFound(f"{topic_path}/Subscriptions/{name}")
        return found

    def subscriptions(self, topic_path: str) -> list[AnySubscription]:
        """All subscriptions of a topic, by name. Raises EntityNotFound."""
        found = self.topic(topic_path).subscriptions
        return [found[name] for name in sorted(found)]

    # -- all of them

    def delete(self, path: str) -> Entity:
        """Remove the queue, topic or subscription of that path. Raises as :meth:`delete_queue`."""
        entity = self._existing(path)
        self._delete(entity)
        return entity

    def holds(self, entity: Entity) -> bool:
        """False once the entity, or what this dead-letter queue or partition belongs to, was deleted."""
        top = entity.top
        return self._queues.get(top.path.casefold()) is top

    # -- taking up what a store has kept: what was valid then is not requested again

    def restore_queue(self, path: str, description: QueueDescription, created_at: Instant) -> AnyQueue:
        """Restore a queue from a store. Raises InvalidDescription."""
        return self._make_queue(path, self._settled(description), created_at)

    def restore_topic(self, path: str, description: TopicDescription, created_at: Instant) -> AnyTopic:
        """Restore a topic, without its subscriptions. Raises InvalidDescription."""
        return self._make_topic(path, self._settled(description), created_at)

    def restore_subscription(
        self,
        topic_path: str,
        name: str,
        description: SubscriptionDescription,
        rules: Sequence[Rule],
        created_at: Instant,
    ) -> AnySubscription:
        """Restore a subscription with its rules. Raises EntityNotFound, InvalidDescription."""
        kept = RuleSet(*rules[:1])
        for rule in rules[1:]:
            kept.put(rule)
        return self._make_subscription(
            self.topic(topic_path), name, description.validated(), created_at, kept
        )

    # -- looking

    @property
    def entity_count(self) -> int:
        """How many queues, topics and subscriptions there are."""
        return len(self._queues)

    def page(self, skip: int, most: int, find: str = "") -> tuple[int, list[Entity]]:
        """Queues, topics and subscriptions whose path has ``find`` in it, by path: how many, and some."""
        keys, word = self._in_order(), find.casefold()
        if word:
            keys = [key for key in keys if word in key]
        return len(keys), [self._queues[key] for key in keys[skip : skip + most]]

    # -- partitions

    def set_health(self, path: str, index: int, health: Health, known_from: Instant = 0) -> None:
        """Set the health of one partition of an entity, its dead-letter queue and subscriptions.

        Raises EntityNotFound, and InvalidDescription where there is no such partition.
        """
        entity = self.queue(path).top
        if not isinstance(entity, Partitioned):
            raise InvalidDescription(f"The entity '{entity.path}' is not partitioned.")
        self._check_index(index)
        entity.set_health(index, health, known_from)
        self._context.forwards.update(self._held_up)

    def set_store_health(self, index: int, health: Health, known_from: Instant = 0) -> None:
        """Set the health of the store of that index, under every partitioned entity. Raises InvalidDescription."""
        self._check_index(index)
        self.layout.stores[index].set(health, known_from)
        for entity in self._queues.values():
            if isinstance(entity, Partitioned):
                entity.health_changed()
        self._context.forwards.update(self._held_up)

    def _check_index(self, index: int) -> None:
        if not 0 <= index < len(self.layout.stores):
            raise InvalidDescription(
                f"There is no partition {index!r}: they are 0 to {len(self.layout.stores) - 1}."
            )

    def impose_status(self, path: str, status: str | None, now: Instant) -> None:
        """Override the status of a queue, topic or subscription, without storing it; None ends the override.

        Raises EntityNotFound.
        """
        queues = [part for part in self._existing(path).parts() if isinstance(part, Queue)]
        for queue in queues:
            queue.imposed_status = status
        for queue in queues:
            queue.follow(queue.description, now)  # which tells receivers

    def let_front_ends_cache(self, cache: bool) -> None:
        """Set whether each connection's front end caches messages of partitioned entities (Q-18)."""
        self._context.front_ends_cache = cache

    # -- what happens

    @property
    def operations(self) -> OperationCounts:
        """Billed operations up to now (P-34, P-43)."""
        return self._context.operations.counts()

    def receive_began(self) -> None:
        """Count a receive: a link's credit was granted from zero (P-41)."""
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

    def forward(self, now: Instant, most: int | None = None) -> bool:
        """Forward about ``most`` waiting messages; True when there are more."""
        forwards, until = self._context.forwards, None if most is None else self.work_done + most
        while forwards:
            if until is not None and self.work_done >= until:
                return True
            source = next(iter(forwards))
            del forwards[source]
            obstacle = source.forwarding.run(self.queue, now) if self.holds(source) else None
            if obstacle is not None:
                forwards.pop(source, None)  # else it would be tried again at once
                self._held_up[source] = None
            if isinstance(obstacle, Rerouting):
                self.call_at(obstacle.at, self._go_on)
        return False

    def _go_on(self, now: Instant) -> None:
        """Retry messages that could not be forwarded."""
        self._context.forwards.update(self._held_up)
        self._held_up.clear()

    def new_token(self) -> LockToken:
        """A unique token of 16 bytes."""
        return self._context.new_token()

    def take_ready(self) -> list[Entity | SessionLock]:
        """Entities and session locks with a new message or that were deleted or lost since the last call."""
        ready = self._context.ready
        if not ready:
            return []
        taken = list(ready)
        ready.clear()
        return taken

    def next_timer(self) -> Instant | None:
        """The earliest deadline of any entity; None for never."""
        self._update_timers()
        nexts = (self._timers.next(), self._idle.next(), self._calls.next())
        return min((at for at in nexts if at is not None), default=None)

    def call_at(self, at: Instant, call: Call) -> None:
        """Call ``call`` once with the current time, at ``at``."""
        self._calls.set(call, at)

    def handle_timer(self, now: Instant) -> None:
        """Run what is due up to ``now``, one slice at a time; the rest remains due."""
        self._update_timers()
        until = self.work_done + SLICE
        while self.work_done < until and (due := self._timers.pop_due(now, 1)):
            due[0].handle_timer(now)
        for call in self._calls.pop_due(now):
            call(now)
        for key in self._idle.pop_due(now):
            if key in self._queues:  # not gone meanwhile with its topic
                self._retire(key, self._queues[key], now)
        self.forward(now, SLICE)

    def _update_timers(self) -> None:
        rescheduled = self._context.rescheduled
        for queue in rescheduled:
            at = queue.next_timer()
            if at is None or not self.holds(queue):
                self._timers.drop(queue)
            else:
                self._timers.set(queue, at)
        rescheduled.clear()

    def _retire(self, key: str, queue: Entity, now: Instant) -> None:
        span, since = queue.description.auto_delete_on_idle, queue.idle_since
        if span is None:
            return
        if since is not None and since + span <= now:
            self._remove(queue)  # T-20
        else:
            self._idle.set(key, (now if since is None else since) + span)

    def _watch(self, queue: Entity) -> None:
        key, span = queue.path.casefold(), queue.description.auto_delete_on_idle
        if span is None:
            self._idle.drop(key)
        else:
            self._idle.set(key, queue.updated_at + span)

    def _settled(self, requested: Description) -> Description:
        if self.tier is Tier.PREMIUM and requested.enable_partitioning and not self.layout.is_premium:
            raise InvalidDescription(
                "enable_partitioning is chosen for a whole namespace on the Premium tier."
            )
        return self.tier.settled(self.layout.settled(requested)).validated()

    def _layout_of(self, path: str, requested: Description) -> Description:
        """What is to be made at a free path."""
        validated_path(path)
        settled = self._settled(requested)
        self._check_free(path)
        self._limits.check(settled.enable_partitioning)
        if settled.enable_partitioning:
            self.layout.check_creatable(path)
        return settled

    def _add(self, made: Made) -> Made:
        self._queues[made.path.casefold()] = made
        self._order = None
        self._limits.count(made, 1)
        self._described(made)
        return made

    def _described(self, entity: Entity) -> None:
        self._watch(entity)
        if self.change_log is not None:
            self.change_log.described(entity)

    def _redescribed(self, entity: Entity, before: QueueDescription, now: Instant) -> None:
        self._described(entity)
        if self.updates_take_locks and entity.description != before:
            for part in entity.parts():
                if isinstance(part, Queue):
                    part.lose_locks(now)

    def _delete(self, entity: Entity) -> None:
        entity.check_manageable()
        self._remove(entity)

    def _remove(self, entity: Entity) -> None:
        if isinstance(entity, AnyTopic):
            for name in list(entity.subscriptions):
                self._remove(entity.subscriptions[name])
        elif isinstance(entity, AnySubscription):
            entity.topic.drop(entity.name)
            entity.topic.filters.add(entity.rules, -1)
            entity.rules.counts = None
        key = entity.path.casefold()
        del self._queues[key]
        self._order = None
        self._limits.count(entity, -1)
        self._idle.drop(key)
        if self.change_log is not None:
            self.change_log.dropped(entity)
        for part in entity.parts():
            if self.audit is not None and isinstance(part, Queue):
                part.record_deleted(self.audit)
            self._timers.drop(part)
            self._context.ready.add(part)  # so that its links learn of it

    def _check_targets(
        self,
        path: str,
        requested: QueueDescription | SubscriptionDescription,
        current: QueueDescription | SubscriptionDescription | None,
    ) -> None:
        for field in TARGETS:  # a target is to be there when it is named, and may go later
            name = getattr(requested, field)
            if name is None or (current is not None and getattr(current, field) == name):
                continue
            target = self._queues.get(path_of(name).casefold())
            if target is None:
                raise TargetNotFound(path_of(name), path, field)
            if isinstance(target, AnySubscription):
                raise InvalidDescription(f"{field} names the subscription '{target.path}': name its topic.")

    def _check_free(self, path: str) -> None:
        if path.casefold() in self._queues:
            raise EntityAlreadyExists(path)

    def _sorted(self) -> list[Entity]:
        return [self._queues[key] for key in self._in_order()]

    def _in_order(self) -> list[str]:
        if self._order is None:
            self._order = sorted(self._queues)
        return self._order

    def _plain_queue(self, path: str) -> AnyQueue:
        entity = self._existing(path)
        if not _is_queue(entity):
            raise EntityNotFound(path)
        return entity

    def _existing(self, path: str) -> Entity:
        entity = self._queues.get(path.casefold())
        if entity is None:
            raise EntityNotFound(path)
        return entity


def _is_queue(entity: Entity) -> TypeGuard[AnyQueue]:
    return isinstance(entity, AnyQueue) and not isinstance(entity, AnyTopic | AnySubscription)
