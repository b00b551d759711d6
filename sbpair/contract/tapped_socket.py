"""A TLS socket that tells a tap what passes on it, for connections that the SDK opens itself."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar

from sbpair.pair.client.connection import Tap

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

NewTap = Callable[[], Tap]
"""Returns the tap of a new connection. May be called from any thread."""


class TappedSocket(ssl.SSLSocket):
    """Has the calls that the SDK makes: ``send``, ``recv`` and ``recv_into``."""

    new_tap: ClassVar[NewTap]

    @cached_property
    def _tap(self) -> Tap:
        return type(self).new_tap()

    def send(self, data: ReadableBuffer, flags: int = 0) -> int:
        sent = super().send(data, flags)
        self._tap(True, bytes(memoryview(data)[:sent]))
        return sent

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        received = super().recv(buflen, flags)
        self._tap(False, received)
        return received

    def recv_into(self, buffer: WriteableBuffer, nbytes: int | None = None, flags: int = 0) -> int:
        received = super().recv_into(buffer, nbytes, flags)
        self._tap(False, bytes(memoryview(buffer)[:received]))
        return received


def tapped(context: ssl.SSLContext, new_tap: NewTap) -> ssl.SSLContext:
    """Give each connection of a TLS context a tap. Returns the context."""
    context.sslsocket_class = type("TappedSocket", (TappedSocket,), {"new_tap": staticmethod(new_tap)})
    return context
