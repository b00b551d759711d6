"""A proxy in front of a broker that misbehaves as told: by time, by bytes, and by AMQP frame.

    client --in--> [ conversation -> rules -> line ] --> broker
    client <--out-- [ line <- rules <- conversation ] <-- broker

    with ChaosProxy("127.0.0.1", namespace.port, rtt=0.02) as proxy:
        client = ServiceBusClient.from_connection_string(proxy.connection_string(namespace.connection_string))
        proxy.on("disposition", direction="out", action="drop")   # the next acknowledgement is lost

It has a thread and a loop of its own: blocking tests and asyncio ones use it alike. Any client, any broker:
of TLS and WebSockets it sees bytes, which it delays, narrows and cuts just so; frame rules need plain AMQP.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from .frame_rule import Action, ActiveRule, FrameRule
from .frame_stream import IN, OUT, Conversation, Passing

Result = TypeVar("Result")
CHUNK = 65_536
MOST_WAITING = 4_096  # pieces on their way in one direction: then the peer has to wait
_ENDPOINT = re.compile(r"(Endpoint=sb://)[^/;]+", re.IGNORECASE)
_RESET = struct.pack("ii", 1, 0)


class ChaosProxy:
    """Listens on a port of loopback and hands everything on to ``host``:``port``.

    ``rtt``: seconds added to a round trip, half each way. ``bandwidth``: bytes a second each way. ``slice``:
    bytes a write, at most. All three may be set at any time, and hold for what comes then.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        rtt: float = 0.0,
        bandwidth: float | None = None,
        slice: int | None = None,
    ) -> None:
        self.upstream = (host, port)
        self.rtt = rtt
        self.bandwidth = bandwidth
        self.slice = slice
        self.is_blackhole = False
        self.port = 0
        self._rules: list[ActiveRule] = []
        self._cuts: list[tuple[str, int]] = []
        self._relays: list[Relay] = []
        self._passed = {IN: 0, OUT: 0}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    # -- life

    def __enter__(self) -> ChaosProxy:
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="sbpair-chaos", daemon=True)
        self._thread.start()
        started.result()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._stop is not None and self._thread is not None:
            for rule in self._rules:
                rule.release()
            self._loop.call_soon_threadsafe(self._stop.set)
            self._thread.join(10)
            self._loop = self._thread = None

    async def __aenter__(self) -> ChaosProxy:
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def _run(self, started: Future[None]) -> None:
        asyncio.run(self._serve(started))

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        started.set_result(None)
        await self._stop.wait()
        server.close()
        for relay in list(self._relays):
            relay.end()
        while self._relays:
            await asyncio.sleep(0.001)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            above = await asyncio.open_connection(*self.upstream)
        except OSError:
            writer.transport.abort()
            return
        cut = self._cuts.pop(0) if self._cuts else None
        relay = Relay(self, (reader, writer), above, cut)
        self._relays.append(relay)
        try:
            await relay.run()
        finally:
            self._relays.remove(relay)

    # -- use

    def connection_string(self, original: str) -> str:
        """``original``, with this proxy for its endpoint."""
        return _ENDPOINT.sub(rf"\g<1>localhost:{self.port}", original)

    def on(
        self,
        performative: str | None = None,
        *,
        action: str,
        direction: str | None = None,
        address: str | None = None,
        nth: int | None = 1,
        seconds: float = 0.0,
        pid: int | None = None,
        after: bool = False,
    ) -> ActiveRule:
        """Act on a frame, by default the next that matches; see FrameRule and Action. Raises ValueError."""
        rule = FrameRule(Action(action), performative, direction, address, nth, seconds, pid, after)
        active = ActiveRule(rule)
        self._call(lambda: self._rules.append(active))
        return active

    def remove(self, active: ActiveRule) -> None:
        """Take a rule away, and let go what it holds; nothing happens when it is not set."""
        active.release()
        self._call(lambda: self._rules.remove(active) if active in self._rules else None)

    def cut_next(self, direction: str, count: int) -> None:
        """Cut the next new connection behind ``count`` bytes ``in`` (from the client) or ``out``."""
        if direction not in (IN, OUT) or count < 0:
            raise ValueError(f"direction is '{direction}', in or out; count is {count}, not below 0")
        self._call(lambda: self._cuts.append((direction, count)))

    def forget_cuts(self) -> None:
        """Take back what :meth:`cut_next` asked for, and no connection came for."""
        self._call(self._cuts.clear)

    def cut(self) -> None:
        """End every connection."""
        self._call(lambda: self._each(Relay.end))

    def reset(self) -> None:
        """Reset every connection."""
        self._call(lambda: self._each(Relay.reset))

    def blackhole(self, is_on: bool = True) -> None:
        """Swallow everything, both ways; connections stay open and new ones are accepted."""
        self._call(lambda: setattr(self, "is_blackhole", is_on))

    @property
    def passed(self) -> dict[str, int]:
        """Bytes handed on so far, by direction."""
        return self._call(lambda: dict(self._passed))

    @property
    def connection_count(self) -> int:
        """Connections that are open now."""
        return self._call(lambda: len(self._relays))

    def _call(self, function: Callable[[], Result]) -> Result:
        loop = self._loop
        if loop is None:
            return function()
        done: Future[Result] = Future()

        def call() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        loop.call_soon_threadsafe(call)
        return done.result(10)

    def _each(self, do: Callable[[Relay], None]) -> None:
        for relay in list(self._relays):
            do(relay)

    # -- what the relays ask

    def verdict(self, passing: Passing) -> ActiveRule | None:
        """The rule that strikes this frame; the one set first does."""
        struck = [active for active in self._rules if active.meets(passing)]
        return struck[0] if struck else None

    def count(self, direction: str, size: int) -> None:
        """So many bytes were handed on."""
        self._passed[direction] += size


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Relay:
    """One connection: the client's socket and the broker's."""

    def __init__(
        self, proxy: ChaosProxy, below: Streams, above: Streams, cut: tuple[str, int] | None
    ) -> None:
        self._proxy = proxy
        self._conversation = Conversation()
        self._writers = {IN: above[1], OUT: below[1]}
        self._readers = {IN: below[0], OUT: above[0]}
        self._cut = cut
        self._passed = {IN: 0, OUT: 0}
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        """Hand on until either side ends."""
        for writer in self._writers.values():
            sock = writer.get_extra_info("socket")
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writing = []
        for direction in (IN, OUT):
            line: Line = asyncio.Queue(MOST_WAITING)
            writing.append(asyncio.create_task(self._write(direction, line)))
            self._tasks += [writing[-1], asyncio.create_task(self._read(direction, line))]
        await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)  # what was read is written first
        self.end()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def end(self) -> None:
        """Close both sockets."""
        for task in self._tasks:
            task.cancel()

    def reset(self) -> None:
        """Close both sockets with a reset."""
        for writer in self._writers.values():
            sock = writer.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()
        self.end()

    async def _read(self, direction: str, line: Line) -> None:
        reader, proxy = self._readers[direction], self._proxy
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if proxy.is_blackhole:
                    continue
                for passing in self._conversation.feed(direction, data):
                    await self._pass(passing, line)
        await line.put((0.0, self._conversation.rest(direction), None))
        await line.put((0.0, b"", None))

    async def _pass(self, passing: Passing, line: Line) -> None:
        due = asyncio.get_running_loop().time() + self._proxy.rtt / 2
        active = self._proxy.verdict(passing)
        if active is None:
            await line.put((due, passing.raw, None))
            return
        rule = active.rule
        if rule.action is Action.DELAY:
            active.struck()
            await line.put((due + rule.seconds, passing.raw, None))
        elif rule.action is Action.DROP:
            active.struck()
        else:
            before = passing.raw if rule.after else b""
            await line.put((due, before, active))
            if rule.action is Action.HOLD:
                await line.put((due, passing.raw, None))

    async def _write(self, direction: str, line: Line) -> None:
        writer, loop = self._writers[direction], asyncio.get_running_loop()
        with suppress(OSError):
            while True:
                due, raw, active = await line.get()
                wait = due - loop.time()
                if wait > 0:
                    await asyncio.sleep(wait)
                if not raw and active is None:
                    if due:
                        continue
                    return
                await self._send(direction, writer, raw)
                if active is not None and await self._act(active):
                    return

    async def _send(self, direction: str, writer: asyncio.StreamWriter, raw: bytes) -> None:
        proxy = self._proxy
        for piece in self._pieces(raw):
            allowed = self._allowed(direction, piece)
            writer.write(allowed)
            await writer.drain()
            self._passed[direction] += len(allowed)
            proxy.count(direction, len(allowed))
            if self._is_cut(direction):
                self.end()
            if proxy.bandwidth:
                await asyncio.sleep(len(allowed) / proxy.bandwidth)

    def _pieces(self, raw: bytes) -> list[bytes]:
        size = self._proxy.slice or len(raw)
        return [raw[at : at + size] for at in range(0, len(raw), size)] if raw else []

    def _allowed(self, direction: str, piece: bytes) -> bytes:
        if self._cut is None or self._cut[0] != direction:
            return piece
        return piece[: max(0, self._cut[1] - self._passed[direction])]

    def _is_cut(self, direction: str) -> bool:
        return self._cut is not None and self._cut[0] == direction and self._passed[direction] >= self._cut[1]

    async def _act(self, active: ActiveRule) -> bool:
        """Do what the rule says in front of, or behind, its frame; True when the connection is over."""
        rule = active.rule
        active.struck()
        match rule.action:
            case Action.HOLD:
                await asyncio.to_thread(active.released.wait)
                return False
            case Action.KILL if rule.pid is not None:
                os.kill(rule.pid, signal.SIGKILL)
            case Action.RESET:
                self.reset()
        self.end()
        return True


Line = asyncio.Queue[tuple[float, bytes, ActiveRule | None]]
"""When each piece is due, the piece, and the rule that acts behind it; an empty piece due at 0 is the end."""
