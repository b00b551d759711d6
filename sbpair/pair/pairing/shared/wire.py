"""The connections under an SDK sender: to end its hanging calls, and to close those that the SDK leaves open.

Reaches into private parts of the SDK, as sdk.py does and on its terms.
"""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError, ServiceBusError

from sbpair.pair.envelope.copies import private

from ..request import sdk
from .sdk_dialling import dialled
from .threads import POLL, Job

KeepAlive = TypeVar("KeepAlive")

FRAMES = 16  # read in a row while a link opens; the SDK itself sleeps 50 ms after each
TOKEN_CHECK = 0.1  # seconds between two checks of a link's token; the SDK makes two for each send
_SIZE = struct.Struct(">I")  # of a frame, at its head
_NO_SAVING = "a send costs more processor time"
_NO_BOUND = "a credential that hangs holds a send past its deadline"
_NO_FRAME_LIMIT = "a peer that announces a huge frame makes a call late"


class BaseWire(Generic[KeepAlive]):
    """The handlers under one SDK sender, with their transports and keep-alives."""

    _LOSS: ClassVar[str]
    _OPEN: ClassVar[str]  # the method that opens a handler
    _READY: ClassVar[str]  # the method that reads one frame while a handler opens
    _KEEP_ALIVE: ClassVar[type[Any]]

    def __init__(self, sender: object) -> None:
        self._sender = sender
        self._handlers: list[object] = []
        self._transports: list[object] = []
        self._keep_alive: list[KeepAlive] = []
        create = private(sender, "_create_handler", self._LOSS)
        if callable(create):
            sender._create_handler = self._remembering(create)  # type: ignore[attr-defined]

    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return bool(private(self._sender, "_running", "links are reopened after every error"))

    def deletion(self) -> MessagingEntityNotFoundError | None:
        """The error of the link if its entity was deleted; None otherwise."""
        handler = self._handlers[-1] if self._handlers else None
        link = None if handler is None else private(handler, "_link", sdk.NO_DELETION)
        return None if link is None else sdk.deletion_of(link)

    def signs(self) -> object:
        """Return a value that changes whenever the peer answers while a link is being opened."""
        found = []
        for handler in self._handlers:
            connection = getattr(handler, "_connection", None)
            transport = getattr(connection, "_transport", None)
            is_connected = getattr(transport, "connected", None)
            found.append((is_connected, getattr(connection, "_last_frame_received_time", None)))
        return found

    def _remembering(self, create: Callable[..., object]) -> Callable[..., None]:
        def create_and_remember(auth: object) -> None:
            create(auth)
            handler = private(self._sender, "_handler", self._LOSS)
            opening = getattr(handler, self._OPEN, None)
            if handler is None or opening is None:
                return
            self._handlers.append(handler)
            setattr(handler, self._OPEN, self._recording_open(handler, opening))
            ready = getattr(handler, self._READY, None)
            if ready is not None:
                setattr(handler, self._READY, self._without_pauses(handler, ready))

        return create_and_remember

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        raise NotImplementedError

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``ready`` without the SDK's pauses between the frames that open a link."""
        raise NotImplementedError

    def _opened(self, handler: object) -> None:
        # When opening or closing fails, the SDK drops the connection without closing its socket. And it waits up to
        # a second for its keep-alive thread or task, which ends on its own.
        delattr(handler, self._OPEN)  # restore the SDK's method: each send calls it again
        transport = _transport_of(handler, self._LOSS)
        self._transports.append(transport)
        self._bound_frames(handler, transport)
        keep_alive = private(handler, "_keep_alive_thread", "closing a failed link takes up to a second")
        if isinstance(keep_alive, self._KEEP_ALIVE):
            handler._keep_alive_thread = None  # type: ignore[attr-defined]
            self._keep_alive.append(keep_alive)

    def _bound_frames(self, handler: object, transport: object) -> None:
        """Enforce the frame size that the SDK announced: it would reserve the memory for a frame of any size."""
        if transport is None:
            return
        connection = private(handler, "_connection", _NO_FRAME_LIMIT)
        limit = private(connection, "_max_frame_size", _NO_FRAME_LIMIT)
        read = private(transport, "_read", _NO_FRAME_LIMIT)
        if isinstance(limit, int) and callable(read):
            transport._read = self._limit(read, limit)  # type: ignore[attr-defined]

    def _limit(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        """Return ``read`` of a transport, changed to refuse a frame of more than ``limit`` bytes by its header."""
        raise NotImplementedError

    def _all_transports(self) -> list[object]:
        return [*self._transports, *(_transport_of(handler, self._LOSS) for handler in self._handlers)]

    def _forget(self) -> None:
        self._handlers.clear()
        self._transports.clear()


class Wire(BaseWire[threading.Thread]):
    """The sockets under one SDK sender, so that another thread can end its calls."""

    _LOSS = "a hanging call cannot be ended at its deadline"
    _OPEN, _READY = "open", "client_ready"
    _KEEP_ALIVE = threading.Thread

    def __init__(self, sender: object) -> None:
        super().__init__(sender)
        self._is_shut = False
        self._opened_sockets: list[socket.socket] = []

    def join(self, seconds: float) -> None:
        """Wait for the keep-alive threads of closed links, at most ``seconds`` each."""
        while self._keep_alive:
            self._keep_alive.pop().join(seconds)

    def shut(self) -> None:
        """End every read and write on the connection; the blocked call raises. Thread-safe."""
        self._is_shut = True
        for wire in self._sockets():
            try:
                # Not SSLSocket.shutdown, which drops the TLS state that the reading thread uses.
                socket.socket.shutdown(wire, socket.SHUT_RDWR)
            except OSError:
                pass  # closed already

    def release(self) -> None:
        """Close the sockets without notifying the peer: those that the SDK leaves open; after a fork, all of them."""
        for wire in (*self._sockets(), *self._opened_sockets):
            wire.close()
        self._opened_sockets.clear()
        self._forget()

    def _recording_open(self, handler: object, opening: Callable[..., Any]) -> Callable[..., Any]:
        def open_and_remember(connection: object = None) -> None:
            sockets: list[socket.socket] = []
            try:
                with dialled() as sockets:
                    opening(connection=connection)
            finally:
                self._opened_sockets = [
                    each for each in (*self._opened_sockets, *sockets) if each.fileno() >= 0
                ]
                self._opened(handler)

        return open_and_remember

    def _without_pauses(self, handler: object, ready: Callable[..., Any]) -> Callable[..., Any]:
        def is_ready() -> bool:
            for _ in range(FRAMES):
                if ready():
                    vars(handler).pop(self._READY, None)  # restore the SDK's method for the sends
                    self._check_rarely(handler, ready)
                    self._bound_refreshes(handler)
                    return True
            return False

        return is_ready

    def _check_rarely(self, handler: Any, ready: Callable[..., Any]) -> None:  # noqa: ANN401 -- the SDK's private client
        """Let each send check its link, but its token only every TOKEN_CHECK seconds."""
        is_attached = private(handler, "_client_ready", _NO_SAVING)
        if not (callable(is_attached) and hasattr(handler, "_cbs_authenticator")):
            return
        checked, due = None, 0.0

        def is_ready() -> bool:
            nonlocal checked, due
            if time.monotonic() < due and handler._cbs_authenticator is checked and is_attached():
                return True
            if not ready():
                return False
            checked, due = handler._cbs_authenticator, time.monotonic() + TOKEN_CHECK
            return True

        handler.client_ready = is_ready

    def _bound_refreshes(self, handler: object) -> None:
        """Let a send wait for the link's next token no longer than for its answer: a credential can hang."""
        authenticator = private(handler, "_cbs_authenticator", _NO_BOUND)
        auth: Any = None if authenticator is None else private(authenticator, "_auth", _NO_BOUND)
        fetch: Any = None if auth is None else private(auth, "get_token", _NO_BOUND)
        if callable(fetch):
            auth.get_token = partial(self._fetch, fetch)

    def _fetch(self, fetch: Callable[[], object]) -> object:
        """Replaces the SDK's ``get_token``: fetches in its own thread, and waits until the connection is shut down."""
        tokens: list[object] = []
        job = Job("sbpair-token", lambda: tokens.append(fetch()), lambda job: None)
        try:
            job.start()
        except RuntimeError:  # the system cannot create a thread now
            return fetch()
        while not job.wait(POLL):
            if self._is_shut:
                raise OperationTimeoutError(message="The credential returned no token in time.")
        if job.error is not None:
            raise job.error
        if not tokens:
            raise ServiceBusError("The credential returned no token: it was interrupted.")
        return tokens[0]

    def _limit(self, read: Callable[..., Any], limit: int) -> Callable[..., Any]:
        size_of = _SIZE.unpack_from

        def read_bounded(size: int, *, initial: bool = False, buffer: memoryview | None = None) -> memoryview:
            view: memoryview = read(size, initial=initial, buffer=buffer)
            if initial and size_of(view)[0] > limit:
                check_size(view, limit)
            return view

        return read_bounded

    def _sockets(self) -> list[socket.socket]:
        found = [_socket_of(transport, self._LOSS) for transport in self._all_transports()]
        return [wire for wire in found if wire is not None]


def check_size(head: memoryview, limit: int) -> None:
    """Raise ConnectionError if a frame is larger than ``limit`` bytes; a protocol header has no size."""
    (size,) = _SIZE.unpack_from(head)
    if size > limit and bytes(head[:4]) != b"AMQP":
        raise ConnectionError(f"the peer announced a frame of {size} bytes, where {limit} is the limit")


def _transport_of(handler: object, loss: str) -> object:
    connection = None if handler is None else private(handler, "_connection", loss)
    return None if connection is None else private(connection, "_transport", loss)


def _socket_of(transport: object, loss: str) -> socket.socket | None:
    wire = None if transport is None else private(transport, "sock", loss)
    if wire is None or isinstance(wire, socket.socket):
        return wire
    inner = getattr(wire, "sock", None)  # websocket-client keeps the socket one deeper
    return inner if isinstance(inner, socket.socket) else None
