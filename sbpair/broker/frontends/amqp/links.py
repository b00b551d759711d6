"""The links of one client's connection, each with its node.

This module passes the events of the engine to the nodes of their links, and ends links: when the client, their session
or the connection ends them, when they are idle, or when they lack a valid claim.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import ceil

from sbpair.pair.amqp.errors import CONNECTION_FORCED, DETACH_FORCED
from sbpair.pair.amqp.events import (
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.link import Link
from sbpair.pair.amqp.performatives import Attach, Condition, DeliveryState, TransactionalState

from ...auth import Right
from ...clock import ClockReading
from ...entities.descriptions import MAX_PATH, path_of
from ...entities.indexes import Deadlines
from ...entities.transaction import Transaction
from ...errors import BrokerError, ClaimRequiredError, UnknownTransactionError
from ...faults import Effect, EndingEffect, NoCredit, Operation, RefusingEffect
from ..address import parse_address
from ..refusals import tracked, tracked_by_gateway
from .attach import NodeFactory, address_of, answer_attach, check_address, is_permitted, is_to_entity
from .connection_limits import Idleness
from .coordinator import CoordinatorNode
from .faults import end_faulted, refusal
from .jms import is_without_address
from .node import ConnectionContext, Node
from .queue_receiver import QueueReceiver
from .queue_sender import QueueSender
from .request_response import RequestLink
from .session_receiver import SessionQueueReceiver, SessionWait


class Links:
    """The links of one connection; iterating yields their nodes."""

    def __init__(self, connection: ConnectionContext, now: ClockReading) -> None:
        self._connection = connection
        self._factory = NodeFactory(connection, self._session_granted)
        self._nodes: dict[Link, Node] = {}
        self._waits = Deadlines[Link]()  # attaches that wait for a session; ms of the connection's clock
        self._held_back: set[Node] = set()  # by the window of their session
        self._idleness = Idleness(now.idle)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes.values())

    def __len__(self) -> int:
        return len(self._nodes)

    # -- events

    def messages_received(self, run: list[MessageReceived], now: ClockReading) -> int:
        """Pass on consecutive messages of one link; returns how many, fewer if the rest must wait."""
        node = self._nodes.get(run[0].link)
        if node is None:
            return len(run)
        node.used = now
        if node.moves_timers:
            self._connection.timers_moved = True
        return node.messages_received(run, now)

    def answers(self, link: Link) -> bool:
        """Whether messages on this link are requests, which are answered."""
        return isinstance(self._nodes.get(link), RequestLink)

    def disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        """Pass on a disposition: the client settled deliveries."""
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = now
            node.disposition_received(event, now)

    def credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        """Pass on a change of a link's credit."""
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = now
            node.credit_granted(event, now)

    def link_attached(self, event: LinkAttached, now: ClockReading) -> None:
        """Open the link that the client attaches, refuse it, or let it wait for a session."""
        link, attach = event.link, event.attach
        try:
            if not is_without_address(self._connection, link, attach):
                check_address(link, attach)
            effect = self._apply_fault(link, attach, now)
            if effect is not None and not isinstance(effect, NoCredit):
                return
            node = self._factory.node(link, attach, now)
        except BrokerError as error:
            path = path_of(address_of(link, attach))[:MAX_PATH]  # no entity has a longer one
            link.refuse(self._connection.frontend.attach_refusal(error, path, now.entity))
            return
        if isinstance(node, QueueSender):
            node.is_starved = effect is not None
        if isinstance(node, SessionWait):
            self._keep(node, now)
            self._waits.set(link, ceil(now.connection * 1000) + node.span)
            self._connection.frontend.wait_for_session(node, now)
        else:
            self._open(node, attach, now)

    def link_detached(self, event: LinkDetached, now: ClockReading) -> None:
        """Remove a link that the client ended."""
        self._drop(event.link, now)

    def session_ended(self, event: SessionEnded, now: ClockReading) -> None:
        """Remove the links of a session that ended."""
        for link in [link for link in self._nodes if link.session is event.session]:
            self._drop(link, now)

    def connection_closed(self, now: ClockReading) -> None:
        """Remove all links: the connection ended."""
        for link in list(self._nodes):
            self._drop(link, now)

    # -- delivery

    def hold_back(self, node: Node) -> None:
        """Put a receiver back in line when the window of its session, which is used up, opens again."""
        self._held_back.add(node)

    def resume(self, now: ClockReading) -> None:
        """Put receivers back in line whose windows have opened."""
        if self._held_back:
            for node in [each for each in self._held_back if not each.link.session.pending]:
                self._held_back.discard(node)
                node.unclogged(now)

    def unclogged(self, now: ClockReading) -> None:
        """Put all receivers back in line: the client reads again."""
        for node in self._nodes.values():
            node.unclogged(now)

    # -- transactions

    def transaction(self, txn_id: bytes) -> Transaction:
        """Return the open transaction of that id, declared on this connection. Raises UnknownTransactionError."""
        for coordinator in self._coordinators():
            if (transaction := coordinator.transaction(txn_id)) is not None:
                return transaction
        raise UnknownTransactionError(txn_id)

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Report a refused operation: if ``state`` makes it part of a transaction, the transaction fails."""
        if isinstance(state, TransactionalState):
            for coordinator in self._coordinators():
                if (transaction := coordinator.transaction(state.txn_id)) is not None:
                    transaction.fail(error)

    def _coordinators(self) -> Iterable[CoordinatorNode]:
        return (node for node in self._nodes.values() if isinstance(node, CoordinatorNode))

    # -- timers

    def next_timer(self, ahead: float) -> float:
        """Return when to call :meth:`handle_timer`, on the connection's clock, ``ahead`` seconds behind idle time."""
        idle, wait = self._idleness.next_timer() - ahead, self._waits.next()
        return idle if wait is None else min(idle, wait / 1000)

    def handle_timer(self, now: ClockReading) -> None:
        """End idle links, or the connection if it has been without links for too long, and expired waits."""
        if now.idle >= self._idleness.next_timer():
            self._end_idle(now)
        for link in self._waits.pop_due(now.milliseconds):
            node = self._nodes.get(link)
            if isinstance(node, SessionWait):
                node.timed_out(now)
                self._drop(link, now)

    def _end_idle(self, now: ClockReading) -> None:
        if self._idleness.is_bare_too_long(now.idle):
            text = self._idleness.text_of_connection(self._connection.own_container)
            self._connection.close(CONNECTION_FORCED, text, now)
        for node in self._idleness.idle_nodes(self._nodes.values(), now.idle):
            text = self._idleness.text_of_link(node)
            if isinstance(node, QueueReceiver):
                text = tracked(text, f"G0:{node.link.handle}:{node.link.name}", now.entity)
            node.link.refuse(Condition(DETACH_FORCED, text))

    def claims_expired(self, now: ClockReading) -> None:
        """Detach the links that the remaining claims do not permit."""
        for node in list(self._nodes.values()):
            if node.queue is not None and not is_permitted(node, self._connection.claims, now):
                right = Right.SEND if isinstance(node, QueueSender) else Right.LISTEN
                node.link.refuse(self._token_ended(node.link, node.queue.path, right, now))

    def _token_ended(self, link: Link, path: str, right: Right, now: ClockReading) -> Condition:
        frontend = self._connection.frontend
        error = ClaimRequiredError(path, right.value)
        frontend.rejections.note(
            now.entity, path, DETACH_FORCED, f"The token of this link has ended. {error}"
        )
        why = f"The link '{link.name}' is force detached. Code: RenewToken. Details: {error.text_at(frontend.host)}."
        return Condition(DETACH_FORCED, tracked_by_gateway(why, now.entity))

    # -- opening and ending

    def _apply_fault(self, link: Link, attach: Attach, now: ClockReading) -> Effect | None:
        """Return the fault that applies to an attach; an ending or refusing fault has been carried out."""
        if not is_to_entity(link, attach):
            return None
        frontend, path = self._connection.frontend, parse_address(address_of(link, attach)).path
        effect = frontend.apply_fault(Operation.ATTACH, path, now)
        if isinstance(effect, RefusingEffect):
            link.refuse(refusal(effect, frontend.tracker(path), now))
        elif isinstance(effect, EndingEffect):
            end_faulted(effect, self._connection, link, frontend.tracker(path), now)
        return effect

    def _open(self, node: Node, attach: Attach, now: ClockReading) -> None:
        self._keep(node, now)
        answer_attach(node, attach)
        node.opened(now)
        if isinstance(node, QueueSender | QueueReceiver):
            for other in self._coordinators():
                if other.link.session is node.link.session:
                    other.saw_link_on(node.queue)

    def _session_granted(self, wait: SessionWait, receiver: SessionQueueReceiver, now: ClockReading) -> None:
        """Complete the waiting attach with its session."""
        self._drop(wait.link, now)
        self._open(receiver, wait.attach, now)

    def _keep(self, node: Node, now: ClockReading) -> None:
        node.used = now
        self._connection.timers_moved = True
        self._nodes[node.link] = node
        self._idleness.link_opened(now.idle)
        if node.queue is not None:
            self._connection.frontend.add_tenant(node.queue, node)
        if isinstance(node, SessionQueueReceiver):
            self._connection.frontend.hold(node.lock, node)

    def _drop(self, link: Link, now: ClockReading) -> None:
        node = self._nodes.pop(link, None)
        self._connection.timers_moved = True
        self._waits.drop(link)
        if node is None:
            return
        self._held_back -= {node}
        if not self._nodes:
            self._idleness.last_link_ended(now.idle)
        node.detached(now)
        if isinstance(node, SessionQueueReceiver):
            self._connection.frontend.let_go(node.lock)
        if node.queue is not None:
            self._connection.frontend.remove_tenant(node.queue, node)
