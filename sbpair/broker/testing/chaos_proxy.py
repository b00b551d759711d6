"""A fault-injecting proxy in front of a broker: delays, bandwidth limits, cuts, and rules on AMQP frames.

    client --in--> [ conversation -> rules -> line ] --> broker
    client <--out-- [ line <- rules <- conversation ] <-- broker

    with ChaosProxy("127.0.0.1", namespace.port, rtt=0.02) as proxy:
        client = ServiceBusClient.from_connection_string(proxy.connection_string(namespace.connection_string))
        proxy.on("disposition", direction="out", action="drop")   # the next acknowledgement is lost

It runs in its own thread, so blocking and asyncio tests can both use it, with any client and broker. Frame rules need
AMQP that it can read: plain, or with TLS that ends here on both sides. Other TLS, and WebSocket, pass as bytes.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from types import TracebackType
from typing import TypeVar

from sbpair.pair.ground.loop_thread import serve_in_loop

from .frames import IN, OUT, Action, ActiveRule, Conversation, FrameRule, Passing, alter
from .streams import Streams, accept, accept_until, open_streams

KILL = getattr(signal, "SIGKILL", signal.SIGTERM)  # on Windows, SIGTERM ends a process as hard

Result = TypeVar("Result")
LOOPBACK = "127.0.0.1"
CHUNK = 65_536
MAX_QUEUED = 4_096  # pieces in transit in one direction; beyond that the peer is slowed down
FLUSH_WITHIN = 1.0  # seconds
_ENDPOINT = re.compile(r"(Endpoint=sb://)[^/;]+", re.IGNORECASE)
_RESET = struct.pack("ii", 1, 0)


class ChaosProxy:
    """Listens on a loopback port and forwards to ``host``:``port``. A context manager, blocking or async.

    ``rtt``: seconds added to each round trip, half each way. ``bandwidth``: bytes per second each way. ``slice``:
    maximum bytes per write. All three can be changed at any time and affect subsequent traffic.

    ``listen``: the address for clients, port 0 for any free one; entering raises OSError when it is taken,
    and OverflowError when it cannot exist.
    ``target_tls`` and ``client_tls``: contexts for TLS to the target and to clients.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        rtt: float = 0.0,
        bandwidth: float | None = None,
        slice: int | None = None,
        listen: tuple[str, int] = (LOOPBACK, 0),
        target_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.upstream = (host, port)
        self._listen = listen
        self._target_tls, self._client_tls = target_tls, client_tls
        self._opening: set[asyncio.Task[None]] = set()  # connections that do not forward yet
        self.rtt = rtt
        self.bandwidth = bandwidth
        self.slice = slice
        self._discarded: set[str] = set()  # the directions whose traffic is discarded
        self.port = 0
        self._rules: list[ActiveRule] = []
        self._cuts: list[tuple[str, int]] = []
        self._connections: list[_ProxiedConnection] = []
        self._passed = {IN: 0, OUT: 0}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._stop: asyncio.Event | None = None

    # -- life

    def __enter__(self) -> ChaosProxy:
        started: Future[None] = Future()
        self._thread = threading.Thread(
            target=serve_in_loop, args=(self._serve, started), name="sbpair-chaos", daemon=True
        )
        self._thread.start()
        try:
            started.result()
        except Exception:
            self._loop = None
            raise
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

    async def _serve(self, started: Future[None]) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        with socket.create_server(self._listen, family=_family(self._listen[0])) as listener:
            self.port = listener.getsockname()[1]
            started.set_result(None)
            forwarding = await accept_until(self._stop, listener, self._forward)
        while forwarding:
            for opening in self._opening:
                opening.cancel()
            for connection in list(self._connections):
                connection.end()
            await asyncio.wait(forwarding, timeout=0.01)

    async def _forward(self, client: socket.socket) -> None:
        opening = asyncio.current_task()
        assert opening is not None  # noqa: S101 - it runs in a task
        self._opening.add(opening)
        try:
            below = await accept(client, self._client_tls)
            try:
                above = await open_streams(*self.upstream, self._target_tls)
            except BaseException:
                below[1].transport.abort()
                raise
        except (OSError, TimeoutError):
            return
        finally:
            self._opening.discard(opening)
        cut = self._cuts.pop(0) if self._cuts else None
        connection = _ProxiedConnection(self, below, above, cut)
        self._connections.append(connection)
        try:
            await connection.run()
        finally:
            self._connections.remove(connection)

    # -- use

    def connection_string(self, original: str) -> str:
        """Return ``original`` with this proxy as its endpoint."""
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
        """Set a rule, by default for the next matching frame only; see FrameRule. Raises ValueError."""
        return self.set_rule(
            FrameRule(Action(action), performative, direction, address, nth, seconds, pid, after)
        )

    def set_rule(self, rule: FrameRule) -> ActiveRule:
        """Set a rule given as a FrameRule."""
        active = ActiveRule(rule)
        self._call(lambda: self._rules.append(active))
        return active

    def remove(self, active: ActiveRule) -> None:
        """Remove a rule and forward the frames it holds. Does nothing if it is not set."""
        active.release()
        self._call(lambda: self._rules.remove(active) if active in self._rules else None)

    def cut_next(self, direction: str, count: int) -> None:
        """Cut the next new connection after ``count`` bytes ``in`` (from the client) or ``out``.

        Raises ValueError for another direction or a negative count.
        """
        if direction not in (IN, OUT) or count < 0:
            raise ValueError(
                f"direction must be 'in' or 'out' and count 0 or more, not {direction!r} and {count}"
            )
        self._call(lambda: self._cuts.append((direction, count)))

    def forget_cuts(self) -> None:
        """Cancel the :meth:`cut_next` requests that have not been applied to a connection yet."""
        self._call(self._cuts.clear)

    def cut(self) -> None:
        """Close every connection."""
        self._call(lambda: self._each(_ProxiedConnection.end))

    def reset(self) -> None:
        """Reset every connection."""
        self._call(lambda: self._each(_ProxiedConnection.reset))

    def blackhole(self, is_on: bool = True, direction: str | None = None) -> None:
        """Discard all traffic, or that of one direction; connections stay open and new ones are accepted.

        False ends it, in that direction or in both. Raises ValueError for another direction.
        """
        if direction not in (None, IN, OUT):
            raise ValueError(f"direction must be 'in', 'out' or None for both, not {direction!r}")
        chosen = {IN, OUT} if direction is None else {direction}
        self._call(lambda: (self._discarded.update if is_on else self._discarded.difference_update)(chosen))

    @property
    def passed(self) -> dict[str, int]:
        """Bytes forwarded so far, by direction."""
        return self._call(lambda: dict(self._passed))

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return self._call(lambda: len(self._connections))

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

    def _each(self, do: Callable[[_ProxiedConnection], None]) -> None:
        for connection in list(self._connections):
            do(connection)

    # -- called by the connections

    def discards(self, direction: str) -> bool:
        """Whether the traffic of this direction is discarded."""
        return direction in self._discarded

    def rule_for(self, passing: Passing) -> ActiveRule | None:
        """Return the rule to apply to this frame; if several match, the one set first."""
        due = [active for active in self._rules if active.is_due(passing)]
        return due[0] if due else None

    def count(self, direction: str, size: int) -> None:
        """Count ``size`` forwarded bytes."""
        self._passed[direction] += size


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _ProxiedConnection:
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
        self._aborting: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Forward until either side closes."""
        for writer in self._writers.values():
            sock = writer.get_extra_info("socket")
            with suppress(OSError):  # it was reset meanwhile
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        writing = []
        for direction in (IN, OUT):
            line: Line = asyncio.Queue(MAX_QUEUED)
            writing.append(asyncio.create_task(self._write(direction, line)))
            self._tasks += [writing[-1], asyncio.create_task(self._read(direction, line))]
        await asyncio.wait(writing, return_when=asyncio.FIRST_COMPLETED)  # flush what was read
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers.values():
            writer.close()
        flushing = (writer.wait_closed() for writer in self._writers.values())
        await asyncio.gather(*flushing, return_exceptions=True)
        if self._aborting is not None:
            self._aborting.cancel()

    def end(self) -> None:
        """Close both sockets. A peer that does not read in time (FLUSH_WITHIN) loses the rest of its data."""
        self._stop()
        if self._aborting is None:
            self._aborting = asyncio.get_running_loop().call_later(FLUSH_WITHIN, self._abort)

    def reset(self) -> None:
        """Close both sockets with a reset."""
        for writer in self._writers.values():
            sock = writer.get_extra_info("socket")
            if sock is not None:
                with suppress(OSError):  # it is closed already
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._abort()
        self._stop()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _abort(self) -> None:
        for writer in self._writers.values():
            writer.transport.abort()

    async def _read(self, direction: str, line: Line) -> None:
        reader, proxy = self._readers[direction], self._proxy
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                if proxy.discards(direction):
                    continue
                for passing in self._conversation.feed(direction, data):
                    await self._pass(passing, line)
        await line.put((0.0, self._conversation.rest(direction), None))
        await line.put((0.0, b"", None))

    async def _pass(self, passing: Passing, line: Line) -> None:
        due = asyncio.get_running_loop().time() + self._proxy.rtt / 2
        active = self._proxy.rule_for(passing)
        if active is None:
            await line.put((due, passing.raw, None))
            return
        rule = active.rule
        if rule.action is Action.DELAY:
            active.applied()
            await line.put((due + rule.seconds, passing.raw, None))
        elif rule.action is Action.DROP:
            active.applied()
        elif rule.action in (Action.REPEAT, Action.OVERSIZE):
            active.applied()
            await line.put((due, alter(rule.action, passing.raw), None))
        else:
            is_before = rule.after or rule.action is Action.TRUNCATE
            before = alter(rule.action, passing.raw) if is_before else b""
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
            allowed = self._allowed_part(direction, piece)
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

    def _allowed_part(self, direction: str, piece: bytes) -> bytes:
        if self._cut is None or self._cut[0] != direction:
            return piece
        return piece[: max(0, self._cut[1] - self._passed[direction])]

    def _is_cut(self, direction: str) -> bool:
        return self._cut is not None and self._cut[0] == direction and self._passed[direction] >= self._cut[1]

    async def _act(self, active: ActiveRule) -> bool:
        """Apply a rule before or after its frame; return True if that ended the connection."""
        rule = active.rule
        active.applied()
        match rule.action:
            case Action.HOLD:
                await active.released()
                return False
            case Action.KILL if rule.pid is not None:
                os.kill(rule.pid, KILL)
            case Action.RESET:
                self.reset()
        self.end()
        return True


Line = asyncio.Queue[tuple[float, bytes, ActiveRule | None]]
"""Items: due time, bytes, and the rule to apply after them. Empty bytes due at 0 mark the end."""
