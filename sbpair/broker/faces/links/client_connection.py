"""One AMQP connection of a client: which node answers which link, and may it?

    bytes -> engine -> events -> node of the link -> entities
    bytes <- engine <-          answers, deliveries

No socket and no clock: the server gives bytes and moments, and takes bytes away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from math import ceil

from ....amqp.connection import Connection, Role
from ....amqp.errors import CONNECTION_FORCED, DETACH_FORCED, NOT_FOUND
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
from ...entities.deadlines import Deadlines
from ...entities.entity import Entity
from ...entities.paths import path_of
from ...entities.tier import Tier
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
from ...faults import Effect, Ending, NoCredit, Operation, Refusal
from ..address import Address, NodeKind, management_of, parse_address
from ..intake import check_enabled, check_received_from, check_sent_to
from ..moment import Moment
from ..namespace_face import NamespaceFace
from ..wording import tracked
from .cbs import put_token
from .claims import Claims
from .coordinator import CoordinatorNode
from .fault_answers import end, refusal
from .idleness import Idleness
from .management import manage
from .node import Node
from .queue_receiver import SETTLED, QueueReceiver
from .queue_sender import TRANSFER_DESTINATION, QueueSender
from .request_node import MAX_REQUEST_SIZE, RequestNode, ResponseNode
from .session_receiver import SessionReceiver, SessionWait, asked_session, has_session_filter
from .shared_port import SharedPort, names, owners

IDLE_TIME_OUT = 240.0  # Python's client heartbeats rarely, so be lenient
FIRST_DELIVERY_ID = 2**30  # the SDK matches delivery-ids of both directions: keep ours away from its own
MOST_CONNECTIONS = 5_000  # to one namespace (3.9)
MOST_RECEIVERS = 5_000  # of one entity, at once (3.9)
TIME_TO_CLAIM = 20.0  # seconds from the first byte to the first valid claim
MECHANISMS = ("ANONYMOUS", "PLAIN", "MSSBCBS")


class ClientConnection:
    """A client's connection to one namespace; behind a ``port`` of several it says to which.

    ``is_refused``: there are too many connections, and it is told so.
    """

    def __init__(
        self, face: NamespaceFace, moment: Moment, port: SharedPort | None = None, *, is_refused: bool = False
    ) -> None:
        self.face = face
        self._port = port
        self._owner: NamespaceFace | None = None  # whom SASL PLAIN has shown to be meant
        self._is_refused = is_refused
        self._plain: bytes | None = None  # what SASL PLAIN showed, perhaps before it was known to whom
        self.claims = Claims(face.verifier, moment.wall)
        self.is_clogged = False
        self._engine = Connection(
            role=Role.SERVER,
            container_id=face.namespace.name,
            idle_time_out=IDLE_TIME_OUT,
            mechanisms=MECHANISMS,
            first_delivery_id=FIRST_DELIVERY_ID,
            now=moment.connection,
        )
        self._nodes: dict[Link, Node] = {}
        self._waits = Deadlines[Link]()  # milliseconds of the connection's clock
        self._later = Deadlines[Callable[[], None]]()  # as above: what a fault delays
        self._idleness = Idleness(moment.idle)
        self._claim_by: float | None = moment.idle + TIME_TO_CLAIM
        self._ahead = moment.ahead
        self._wall_behind = moment.connection - moment.wall
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

    # -- what the server tells and asks

    def receive_data(self, data: bytes, moment: Moment) -> None:
        """Take bytes of the client."""
        self._engine.receive_data(data, moment.connection)
        self._read_events(moment)

    def receive_eof(self, moment: Moment) -> None:
        """The client will send nothing more; its locks stay, its places in line do not."""
        self._engine.receive_eof(moment.connection)
        self._read_events(moment)

    def data_to_send(self) -> bytes:
        """What must go out now."""
        return self._engine.data_to_send()

    @property
    def is_closed(self) -> bool:
        """Nothing more will be taken; what is left to send may go out."""
        return self._engine.is_closed

    def next_timer(self) -> float | None:
        """When, on the connection's clock, :meth:`handle_timer` wants to be called."""
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

    def handle_timer(self, moment: Moment) -> None:
        """Heartbeats, silence, attaches that waited in vain, and a client that never shows a claim."""
        self._ahead, self._wall_behind = moment.ahead, moment.connection - moment.wall
        if self._claim_by is not None and moment.idle >= self._claim_by:
            self._claim_by = None
            if not self.claims:
                self.close(CONNECTION_FORCED, "No valid claim was shown in time.", moment)
        self._end_what_is_idle(moment)
        self._expire_claims(moment)
        for link in self._waits.take_due(int(moment.connection * 1000)):
            self._give_up(link, moment)
        for act in self._later.take_due(int(moment.connection * 1000)):
            act()
        self._engine.handle_timer(moment.connection)
        self._read_events(moment)

    def _end_what_is_idle(self, moment: Moment) -> None:
        if moment.idle < self._idleness.next_timer():
            return
        if self._idleness.is_bare_too_long(moment.idle):
            self.close(CONNECTION_FORCED, self._idleness.text_of_connection(), moment)
        for node in self._idleness.idle_nodes(self._nodes.values(), moment.idle):
            tracker = self.face.tracker(node.queue.path if node.queue else "")
            text = tracked(self._idleness.text_of_link(node), tracker, moment.entity)
            node.link.refuse(Condition(DETACH_FORCED, text))

    def _expire_claims(self, moment: Moment) -> None:
        """Detach the links whose claims have run out, by the wall's time and not the entities'."""
        expiry = self.claims.next_expiry()
        if expiry is None or expiry > moment.wall:
            return
        self.claims.drop_expired(moment.wall)
        for node in list(self._nodes.values()):
            if node.queue is not None and not self._may(node, moment):
                text = "The token of this link has expired."
                node.link.refuse(self.face.refusal(Unauthorized(text), node.queue.path, moment.entity))

    def close(self, symbol: str, text: str, moment: Moment) -> None:
        """Close from our side, with a reason."""
        self._engine.close(Condition(symbol, tracked(text, self.face.namespace.name, moment.entity)))

    def set_clogged(self, is_clogged: bool, moment: Moment) -> None:
        """The client does not take what was sent: hand it nothing more until it does."""
        self.is_clogged = is_clogged
        if not is_clogged:
            for node in self._nodes.values():
                if isinstance(node, QueueReceiver):
                    node.unclogged(moment)

    def later(self, seconds: float, act: Callable[[], None], moment: Moment) -> None:
        """Do something so many seconds from now, if the connection lives so long."""
        self._later.set(act, ceil((moment.connection + seconds) * 1000))

    @property
    def container(self) -> str:
        """What the client calls itself; "" before it has."""
        opened = self._engine.remote_open
        return "" if opened is None else opened.container_id

    def nodes(self) -> Iterable[Node]:
        """The nodes of this connection's links."""
        return self._nodes.values()

    # -- events

    def _read_events(self, moment: Moment) -> None:
        while events := self._engine.events():
            at, end = 0, len(events)
            while at < end:
                event = events[at]
                if type(event) is MessageReceived:
                    run = _messages_of_one_link(events, at)
                    self._messages_received(run, moment)
                    at += len(run)
                else:
                    self._on.get(type(event), self._nothing)(event, moment)
                    at += 1
        self.face.stir(self)

    def _nothing(self, event: Event, moment: Moment) -> None:
        return

    def _messages_received(self, run: list[MessageReceived], moment: Moment) -> None:
        node = self._nodes.get(run[0].link)
        if node is not None:
            node.used = moment
            node.messages_received(run, moment)

    def _disposition_received(self, event: DispositionReceived, moment: Moment) -> None:
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = moment
            node.disposition_received(event, moment)

    def _credit_granted(self, event: CreditGranted, moment: Moment) -> None:
        node = self._nodes.get(event.link)
        if node is not None:
            node.used = moment
            node.credit_granted(event, moment)

    def _sasl_init_received(self, event: SaslInitReceived, moment: Moment) -> None:
        if event.mechanism == "PLAIN":
            self._plain = event.initial_response or b""
            is_of_several = self._port is not None and self._seek_owner(self._port, event.hostname, moment)
            self._engine.authenticate(self.claims.put_plain(self._plain, moment.wall) or is_of_several)
        else:
            self._engine.authenticate(event.mechanism in MECHANISMS)  # it leads to $cbs, and no further

    def _seek_owner(self, port: SharedPort, hostname: str | None, moment: Moment) -> bool:
        """Turn to whom SASL PLAIN means; True where several have its key, and ``open`` is to say it."""
        face = port.move(hostname)
        found = owners(port, self._plain or b"", moment.wall) if face is None else []
        if len(found) == 1:
            face = port.move(found[0].namespace.name)
        elif face is None and not found:
            text = f"SASL PLAIN shows a key of none of the namespaces of this port: {names(port.faces())}."
            self.face.rejections.note(moment.entity, "SASL PLAIN", Unauthorized.condition, text)
        if face is not None:
            self._owner = face
            self._turn_to(face, moment)
        return len(found) > 1

    def _connection_opened(self, event: ConnectionOpened, moment: Moment) -> None:
        if self._is_refused:
            self._refuse(moment)
        port, hostname = self._port, event.open.hostname
        if port is None or self._is_refused:
            return
        face = port.move(hostname)
        if face is None and self._owner is not None:
            face = port.move(self._owner.namespace.name)
        if face is None:
            text = f"No namespace of this port is meant by the host name {hostname!r:.100}"
            found = [] if self._plain is None else owners(port, self._plain, moment.wall)
            why = f", and several of them have the key: {names(found)}. Name one in it." if found else "."
            self.close(NOT_FOUND, text + why, moment)
        elif face is not self.face:
            self._turn_to(face, moment)
            if self._plain is not None:
                self.claims.put_plain(self._plain, moment.wall)

    def _turn_to(self, face: NamespaceFace, moment: Moment) -> None:
        self.face = face
        self.claims = Claims(face.verifier, moment.wall)

    def _link_detached(self, event: LinkDetached, moment: Moment) -> None:
        self._drop(event.link, moment)

    def _session_ended(self, event: SessionEnded, moment: Moment) -> None:
        for link in [link for link in self._nodes if link.session is event.session]:
            self._drop(link, moment)

    def _refuse(self, moment: Moment) -> None:
        error = TooManyConnections("connections to the namespace", MOST_CONNECTIONS)
        self.face.rejections.note(moment.entity, self.face.namespace.name, error.condition, str(error))
        self.close(error.condition, str(error), moment)

    def _connection_closed(self, event: ConnectionClosed, moment: Moment) -> None:
        for link in list(self._nodes):
            self._drop(link, moment)

    def _drop(self, link: Link, moment: Moment) -> None:
        node = self._nodes.pop(link, None)
        self._waits.drop(link)
        if node is not None:
            if not self._nodes:
                self._idleness.last_link_ended(moment.idle)
            node.detached(moment)
            if isinstance(node, SessionReceiver):
                self.face.let_go(node.lock)
            if node.queue is not None:
                self.face.move_out(node.queue, node)

    # -- attaching

    def _link_attached(self, event: LinkAttached, moment: Moment) -> None:
        link, attach = event.link, event.attach
        if isinstance(link, ReceiverLink) and isinstance(attach.target, Coordinator):
            if self.face.namespace.tier is Tier.BASIC:
                error = NotAllowed("Transactions are not allowed in a namespace of the Basic tier.")
                link.refuse(self.face.refusal(error, "$coordinator", moment.entity))
                return
            self._open(
                attach, CoordinatorNode(self, link), moment
            )  # it takes no right: what it is used for does
            return
        address = _address(link, attach)
        try:
            if address is None:
                raise NotImplementedHere("A link without an address (dynamic, anonymous) is not implemented.")
            effect = self._strikes(link, address, moment)
            if effect is not None and not isinstance(effect, NoCredit):
                return
            node = self._node(link, attach, address, moment)
        except BrokerError as error:
            link.refuse(self.face.refusal(error, path_of(address or ""), moment.entity))
            return
        if isinstance(node, QueueSender):
            node.is_starved = effect is not None
        if isinstance(node, SessionWait):
            self._keep(node, moment)
            self._waits.set(link, ceil(moment.connection * 1000) + node.span)
            self.face.wait_for_session(node, moment)
        else:
            self._open(attach, node, moment)

    def _strikes(self, link: Link, text: str, moment: Moment) -> Effect | None:
        """The fault that strikes an attach; those that end or refuse it have done so."""
        address = parse_address(text)
        if address.kind is NodeKind.CLAIMS:
            return None
        effect = self.face.strike(Operation.ATTACH, address.path, moment)
        if isinstance(effect, Refusal):
            link.refuse(refusal(effect, self.face.tracker(address.path), moment))
        elif isinstance(effect, Ending):
            end(effect, self, link, self.face.tracker(address.path), moment)
        return effect

    def _open(self, attach: Attach, node: Node, moment: Moment) -> None:
        self._keep(node, moment)
        self._answer(node.link, attach, node)
        node.opened(moment)
        if isinstance(node, QueueSender | QueueReceiver):
            for other in self._coordinators():
                if other.link.session is node.link.session:
                    other.saw_link_on(node.queue)

    def _coordinators(self) -> Iterable[CoordinatorNode]:
        return (node for node in self._nodes.values() if isinstance(node, CoordinatorNode))

    def refused(self, state: DeliveryState | None, error: BrokerError) -> None:
        """Something was refused: if ``state`` makes it part of a transaction, that is doomed."""
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

    def _keep(self, node: Node, moment: Moment) -> None:
        node.used = moment
        self._nodes[node.link] = node
        self._idleness.link_opened(moment.idle)
        if node.queue is not None:
            self.face.settle_at(node.queue, node)
        if isinstance(node, SessionReceiver):
            self.face.hold(node.lock, node)

    def _session_granted(self, wait: SessionWait, receiver: SessionReceiver, moment: Moment) -> None:
        """The attach that waited got its session."""
        self._drop(wait.link, moment)
        self._open(wait.attach, receiver, moment)

    def _give_up(self, link: Link, moment: Moment) -> None:
        node = self._nodes.get(link)
        if isinstance(node, SessionWait):
            node.ran_out(moment)
            self._drop(link, moment)

    def _answer(self, link: Link, attach: Attach, node: Node) -> None:
        if isinstance(link, SenderLink):
            source, properties = attach.source, None
            if isinstance(node, QueueReceiver):
                source, properties = node.answer(attach)
            link.attach(source=source, target=attach.target or Target(), properties=properties)
            return
        limit = MAX_REQUEST_SIZE
        if isinstance(node, QueueSender):
            limit = node.queue.description.max_message_size
        link.attach(
            source=attach.source or Source(),
            target=attach.target,
            max_message_size=limit,
            properties=node.answer(limit) if isinstance(node, QueueSender) else None,
        )

    def _node(self, link: Link, attach: Attach, text: str, moment: Moment) -> Node:
        address = parse_address(text)
        if address.kind is NodeKind.CLAIMS:
            return self._request_node(link, None, "$cbs")
        self._require(link, address, moment)
        queue = self.face.namespace.queue(address.path)
        if address.kind is NodeKind.MANAGEMENT:
            return self._request_node(link, queue, management_of(queue.path))
        if isinstance(link, SenderLink):
            return self._queue_receiver(link, attach, queue, moment)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        check_sent_to(queue)
        check_enabled(queue, "SendDisabled")
        return QueueSender(self, link, queue, self._destination(attach, moment))

    def _destination(self, attach: Attach, moment: Moment) -> Entity | None:
        """Where a link that sends via its target sends to. Raises as an attach to it would."""
        path = (attach.properties or {}).get(TRANSFER_DESTINATION)
        if path is None:
            return None
        if not isinstance(path, str):
            raise InvalidArgument(f"{TRANSFER_DESTINATION} is {path!r:.60}: the path of an entity is needed.")
        path = path_of(path)
        self.claims.require(path, (Right.SEND,), moment.wall)
        queue = self.face.namespace.queue(path)
        check_sent_to(queue)
        return queue

    def _queue_receiver(self, link: SenderLink, attach: Attach, queue: Entity, moment: Moment) -> Node:
        check_received_from(queue)
        if len(self.face.tenants_of(queue)) >= MOST_RECEIVERS:
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
        lock = queue.sessions.accept(asked_session(attach), moment.entity)
        return wait if lock is None else SessionReceiver(self, link, lock, deletes=deletes)

    def _check_receivers(self, queue: Entity) -> None:
        receivers = sum(isinstance(each, QueueReceiver) for each in self.face.tenants_of(queue))
        if receivers >= MOST_RECEIVERS:
            raise TooManyConnections(f"receivers on '{queue.path}'", MOST_RECEIVERS)

    def _request_node(self, link: Link, queue: Entity | None, address: str) -> Node:
        if isinstance(link, SenderLink):
            return ResponseNode(self, link, queue, address)
        assert isinstance(link, ReceiverLink)  # noqa: S101 - there are two kinds
        return RequestNode(self, link, queue, address, put_token if queue is None else manage)

    # -- rights

    def _require(self, link: Link, address: Address, moment: Moment) -> None:
        if address.kind is NodeKind.MANAGEMENT:
            self.claims.require(management_of(address.path), (Right.LISTEN, Right.SEND), moment.wall)
        else:
            right = Right.LISTEN if isinstance(link, SenderLink) else Right.SEND
            self.claims.require(address.path, (right,), moment.wall)
        self._claim_by = None

    def _may(self, node: Node, moment: Moment) -> bool:
        is_request = isinstance(node, RequestNode | ResponseNode)
        kind = NodeKind.MANAGEMENT if is_request else NodeKind.QUEUE
        try:
            self._require(node.link, Address(kind, node.queue.path if node.queue else ""), moment)
        except BrokerError:
            return False
        return True


def _messages_of_one_link(events: list[Event], at: int) -> list[MessageReceived]:
    """The messages from ``at`` on that came one behind the other on the same link."""
    run: list[MessageReceived] = []
    for event in islice(events, at, None):
        if type(event) is not MessageReceived or (run and event.link is not run[0].link):
            break
        run.append(event)
    return run


def _address(link: Link, attach: Attach) -> str | None:
    terminus = attach.source if isinstance(link, SenderLink) else attach.target
    if not isinstance(terminus, Source | Target) or terminus.dynamic:
        return None
    return terminus.address or None
