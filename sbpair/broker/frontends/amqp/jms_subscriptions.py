"""Subscriptions that a JMS client names by its link: durable and shared ones, and their end.

    link "audit", "audit|2", "audit|volatile1"    the subscription "audit.CLIENT": CLIENT is the container id
    the same with the capability global           the subscription "audit": of clients without an id
    a receiver without a source                   unsubscribe: the subscription of the link's name ends with the link

A shared subscription that is not durable is deleted with its last link. A durable one that is not shared has one link
at a time; if a link has another selector, the subscription is recreated, as JMS requires.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from dataclasses import replace

from sbpair.pair.amqp.link import Link, SenderLink
from sbpair.pair.amqp.performatives import Attach, Source

from ...auth import Right
from ...clock import ClockReading
from ...entities.descriptions import MAX_NAME, SubscriptionDescription
from ...entities.queue import Queue
from ...entities.rules import Rule
from ...entities.topic import Subscription
from ...errors import BrokerError, EntityNotFoundError, NotAllowedError
from .node import ConnectionContext, Node
from .queue_receiver import SETTLED, QueueReceiver

SHARED, GLOBAL = "shared", "global"
SUPPORT = "SHARED-SUBS"
NUMBERED = "|"  # the text after it distinguishes the links of one subscription


def is_named(attach: Attach) -> bool:
    """Whether the attach of a receiver on a topic is for a durable or a shared subscription."""
    source = attach.source
    return isinstance(source, Source) and bool(source.durable or SHARED in (source.capabilities or ()))


def capabilities_offered(node: Node, attach: Attach) -> tuple[str, ...] | None:
    """Return the capabilities in the answer to an attach.

    Clients check for shared subscriptions before they use them.
    """
    wants = isinstance(node, QueueReceiver) and SUPPORT in (attach.desired_capabilities or ())
    return (SUPPORT,) if wants else None


def is_to_end_one(link: Link, attach: Attach) -> bool:
    """Whether the attach requests the end of a subscription (unsubscribe)."""
    return isinstance(link, SenderLink) and attach.source is None


def name_of(link: Link, container: str, *, is_global: bool) -> str:
    """Return the name of the subscription that the link of a client with this container id is for."""
    base = link.name.partition(NUMBERED)[0]
    if is_global:
        return base[:MAX_NAME]
    named = f"{base}.{container}"
    if len(named) <= MAX_NAME and container.replace("-", "").isalnum():
        return named
    return f"{base[:30]}.{hashlib.sha256(named.encode()).hexdigest()[:16]}"


def named_subscription(
    connection: ConnectionContext,
    link: SenderLink,
    attach: Attach,
    topic: Queue,
    asked: SubscriptionDescription,
    rule: Rule | None,
    now: ClockReading,
) -> QueueReceiver:
    """Return the node of a link to a JMS subscription, which is created if it is missing.

    Raises UnauthorizedError, NotAllowedError.
    """
    assert isinstance(attach.source, Source)  # noqa: S101 - it names a subscription
    capabilities = attach.source.capabilities or ()
    is_shared = SHARED in capabilities
    name = name_of(link, connection.container, is_global=GLOBAL in capabilities)
    namespace = connection.frontend.namespace
    try:
        found = namespace.subscription(topic.path, name)
    except EntityNotFoundError:
        found = None
    if found is not None and not is_shared:
        if _receivers(connection, found):
            raise NotAllowedError(f"The durable subscription '{name}' has a consumer already.")
        if _texts(found) != _text(rule):
            namespace.delete_subscription(topic.path, name)
            found = None
    if found is None:
        connection.claims.require(topic.path, (Right.MANAGE,), now.wall)
        description = replace(asked, auto_delete_on_idle=None) if attach.source.durable else asked
        found = namespace.create_subscription(topic.path, name, description, now.entity, rule)
    deletes = attach.snd_settle_mode == SETTLED
    kind = QueueReceiver if attach.source.durable else LastingAsItsLinks
    return kind(connection, link, found, deletes=deletes)


class LastingAsItsLinks(QueueReceiver):
    """A link of a subscription that is deleted with its last link."""

    def detached(self, now: ClockReading) -> None:
        """Delete the subscription if this was its last link."""
        super().detached(now)
        if not any(each is not self for each in _receivers(self.connection, self.queue)):
            _delete(self.connection, self.queue)


class Unsubscription(QueueReceiver):
    """The link of unsubscribe: its subscription is deleted when it is closed."""

    def answer(self, attach: Attach) -> tuple[Source | None, dict[object, object] | None]:
        """Return the source that shows the client that its subscription exists."""
        return Source(self.queue.path.rpartition("/Subscriptions/")[0]), None

    def detached(self, now: ClockReading) -> None:
        """Delete the subscription."""
        super().detached(now)
        _delete(self.connection, self.queue)


def unsubscription(
    connection: ConnectionContext, link: SenderLink, attach: Attach, now: ClockReading
) -> Unsubscription:
    """Return the node of a link of unsubscribe. Raises EntityNotFoundError, UnauthorizedError."""
    is_global = GLOBAL in (attach.desired_capabilities or ())
    name = name_of(link, connection.container, is_global=is_global)
    for topic in connection.frontend.namespace.topics():
        found = topic.subscriptions.get(name.casefold())
        if found is not None:
            connection.claims.require(topic.path, (Right.MANAGE,), now.wall)
            return Unsubscription(connection, link, found, deletes=False)
    raise EntityNotFoundError(name)


def _receivers(connection: ConnectionContext, subscription: Queue) -> list[QueueReceiver]:
    tenants = connection.frontend.tenants_of(subscription)
    return [each for each in tenants if isinstance(each, QueueReceiver)]


def _delete(connection: ConnectionContext, subscription: Queue) -> None:
    topic, _, name = subscription.path.rpartition("/Subscriptions/")
    with suppress(BrokerError):  # deleted already
        connection.frontend.namespace.delete_subscription(topic, name)


def _texts(subscription: Subscription) -> set[str]:
    return {str(getattr(each.filter, "expression", "")) for each in subscription.rules}


def _text(rule: Rule | None) -> set[str]:
    return {"" if rule is None else str(getattr(rule.filter, "expression", ""))}
