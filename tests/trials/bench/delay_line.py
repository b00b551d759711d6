"""A line with a delay: bytes come out as they went in, a number of seconds later.

The proxy for tests (``sbpair.testing.ChaosProxy``) parses frames and costs more than what is measured here;
this one handles bytes, runs in its own process, and takes a few microseconds per chunk.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import re
import selectors
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

Address = tuple[str, int]


class End(asyncio.Protocol):
    """One end of a line; what it hears the other says, later."""

    def __init__(self, delay: float) -> None:
        self._delay = delay
        self._loop = asyncio.get_running_loop()
        self._late: deque[tuple[float, bytes]] = deque()
        self.transport: asyncio.Transport
        self.other: End | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        due = self._loop.time() + self._delay
        if not self._late:
            self._loop.call_at(due, self._say)
        self._late.append((due, data))

    def _say(self) -> None:
        late, now = self._late, self._loop.time()
        while late and late[0][0] <= now:
            data = late.popleft()[1]
            if self.other is not None and not self.other.transport.is_closing():
                self.other.transport.write(data)
        if late:
            self._loop.call_at(late[0][0], self._say)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None:
            self.other.transport.close()


class Entrance(End):
    """Where a client comes in: the line is laid to the broker then."""

    def __init__(self, delay: float, broker: Address) -> None:
        super().__init__(delay)
        self._broker = broker
        self._laying: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self.transport.pause_reading()
        self._laying = self._loop.create_task(self._lay())

    async def _lay(self) -> None:
        _, far = await self._loop.create_connection(lambda: End(self._delay), *self._broker)
        self.other, far.other = far, self
        self.transport.resume_reading()


async def _serve(pipe: Connection, delay: float, brokers: list[Address]) -> None:
    loop = asyncio.get_running_loop()
    servers = [
        await loop.create_server(lambda broker=broker: Entrance(delay, broker), "127.0.0.1", 0)  # type: ignore[misc]
        for broker in brokers
    ]
    pipe.send([server.sockets[0].getsockname()[1] for server in servers])
    await loop.run_in_executor(None, pipe.poll, None)


def _run(pipe: Connection, delay: float, brokers: list[Address]) -> None:
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())  # epoll would round up to milliseconds
    loop.run_until_complete(_serve(pipe, delay, brokers))


@contextmanager
def delay_lines(rtt: float, ports: list[int]) -> Iterator[list[int]]:
    """Ports that lead to these ports of loopback, ``rtt`` seconds away."""
    ours, theirs = mp.Pipe()
    brokers = [("127.0.0.1", port) for port in ports]
    process = mp.get_context("spawn").Process(target=_run, args=(theirs, rtt / 2, brokers), daemon=True)
    process.start()
    try:
        yield ours.recv()
    finally:
        process.terminate()
        process.join()


def by_way_of(connection_string: str, port: int) -> str:
    """The connection string, with another port of this machine for its endpoint."""
    return re.sub(r"(Endpoint=sb://)[^/;]+", rf"\g<1>localhost:{port}", connection_string)
