"""One AMQP connection to one namespace: an asyncio protocol around the engine in :mod:`sbpair.pair.amqp`.

    bytes in -> engine -> events -> Sender, Receiver, Tokens -> engine -> bytes out, once a chunk

Opened by :func:`connect`. Authorises paths over ``$cbs``, keeps the tokens fresh, opens links and dispatches their
events.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar, cast
from uuid import uuid4

from sbpair.pair.amqp.connection import Connection
from sbpair.pair.amqp.errors import RESOURCE_LIMIT_EXCEEDED, TIMEOUT, AmqpError
from sbpair.pair.amqp.events import (
    ConnectionClosed,
    ConnectionOpened,
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    Event,
    LinkAttached,
    LinkDetached,
    MessageReceived,
    SessionEnded,
)
from sbpair.pair.amqp.handshake import ConnectionRole
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.link import Link, ReceiverLink
from sbpair.pair.amqp.performatives import AmqpMap, Condition, Source, Target
from sbpair.pair.amqp.session import Session
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.auth.dialling import connect_in_loop, hand_over

from .claims import Tokens
from .errors import (
    ClientError,
    ConnectionLostError,
    LinkRefusedError,
    NamespaceUnusableError,
    OutOfReachError,
    SessionUnavailableError,
)
from .link import ANSWER_TIMEOUT, ClientLink, OnDisposition, OnDrained, OnMessage, Opened, Receiver, Sender
from .session import SessionReceiver, session_filter, waiting_for

logger = logging.getLogger("sbpair.syphon")

AnyLink = TypeVar("AnyLink", bound=ClientLink)
Tap = Callable[[bool, bytes], None]
"""Called with all traffic: whether it is sent, and the bytes, including tokens."""

UNSETTLED, SECOND = 0, 1  # AMQP part 2, 2.8.2 and 2.8.3: settle after the peer's outcome
TRANSFER_DESTINATION = Symbol("com.microsoft:transfer-destination-address")
WINDOW = Limits().incoming_window  # frames of a session that the peer may send before it hears from us
MAX_FRAME = 1_048_576  # bytes
IDLE_TIME_OUT = (
    30.0  # seconds, announced: the peer says something as often, and counts as gone after twice that
)
MAX_MESSAGE_BYTES = 128 * 1024 * 1024  # bytes; Premium accepts 100 MB, and adds little
WRITE_BUFFER = 4 * 1024 * 1024  # unsent bytes of the socket before senders wait
HANDSHAKE_ROUND_TRIPS = 2  # from the SASL header to the peer's open
MAX_ROUND_TRIP_SECONDS = 2.0  # seconds; beyond that a peer counts as slow, not as far away


class NamespaceConnection(asyncio.Protocol):
    """A connection to one namespace, made by :func:`connect`."""

    def __init__(
        self,
        namespace: NamespaceAccess,
        *,
        container_id: str | None = None,
        window: int = WINDOW,
        frame: int = MAX_FRAME,
        tap: Tap | None = None,
        answer_timeout: float = ANSWER_TIMEOUT,
    ) -> None:
        self.namespace = namespace
        self.answer_timeout = answer_timeout
        self._tap = tap
        self._loop = asyncio.get_running_loop()
        self._engine = Connection(
            role=ConnectionRole.CLIENT,
            container_id=container_id or f"sbpair-{uuid4()}",
            hostname=namespace.name,
            idle_time_out=IDLE_TIME_OUT,
            max_frame_size=frame,
            limits=Limits(
                max_message_size=MAX_MESSAGE_BYTES, max_held=64 * MAX_MESSAGE_BYTES, incoming_window=window
            ),
            now=self._loop.time(),
        )
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._opened: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[Condition | None] = self._loop.create_future()
        self._links: dict[Link, ClientLink] = {}
        self._tokens = Tokens(self)
        self._flush_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._heard_at = 0.0
        self._silence: asyncio.TimerHandle | None = None
        self.is_writable = True
        self.unfinished_limit = 2 * MAX_MESSAGE_BYTES
        """Bytes of unfinished deliveries above which only the one with the most bytes is kept."""
        self._is_paused = False
        self._made_at = 0.0
        self.round_trip = 0.0
        """Seconds of a round trip: the least seen, at most MAX_ROUND_TRIP_SECONDS; 0 until the connection is open."""

    # Callbacks of asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._made_at = self._loop.time()
        self._transport = cast(asyncio.Transport, transport)
        if not self._transport.is_closing():  # a closed transport of uvloop raises on every call
            self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._flush()

    def data_received(self, data: bytes) -> None:
        if self._tap is not None:
            self._tap(False, data)
        self._heard_at = self._loop.time()
        self._engine.receive_data(data, self._loop.time())
        if self._engine.unfinished > self.unfinished_limit:
            self._drop_excess()
        self._process()

    def eof_received(self) -> None:
        self._engine.receive_eof(self._loop.time())
        self._process()

    def connection_lost(self, exc: Exception | None) -> None:
        self._engine.receive_eof(self._loop.time())
        self._dispatch()
        self._fell(None)

    def pause_writing(self) -> None:
        self.is_writable = False

    def resume_writing(self) -> None:
        self.is_writable = True
        for link in list(self._links.values()):
            link.on_writable()
        self._flush()

    # The interface of the owner.

    async def wait_open(self) -> None:
        """Wait for the peer's open. Raises OutOfReachError."""
        await asyncio.shield(self._opened)

    @property
    def claims_ended(self) -> asyncio.Future[str]:
        """Resolves with the reason when the last token has expired and could not be renewed.

        Cancelled when the connection ends.
        """
        return self._tokens.ended

    @property
    def is_open(self) -> bool:
        return not self.closed.done() and self._opened.done()

    def begin(self) -> Session:
        """Begin a session; delivery ids are numbered per session.

        Raises LinkRefusedError when the peer allows no more channels, ConnectionLostError.
        """
        session = self.opening("a session", self._engine.begin)
        self.flush_soon()
        return session

    @property
    def session(self) -> Session:
        """The session shared by links that do not have their own."""
        if self._session is None:
            self._session = self.begin()
        return self._session

    async def open_sender(self, path: str, *, via: str | None = None) -> Sender:
        """Authorise ``path`` and attach a sender.

        With ``via``, the path of another entity of the namespace, messages are stored there, and transferred to
        ``path`` when their transaction commits: a transaction belongs to one entity, and sends to others via that
        entity. Raises TokenRefusedError, LinkRefusedError, ConnectionLostError.
        """
        await self.authorize(path)
        if via is not None:
            await self.authorize(via)
        name = f"sbpair-sender-{uuid4()}"
        link = self.opening(
            f"a link to {path}",
            lambda: self.session.attach_sender(
                name,
                target=Target(self.namespace.address(via or path)),
                source=Source(name),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=SECOND,
                properties=None if via is None else {TRANSFER_DESTINATION: path},
            ),
        )
        return await self._attach(Sender(self, link, path))

    async def open_receiver(
        self,
        path: str,
        on_message: OnMessage,
        on_disposition: OnDisposition | None = None,
        on_drained: OnDrained | None = None,
    ) -> Receiver:
        """Authorise ``path`` and attach a peek-lock receiver in a session of its own.

        It has no credit until :meth:`Receiver.flow` grants some. Raises TokenRefusedError, LinkRefusedError,
        ConnectionLostError.
        """
        await self.authorize(path)
        link = self.attach_receiver(path, snd_settle_mode=UNSETTLED, rcv_settle_mode=SECOND)
        return await self._attach(Receiver(self, link, path, on_message, on_disposition, on_drained))

    async def open_session_receiver(
        self,
        path: str,
        on_message: OnMessage,
        on_disposition: OnDisposition | None = None,
        on_drained: OnDrained | None = None,
        *,
        session_id: str | None = None,
        timeout: float = 60.0,
    ) -> SessionReceiver:
        """Like :meth:`open_receiver`, for one session of an entity that requires sessions.

        ``session_id`` None takes the next available session and waits ``timeout`` seconds for one (from 0 to 49 days).
        Raises SessionUnavailableError when none is free in time, or when another receiver holds the requested one.
        """
        await self.authorize(path)
        link = self.attach_receiver(
            path,
            snd_settle_mode=UNSETTLED,
            rcv_settle_mode=SECOND,
            filters=session_filter(session_id),
            properties=waiting_for(timeout),
        )
        return await self._attach(
            SessionReceiver(self, link, path, on_message, on_disposition, on_drained, timeout=timeout)
        )

    def attach_receiver(
        self,
        path: str,
        *,
        snd_settle_mode: int,
        rcv_settle_mode: int,
        filters: AmqpMap | None = None,
        properties: AmqpMap | None = None,
    ) -> ReceiverLink:
        """Attach a receiver link in a session of its own, which ends with the link.

        Raises LinkRefusedError, ConnectionLostError.
        """
        name = f"sbpair-receiver-{uuid4()}"
        session = self.begin()
        try:
            return self.opening(
                f"a link to {path}",
                lambda: session.attach_receiver(
                    name,
                    source=Source(self.namespace.address(path), filter=filters),
                    target=Target(name),
                    snd_settle_mode=snd_settle_mode,
                    rcv_settle_mode=rcv_settle_mode,
                    properties=properties,
                ),
            )
        except LinkRefusedError:
            session.end()
            raise

    async def authorize(self, path: str) -> None:
        """Put a token for ``path`` unless it has one, and keep it fresh.

        Raises TokenRefusedError, ConnectionLostError.
        """
        await self._tokens.authorize(path)

    @property
    def claims(self) -> int:
        """The number of tokens put on this connection, including those of paths no longer used."""
        return self._tokens.shown

    def forget(self, path: str) -> None:
        """Stop renewing the token of ``path``; call when no link to it is open."""
        self._tokens.forget(path)

    def pause_reading(self) -> None:
        """Read nothing from the peer until :meth:`resume_reading`; it does not time out meanwhile."""
        if self._transport is not None and not self._is_paused:
            self._is_paused = True
            if not self._transport.is_closing():
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and self._is_paused:
            self._is_paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()

    async def close(self, timeout: float = 5.0) -> None:
        """Close the connection: wait at most ``timeout`` seconds for the peer's close, then close the socket."""
        if not self.closed.done():
            # updates its clock, on which the wait for the peer's close is based
            self._engine.handle_timer(self._loop.time())
            self._engine.close()
            self._flush()
            await asyncio.wait([self.closed], timeout=timeout)
        if self._transport is not None:
            self._transport.abort()
        self._fell(None)

    def abort(self, condition: Condition | None = None) -> None:
        """Close the socket without an AMQP close, for this reason; outcomes in flight stay unknown."""
        if self._transport is not None:
            self._transport.abort()
        self._fell(condition)

    def flush_soon(self) -> None:
        """Write the engine's output once, before the loop waits for I/O again."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    @property
    def unfinished(self) -> int:
        """The number of bytes received of deliveries whose last frame has not arrived."""
        return self._engine.unfinished

    # Internals.

    def _drop_excess(self) -> None:
        for link in in_excess(self._links, self.unfinished_limit):
            logger.warning(
                "%s is detached: unfinished deliveries take more than %d bytes",
                link.name,
                self.unfinished_limit,
            )
            # at once: its peer may never answer, and the owner would wait for it
            link.fault(Condition(RESOURCE_LIMIT_EXCEEDED, "unfinished deliveries take too much memory"))

    async def _attach(self, link: AnyLink) -> AnyLink:
        self.register(link)
        began = self._loop.time()
        try:
            await link.wait_attached()
        except SessionUnavailableError:
            raise
        except LinkRefusedError:
            self._tokens.forget(link.path)  # the token may be the cause: the next link puts another
            raise
        self.round_trip = min(self.round_trip, self._loop.time() - began)
        return link

    def opening(self, what: str, attach: Callable[[], Opened]) -> Opened:
        """Open a session or link in the engine; ``what`` names it in errors.

        Raises LinkRefusedError when the engine allows no more, ConnectionLostError.
        """
        if self.closed.done():  # aborted: the engine may live on, but no answer can arrive
            raise ConnectionLostError(
                f"{what} cannot be opened: the connection has ended", self.closed.result()
            )
        try:
            return attach()
        except AmqpError as error:
            kind = LinkRefusedError if self.is_open else ConnectionLostError
            gone = self.closed.result() if self.closed.done() else None
            raise kind(f"{what} cannot be opened: {error}", gone) from error

    def register(self, link: ClientLink) -> None:
        """Pass engine events of this link to ``link`` from now on."""
        self._links[link.link] = link
        self.flush_soon()

    def _process(self) -> None:
        self._dispatch()
        self._flush()

    def _dispatch(self) -> None:
        for event in self._engine.events():
            self._on_event(event)

    def _on_event(self, event: Event) -> None:
        match event:
            case (
                MessageReceived() | DispositionReceived() | CreditGranted() | CreditDrained() | LinkAttached()
            ):
                link = self._links.get(event.link)
            case LinkDetached():
                link = self._links.pop(event.link, None)
                self._end_if_left(event.link.session)
            case SessionEnded():
                if event.session is self._session:
                    self._session = None  # the next link begins a new one
                self._lose(
                    [each for each in self._links.values() if each.link.session is event.session],
                    event.condition,
                )
                return
            case ConnectionOpened():
                if not self._opened.done():
                    took = self._loop.time() - self._made_at
                    self.round_trip = min(took / HANDSHAKE_ROUND_TRIPS, MAX_ROUND_TRIP_SECONDS)
                    self._opened.set_result(None)
                    self._watch_silence()
                return
            case ConnectionClosed():
                self._fell(event.condition)
                return
            case _:
                return
        if link is not None:
            link.on_event(event)

    def _end_if_left(self, session: Session) -> None:
        """End a session that was used only by the detached link: the number of channels is limited."""
        if session is not self._session and not any(link.session is session for link in self._links):
            session.end()

    def _lose(self, links: list[ClientLink], condition: Condition | None) -> None:
        for link in links:
            self._links.pop(link.link, None)
            link.on_lost(condition)

    def _fell(self, condition: Condition | None) -> None:
        """Record the end of the connection, once: notify every waiting caller and every link."""
        if self.closed.done():
            return
        self.closed.set_result(condition)
        if not self._opened.done():
            self._opened.set_exception(
                OutOfReachError(f"{self.namespace.netloc} closed the connection while it opened", condition)
            )
            self._opened.exception()  # mark as retrieved: there may be no waiting caller
        for timer in (self._timer, self._silence):
            if timer is not None:
                timer.cancel()
        self._tokens.stop()
        self._lose(list(self._links.values()), condition)

    def _flush(self) -> None:
        self._flush_is_due = False
        data = self._engine.data_to_send()
        transport = self._transport
        if transport is None:
            return
        if data and not transport.is_closing():
            if self._tap is not None:
                self._tap(True, data)
            transport.write(memoryview(data))  # asyncio keeps the rest of it without another copy
        if not self._engine.is_closed:
            self._arm()
        elif not transport.is_closing():  # TLS that is closed twice cannot be aborted
            transport.close()

    def _arm(self) -> None:
        """Schedule the engine's next timer; earlier than planned if the peer has just announced its idle time-out."""
        when = self._engine.next_timer()
        if when is None or self.closed.done() or (self._timer is not None and self._timer.when() <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._tick)

    def _watch_silence(self) -> None:
        """End the connection when the peer has been silent for as long as an answer may take.

        A peer whose own idle time-out is longer is asked for a sign of life in between, by a flow that requests its
        window.
        """
        now, limit = self._loop.time(), self.answer_timeout
        if self._is_paused:
            self._heard_at = now  # it may well have spoken
        due = self._heard_at + limit / 2
        if now >= self._heard_at + limit:
            self.abort(Condition(TIMEOUT, f"silent for {limit:g} s"))
            return
        if now >= due:
            due = self._heard_at + limit
            if limit < 2 * IDLE_TIME_OUT:
                with suppress(ClientError):  # no session can be had
                    self.session.flow(None, echo=True)
                self._flush()
        self._silence = self._loop.call_at(due, self._watch_silence)

    def _tick(self) -> None:
        self._timer = None
        if self._is_paused:
            self._engine.receive_data(b"", self._loop.time())  # it may well have spoken
        self._engine.handle_timer(self._loop.time())
        self._process()


def in_excess(links: Iterable[Link], limit: int) -> list[ReceiverLink]:
    """Return the links to detach so that unfinished deliveries occupy at most ``limit`` bytes, or only one remains.

    Each link may carry a message of the largest size, so a peer that finishes none could fill the memory. Above the
    limit, the link with the most received bytes keeps its delivery, because it will be finished first. Others are
    detached, the largest first, and their messages are redelivered.
    """
    found = [link for link in links if isinstance(link, ReceiverLink) and link.unfinished]
    found.sort(key=lambda link: link.unfinished, reverse=True)
    total, excess = sum(link.unfinished for link in found), []
    for link in found[1:]:
        if total <= limit:
            break
        excess.append(link)
        total -= link.unfinished
    return excess


async def connect(
    namespace: NamespaceAccess,
    *,
    timeout: float = 60.0,
    container_id: str | None = None,
    window: int = WINDOW,
    frame: int = MAX_FRAME,
    tap: Tap | None = None,
    answer_timeout: float = ANSWER_TIMEOUT,
) -> NamespaceConnection:
    """Open a connection by the route of ``namespace``, within ``timeout`` seconds.

    ``window``: how many frames the peer may send in a session before our next flow; ``frame``: their largest size.
    ``answer_timeout``: seconds that the peer may be silent, or take to answer, once the connection is open.

    Raises OutOfReachError, or NamespaceUnusableError when the peer's certificate is refused or the file of trusted
    certificates is unusable.
    """
    route = namespace.route
    context = (route.ssl_context or _tls_context(route.ca_file)) if namespace.uses_tls else None
    try:
        async with asyncio.timeout(timeout):
            connection = await _open(
                namespace,
                context,
                lambda: NamespaceConnection(
                    namespace,
                    container_id=container_id,
                    window=window,
                    frame=frame,
                    tap=tap,
                    answer_timeout=answer_timeout,
                ),
            )
            try:
                await connection.wait_open()
            except BaseException:  # a cancelled caller leaves no socket behind
                connection.abort()
                raise
            return connection
    except ssl.SSLCertVerificationError as error:
        text = f"the certificate of {namespace.netloc} is refused: {error.verify_message}"
        raise NamespaceUnusableError(text) from error
    except (OSError, TimeoutError) as error:
        raise OutOfReachError(f"{namespace.netloc} cannot be reached: {_why(error, timeout)}") from error


def _why(error: OSError, timeout: float) -> str:
    """Return the system's error text where there is one; asyncio's text names the call and the address instead."""
    number = None if isinstance(error, ssl.SSLError | TimeoutError) else error.errno
    if number is not None and number > 0:
        return os.strerror(number)
    return str(error) or f"no answer within {timeout:g} s"


async def _open(
    namespace: NamespaceAccess,
    context: ssl.SSLContext | None,
    make: Callable[[], NamespaceConnection],
) -> NamespaceConnection:
    if namespace.route.over_websocket:
        from .websocket import open_websocket  # late: importing aiohttp is slow, and few need it

        return await open_websocket(namespace, make, context=context)
    wire = await connect_in_loop(namespace.host, namespace.port)
    try:
        _, connection = await asyncio.get_running_loop().create_connection(
            make, sock=wire, ssl=context, server_hostname=namespace.host if context else None
        )
    except BaseException:
        hand_over(wire, is_taken=False)
        raise
    hand_over(wire, is_taken=True)
    return connection


def _tls_context(ca_file: str | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise NamespaceUnusableError(f"the certificates in {ca_file} cannot be read: {error}") from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context
