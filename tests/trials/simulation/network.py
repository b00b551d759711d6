"""In-memory connections with latency drawn from the seed, which can be cut, stalled and refused.

    syphon --- bytes ---> | latency, order kept | ---> the broker's own protocol (AmqpWire)
           <-------------'                       '----

A reset loses the bytes in transit. A stalled connection delivers late, in order, and loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from random import Random
from typing import Any

from sbpair.broker.server.wire import AmqpWire
from tests.turns import pieces

SHORTEST, LONGEST = 0.001, 0.03  # seconds on the way
HOST: ContextVar[str] = ContextVar("HOST", default="")
"""Who is running: set in the first task of each syphon, and inherited by all that it starts."""


class End(asyncio.Transport):
    """One end of a connection, as its protocol sees it."""

    def __init__(self, pipe: Pipe, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self._pipe = pipe
        self._arrives = 0.0
        self.protocol: Any = protocol
        self.is_over = False
        self.peer: End

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_over:
            for piece in pieces(bytes(data)):
                self._carry(partial(self._pipe.deliver, self.peer, piece))

    def close(self) -> None:
        self.abort()

    def abort(self) -> None:
        """What was written before still arrives; then the peer learns that we are gone."""
        if not self.is_over:
            self.end(None)
            self._carry(lambda: self.peer.end(None))

    def end(self, error: Exception | None) -> None:
        if not self.is_over:
            self.is_over = True
            self._pipe.loop.call_soon(self._tell, error)

    def _tell(self, error: Exception | None) -> None:
        with self._pipe.network.acting(self._pipe.host):
            self.protocol.connection_lost(error)

    def _carry(self, what: Callable[[], None]) -> None:
        pipe = self._pipe
        at = max(pipe.loop.time() + pipe.rng.uniform(*pipe.network.latency), pipe.stalled_until)
        self._arrives = at = max(at, self._arrives + 1e-6)  # TCP: no overtaking
        pipe.loop.call_at(at, what)

    def is_closing(self) -> bool:
        return self.is_over

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is room."""

    def pause_reading(self) -> None:
        """What comes is taken all the same: nobody in a run reads slower than the other writes."""

    def resume_reading(self) -> None:
        """See :meth:`pause_reading`."""

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Pipe:
    """A connection of ``host`` to the namespace ``side``."""

    def __init__(self, network: Network, host: str, side: str) -> None:
        self.network, self.host, self.side = network, host, side
        self.loop = network.loop
        self.rng = Random(
            network.rng.getrandbits(32)
        )  # its own: what others do does not change its latencies
        self.stalled_until = network.stalled_until(host, side)
        self.client: End
        self.server: End

    def deliver(self, end: End, data: bytes) -> None:
        if end.is_over:
            return
        if self.stalled_until > self.loop.time():  # it was on its way when the stall began
            self.loop.call_at(self.stalled_until + 1e-9, self.deliver, end, data)
            return
        if end is self.server:
            with self.network.acting(self.host):
                end.protocol.data_received(data)
        else:
            end.protocol.data_received(data)
        self.network.stepped(self.host)

    def cut(self) -> None:
        """A reset: both ends learn only that the connection has ended."""
        for end in (self.client, self.server):
            end.end(ConnectionResetError("the connection was reset"))

    def forsake(self) -> None:
        """The broker's process has ended: what it had written still arrives, and it hears nothing more."""
        wire = self.server.protocol
        for timer in (wire._timer, wire._closing) if isinstance(wire, AmqpWire) else ():
            if timer is not None:
                timer.cancel()
        self.server.protocol = asyncio.Protocol()
        self.server.abort()


class Network:
    """All connections of one run."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        rng: Random,
        serve: Callable[[str], asyncio.Protocol],
        is_refused: Callable[[str], bool],
        stalled_until: Callable[[str, str], float],
        stepped: Callable[[str], None],
    ) -> None:
        self.loop, self.rng = loop, rng
        self.stalled_until, self.stepped = stalled_until, stepped
        self.latency = (SHORTEST, LONGEST)
        self.actor = ""
        self.acting_since: float | None = None  # when what is done now was asked for, if before
        self._serve, self._is_refused = serve, is_refused
        self._pipes: list[Pipe] = []

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], side: str
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        await asyncio.sleep(self.rng.uniform(*self.latency))
        if self._is_refused(side):
            raise ConnectionRefusedError(f"{side} refuses connections")
        pipe = Pipe(self, HOST.get(), side)
        protocol = factory()
        pipe.client, pipe.server = End(pipe, protocol), End(pipe, self._serve(side))
        pipe.client.peer, pipe.server.peer = pipe.server, pipe.client
        self._pipes = [each for each in self._pipes if not (each.client.is_over and each.server.is_over)]
        self._pipes.append(pipe)
        pipe.server.protocol.connection_made(pipe.server)
        protocol.connection_made(pipe.client)
        return pipe.client, protocol

    def pipes(self, host: str | None = None, side: str | None = None) -> list[Pipe]:
        """The connections of that host, to that side; all of them where it is not said."""
        return [pipe for pipe in self._pipes if host in (None, pipe.host) and side in (None, pipe.side)]

    def acting(self, host: str, since: float | None = None) -> _Acting:
        """While it lasts, what is done at a broker is done for that host; ``since``: as asked for then."""
        return _Acting(self, host, since)


class _Acting:
    def __init__(self, network: Network, host: str, since: float | None) -> None:
        self._network, self._acting = network, (host, since)

    def __enter__(self) -> None:
        self._before = self._network.actor, self._network.acting_since
        self._network.actor, self._network.acting_since = self._acting

    def __exit__(self, *_: object) -> None:
        self._network.actor, self._network.acting_since = self._before
