"""Attaching a link: the checks that come first, the node that is created, and the answer.

address                 link of the client      node
$cbs                    either                  RequestLink, ResponseLink
orders/$management      either                  RequestLink, ResponseLink
orders                  sends                   QueueSender
orders                  receives                QueueReceiver, SessionQueueReceiver, SessionWait
(coordinator)           sends                   CoordinatorNode
"""

from __future__ import annotations

from collections.abc import Mapping

from sbpair.pair.amqp.errors import MESSAGE_SIZE_EXCEEDED
from sbpair.pair.amqp.link import Link, ReceiverLink, SenderLink
from sbpair.pair.amqp.performatives import Attach, Condition, Coordinator, Source, Target

from ...auth import Right
from ...clock import ClockReading
from ...entities.allowed_use import check_enabled, check_received_from, check_sent_to
from ...entities.descriptions import MAX_ADDRESS, path_of
from ...entities.queue import Queue
from ...entities.quotas import Tier
from ...entities.topic import Subscription, Topic
from ...errors import (
    BrokerError,
    InvalidArgumentError,
    MessageTooLargeError,
    NotAllowedError,
    OperationNotImplementedError,
    TooManyConnectionsError,
)
from ..address import Address, NodeKind, management_of, parse_address
from .claims import Claims
from .coordinator import CoordinatorNode
from .jms import (
    existing_or_named,
    is_for_browser,
    is_for_subscription,
    is_without_address,
    node_without_address,
    subscription,
)
from .jms_browser import QueueBrowser
from .jms_subscriptions import capabilities_offered
from .management import manage, manage_unclaimed
from .node import ConnectionContext, Node
from .queue_receiver import SETTLED, QueueReceiver
from .queue_sender import TRANSFER_DESTINATION, QueueSender
from .request_response import (
    CLAIMS,
    MAX_CLAIM_SIZE,
    MAX_REQUEST_SIZE,
    RequestLink,
    ResponseLink,
    is_of_claims,
    put_token,
)
from .session_receiver import Granted, SessionQueueReceiver, SessionWait, asked_session, has_session_filter

MAX_RECEIVERS = 5_000  # on one entity at a time
ENTITY_TYPE = "com.microsoft:entity-type"
_KINDS = ("queue", "topic", "subscription")  # by their numbers on the wire; others are not of Service Bus


def address_of(link: Link, attach: Attach) -> str:
    """Return the address in an attach, unchecked; "" when there is none, "$coordinator" for the coordinator."""
    terminus = attach.source if isinstance(link, SenderLink) else attach.target
    if isinstance(terminus, Coordinator):
        return "$coordinator"
    return "" if terminus is None or terminus.dynamic else terminus.address or ""


def check_address(link: Link, attach: Attach) -> None:
    """Raise OperationNotImplementedError or InvalidArgumentError when an address is missing or too long."""
    address = address_of(link, attach)
    if not address:
        raise OperationNotImplementedError(
            "A link without an address (dynamic, anonymous) is not implemented."
        )
    if len(address) > MAX_ADDRESS:
        raise InvalidArgumentError(
            f"The address has {len(address)} characters: at most {MAX_ADDRESS} are allowed."
        )


def is_to_entity(link: Link, attach: Attach) -> bool:
    """Whether the link is to an entity or its management node, not to $cbs or the coordinator."""
    if isinstance(link, ReceiverLink) and isinstance(attach.target, Coordinator):
        return False
    return parse_address(address_of(link, attach)).kind is not NodeKind.CLAIMS


def is_permitted(node: Node, claims: Claims, now: ClockReading) -> bool:
    """Whether the claims still permit the link of this node."""
    is_request = isinstance(node, RequestLink | ResponseLink)
    kind = NodeKind.MANAGEMENT if is_request else NodeKind.QUEUE
    try:
        _require(claims, node.link, Address(kind, node.queue.path if node.queue else ""), now)
    except BrokerError:
        return False
    return True


def _require(claims: Claims, link: Link, address: Address, now: ClockReading) -> None:
    if address.kind is NodeKind.MANAGEMENT:
        claims.require(management_of(address.path), (Right.LISTEN, Right.SEND), now.wall)
    else:
        right = Right.LISTEN if isinstance(link, SenderLink) else Right.SEND
        claims.require(address.path, (right,), now.wall)


class NodeFactory:
    """Creates the nodes for the links of a connection.

    ``granted`` is called when an attach that waited is granted a session.
    """

    def __init__(self, connection: ConnectionContext, granted: Granted) -> None:
        self._connection = connection
        self._granted = granted

    def node(self, link: Link, attach: Attach, now: ClockReading) -> Node:
        """Return the node of a link. Raises BrokerError when the link is refused."""
        if isinstance(attach.target, Coordinator) and isinstance(link, ReceiverLink):
            return self._coordinator(link)
        if is_without_address(self._connection, link, attach):
            return node_without_address(self._connection, link, attach, now)
        address = parse_address(address_of(link, attach))
        if address.kind is NodeKind.CLAIMS:
            self._check_claim_links(link)
            return self._request_node(link, None, CLAIMS)
        if address.kind is NodeKind.MANAGEMENT and not self._connection.claims:
            return self._request_node(link, None, management_of(address.path))  # judged by request
        _require(self._connection.claims, link, address, now)
        queue = existing_or_named(self._connection, link, attach, address.path, now)
        check_entity_type(attach.properties, queue)
        if address.kind is NodeKind.MANAGEMENT:
            return self._request_node(link, queue, management_of(queue.path))
        if isinstance(link, SenderLink):
            return self._queue_receiver(link, attach, queue, now)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        check_sent_to(queue)
        check_enabled(queue, "SendDisabled")
        return QueueSender(self._connection, link, queue, self._destination(attach, now))

    def _coordinator(self, link: ReceiverLink) -> Node:
        if self._connection.frontend.namespace.tier is Tier.BASIC:
            raise NotAllowedError("Transactions are not allowed in a namespace of the Basic tier.")
        # rights are checked for each operation of a transaction
        return CoordinatorNode(self._connection, link)

    def _check_claim_links(self, link: Link) -> None:
        """Raise NotAllowedError if the connection has a link on $cbs in this direction."""
        kind = RequestLink if isinstance(link, ReceiverLink) else ResponseLink
        if any(isinstance(node, kind) and is_of_claims(node) for node in self._connection.links):
            raise NotAllowedError(
                f"A link to connection '{self._connection.container[:100]}' $cbs node has already been opened."
            )

    def _destination(self, attach: Attach, now: ClockReading) -> Queue | None:
        """Return the destination of a link that sends via its target.

        Raises as an attach to the destination would.
        """
        path = (attach.properties or {}).get(TRANSFER_DESTINATION)
        if path is None:
            return None
        if not isinstance(path, str):
            raise InvalidArgumentError(f"{TRANSFER_DESTINATION} is {path!r:.60}: use the path of an entity.")
        path = path_of(path[:MAX_ADDRESS])
        self._connection.claims.require(path, (Right.SEND,), now.wall)
        queue = self._connection.frontend.namespace.queue(path)
        check_sent_to(queue)
        return queue

    def _queue_receiver(self, link: SenderLink, attach: Attach, queue: Queue, now: ClockReading) -> Node:
        if is_for_subscription(self._connection, attach, queue):
            return subscription(self._connection, link, attach, queue, now)
        check_received_from(queue)
        if is_for_browser(self._connection, attach):
            return QueueBrowser(self._connection, link, queue)
        if len(self._connection.frontend.tenants_of(queue)) >= MAX_RECEIVERS:
            self._check_receivers(queue)
        deletes = attach.snd_settle_mode == SETTLED
        if queue.sessions is None:
            if has_session_filter(attach):
                raise NotAllowedError(
                    f"The entity '{queue.path}' does not require sessions: attach without a session filter."
                )
            return QueueReceiver(self._connection, link, queue, deletes=deletes)
        if not has_session_filter(attach):
            raise NotAllowedError(
                "It is not possible for an entity that requires sessions to create a non-sessionful message receiver."
            )
        wait = SessionWait(self._connection, link, queue, attach, self._granted)
        lock = queue.sessions.accept(asked_session(attach), now.entity)
        return wait if lock is None else SessionQueueReceiver(self._connection, link, lock, deletes=deletes)

    def _check_receivers(self, queue: Queue) -> None:
        tenants = self._connection.frontend.tenants_of(queue)
        if sum(isinstance(each, QueueReceiver) for each in tenants) >= MAX_RECEIVERS:
            raise TooManyConnectionsError(f"receivers on '{queue.path}'", MAX_RECEIVERS)

    def _request_node(self, link: Link, queue: Queue | None, address: str) -> Node:
        if isinstance(link, SenderLink):
            return ResponseLink(self._connection, link, queue, address)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        if queue is not None or address == CLAIMS:
            return RequestLink(self._connection, link, queue, address, put_token if queue is None else manage)
        return RequestLink(self._connection, link, None, address, manage_unclaimed(address))


def answer_attach(node: Node, attach: Attach) -> None:
    """Answer the attach of this node's link."""
    link = node.link
    if isinstance(link, SenderLink):
        source, properties = attach.source, None
        if isinstance(node, QueueReceiver):
            source, properties = node.answer(attach)
        link.attach(
            source=source,
            target=attach.target or Target(),
            properties=properties,
            max_message_size=_largest_claim(node) if is_of_claims(node) else None,
            offered_capabilities=capabilities_offered(node, attach),
        )
        return
    if isinstance(node, QueueSender):
        limit = node.queue.description.max_message_size
        target, properties = node.target(attach), node.answer()
        link.attach(
            source=attach.source or Source(), target=target, max_message_size=limit, properties=properties
        )
        node.tolerate(limit)
        return
    largest = _largest_claim(node) if is_of_claims(node) else MAX_REQUEST_SIZE
    link.attach(source=attach.source or Source(), target=attach.target, max_message_size=largest)
    if is_of_claims(node):
        link.tolerate(MAX_CLAIM_SIZE, _too_large)


def _largest_claim(node: Node) -> int:
    return node.connection.frontend.numbers.largest_claim


def _too_large(size: int) -> Condition:
    return Condition(MESSAGE_SIZE_EXCEEDED, str(MessageTooLargeError(size, MAX_CLAIM_SIZE)))


def check_entity_type(properties: Mapping[object, object] | None, entity: Queue) -> None:
    """Raise NotAllowedError if the properties of an attach name another kind of entity than that at its address."""
    number = (properties or {}).get(ENTITY_TYPE)
    if not isinstance(number, int) or not 0 <= number < len(_KINDS):
        return
    top = entity.top
    kind = "topic" if isinstance(top, Topic) else "subscription" if isinstance(top, Subscription) else "queue"
    if _KINDS[number] != kind:
        raise NotAllowedError(
            f"The entity '{entity.path}' is a {kind}, and the link is for a {_KINDS[number]}."
        )
