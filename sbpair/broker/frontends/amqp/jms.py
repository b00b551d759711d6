"""JMS 2.0 on Premium: entities that a client of the JMS library names are created as it attaches.

    target or source with the capability queue or topic    a missing entity is created; needs Manage on its path
    dynamic target with the capability temporary-queue     a queue with a name of its own, deleted with the link;
                   or temporary-topic                      likewise a topic
    a receiver on a topic, neither durable nor shared      a subscription, deleted with the link; its selector is a rule

The library (azure-servicebus-jms) identifies itself in ``open``, and gives there the idle time in seconds after which
its entities are deleted. Durable and shared subscriptions are in ``jms_subscriptions``, browsers in ``jms_browser``.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import replace

from sbpair.pair.amqp.link import Link, ReceiverLink, SenderLink
from sbpair.pair.amqp.performatives import Attach, Source, Target
from sbpair.pair.amqp.types import Described

from ...auth import Right
from ...clock import ClockReading
from ...entities.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from ...entities.namespace import Namespace
from ...entities.queue import Queue
from ...entities.quotas import Tier
from ...entities.rules import Rule, SqlFilter
from ...entities.topic import Topic
from ...errors import BrokerError, EntityNotFoundError
from .jms_browser import is_browser
from .jms_subscriptions import is_named, is_to_end_one, named_subscription, unsubscription
from .node import ConnectionContext
from .queue_receiver import SETTLED, QueueReceiver
from .queue_sender import QueueSender

IS_CLIENT = "com.microsoft:is-client-provider"
IDLE = "com.microsoft:{}-auto-delete-on-idle-duration-in-seconds"
TEMPORARY = {"temporary-queue": "queue", "temporary-topic": "topic"}
_SELECTORS = ("apache.org:selector-filter:string", 0x0000468C00000004)


def is_without_address(connection: ConnectionContext, link: Link, attach: Attach) -> bool:
    """Whether the attach requests a temporary entity or ends a subscription, and the client may do so."""
    if not _is_jms(connection):
        return False
    return _temporary_kind(link, attach) is not None or is_to_end_one(link, attach)


def node_without_address(
    connection: ConnectionContext, link: Link, attach: Attach, now: ClockReading
) -> QueueSender | QueueReceiver:
    """Return the node of a link without an address. Raises UnauthorizedError, EntityNotFoundError."""
    kind = _temporary_kind(link, attach)
    if kind is None:
        assert isinstance(link, SenderLink)  # noqa: S101 - it ends a subscription
        return unsubscription(connection, link, attach, now)
    assert isinstance(link, ReceiverLink)  # noqa: S101 - it asks for a temporary entity
    path = f"temporary-{kind}-{uuid.uuid4().hex}"
    connection.claims.require(path, (Right.MANAGE,), now.wall)
    made = _created(connection.frontend.namespace, kind, path, None, now.entity)
    return TemporarySender(connection, link, made)


def _temporary_kind(link: Link, attach: Attach) -> str | None:
    target = attach.target
    if not isinstance(target, Target) or not target.dynamic or not isinstance(link, ReceiverLink):
        return None
    return next((kind for name, kind in TEMPORARY.items() if name in (target.capabilities or ())), None)


def existing_or_named(
    connection: ConnectionContext, link: Link, attach: Attach, path: str, now: ClockReading
) -> Queue:
    """Return the entity at ``path``, created if a JMS client names it.

    Raises EntityNotFoundError, UnauthorizedError.
    """
    namespace = connection.frontend.namespace
    try:
        return namespace.queue(path)
    except EntityNotFoundError:
        kind = _kind(link, attach)
        if kind is None or not _is_jms(connection):
            raise
        connection.claims.require(path, (Right.MANAGE,), now.wall)
        return _created(namespace, kind, path, _idle(connection, kind), now.entity)


class TemporarySender(QueueSender):
    """The link of a temporary queue or topic, which is deleted with it."""

    def target(self, attach: Attach) -> Target:
        """Return the target of the answering attach: the address of the entity."""
        assert isinstance(attach.target, Target)  # noqa: S101 - it asks for a temporary entity
        return replace(attach.target, address=self.queue.path)

    def detached(self, now: ClockReading) -> None:
        """Delete the entity."""
        super().detached(now)
        namespace, path = self.connection.frontend.namespace, self.queue.path
        with suppress(BrokerError):  # deleted already
            if isinstance(self.queue, Topic):
                namespace.delete_topic(path)
            else:
                namespace.delete_queue(path, now.entity)


def is_for_subscription(connection: ConnectionContext, attach: Attach, entity: Queue) -> bool:
    """Whether the attach of a receiver requests a subscription of the topic ``entity``."""
    return isinstance(entity, Topic) and isinstance(attach.source, Source) and _is_jms(connection)


def subscription(
    connection: ConnectionContext, link: SenderLink, attach: Attach, topic: Queue, now: ClockReading
) -> QueueReceiver:
    """Return the node of a link to a subscription of ``topic``.

    Raises UnauthorizedError, InvalidRuleError, NotAllowedError.
    """
    asked = SubscriptionDescription(auto_delete_on_idle=_idle(connection, "subscriber"))
    rule = _rule(attach, now.entity)
    if is_named(attach):
        return named_subscription(connection, link, attach, topic, asked, rule, now)
    connection.claims.require(topic.path, (Right.MANAGE,), now.wall)
    name = f"jms-{uuid.uuid4().hex}"
    made = connection.frontend.namespace.create_subscription(topic.path, name, asked, now.entity, rule)
    return TemporarySubscriptionReceiver(connection, link, made, deletes=attach.snd_settle_mode == SETTLED)


def is_for_browser(connection: ConnectionContext, attach: Attach) -> bool:
    """Whether the attach of a receiver requests copies, and the client may do so."""
    return is_browser(attach) and _is_jms(connection)


class TemporarySubscriptionReceiver(QueueReceiver):
    """The link of a subscription that is deleted with it."""

    def detached(self, now: ClockReading) -> None:
        """Delete the subscription."""
        super().detached(now)
        topic, _, name = self.queue.path.rpartition("/Subscriptions/")
        with suppress(BrokerError):  # deleted already
            self.connection.frontend.namespace.delete_subscription(topic, name)


def _rule(attach: Attach, now: int) -> Rule | None:
    """Return the rule of the selector in the attach, None without one."""
    filters = attach.source.filter if isinstance(attach.source, Source) else None
    for asked in (filters or {}).values():
        if isinstance(asked, Described) and asked.descriptor in _SELECTORS and isinstance(asked.value, str):
            return Rule(filter=SqlFilter(asked.value), created_at=now)
    return None


def _is_jms(connection: ConnectionContext) -> bool:
    is_premium = connection.frontend.namespace.tier is Tier.PREMIUM
    return is_premium and connection.properties.get(IS_CLIENT) is True


def _kind(link: Link, attach: Attach) -> str | None:
    terminus = attach.source if isinstance(link, SenderLink) else attach.target
    named = terminus.capabilities if isinstance(terminus, Source | Target) else None
    return next((kind for kind in ("queue", "topic") if kind in (named or ())), None)


def _idle(connection: ConnectionContext, kind: str) -> int | None:
    """Return after how many milliseconds without use the entity is deleted, None for never."""
    seconds = connection.properties.get(IDLE.format(kind))
    return seconds * 1000 if isinstance(seconds, int) and seconds > 0 else None


def _created(namespace: Namespace, kind: str, path: str, idle: int | None, now: int) -> Queue:
    is_partitioned = namespace.layout.is_premium
    if kind == "topic":
        topic = TopicDescription(enable_partitioning=is_partitioned, auto_delete_on_idle=idle)
        return namespace.create_topic(path, topic, now)
    queue = QueueDescription(enable_partitioning=is_partitioned, auto_delete_on_idle=idle)
    return namespace.create_queue(path, queue, now)
