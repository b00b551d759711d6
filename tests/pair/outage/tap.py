"""A relay in front of a namespace that parses every AMQP frame, so that a test can act between two frames.

A tap runs in its own thread and relays bytes in both directions. It calls the test's ``rule`` before it forwards
a frame: True forwards it, False drops it, and bytes replace it; ConnectionResetError resets the connection, and
ConnectionAbortedError closes it without an AMQP close. A rule may also act by itself, for example kill one of the
peers. ``after`` is called once the frame has been forwarded.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from sbpair.broker import NamespaceControl
from sbpair.broker.testing.streams import accept_until
from sbpair.pair.amqp.composite import decode_composite
from sbpair.pair.amqp.encoding import AMQP_FRAME, FRAME_HEAD
from sbpair.pair.amqp.performatives import RECEIVER, Attach, Begin, Disposition, Flow, Transfer


@dataclass(frozen=True, slots=True)
class Passing:
    """A frame in transit; ``path`` is the entity of its link or delivery, or "" without one."""

    is_clients: bool
    performative: object
    path: str
    channel: int
    connection: int

    def is_attach(self, path: str) -> bool:
        """Whether this attaches a link to or from the entity, in either direction."""
        return isinstance(self.performative, Attach) and self.path == path

    def is_transfer(self, path: str) -> bool:
        """Whether this transfers a message to or from the entity."""
        return isinstance(self.performative, Transfer) and self.path == path

    def is_answer(self, path: str) -> bool:
        """Whether the broker settles a message that the client sent to the entity."""
        return self._is_disposition(path, is_clients=False, role=RECEIVER)

    def is_completion(self, path: str) -> bool:
        """Whether the client settles a message that it received from the entity."""
        return self._is_disposition(path, is_clients=True, role=RECEIVER)

    def is_completed(self, path: str) -> bool:
        """Whether the broker confirms such a settlement."""
        return self._is_disposition(path, is_clients=False, role=not RECEIVER)

    def _is_disposition(self, path: str, *, is_clients: bool, role: bool) -> bool:
        what = self.performative
        return (
            isinstance(what, Disposition)
            and what.role is role
            and self.is_clients is is_clients
            and self.path == path
        )


TLS_RECORDS = range(20, 24)  # RFC 8446, 5.1; no AMQP header and no frame below 16 MiB begins with these bytes
Rule = Callable[[Passing], bool | bytes]


class Tap:
    """A relay to the port of a namespace; connect with its ``connection_string``."""

    def __init__(self, namespace: NamespaceControl) -> None:
        self.let_pass()
        self._target = namespace.port
        self._string = namespace.connection_string
        self._loop = asyncio.new_event_loop()
        self._is_open = threading.Event()
        self._gates: list[asyncio.Event] = []
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="tap", daemon=True)

    def __enter__(self) -> Tap:
        self._thread.start()
        assert self._is_open.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    @property
    def connection_string(self) -> str:
        return re.sub(rf":{self._target}\b", f":{self.port}", self._string)

    def let_pass(self) -> None:
        """Forward everything from now on, without delay."""
        self.rule: Rule = lambda passing: True
        self.after: Callable[[Passing], object] = lambda passing: None
        self.delay = 0.0  # seconds to wait before each frame
        self.is_sliced = False  # whether to send one byte at a time

    @property
    def connections(self) -> int:
        """The number of connections so far."""
        return len(self._gates)

    def block(self, connection: int) -> None:
        """Stop relaying this connection without closing it, as if its peer had vanished."""
        self._loop.call_soon_threadsafe(self._gates[connection].clear)

    def free(self, connection: int) -> None:
        """Resume relaying, beginning with what was held back."""
        self._loop.call_soon_threadsafe(self._gates[connection].set)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port = listener.getsockname()[1]
            self._is_open.set()
            relays = await accept_until(self._stop, listener, self._relay)
        for relay in relays:
            relay.cancel()
        await asyncio.gather(*relays, return_exceptions=True)
        await asyncio.sleep(0)  # lets the transports close their sockets

    async def _relay(self, client: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=client)
        try:
            await self._relay_to_target(reader, writer)
            writer.close()
            await writer.wait_closed()
        except OSError:  # no target, or a client that reset its connection
            writer.transport.abort()
        except asyncio.CancelledError:  # the tap ends and does not wait for a slow client
            writer.transport.abort()
            raise

    async def _relay_to_target(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_broker, to_broker = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            await self._carry_both_ways(reader, writer, from_broker, to_broker)
        finally:
            to_broker.transport.abort()

    async def _carry_both_ways(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        gate = asyncio.Event()
        gate.set()
        wire = _Wire(len(self._gates), gate)
        self._gates.append(gate)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._carry(reader, to_broker, wire, is_clients=True))
                both.create_task(self._carry(from_broker, writer, wire, is_clients=False))
        except* (asyncio.IncompleteReadError, ConnectionAbortedError):
            pass  # one end closed, so close the other
        except* OSError:
            writer.transport.abort()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, wire: _Wire, *, is_clients: bool
    ) -> None:
        while True:
            data, passing = await reader.readexactly(8), None
            if data[0] in TLS_RECORDS:  # administration traffic, which is relayed unread
                return await _carry_opaque(data, reader, writer)
            if not data.startswith(b"AMQP"):
                size, _, kind, channel = FRAME_HEAD.unpack(data)
                data += await reader.readexactly(size - 8)
                if kind == AMQP_FRAME and size > 8:
                    passing = wire.read(data, channel, is_clients=is_clients)
            if passing is not None:
                verdict = self.rule(passing)
                if verdict is False:
                    continue
                data = data if verdict is True else verdict
            await wire.gate.wait()
            await self._write(writer, data)
            if passing is not None:
                self.after(passing)

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        for start in range(0, len(data), step := 1 if self.is_sliced else len(data)):
            writer.write(data[start : start + step])
            await writer.drain()
            await asyncio.sleep(0)


async def _carry_opaque(data: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data:
        writer.write(data)
        await writer.drain()
        data = await reader.read(65536)
    raise ConnectionResetError


@dataclass(slots=True)
class _Wire:
    """The state of one connection that maps the numbers in its frames to entities."""

    number: int
    gate: asyncio.Event
    _sessions: dict[int, int] = field(default_factory=dict)  # the broker's channel to the client's
    _links: dict[tuple[bool, int, int], str] = field(default_factory=dict)
    _deliveries: dict[tuple[bool, int, int], str] = field(default_factory=dict)

    def read(self, data: bytes, channel: int, *, is_clients: bool) -> Passing:
        what, _ = decode_composite(data, data[4] * 4, len(data))
        if isinstance(what, Begin) and what.remote_channel is not None:
            self._sessions[channel] = what.remote_channel
        session = channel if is_clients else self._sessions.get(channel, channel)
        path = self._path(what, session, is_clients=is_clients)
        return Passing(is_clients, what, path, channel, self.number)

    def _path(self, what: object, session: int, *, is_clients: bool) -> str:
        match what:
            case Attach():
                end = what.source if what.role is RECEIVER else what.target
                if is_clients is False:
                    end = what.target if what.role is RECEIVER else what.source
                path = _path_of(getattr(end, "address", None))
                self._links[is_clients, session, what.handle] = path
                return path
            case Transfer():
                path = self._links.get((is_clients, session, what.handle), "")
                if what.delivery_id is not None:
                    self._deliveries[is_clients, session, what.delivery_id] = path
                return path
            case Flow() if what.handle is not None:
                return self._links.get((is_clients, session, what.handle), "")
            case Disposition():
                sent_by_client = is_clients is (what.role is not RECEIVER)
                return self._deliveries.get((sent_by_client, session, what.first), "")
        return ""


def _path_of(address: object) -> str:
    """Return the entity of a link address, which some clients send as a full URL."""
    return re.sub(r"^amqps?://[^/]*/", "", str(address or "")).casefold()
