"""One client's AMQP connection: its login, the namespace it selects, its claims, and the events of its links.

    bytes -> engine -> events -> links -> node of the link -> entities
    bytes <- engine <-                   answers, deliveries

No socket and no clock: the server passes in bytes and clock readings, and takes bytes out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import islice
from math import ceil

from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.errors import CONNECTION_FORCED, NOT_FOUND, RESOURCE_LIMIT_EXCEEDED, UNAUTHORIZED_ACCESS
from sbpair.pair.amqp.events import (
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
from sbpair.pair.amqp.fast_path import Chunk
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.session import Session

from ...clock import ClockReading
from ...entities.indexes import Deadlines
from ...errors import TooManyConnectionsError, UnauthorizedError
from ...faults import Operation
from ..namespace_frontend import NamespaceFrontend
from ..refusals import tracked
from .claims import Claims, SharedPort, names, owners
from .connection_limits import MAX_TRIES, Confinement
from .links import Links
from .numbers import answer_open, container_id

MAX_UNREAD = 2**20  # bytes of answers; the next one may exceed it
MAX_WAITING = 2**20  # bytes that may arrive while requests wait


class UnreadAnswers:
    """Counts the unread answers of one connection, and keeps the events that wait until the client reads.

        a request arrives while more than MAX_UNREAD bytes are unread    it waits, and everything behind it
        the client reads                                                 the waiting requests are answered
        it sends MAX_WAITING bytes more meanwhile                        its connection is closed

    A peek of 150 bytes is answered with up to a megabyte, so one read of the socket can ask for hundreds of megabytes.
    """

    __slots__ = ("_sessions", "_waited", "size", "waiting")

    def __init__(self) -> None:
        self.size = 0
        """Bytes of answers that were not known to be read, when the client stopped reading or closed a window."""
        self.waiting: list[Event] = []
        """Events that were not processed yet."""
        self._waited = 0
        self._sessions: set[Session] = set()

    def answered(self, size: int, session: Session) -> None:
        """Count an answer on a link of ``session``."""
        self.size += size
        self._sessions.add(session)

    @property
    def are_too_many(self) -> bool:
        """Whether the next request must wait."""
        return self.size > MAX_UNREAD

    def passed_on(self) -> None:
        """Report that the socket accepted all output: only data waiting for a session window is unread."""
        if self.size:
            self._sessions = {session for session in self._sessions if session.pending}
            if not self._sessions:
                self.size = 0

    def take_waiting(self) -> list[Event]:
        """Return the events that waited, and forget them."""
        waiting, self.waiting = self.waiting, []
        return waiting

    def count_arrival(self, size: int) -> bool:
        """Count bytes that arrived; returns False if too many arrived while requests wait."""
        self._waited = self._waited + size if self.waiting else 0
        return self._waited <= MAX_WAITING


IDLE_TIME_OUT = 240.0  # generous, since the Python SDK rarely sends heartbeats
MAX_CONNECTIONS = 5_000  # to one namespace
MECHANISMS = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
WELCOME = b"Welcome!"


class ClientConnection:
    """A client's connection to one namespace; on a shared ``port`` the client names the namespace.

    ``is_refused``: close the connection with the reason that the namespace has too many.
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
        self._owner: NamespaceFrontend | None = None  # the namespace that SASL PLAIN selected
        self._is_refused = is_refused
        self._plain: bytes | None = None  # the SASL PLAIN response; the namespace may not be known yet
        self.claims = Claims(frontend.verifier, now.wall)
        self.is_clogged = False
        self.answers = UnreadAnswers()
        self.timers_moved = True
        """Whether the next timer may be earlier than before; cleared by the owner of the timer."""
        numbers = frontend.numbers
        self.own_container = container_id()
        self._engine = Connection(
            role=ConnectionRole.SERVER,
            container_id=self.own_container,
            idle_time_out=IDLE_TIME_OUT,
            mechanisms=MECHANISMS,
            max_frame_size=numbers.max_frame_size,
            handle_max=numbers.handle_max,
            first_delivery_id=numbers.first_delivery_id,
            limits=numbers.limits,
            answer_open=answer_open,
            now=now.connection,
        )
        self._confinement = Confinement(self._engine, now.idle)
        self._trust()
        self.links = Links(self, now)
        # answers that a fault delays; ms of the connection's clock
        self._later = Deadlines[Callable[[], None]]()
        self._ahead = now.ahead
        self._wall_behind = now.connection - now.wall
        self._on: dict[type, Callable[..., None]] = {
            DispositionReceived: self.links.disposition_received,
            CreditGranted: self.links.credit_granted,
            LinkAttached: self.links.link_attached,
            LinkDetached: self.links.link_detached,
            SaslInitReceived: self._sasl_init_received,
            SessionEnded: self.links.session_ended,
            ConnectionClosed: self._connection_closed,
            ConnectionOpened: self._connection_opened,
        }

    # -- called by the server

    def receive_data(self, data: bytes, now: ClockReading) -> None:
        """Process bytes from the client."""
        if not self.answers.count_arrival(len(data)):
            self.close(RESOURCE_LIMIT_EXCEEDED, "The answers to earlier requests were not read.", now)
        self._engine.receive_data(data, now.connection)
        self.resume(now)

    def resume(self, now: ClockReading) -> None:
        """Process new input, and the events that waited until the client reads."""
        self._read_events(now)
        self.links.resume(now)

    def receive_eof(self, now: ClockReading) -> None:
        """End the connection: the client sends nothing more.

        Message locks remain held, and waiting receivers leave the line.
        """
        self._engine.receive_eof(now.connection)
        self._drop_waiting_requests()
        self._read_events(now)

    def pieces_to_send(self) -> list[Chunk]:
        """Return the bytes to send now, in pieces."""
        return self._engine.pieces_to_send()

    @property
    def is_closed(self) -> bool:
        """Whether the connection takes no more input; pending output may still go out."""
        return self._engine.is_closed

    def next_timer(self) -> float | None:
        """Return when to call :meth:`handle_timer`, in seconds of the connection's clock, or None."""
        timer = self._engine.next_timer()
        if timer is None:
            return None
        expiry, later = self.claims.next_expiry(), self._later.next()
        if expiry is not None:
            timer = min(timer, expiry + self._wall_behind)
        if later is not None:
            timer = min(timer, later / 1000)
        timer = min(timer, self._confinement.next_timer() - self._ahead)
        return min(timer, self.links.next_timer(self._ahead))

    def handle_timer(self, now: ClockReading) -> None:
        """Process heartbeats, idle links, expired claims, delayed answers and attaches that timed out."""
        self._ahead, self._wall_behind = now.ahead, now.connection - now.wall
        if self._confinement.is_overdue(now.idle):
            self.close(CONNECTION_FORCED, "No valid claim was presented in time.", now)
        self._expire_claims(now)
        self.links.handle_timer(now)
        for act in self._later.pop_due(now.milliseconds):
            act()
        self._engine.handle_timer(now.connection)
        self._read_events(now)

    def _expire_claims(self, now: ClockReading) -> None:
        """Drop expired claims, by wall time, not entity time, and the links that needed them."""
        expiry = self.claims.next_expiry()
        if expiry is not None and expiry <= now.wall:
            self.claims.drop_expired(now.wall)
            self.links.claims_expired(now)

    def close(self, symbol: str, text: str, now: ClockReading) -> None:
        """Close from the broker's side, with a reason."""
        self.timers_moved = True
        self._engine.close(Condition(symbol, tracked(text, self.frontend.namespace.name, now.entity)))

    def set_clogged(self, is_clogged: bool, now: ClockReading) -> None:
        """Set whether the client is not reading; nothing is delivered while it is not."""
        self.is_clogged = is_clogged
        if not is_clogged:
            self.answers.passed_on()
            self.links.unclogged(now)

    def later(self, seconds: float, act: Callable[[], None], now: ClockReading) -> None:
        """Call ``act`` after ``seconds`` if the connection still exists."""
        self.timers_moved = True
        self._later.set(act, ceil((now.connection + seconds) * 1000))

    @property
    def container(self) -> str:
        """The client's container id; "" before its ``open``."""
        opened = self._engine.remote_open
        return "" if opened is None else opened.container_id

    @property
    def properties(self) -> Mapping[object, object]:
        """The properties of the client's ``open``; none before it."""
        opened = self._engine.remote_open
        return {} if opened is None else opened.properties or {}

    # -- events

    def _trust(self) -> None:
        if self.claims:
            self._confinement.lift(self.frontend.namespace.tier)

    def _read_unclaimed(self, now: ClockReading) -> None:
        """Process events one at a time, with a limit on attaches and requests, until the client has a valid claim."""
        confinement = self._confinement
        self.timers_moved = True
        while confinement.is_on and (events := self._engine.events()):
            for event in events:
                if isinstance(event, MessageReceived | LinkAttached) and not confinement.allows_another_try():
                    continue
                if isinstance(event, MessageReceived):
                    self.links.messages_received([event], now)
                else:
                    self._on.get(type(event), self._nothing)(event, now)
                self._trust()
            if confinement.is_exhausted:
                self.close(UNAUTHORIZED_ACCESS, f"{MAX_TRIES} requests were made without a valid claim.", now)

    def _read_events(self, now: ClockReading) -> None:
        if self._confinement.is_on:
            self._read_unclaimed(now)
        while events := self._next_events():
            at, end = 0, len(events)
            while at < end:
                event = events[at]
                if type(event) is MessageReceived:
                    run = _messages_of_one_link(events, at)
                    served = self.links.messages_received(run, now)
                    at += served
                    if served < len(run):
                        self.answers.waiting = events[at:]
                        self.frontend.stir(self)
                        return
                elif type(event) is DispositionReceived and not self._may_fault_settlements:
                    joined, at = _joined_dispositions(events, event, at + 1)
                    self.links.disposition_received(joined, now)
                else:
                    self.timers_moved = True
                    self._on.get(type(event), self._nothing)(event, now)
                    at += 1
        self.frontend.stir(self)

    def _next_events(self) -> list[Event]:
        events = self._engine.events()
        return self.answers.take_waiting() + events if self.answers.waiting else events

    def _drop_waiting_requests(self) -> None:
        """Drop the requests that wait: nobody will read their answers. What waits behind them is processed."""
        waiting = self.answers.take_waiting()
        self.answers.waiting = [
            event
            for event in waiting
            if not (type(event) is MessageReceived and self.links.answers(event.link))
        ]

    @property
    def _may_fault_settlements(self) -> bool:
        faults = self.frontend.faults
        return faults.are_any and faults.may_apply(Operation.SETTLE)

    def _nothing(self, event: Event, now: ClockReading) -> None:
        return

    def _sasl_init_received(self, event: SaslInitReceived, now: ClockReading) -> None:
        if event.mechanism == "PLAIN":
            self._plain = event.initial_response or b""
            is_of_several = self._port is not None and self._find_owner(self._port, event.hostname, now)
            is_good = self.claims.put_plain(self._plain, now.wall)
            self._trust()
            self._engine.authenticate(is_good or is_of_several, WELCOME)
        else:
            self._engine.authenticate(event.mechanism in MECHANISMS, WELCOME)  # grants access to $cbs only

    def _find_owner(self, port: SharedPort, hostname: str | None, now: ClockReading) -> bool:
        """Select the namespace of a SASL PLAIN key.

        Return True if several share it and ``open`` must decide.
        """
        frontend = port.move(hostname)
        found = owners(port, self._plain or b"", now.wall) if frontend is None else []
        if len(found) == 1:
            frontend = port.move(found[0].namespace.name)
        elif frontend is None and not found:
            text = f"No namespace of this port has the SASL PLAIN key; there are: {names(port.frontends())}."
            self.frontend.rejections.note(now.entity, "SASL PLAIN", UnauthorizedError.condition, text)
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
            text = f"The host name {hostname!r:.100} matches no namespace of this port"
            found = [] if self._plain is None else owners(port, self._plain, now.wall)
            why = (
                f", and several have the SASL PLAIN key: {names(found)}. Use one of these names."
                if found
                else "."
            )
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

    def _refuse(self, now: ClockReading) -> None:
        error = TooManyConnectionsError("connections to the namespace", MAX_CONNECTIONS)
        self.frontend.rejections.note(now.entity, self.frontend.namespace.name, error.condition, str(error))
        self.close(error.condition, str(error), now)

    def _connection_closed(self, event: ConnectionClosed, now: ClockReading) -> None:
        self.links.connection_closed(now)


def _messages_of_one_link(events: list[Event], at: int) -> list[MessageReceived]:
    """Return the consecutive messages of one link, from index ``at`` on."""
    run: list[MessageReceived] = []
    link = None
    for event in islice(events, at, None):
        if type(event) is not MessageReceived or (event[0] is not link and link is not None):
            break
        link = event[0]
        run.append(event)
    return run


def _joined_dispositions(
    events: list[Event], first: DispositionReceived, at: int
) -> tuple[DispositionReceived, int]:
    """Return ``first`` joined with the consecutive dispositions from index ``at`` on, and the index after them."""
    link, begin, last, state, settled = first
    end = len(events)
    while at < end:
        event = events[at]
        if type(event) is not DispositionReceived:
            break
        its_link, its_first, its_last, its_state, its_settled = event
        if (
            its_first != last + 1
            or its_link is not link
            or its_state is not state
            or its_settled is not settled
        ):
            break
        last = its_last
        at += 1
    return first if last == first.last else DispositionReceived(link, begin, last, state, settled), at
