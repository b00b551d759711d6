"""The transport over a WebSocket: a byte stream in both directions, paced and ended as asyncio expects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from sbpair.pair.amqp.websocket import BINARY, HIGH_WATER, PIECE, WebSocketTransport

pytestmark = pytest.mark.spec("R-66")

TEXT, CLOSED = 1, 257


@dataclass
class Arrived:
    type: int
    data: object


@dataclass
class FakeWebSocket:
    """An open WebSocket: ``inbox`` holds the peer's messages, and ``gate`` lets a message out."""

    inbox: asyncio.Queue[Arrived | Exception] = field(default_factory=asyncio.Queue)
    sent: list[bytes] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    failure: Exception | None = None
    is_closed: bool = False

    def says(self, data: object, kind: int = BINARY) -> None:
        self.inbox.put_nowait(Arrived(kind, data))

    async def receive(self) -> Arrived:
        arrived = await self.inbox.get()
        if isinstance(arrived, Exception):
            raise arrived
        return arrived

    async def send_bytes(self, data: bytes, /) -> None:
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.sent.append(data)

    async def close(self) -> bool:
        self.is_closed = True
        self.says(None, CLOSED)
        return True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return {"peername": ("::1", 1)}.get(name, default)


@dataclass
class Recorder(asyncio.Protocol):
    """Record the calls of the transport, in order."""

    calls: list[tuple[str, object]] = field(default_factory=list)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.calls.append(("made", transport))

    def connection_lost(self, exc: Exception | None) -> None:
        self.calls.append(("lost", exc))

    def data_received(self, data: bytes) -> None:
        self.calls.append(("data", data))

    def pause_writing(self) -> None:
        self.calls.append(("pause", None))

    def resume_writing(self) -> None:
        self.calls.append(("resume", None))

    def of(self, kind: str) -> list[object]:
        return [value for name, value in self.calls if name == kind]


@dataclass
class Carried:
    websocket: FakeWebSocket
    protocol: Recorder
    transport: WebSocketTransport
    running: asyncio.Task[None]
    cuts: list[str]


@asynccontextmanager
async def carried(*, is_open: bool = True) -> AsyncIterator[Carried]:
    """Run a transport; ``is_open`` lets messages out from the beginning."""
    websocket, protocol, cuts = FakeWebSocket(), Recorder(), []

    def cut() -> None:
        cuts.append("cut")
        websocket.says(None, CLOSED)

    if is_open:
        websocket.gate.set()
    transport = WebSocketTransport(websocket, protocol, cut)
    running = asyncio.ensure_future(transport.run())
    try:
        yield Carried(websocket, protocol, transport, running, cuts)
    finally:
        websocket.says(None, CLOSED)
        await asyncio.wait_for(running, 10)


async def until(condition: Callable[[], object]) -> None:
    """Run turns of the loop until the condition holds; in memory, few turns are enough."""
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition did not hold within 1000 turns")


async def test_websocket_data_arrives_in_order_between_connect_and_close() -> None:
    async with carried() as it:
        it.websocket.says(b"AMQP")
        it.websocket.says(b"\x00\x01")
        it.websocket.says(None, CLOSED)
        await asyncio.wait_for(it.running, 10)
        assert it.protocol.calls == [
            ("made", it.transport),
            ("data", b"AMQP"),
            ("data", b"\x00\x01"),
            ("lost", None),
        ]
        assert it.cuts == ["cut"]
        assert it.transport.is_closing()


@pytest.mark.parametrize(
    ("data", "kind"), [("text", TEXT), (b"bytes", TEXT), ("text", BINARY), (1000, CLOSED)]
)
async def test_a_non_binary_websocket_message_ends_the_stream(data: object, kind: int) -> None:
    async with carried() as it:
        it.websocket.says(data, kind)
        it.websocket.says(b"too late")
        await asyncio.wait_for(it.running, 10)
        assert [name for name, _ in it.protocol.calls] == ["made", "lost"]


async def test_a_connection_that_breaks_is_lost_with_its_error() -> None:
    async with carried() as it:
        broken = ConnectionResetError("reset")
        it.websocket.inbox.put_nowait(broken)
        await asyncio.wait_for(it.running, 10)
        assert it.protocol.of("lost") == [broken]
        assert it.cuts == ["cut"]


async def test_written_data_is_sent_in_messages_of_bounded_size() -> None:
    async with carried() as it:
        stream = bytes(range(256)) * (2 * PIECE // 256) + b"rest"
        it.transport.write(stream)
        await until(lambda: sum(map(len, it.websocket.sent)) == len(stream))
        assert b"".join(it.websocket.sent) == stream
        assert [len(piece) for piece in it.websocket.sent] == [PIECE, PIECE, 4]
        assert all(type(piece) is bytes for piece in it.websocket.sent)
        it.transport.write(b"more")  # after a pause without anything to send
        await until(lambda: it.websocket.sent[-1] == b"more")
        assert not it.websocket.is_closed


async def test_a_closed_transport_sends_earlier_data_and_nothing_later() -> None:
    async with carried(is_open=False) as it:
        it.transport.write(b"before")
        assert not it.transport.is_closing()
        it.transport.close()
        assert it.transport.is_closing()
        it.transport.write(b"after")
        assert it.transport.get_write_buffer_size() == len(b"before")
        it.websocket.gate.set()
        await asyncio.wait_for(it.running, 10)
        assert it.websocket.sent == [b"before"]
        assert it.websocket.is_closed
        assert it.protocol.of("lost") == [None]


async def test_an_idle_transport_closes_at_once() -> None:
    async with carried() as it:
        await until(lambda: it.protocol.calls)
        it.transport.close()
        await asyncio.wait_for(it.running, 10)
        assert it.websocket.is_closed
        assert it.websocket.sent == []


async def test_data_arriving_after_the_close_is_ignored() -> None:
    async with carried(is_open=False) as it:
        it.transport.write(b"last words")
        it.websocket.says(b"early")
        await until(lambda: it.protocol.of("data"))
        it.transport.close()
        it.websocket.says(b"late")
        it.websocket.gate.set()
        await asyncio.wait_for(it.running, 10)
        assert it.protocol.of("data") == [b"early"]


async def test_an_aborted_transport_sends_nothing_more() -> None:
    async with carried(is_open=False) as it:
        it.transport.write(b"never")
        assert it.transport.get_write_buffer_size() == 5
        it.transport.abort()
        assert it.transport.get_write_buffer_size() == 0
        assert it.transport.is_closing()
        assert it.cuts == ["cut"]
        it.websocket.gate.set()
        await asyncio.wait_for(it.running, 10)
        assert it.websocket.sent == []
        assert it.protocol.of("lost") == [None]


@pytest.mark.parametrize("failure", [OSError("gone"), RuntimeError("closed")], ids=repr)
async def test_a_failed_write_ends_the_connection(failure: Exception) -> None:
    async with carried() as it:
        it.websocket.failure = failure
        it.transport.write(b"lost")
        await asyncio.wait_for(it.running, 10)
        assert it.cuts[0] == "cut"
        assert it.protocol.of("lost") == [None]
        assert it.websocket.sent == []


@pytest.mark.parametrize(("limit", "high"), [("unset", HIGH_WATER), ("default", HIGH_WATER), ("own", 400)])
async def test_a_protocol_is_paused_above_the_high_water_and_resumed_at_a_quarter(
    limit: str, high: int
) -> None:
    async with carried(is_open=False) as it:
        if limit != "unset":
            it.transport.set_write_buffer_limits(high=None if limit == "default" else high)
        it.transport.write(bytes(high))
        assert it.protocol.of("pause") == []
        it.transport.write(b"x")
        it.transport.write(b"y")
        assert len(it.protocol.of("pause")) == 1
        assert it.protocol.of("resume") == []
        it.websocket.gate.set()
        await until(lambda: it.protocol.of("resume"))
        await until(lambda: it.transport.get_write_buffer_size() == 0)
        assert len(it.protocol.of("resume")) == 1
        it.websocket.gate.clear()
        it.transport.write(bytes(high + 1))
        assert len(it.protocol.of("pause")) == 2


async def test_a_protocol_is_not_resumed_above_a_quarter_of_the_high_water() -> None:
    async with carried(is_open=False) as it:
        it.transport.set_write_buffer_limits(high=4 * PIECE)
        it.transport.write(bytes(4 * PIECE + 1))
        rests = []
        resume = it.protocol.resume_writing

        def resumed() -> None:
            rests.append(it.transport.get_write_buffer_size())
            resume()

        it.protocol.resume_writing = resumed  # type: ignore[method-assign]
        it.websocket.gate.set()
        await until(lambda: rests)
        assert rests == [1]  # after four pieces; after three, a quarter and one byte was left


async def test_a_paused_protocol_receives_nothing_until_it_resumes() -> None:
    async with carried() as it:
        await until(lambda: it.protocol.calls)
        it.transport.pause_reading()
        it.websocket.says(b"waits")
        for _ in range(20):
            await asyncio.sleep(0)
        assert it.protocol.of("data") == []
        it.transport.resume_reading()
        await until(lambda: it.protocol.of("data"))
        it.websocket.says(b"flows")
        await until(lambda: it.protocol.of("data") == [b"waits", b"flows"])


@pytest.mark.parametrize("ending", ["close", "abort"])
async def test_a_transport_ends_even_while_reading_is_paused(ending: str) -> None:
    async with carried() as it:
        await until(lambda: it.protocol.calls)
        it.transport.pause_reading()
        getattr(it.transport, ending)()
        await asyncio.wait_for(it.running, 10)
        assert it.protocol.of("lost") == [None]


async def test_extra_info_comes_from_the_websocket() -> None:
    async with carried() as it:
        assert it.transport.get_extra_info("peername") == ("::1", 1)
        assert it.transport.get_extra_info("cipher") is None
        assert it.transport.get_extra_info("cipher", "none") == "none"
