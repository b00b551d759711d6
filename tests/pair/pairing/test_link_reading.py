"""Reading the frames of a shared asyncio link, with the SDK's own client over a stream that the test feeds."""

from __future__ import annotations

import asyncio
import struct
from typing import Any

import pytest
from azure.servicebus._pyamqp._encode import encode_frame
from azure.servicebus._pyamqp.aio._client_async import SendClientAsync
from azure.servicebus._pyamqp.aio._connection_async import Connection
from azure.servicebus._pyamqp.constants import ConnectionState
from azure.servicebus._pyamqp.error import AMQPConnectionError, AMQPError
from azure.servicebus._pyamqp.performatives import CloseFrame, DetachFrame, DispositionFrame
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbpair.pair.pairing.aio.limits import CallLimits
from sbpair.pair.pairing.aio.shared_link import SharedLink
from sbpair.pair.pairing.outcome import Failure
from sbpair.pair.pairing.request.classify import classify
from tests.waiting import PATIENCE, turns

CONDITION = b"amqp:connection:forced"
SUSPENDED = b"com.microsoft:namespace-suspended"


class Writer:
    """The writing half of a stream, whose closing takes until ``closed`` is set."""

    def __init__(self) -> None:
        self.transport = self
        self.closing, self.closed = asyncio.Event(), asyncio.Event()

    def set_write_buffer_limits(self, *, high: int) -> None: ...

    def is_closing(self) -> bool:
        return self.closing.is_set()

    def write(self, data: bytes) -> None: ...

    async def drain(self) -> None: ...

    def close(self) -> None:
        self.closing.set()

    async def wait_closed(self) -> None:
        await self.closed.wait()


class Link:
    """The SDK's link and session: a detach takes until ``detached`` is set."""

    def __init__(self) -> None:
        self.detaching, self.detached = asyncio.Event(), asyncio.Event()
        self.frames = 0
        self.is_told = False

    def get_state(self) -> ConnectionState:
        return ConnectionState.OPENED

    async def update_pending_deliveries(self) -> None: ...

    async def send_transfer(self, message: object, **_: object) -> None: ...

    async def _on_connection_state_change(self) -> None: ...

    async def _incoming_disposition(self, frame: object) -> None:
        self.frames += 1

    async def _incoming_detach(self, frame: object) -> None:
        self.frames += 1
        self.detaching.set()
        await self.detached.wait()
        self.is_told = True


class Shared:
    """The SDK's client of one link, made to share it."""

    def __init__(self) -> None:
        self.limits, self.link, self.writer = CallLimits(), Link(), Writer()
        self.reader = asyncio.StreamReader()
        self.client = SendClientAsync("localhost", "orders", use_tls=False)
        self.connection = connection = Connection("amqp://localhost", use_tls=False)
        connection.state = ConnectionState.OPENED
        connection._incoming_endpoints[0] = connection._outgoing_endpoints[0] = self.link  # type: ignore[assignment]
        transport: Any = connection._transport
        transport.reader, transport.writer, transport.connected = self.reader, self.writer, True
        client: Any = self.client
        client._connection, client._link, client.client_ready_async = connection, self.link, is_ready
        assert SharedLink.of(client, transport, self.limits) is not None

    def feed(self, frame: Any) -> None:
        self.reader.feed_data(encoded(frame))

    def read(self) -> asyncio.Future[object]:
        return asyncio.ensure_future(self.client._client_run_async())

    def end_limits(self) -> None:
        """Let every limit pass that is now in force."""
        self.limits.shorten(0.0)
        self.limits._check()

    async def read_past_limits(self, frame: Any, processing: asyncio.Event, may_end: asyncio.Event) -> object:
        """Read a frame whose processing sets ``processing`` and waits for ``may_end``, while every limit passes."""
        self.feed(frame)
        reading = self.read()
        await asyncio.wait_for(processing.wait(), PATIENCE)
        self.end_limits()
        await turns()
        may_end.set()
        return await asyncio.wait_for(reading, PATIENCE)


async def is_ready() -> bool:
    return True


def encoded(frame: Any) -> bytes:
    head, performative = encode_frame(frame)
    return bytes(head + struct.pack(">H", 0) + performative)


@pytest.mark.spec("R-5")
async def test_a_detach_that_takes_longer_than_a_read_is_processed_to_its_end() -> None:
    shared = Shared()
    link, frame = shared.link, DetachFrame(handle=0, closed=True, error=None)
    assert await shared.read_past_limits(frame, link.detaching, link.detached) is True
    assert shared.link.is_told


@pytest.mark.spec("R-5")
async def test_the_condition_of_a_close_is_kept_however_long_the_disconnection_takes() -> None:
    shared = Shared()
    writer, frame = (
        shared.writer,
        CloseFrame(error=AMQPError(condition=CONDITION, description=b"maintenance")),
    )
    assert await shared.read_past_limits(frame, writer.closing, writer.closed) is True
    with pytest.raises(AMQPConnectionError) as raised:
        await asyncio.wait_for(shared.read(), PATIENCE)
    assert raised.value.condition == CONDITION


@pytest.mark.spec("P-2")
async def test_a_read_without_a_frame_ends_and_half_a_frame_is_completed_by_the_next() -> None:
    shared = Shared()
    shared.link.detached.set()
    frame = encoded(DetachFrame(handle=0, closed=True, error=None))
    for part in (b"", frame[:3], frame[3:12]):
        shared.reader.feed_data(part)
        reading = shared.read()
        await turns()
        shared.end_limits()
        assert await asyncio.wait_for(reading, PATIENCE) is True
        assert shared.link.frames == 0
    shared.reader.feed_data(frame[12:])
    await asyncio.wait_for(shared.read(), PATIENCE)
    assert shared.link.frames == 1


@pytest.mark.spec("P-2")
async def test_a_frame_is_read_in_the_task_of_its_reader() -> None:
    shared = Shared()
    shared.feed(DispositionFrame(role=True, first=1, last=1, settled=True, state=None, batchable=False))
    made: list[object] = []
    loop = asyncio.get_running_loop()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **named: Any) -> asyncio.Task[Any]:
        made.append(coroutine)
        return asyncio.Task(coroutine, loop=loop, **named)

    loop.set_task_factory(make)
    try:
        await shared.client._client_run_async()
    finally:
        loop.set_task_factory(None)
    assert shared.link.frames == 1
    assert made == []


@pytest.mark.spec("P-2")
async def test_a_read_without_a_timeout_waits_for_its_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.pair.pairing.aio.shared_link.MAX_READ_SECONDS", 0.0)
    shared = Shared()
    shared.link.detached.set()
    reading = asyncio.ensure_future(shared.connection.listen(wait=True))
    await turns()
    shared.limits._check()
    await turns()
    assert not reading.done()
    shared.feed(DetachFrame(handle=0, closed=True, error=None))
    await asyncio.wait_for(reading, PATIENCE)
    assert shared.link.frames == 1


# --- what a caller handles while it sends


@pytest.mark.spec("P-3")
async def test_an_exception_one_caller_handles_is_no_cause_of_other_callers_errors() -> None:
    shared = Shared()
    client: Any = shared.client
    handled = FileNotFoundError("of the application")

    async def send_in_a_handler() -> None:
        try:
            raise handled
        except FileNotFoundError:
            await client._send_message_impl_async("first")

    first = asyncio.ensure_future(send_in_a_handler())
    await turns()
    second = asyncio.ensure_future(client._send_message_impl_async("second"))
    await turns()
    shared.reader.set_exception(ConnectionResetError("by the peer"))
    raised = await asyncio.wait_for(asyncio.gather(first, second, return_exceptions=True), PATIENCE)
    third = client._send_message_impl_async("third")  # the connection's error once more
    raised += await asyncio.wait_for(asyncio.gather(third, return_exceptions=True), PATIENCE)
    own, *others = raised
    assert len({id(error) for error in raised}) == 3
    assert classified(own, handled) is Failure.UNAVAILABLE
    for error in others:
        assert isinstance(error, AMQPConnectionError)
        assert handled not in chained(error)
        assert classified(error) is Failure.UNAVAILABLE


@pytest.mark.spec("P-3")
async def test_an_exception_handled_before_a_read_is_no_cause_of_other_callers_errors() -> None:
    shared = Shared()
    client: Any = shared.client
    lost = AMQPConnectionError(CONDITION)

    async def refuse(message: object, **_: object) -> None:
        raise lost

    shared.link.send_transfer = refuse  # type: ignore[method-assign]
    handled = FileNotFoundError("of the application")
    try:
        raise handled
    except FileNotFoundError:
        with pytest.raises(AMQPConnectionError):
            await client._send_message_impl_async("first")
    assert handled not in chained(lost)


def chained(error: BaseException) -> list[object]:
    """All that is reachable from this error."""
    found: list[Any] = []
    waiting: list[Any] = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseException) and each not in found:
            found.append(each)
            waiting += [each.__context__, each.__cause__, getattr(each, "inner_error", None)]
    return found


def classified(error: Exception, handled: Exception | None = None) -> Failure:
    """As the runtime classifies it once the SDK has wrapped it."""
    return classify(ServiceBusConnectionError(message="lost", error=error), handled=handled).failure


# --- the send that reads is cancelled


class Cut:
    """Two sends over a shared link, of which the first reads; it is cancelled while a frame is processed."""

    def __init__(self) -> None:
        self.shared = Shared()
        client: Any = self.shared.client
        self.first, self.second = (
            asyncio.ensure_future(client._send_message_impl_async(name)) for name in ("first", "second")
        )

    async def during(self, frame: Any, processing: asyncio.Event) -> None:
        """Feed a frame, and cancel the first send once ``processing`` is set."""
        await turns()
        self.shared.feed(frame)
        await asyncio.wait_for(processing.wait(), PATIENCE)
        self.first.cancel()
        await turns()
        assert self.first.cancelled()
        assert not self.second.done()

    async def failed(self) -> BaseException:
        """The error of the second send."""
        (raised,) = await asyncio.wait_for(asyncio.gather(self.second, return_exceptions=True), PATIENCE)
        assert isinstance(raised, BaseException)
        return raised


@pytest.mark.spec("R-5")
async def test_a_detach_is_processed_completely_though_the_reading_send_is_cancelled() -> None:
    cut = Cut()
    link = cut.shared.link
    await cut.during(DetachFrame(handle=0, closed=True, error=None), link.detaching)
    link.detached.set()
    await turns()
    assert link.is_told
    cut.shared.reader.feed_eof()
    assert isinstance(await cut.failed(), AMQPConnectionError)


@pytest.mark.spec("R-5")
async def test_other_sends_raise_the_condition_of_a_close_though_the_reading_send_is_cancelled() -> None:
    cut = Cut()
    close = CloseFrame(error=AMQPError(condition=SUSPENDED, description=b"unpaid"))
    await cut.during(close, cut.shared.writer.closing)
    cut.shared.writer.closed.set()
    raised = await cut.failed()
    assert isinstance(raised, AMQPConnectionError)
    assert raised.condition == SUSPENDED


@pytest.mark.spec("R-5")
async def test_a_close_whose_reader_is_cancelled_does_not_block_the_event_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The SDK reads a connection that is half closed over and over, without ever waiting."""
    cut = Cut()
    changing, changed, looks = asyncio.Event(), asyncio.Event(), 0
    can_read = cut.shared.connection._can_read

    async def change() -> None:
        changing.set()
        await changed.wait()

    def look() -> bool:
        nonlocal looks
        looks += 1
        assert looks < 1000, "the event loop is blocked"
        return can_read()

    monkeypatch.setattr(cut.shared.link, "_on_connection_state_change", change)
    monkeypatch.setattr(cut.shared.connection, "_can_read", look)
    cut.shared.writer.closed.set()
    await cut.during(CloseFrame(error=AMQPError(condition=SUSPENDED, description=b"unpaid")), changing)
    changed.set()
    raised = await cut.failed()
    assert isinstance(raised, AMQPConnectionError)
    assert raised.condition == SUSPENDED
