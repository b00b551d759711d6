"""The lower bound for every answer: the response time of a server that does nothing else, on this machine.

A process on the broker's event loop answers each chunk with a few bytes; the client is a blocking
socket. No AMQP is involved, so no broker on this event loop can be faster.
"""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from types import TracebackType
from typing import Self

from sbpair.broker.server.event_loop import new_event_loop

ANSWER = bytes(29)  # as long as a disposition


class Echo(asyncio.Protocol):
    """Answers whatever comes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._transport.write(ANSWER)  # type: ignore[attr-defined]


class EchoServer:
    """The process, and a connection to it."""

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.trials.bench.echo"], stdout=subprocess.PIPE, text=True
        )
        assert self._process.stdout is not None
        self._socket = socket.create_connection(("127.0.0.1", int(self._process.stdout.readline())), 10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        self._process.terminate()
        self._process.wait(10)

    def answers(self, body: bytes, count: int) -> list[float]:
        """Seconds from each send to its answer, one at a time."""
        return [self._answer(body) for _ in range(count)]

    def _answer(self, body: bytes) -> float:
        begun = time.perf_counter()
        self._socket.sendall(body)
        self._socket.recv(len(ANSWER))
        return time.perf_counter() - begun


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve())
