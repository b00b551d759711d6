"""The one way to open a TCP connection to a host that has several addresses, and the TLS that follows.

    answered last   |--------------------------------X
    IPv6, next           |---------------> connected
    IPv4, next                 (not begun)
                    0    0.25 s

An address that never answers costs a quarter of a second, not a timeout: then the next address, of the other family
first, is tried at the same time, and the first connection wins (RFC 8305). The address that answered is the first to be
tried next time.

For the SDK's connections, also the trusted authorities, and a handshake that is bounded.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import ssl
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import chain, zip_longest
from typing import Any

import certifi

from sbpair.pair.ground.shortage import lacks_descriptor

STAGGER = 0.25  # seconds before the next address is tried too
MAX_HOSTS = 1024
HANDSHAKE_TIMEOUT = 10.0  # seconds; the SDK sets none
_UNDER_WAY = {errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY}

opened: ContextVar[list[socket.socket] | None] = ContextVar("sbpair_opened_sockets", default=None)
"""Gets each socket that is opened or wrapped for the SDK in this context, which does not close all that it drops."""

Address = tuple[Any, Any, int, str, Any]  # as getaddrinfo has it
Host = tuple[str, int]
_answered: dict[Host, object] = {}


def in_order(found: Iterable[Address], answered: object) -> list[Address]:
    """Return the order in which to try addresses: first the one that answered last time, then the families in turn."""
    families: dict[int, list[Address]] = {}
    first: list[Address] = []
    for each in found:
        (first if each[4] == answered else families.setdefault(each[0], [])).append(each)
    turns = chain.from_iterable(zip_longest(*families.values()))
    return [*first, *(each for each in turns if each is not None)]


def connect(host: str, port: int, timeout: float | None) -> socket.socket:
    """Return a connected blocking socket with this timeout, in seconds; connecting may take as long for each address.

    Raises OSError: the first address's error when none answers, or TimeoutError.
    """
    with _naming_shortage():
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    attempts = _Attempts(in_order(found, _answered.get((host, port))), timeout)
    try:
        wire = attempts.first()
    finally:
        attempts.close()
    _remember((host, port), wire)
    wire.settimeout(timeout)
    return wire


class _Attempts:
    """Connections under way to the addresses of one host."""

    def __init__(self, addresses: list[Address], timeout: float | None) -> None:
        self._waiting = deque(addresses)
        self._timeout = timeout
        self._ends: dict[socket.socket, float | None] = {}
        self._selector = selectors.DefaultSelector()
        self._failure: OSError | None = None
        self._next = 0.0  # when another is begun

    def first(self) -> socket.socket:
        """Return the first socket that connects. Raises OSError when none does."""
        while self._waiting or self._ends:
            now = time.monotonic()
            for wire, ends in list(self._ends.items()):
                if ends is not None and now >= ends:
                    self._fail(wire, TimeoutError("timed out"))
            if self._waiting and (not self._ends or now >= self._next):
                if (wire_now := self._begin(now)) is not None:
                    return wire_now
                continue
            dues = [each for each in self._ends.values() if each is not None]
            if self._waiting:
                dues.append(self._next)
            if not self._ends:
                break
            for key, _ in self._selector.select(max(0.0, min(dues) - now) if dues else None):
                wire = key.fileobj  # type: ignore[assignment]
                if (code := wire.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)) == 0:
                    return self._won(wire)
                self._fail(wire, _error(code))
        raise self._failure or OSError("the host has no address")

    def close(self) -> None:
        """Close the connections that did not win."""
        for wire in self._ends:
            wire.close()
        self._selector.close()

    def _begin(self, now: float) -> socket.socket | None:
        family, kind, proto, _, address = self._waiting.popleft()
        try:
            wire = socket.socket(family, kind, proto)
        except OSError as error:  # no such family here
            self._failure = self._failure or error
            return None
        wire.setblocking(False)
        self._ends[wire] = None if self._timeout is None else now + self._timeout
        code = wire.connect_ex(address)
        if code == 0:
            return self._won(wire)
        if code not in _UNDER_WAY:
            self._fail(wire, _error(code))
            return None
        self._next = now + STAGGER
        self._selector.register(wire, selectors.EVENT_WRITE)
        return None

    def _won(self, wire: socket.socket) -> socket.socket:
        del self._ends[wire]
        return wire

    def _fail(self, wire: socket.socket, error: OSError) -> None:
        del self._ends[wire]
        self._next = 0.0
        if wire in self._selector.get_map():
            self._selector.unregister(wire)
        wire.close()
        self._failure = self._failure or error


async def connect_in_loop(host: str, port: int) -> socket.socket:
    """Return a connected socket for the running loop, of asyncio or uvloop. Raises OSError when no address answers."""
    import asyncio

    from aiohappyeyeballs import start_connection  # late: a blocking client needs neither

    loop = asyncio.get_running_loop()
    with _naming_shortage():
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    if not found:
        raise OSError("the host has no address")
    addresses = in_order(found, _answered.get((host, port)))
    wire = await start_connection(addresses, happy_eyeballs_delay=STAGGER, loop=loop)
    _remember((host, port), wire)
    return wire


@contextmanager
def _naming_shortage() -> Iterator[None]:
    """Raises OSError (EMFILE) when resolving a name within this context fails for lack of a file descriptor.

    It is determined at once: a moment later a descriptor may be free, and only "unknown name" would be left.
    """
    try:
        yield
    except socket.gaierror as error:
        if lacks_descriptor():
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE)) from error
        raise


def hand_over(wire: socket.socket, *, is_taken: bool) -> None:
    """Hand a connected socket over to the running loop; ``is_taken`` says whether a transport owns it.

    uvloop closes the file descriptor itself in either case, but the socket object may not know: its own close would
    then hit an unrelated descriptor of the same number.
    """
    import asyncio

    if type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop":
        wire.detach()
    elif not is_taken:
        wire.close()


def _error(code: int) -> OSError:
    return OSError(code, os.strerror(code))  # of the subclass for that code


def _remember(host: Host, wire: socket.socket) -> None:
    if len(_answered) >= MAX_HOSTS:
        _answered.clear()
    try:
        _answered[host] = wire.getpeername()
    except OSError:  # reset already: the next use of the socket raises
        _answered.pop(host, None)


def note_opened(wire: socket.socket) -> None:
    """Report an opened socket to those who collect the sockets of this context, if any."""
    kept = opened.get()
    if kept is not None:
        kept.append(wire)


class CaFileUnusableError(ValueError):
    """A file of trusted certificates cannot be read, or contains none."""

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"{file!r} is not a file of trusted certificates (PEM): {why}")
        self.file, self.why = file, why


class BoundedHandshake:
    """A TLS context whose handshake times out; on its own, the SDK waits forever for a silent peer.

    Has only the SSLContext method that the SDK calls.
    """

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context

    def wrap_socket(self, sock: socket.socket, *, server_hostname: str | None = None) -> ssl.SSLSocket:
        sock.settimeout(HANDSHAKE_TIMEOUT)
        wrapped = self.context.wrap_socket(sock, server_hostname=server_hostname)
        note_opened(wrapped)
        return wrapped


def trusting(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts the authorities in this PEM file, or certifi's, as the SDK does.

    Raises CaFileUnusableError when the file cannot be read or holds no certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(ca_file or certifi.where())
    except (OSError, TypeError, ValueError) as error:  # the last two: not a path
        raise CaFileUnusableError(str(ca_file), getattr(error, "strerror", None) or str(error)) from error
    return context
