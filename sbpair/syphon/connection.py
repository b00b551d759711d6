"""One AMQP connection to one namespace, for asyncio: the thin skin over the engine.

    bytes in -> engine -> events -> Sender, Receiver, Cbs -> engine -> bytes out, once a chunk

It authorises paths over $cbs and keeps the tokens fresh, opens links, and hands what arrives to whoever
opened them. It decides nothing about messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar, cast
from uuid import uuid4

from sbpair.amqp.connection import Connection
from sbpair.amqp.errors import AmqpError
from sbpair.amqp.events import (
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
from sbpair.amqp.link import Link
from sbpair.amqp.performatives import Condition, Source, Target
from sbpair.amqp.preamble import Role
from sbpair.amqp.session import Session

from .connection_string import Namespace
from .errors import ConnectionLost, LinkRefused
from .link import ClientLink, OnDisposition, OnDrained, OnMessage, Opened, Receiver, Sender
from .tokens import Tokens

AnyLink = TypeVar("AnyLink", Sender, Receiver)

UNSETTLED, SECOND = 0, 1  # 2.8.2, 2.8.3: we settle once the peer has said what became of it
IDLE_TIME_OUT = 60.0  # seconds of silence after which we count the peer as gone
WRITE_BUFFER = 4 * 1024 * 1024  # bytes the socket may owe before senders wait


class NamespaceConnection(asyncio.Protocol):
    """A connection to one namespace; :func:`~sbpair.syphon.dial.connect` makes it."""

    def __init__(self, namespace: Namespace, *, container_id: str | None = None) -> None:
        self.namespace = namespace
        self._loop = asyncio.get_running_loop()
        self._engine = Connection(
            role=Role.CLIENT,
            container_id=container_id or f"sbpair-syphon-{uuid4()}",
            hostname=namespace.name,
            idle_time_out=IDLE_TIME_OUT,
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
        self.is_writable = True

    # What asyncio tells us.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self._flush()

    def data_received(self, data: bytes) -> None:
        self._engine.receive_data(data, self._loop.time())
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

    # What our owner asks.

    async def wait_open(self) -> None:
        """Wait for the peer's open. Raises ConnectionLost."""
        await asyncio.shield(self._opened)

    @property
    def is_open(self) -> bool:
        return not self.closed.done() and self._opened.done()

    def begin(self) -> Session:
        """A new session; delivery ids are numbered per session. Raises ConnectionLost."""
        session = self.opening("a session", self._engine.begin)
        self.flush_soon()
        return session

    @property
    def session(self) -> Session:
        """The session that links share unless they bring their own."""
        if self._session is None:
            self._session = self.begin()
        return self._session

    async def open_sender(self, path: str) -> Sender:
        """Authorise ``path`` and attach a sender. Raises TokenRefused, LinkRefused, ConnectionLost."""
        await self.authorize(path)
        name = f"sbpair-sender-{uuid4()}"
        link = self.opening(
            f"a link to {path}",
            lambda: self.session.attach_sender(
                name,
                target=Target(self.namespace.address(path)),
                source=Source(name),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=SECOND,
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
        """Authorise ``path`` and attach a receiver (peek-lock) in a session of its own.

        Without credit: that is the owner's to grant. Raises TokenRefused, LinkRefused, ConnectionLost.
        """
        await self.authorize(path)
        name = f"sbpair-receiver-{uuid4()}"
        link = self.opening(
            f"a link to {path}",
            lambda: self.begin().attach_receiver(
                name,
                source=Source(self.namespace.address(path)),
                target=Target(name),
                snd_settle_mode=UNSETTLED,
                rcv_settle_mode=SECOND,
            ),
        )
        return await self._attach(Receiver(self, link, path, on_message, on_disposition, on_drained))

    async def authorize(self, path: str) -> None:
        """Put a token for ``path``, once, and keep it fresh. Raises TokenRefused, ConnectionLost."""
        await self._tokens.authorize(path)

    async def close(self, timeout: float = 5.0) -> None:
        """Close, wait for the peer's close for up to ``timeout`` seconds, and let the socket go."""
        if not self.closed.done():
            self._engine.close()
            self._flush()
            await asyncio.wait([self.closed], timeout=timeout)
        if self._transport is not None:
            self._transport.abort()
        self._fell(None)

    def abort(self) -> None:
        """Let the socket go without a word; what is in flight stays unknown."""
        if self._transport is not None:
            self._transport.abort()
        self._fell(None)

    def flush_soon(self) -> None:
        """Write what the engine has to say, once, before the loop waits again."""
        if not self._flush_is_due:
            self._flush_is_due = True
            self._loop.call_soon(self._flush)

    # Inside.

    async def _attach(self, link: AnyLink) -> AnyLink:
        self.register(link)
        try:
            await link.wait_attached()
        except LinkRefused:
            self._tokens.forget(link.path)  # perhaps it was the token: put another with the next link
            raise
        except asyncio.CancelledError:
            link.link.detach()  # nobody is left to own it
            self.flush_soon()
            raise
        return link

    def opening(self, what: str, attach: Callable[[], Opened]) -> Opened:
        """What the engine opens. Raises LinkRefused when it has no room for one more, ConnectionLost."""
        if self.closed.done():  # let go by us: the engine still lives, and nobody would ever answer it
            raise ConnectionLost(f"{what} cannot be opened: the connection is over", self.closed.result())
        try:
            return attach()
        except AmqpError as error:
            kind = LinkRefused if self.is_open else ConnectionLost
            gone = self.closed.result() if self.closed.done() else None
            raise kind(f"{what} cannot be opened: {error}", gone) from error

    def register(self, link: ClientLink) -> None:
        """Let the events of ``link`` go to it."""
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
            case SessionEnded():
                if event.session is self._session:
                    self._session = None  # the next link begins another
                self._lose(
                    [each for each in self._links.values() if each.link.session is event.session],
                    event.condition,
                )
                return
            case ConnectionOpened():
                if not self._opened.done():
                    self._opened.set_result(None)
                return
            case ConnectionClosed():
                self._fell(event.condition)
                return
            case _:
                return
        if link is not None:
            link.on_event(event)

    def _lose(self, links: list[ClientLink], condition: Condition | None) -> None:
        for link in links:
            self._links.pop(link.link, None)
            link.on_lost(condition)

    def _fell(self, condition: Condition | None) -> None:
        """The connection is over: everybody who waits learns it, once."""
        if self.closed.done():
            return
        self.closed.set_result(condition)
        if not self._opened.done():
            self._opened.set_exception(ConnectionLost(f"no connection to {self.namespace.name}", condition))
            self._opened.exception()  # whoever waits has it; nobody may
        if self._timer is not None:
            self._timer.cancel()
        self._tokens.stop()
        self._lose(list(self._links.values()), condition)

    def _flush(self) -> None:
        self._flush_is_due = False
        data = self._engine.data_to_send()
        transport = self._transport
        if transport is None:
            return
        if data and not transport.is_closing():
            transport.write(data)
        if self._engine.is_closed:
            transport.close()
        elif self._timer is None:
            self._arm()

    def _arm(self) -> None:
        when = self._engine.next_timer()
        if when is not None and not self.closed.done():
            self._timer = self._loop.call_at(when, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._engine.handle_timer(self._loop.time())
        self._process()
