"""One client's AMQP connection: attaches a node to each permitted link and passes events to it.

    bytes -> engine -> events -> node of the link -> entities
    bytes <- engine <-          answers, deliveries

No socket and no clock: the server passes in bytes and clock readings, and takes bytes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import ceil

from ....amqp.connection import Connection, Role
from ....amqp.errors import CONNECTION_FORCED, DETACH_FORCED, NOT_FOUND, UNAUTHORIZED_ACCESS
from ....amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditGranted,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SaslInitReceived,
    SessionEnded,
)
from ....amqp.link import Link, ReceiverLink, SenderLink
from ....amqp.performatives import (
    Attach,
    Condition,
    Coordinator,
    DeliveryState,
    Source,
    Target,
    TransactionalState,
)
from ...auth import Right
from ...clock import ClockReading
from ...entities.entity import Entity
from ...entities.indexes import Deadlines
from ...entities.paths import MAX_ADDRESS, MAX_PATH, path_of
from ...entities.quotas import Tier
from ...entities.transaction import Transaction
from ...errors import (
    BrokerError,
    InvalidArgument,
    NotAllowed,
    NotImplementedHere,
    TooManyConnections,
    Unauthorized,
    UnknownTransaction,
)
from ...faults import Effect, EndingEffect, NoCredit, Operation, RefusingEffect
from ..address import Address, NodeKind, management_of, parse_address
from ..namespace_frontend import NamespaceFrontend
from ..refusals import tracked
from ..validation import check_enabled, check_received_from, check_sent_to
from .claims import Claims, SharedPort, names, owners
from .connection_limits import MAX_TRIES, Confinement, Idleness
from .coordinator import CoordinatorNode
from .faults import end_faulted, refusal
from .management import manage
from .node import Node
from .queue_receiver import SETTLED, QueueReceiver
from .queue_sender import TRANSFER_DESTINATION, QueueSender
from .request_response import MAX_CLAIM_SIZE, MAX_REQUEST_SIZE, RequestLink, ResponseLink, put_token
from .session_receiver import SessionReceiver, SessionWait, asked_session, has_session_filter

IDLE_TIME_OUT = 240.0  # generous, since the Python SDK rarely sends heartbeats
FIRST_DELIVERY_ID = 2**30  # far from the client's own ids, since the SDK mixes up the two directions
MAX_CONNECTIONS = 5_000  # to one namespace
MAX_RECEIVERS = 5_000  # on one entity at a time
TIME_TO_CLAIM = 20.0  # seconds from the first byte to the first valid claim
MAX_CLAIM_LINKS = 32  # on $cbs: clients use one pair, or one for each renewal
MECHANISMS = ("ANONYMOUS", "PLAIN", "MSSBCBS")


class ClientConnection:
    """A client's connection to one namespace; on a shared ``port`` the client names the namespace.

    ``is_refused``: there are too many connections; the client is disconnected with that reason.
    """

    def __init__(
        self,
        frontend: NamespaceFrontend,
        now: ClockReading,
        port: SharedPort | None = None,
        *,
        is_refused: bool = False,
    ) -> None:
        self.frontend = frontend
        self._port = port
        self._owner: NamespaceFrontend | None = None  # the namespace that SASL PLAIN means
        self._is_refused = is_refused
        self._plain: bytes | None = (
            None  # the SASL PLAIN response, perhaps from before the namespace was known
        )
        self.claims = Claims(frontend.verifier, now.wall)
        self.is_clogged = False
        self._engine = Connection(
            role=Role.SERVER,
            container_id=frontend.namespace.name,
            idle_time_out=IDLE_TIME_OUT,
            mechanisms=MECHANISMS,
            first_delivery_id=FIRST_DELIVERY_ID,
            now=now.connection,
        )
        self._confinement = Confinement(self._engine)
        self._trust()
        self._nodes: dict[Link, Node] = {}
        self._waits = Deadlines[Link]()  # milliseconds of the connection's clock
        self._later = Deadlines[Callable[[], None]]()  # likewise: answers that a fault delays
        self._held_back: set[QueueReceiver] = set()  # by the window of their session
        self._idleness = Idleness(now.idle)
        self._claim_by: float | None = now.idle + TIME_TO_CLAIM
        self._ahead = now.ahead
        self._wall_behind = now.connection - now.wall
        self._on: dict[type, Callable[..., None]] = {
            DispositionReceived: self._disposition_received,
            CreditGranted: self._credit_granted,
            LinkAttached: self._link_attached,
            LinkDetached: self._link_detached,
            SaslInitReceived: self._sasl_init_received,
            SessionEnded: self._session_ended,
            ConnectionClosed: self._connection_closed,
            ConnectionOpened: self._connection_opened,
        }

    # -- called by the server

    def receive_data(self, data: bytes, now: ClockReading) -> None:
        """Process bytes from the client."""
        self._engine.receive_data(data, now.connection)
        self._read_events(now)
        if self._held_back:
            self._resume_receivers(now)

    def _resume_receivers(self, now: ClockReading) -> None:
        for node in [each for each in self._held_back if not each.link.session.pending]:
            self._held_back.discard(node)
            node.unclogged(now)

    def hold_back(self, node: QueueReceiver) -> None:
        """The window of the receiver's session is used up: put it back in line when the window opens."""
        self._held_back.add(node)

    def receive_eof(self, now: ClockReading) -> None:
        """End the connection: the client sends nothing more.

        Message locks remain, waiting receivers leave the line.
        """
        self._engine.receive_eof(now.connection)
        self._read_events(now)

    def data_to_send(self) -> bytes:
        """Return the bytes to send now."""
        return self._engine.data_to_send()

    @property
    def is_closed(self) -> bool:
        """Whether the connection takes no more input; pending output may still go out."""
        return self._engine.is_closed

    def next_timer(self) -> float | None:
        """The time, on the connection's clock, at which to call :meth:`handle_timer`."""
        timer = self._engine.next_timer()
        if timer is None:
            return None
        expiry = self.claims.next_expiry()
        wait = min((at for at in (self._waits.next(), self._later.next()) if at is not None), default=None)
        if expiry is not None:
            timer = min(timer, expiry + self._wall_behind)
        if wait is not None:
            timer = min(timer, wait / 1000)
        idle = self._idleness.next_timer()
        if self._claim_by is not None:
            idle = min(idle, self._claim_by)
        return min(timer, idle - self._ahead)

    def handle_timer(self, now: ClockReading) -> None:
        """Process heartbeats, idle links, expired claims, delayed answers and attaches that timed out."""
        self._ahead, self._wall_behind = now.ahead, now.connection - now.wall
        if self._claim_by is not None and now.idle >= self._claim_by:
            self._claim_by = None
            if not self.claims:
                self.close(CONNECTION_FORCED, "No valid claim was shown in time.", now)
        self._end_idle(now)
        self._expire_claims(now)
        for link in self._waits.pop_due(int(now.connection * 1000)):
            self._give_up(link, now)
        for act in self._later.pop_due(int(now.connection * 1000)):
            act()
        self._engine.handle_timer(now.connection)
        self._read_events(now)

    def _end_idle(self, now: ClockReading) -> None:
        if now.idle < self._idleness.next_timer():
            return
        if self._idleness.is_bare_too_long(now.idle):
            self.close(CONNECTION_FORCED, self._idleness.text_of_connection(), now)
        for node in self._idleness.idle_nodes(self._nodes.values(), now.idle):
            tracker = self.frontend.tracker(node.queue.path if node.queue else "")
            text = tracked(self._idleness.text_of_link(node), tracker, now.entity)
            node.link.refuse(Condition(DETACH_FORCED, text))

    def _expire_claims(self, now: ClockReading) -> None:
        """Detach the links whose claims have expired, by wall time, not entity time."""
        expiry = self.claims.next_expiry()
        if expiry is None or expiry > now.wall:
            return
        self.claims.drop_expired(now.wall)
        for node in list(self._nodes.values()):
            if node.queue is not None and not self._is_permitted(node, now):
                text = "The token of this link has expired."
                node.link.refuse(self.frontend.refusal(Unauthorized(text), node.queue.path, now.entity))

    def close(self, symbol: str, text: str, now: ClockReading) -> None:
        """Close from the broker's side, with a reason."""
        self._engine.close(Condition(symbol, tracked(text, self.frontend.namespace.name, now.entity)))

    def set_clogged(self, is_clogged: bool, now: ClockReading) -> None:
        """Whether the client fails to read what was sent: deliver nothing more until it does."""
        self.is_clogged = is_clogged
        if not is_clogged:
            for node in self._nodes.values():
                if isinstance(node, QueueReceiver):
                    node.unclogged(now)

    def later(self, seconds: float, act: Callable[[], None], now: ClockReading) -> None:
        """Call ``act`` after ``seconds`` if the connection still exists."""
        self._later.set(act, ceil((now.connection + seconds) * 1000))

    @property
    def container(self) -> str:
        """The client's container id; "" before its ``open``."""
        opened = self._engine.remote_open
        return "" if opened is None else opened.container_id

    def nodes(self) -> Iterable[Node]:
        """The nodes of this connection's links."""
        return self._nodes.values()

    # -- events

    def _trust(self) -> None:
        if self.claims:
            self._confinement.lift(self.frontend.namespace.tier)

    def _read_unclaimed(self, now: ClockReading) -> None:
        """Process events one at a time, with few attaches and requests, until a claim is valid."""
        confinement = self._confinement
        while confinement.is_on and (events := self._engine.events()):
            for event in events:
                if isinstance(event, MessageReceived | LinkAttached) and not confinement.allows_another_try():
                    continue
                if isinstance(event, MessageReceived):
                    self._messages_received([event], now)
                else:
                    self._on.get(type(event), self._nothing)(event, now)
                self._trust()
            if confinement.is_exhausted:
                self.close(UNAUTHORIZED_ACCESS, f"{MAX_TRIES} requests have shown no valid claim.", now)

    def _read_events(self, now: ClockReading) -> None:
        if self._confinement.is_on:
            self._read_unclaimed(now)
        while events := self._engine.events():
            at, end = 0, len(events)
            while at < end:
                event = events[at]
                if type(event) is MessageReceived:
                    run = _messages_of_one_link(events, at)
                    self._messages_received(run, now)
                    at += len(run)
                else:
                    self._on.get(type(event), self._nothing)(event, now)
                    at += 1
        self.frontend.stir(self)

    def _nothing(self, event: Event, now: ClockReading) -> None:
        return

    def _messages_received(self, run: list[MessageReceived], now: ClockReading) -> None:
        node = self._nodes.get(run[0].link)
        if node is not None:
            node.used = now
            node.messages_received(run, now)

    def _disposition_received(self, event: DispositionReceived, now: ClockReading) -> None:
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = now
            node.disposition_received(event, now)

    def _credit_granted(self, event: CreditGranted, now: ClockReading) -> None:
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = now
            node.credit_granted(event, now)

    def _sasl_init_received(self, event: SaslInitReceived, now: ClockReading) -> None:
        if event.mechanism == "PLAIN":
            self._plain = event.initial_response or b""
            is_of_several = self._port is not None and self._find_owner(self._port, event.hostname, now)
            is_good = self.claims.put_plain(self._plain, now.wall)
            self._trust()
            self._engine.authenticate(is_good or is_of_several)
        else:
            self._engine.authenticate(event.mechanism in MECHANISMS)  # grants access to $cbs only

    def _find_owner(self, port: SharedPort, hostname: str | None, now: ClockReading) -> bool:
        """Select the namespace of a SASL PLAIN key.

        Return True if several share it and ``open`` must decide.
        """
        frontend = port.move(hostname)
        found = owners(port, self._plain or b"", now.wall) if frontend is None else []
        if len(found) == 1:
            frontend = port.move(found[0].namespace.name)
        elif frontend is None and not found:
            text = (
                f"SASL PLAIN shows a key of none of the namespaces of this port: {names(port.frontends())}."
            )
            self.frontend.rejections.note(now.entity, "SASL PLAIN", Unauthorized.condition, text)
        if frontend is not None:
            self._owner = frontend
            self._select(frontend, now)
        return len(found) > 1

    def _connection_opened(self, event: ConnectionOpened, now: ClockReading) -> None:
        if self._is_refused:
            self._refuse(now)
        port, hostname = self._port, event.open.hostname
        if port is None or self._is_refused:
            return
        frontend = port.move(hostname)
        if frontend is None and self._owner is not None:
            frontend = port.move(self._owner.namespace.name)
        if frontend is None:
            text = f"The host name {hostname!r:.100} means no namespace of this port"
            found = [] if self._plain is None else owners(port, self._plain, now.wall)
            why = f", and several of them have the key: {names(found)}. Name one in it." if found else "."
            self.close(NOT_FOUND, text + why, now)
        elif frontend is not self.frontend:
            self._select(frontend, now)
            if self._plain is not None:
                self.claims.put_plain(self._plain, now.wall)

    def _select(self, frontend: NamespaceFrontend, now: ClockReading) -> None:
        self.frontend = frontend
        self.claims = Claims(frontend.verifier, now.wall)
        self._confinement.impose()
        self._trust()

    def _link_detached(self, event: LinkDetached, now: ClockReading) -> None:
        self._drop(event.link, now)

    def _session_ended(self, event: SessionEnded, now: ClockReading) -> None:
        for link in [link for link in self._nodes if link.session is event.session]:
            self._drop(link, now)

    def _refuse(self, now: ClockReading) -> None:
        error = TooManyConnections("connections to the namespace", MAX_CONNECTIONS)
        self.frontend.rejections.note(now.entity, self.frontend.namespace.name, error.condition, str(error))
        self.close(error.condition, str(error), now)

    def _connection_closed(self, event: ConnectionClosed, now: ClockReading) -> None:
        for link in list(self._nodes):
            self._drop(link, now)

    def _drop(self, link: Link, now: ClockReading) -> None:
        node = self._nodes.pop(link, None)
        self._waits.drop(link)
        if node is not None:
            self._held_back -= {node}
            if not self._nodes:
                self._idleness.last_link_ended(now.idle)
            node.detached(now)
            if isinstance(node, SessionReceiver):
                self.frontend.let_go(node.lock)
            if node.queue is not None:
                self.frontend.remove_tenant(node.queue, node)

    # -- attach

    def _link_attached(self, event: LinkAttached, now: ClockReading) -> None:
        link, attach = event.link, event.attach
        if isinstance(link, ReceiverLink) and isinstance(attach.target, Coordinator):
            if self.frontend.namespace.tier is Tier.BASIC:
                error = NotAllowed("Transactions are not allowed in a namespace of the Basic tier.")
                link.refuse(self.frontend.refusal(error, "$coordinator", now.entity))
                return
            self._open(
                attach, CoordinatorNode(self, link), now
            )  # declaring needs no right; the transaction's operations do
            return
        address = _address(link, attach)
        try:
            if address is None:
                raise NotImplementedHere("A link without an address (dynamic, anonymous) is not implemented.")
            if len(address) > MAX_ADDRESS:
                size, address = len(address), address[:MAX_PATH]
                raise InvalidArgument(
                    f"The address has {size} characters: at most {MAX_ADDRESS} are allowed."
                )
            effect = self._attach_fault(link, address, now)
            if effect is not None and not isinstance(effect, NoCredit):
                return
            node = self._node(link, attach, address, now)
        except BrokerError as error:
            link.refuse(self.frontend.refusal(error, path_of(address or ""), now.entity))
            return
        if isinstance(node, QueueSender):
            node.is_starved = effect is not None
        if isinstance(node, SessionWait):
            self._keep(node, now)
            self._waits.set(link, ceil(now.connection * 1000) + node.span)
            self.frontend.wait_for_session(node, now)
        else:
            self._open(attach, node, now)

    def _attach_fault(self, link: Link, text: str, now: ClockReading) -> Effect | None:
        """The fault that applies to an attach; an ending or refusing fault has been carried out."""
        address = parse_address(text)
        if address.kind is NodeKind.CLAIMS:
            return None
        effect = self.frontend.apply_fault(Operation.ATTACH, address.path, now)
        if isinstance(effect, RefusingEffect):
            link.refuse(refusal(effect, self.frontend.tracker(address.path), now))
        elif isinstance(effect, EndingEffect):
            end_faulted(effect, self, link, self.frontend.tracker(address.path), now)
        return effect

    def _open(self, attach: Attach, node: Node, now: ClockReading) -> None:
        self._keep(node, now)
        self._answer(node.link, attach, node)
        node.opened(now)
        if isinstance(node, QueueSender | QueueReceiver):
            for other in self._coordinators():
                if other.link.session is node.link.session:
                    other.saw_link_on(node.queue)

    def _coordinators(self) -> Iterable[CoordinatorNode]:
        return (node for node in self._nodes.values() if isinstance(node, CoordinatorNode))

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Report a refusal: when ``state`` makes it part of a transaction, the transaction fails."""
        if isinstance(state, TransactionalState):
            for coordinator in self._coordinators():
                if (transaction := coordinator.transaction(state.txn_id)) is not None:
                    transaction.fail(error)

    def transaction(self, txn_id: bytes) -> Transaction:
        """The open transaction of that id, declared on this connection. Raises UnknownTransaction."""
        for coordinator in self._coordinators():
            if (transaction := coordinator.transaction(txn_id)) is not None:
                return transaction
        raise UnknownTransaction(txn_id)

    def _keep(self, node: Node, now: ClockReading) -> None:
        node.used = now
        self._nodes[node.link] = node
        self._idleness.link_opened(now.idle)
        if node.queue is not None:
            self.frontend.add_tenant(node.queue, node)
        if isinstance(node, SessionReceiver):
            self.frontend.hold(node.lock, node)

    def _session_granted(self, wait: SessionWait, receiver: SessionReceiver, now: ClockReading) -> None:
        """Complete the waiting attach with its session."""
        self._drop(wait.link, now)
        self._open(wait.attach, receiver, now)

    def _give_up(self, link: Link, now: ClockReading) -> None:
        node = self._nodes.get(link)
        if isinstance(node, SessionWait):
            node.timed_out(now)
            self._drop(link, now)

    def _answer(self, link: Link, attach: Attach, node: Node) -> None:
        if isinstance(link, SenderLink):
            source, properties = attach.source, None
            if isinstance(node, QueueReceiver):
                source, properties = node.answer(attach)
            link.attach(source=source, target=attach.target or Target(), properties=properties)
            return
        limit = MAX_REQUEST_SIZE if node.queue is not None else MAX_CLAIM_SIZE
        if isinstance(node, QueueSender):
            limit = node.queue.description.max_message_size
        link.attach(
            source=attach.source or Source(),
            target=attach.target,
            max_message_size=limit,
            properties=node.answer() if isinstance(node, QueueSender) else None,
        )
        if isinstance(node, QueueSender):
            node.tolerate(limit)

    def _node(self, link: Link, attach: Attach, text: str, now: ClockReading) -> Node:
        address = parse_address(text)
        if address.kind is NodeKind.CLAIMS:
            self._check_claim_links()
            return self._request_node(link, None, "$cbs")
        self._require(link, address, now)
        queue = self.frontend.namespace.queue(address.path)
        if address.kind is NodeKind.MANAGEMENT:
            return self._request_node(link, queue, management_of(queue.path))
        if isinstance(link, SenderLink):
            return self._queue_receiver(link, attach, queue, now)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        check_sent_to(queue)
        check_enabled(queue, "SendDisabled")
        return QueueSender(self, link, queue, self._destination(attach, now))

    def _check_claim_links(self) -> None:
        links = sum(
            isinstance(node, RequestLink | ResponseLink) for node in self._nodes.values() if not node.queue
        )
        if links >= MAX_CLAIM_LINKS:
            raise TooManyConnections("links on '$cbs' of a connection", MAX_CLAIM_LINKS)

    def _destination(self, attach: Attach, now: ClockReading) -> Entity | None:
        """The destination of a link that sends via its target.

        Raises as an attach to the destination would.
        """
        path = (attach.properties or {}).get(TRANSFER_DESTINATION)
        if path is None:
            return None
        if not isinstance(path, str):
            raise InvalidArgument(f"{TRANSFER_DESTINATION} is {path!r:.60}: the path of an entity is needed.")
        path = path_of(path[:MAX_ADDRESS])
        self.claims.require(path, (Right.SEND,), now.wall)
        queue = self.frontend.namespace.queue(path)
        check_sent_to(queue)
        return queue

    def _queue_receiver(self, link: SenderLink, attach: Attach, queue: Entity, now: ClockReading) -> Node:
        check_received_from(queue)
        if len(self.frontend.tenants_of(queue)) >= MAX_RECEIVERS:
            self._check_receivers(queue)
        deletes = attach.snd_settle_mode == SETTLED
        if queue.sessions is None:
            if has_session_filter(attach):
                raise NotAllowed(
                    f"The entity '{queue.path}' does not require sessions: attach without a session filter."
                )
            return QueueReceiver(self, link, queue, deletes=deletes)
        if not has_session_filter(attach):
            raise NotAllowed(
                "It is not possible for an entity that requires sessions to create a non-sessionful message "
                f"receiver: attach to '{queue.path}' with a session filter."
            )
        wait = SessionWait(self, link, queue, attach, self._session_granted)
        lock = queue.sessions.accept(asked_session(attach), now.entity)
        return wait if lock is None else SessionReceiver(self, link, lock, deletes=deletes)

    def _check_receivers(self, queue: Entity) -> None:
        receivers = sum(isinstance(each, QueueReceiver) for each in self.frontend.tenants_of(queue))
        if receivers >= MAX_RECEIVERS:
            raise TooManyConnections(f"receivers on '{queue.path}'", MAX_RECEIVERS)

    def _request_node(self, link: Link, queue: Entity | None, address: str) -> Node:
        if isinstance(link, SenderLink):
            return ResponseLink(self, link, queue, address)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        return RequestLink(self, link, queue, address, put_token if queue is None else manage)

    # -- rights

    def _require(self, link: Link, address: Address, now: ClockReading) -> None:
        if address.kind is NodeKind.MANAGEMENT:
            self.claims.require(management_of(address.path), (Right.LISTEN, Right.SEND), now.wall)
        else:
            right = Right.LISTEN if isinstance(link, SenderLink) else Right.SEND
            self.claims.require(address.path, (right,), now.wall)
        self._claim_by = None

    def _is_permitted(self, node: Node, now: ClockReading) -> bool:
        is_request = isinstance(node, RequestLink | ResponseLink)
        kind = NodeKind.MANAGEMENT if is_request else NodeKind.QUEUE
        try:
            self._require(node.link, Address(kind, node.queue.path if node.queue else ""), now)
        except BrokerError:
            return False
        return True


def _messages_of_one_link(events: list[Event], at: int) -> list[MessageReceived]:
    """The consecutive messages of one link, from index ``at`` on."""
    run: list[MessageReceived] = []
    for index in range(at, len(events)):
        event = events[index]
        if type(event) is not MessageReceived or (run and event.link is not run[0].link):
            break
        run.append(event)
    return run


def _address(link: Link, attach: Attach) -> str | None:
    terminus = attach.source if isinstance(link, SenderLink) else attach.target
    if not isinstance(terminus, Source | Target) or terminus.dynamic:
        return None
    return terminus.address or None
