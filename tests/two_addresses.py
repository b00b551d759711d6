"""A host name with several addresses, of which some swallow packets: a broken IPv6, a dead private endpoint."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

BACKLOG = 4  # connections that fill the queue of a listener that accepts none


@contextmanager
def black_hole() -> Iterator[tuple[str, int]]:
    """Yield an address whose accept queue is full, so that further attempts get no answer."""
    with ExitStack() as opened:
        hole = opened.enter_context(socket.socket())
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        for _ in range(BACKLOG):
            each = opened.enter_context(socket.socket())
            each.setblocking(False)
            each.connect_ex(hole.getsockname())
        yield hole.getsockname()


class TwoAddresses:
    """The name ``host`` has these addresses, in this order; an address of None is the one that the name has."""

    def __init__(
        self, patched: pytest.MonkeyPatch, host: str, addresses: list[tuple[str, int] | None]
    ) -> None:
        self._look_up, self._host, self._addresses = socket.getaddrinfo, host, addresses
        patched.setattr(socket, "getaddrinfo", self._found)

    def _found(self, host: object, port: object, *more: object, **named: object) -> list[tuple[object, ...]]:
        name = host.decode() if isinstance(host, bytes) else host
        if name != self._host:
            return self._look_up(host, port, *more, **named)
        found: list[tuple[object, ...]] = []
        for address in self._addresses:
            if address is None:
                found += (
                    each for each in self._look_up(host, port, *more, **named) if each[0] == socket.AF_INET
                )
            else:
                found.append((socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", address))
        return found
