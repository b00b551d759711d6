"""Concurrent sends on one link and what the SDK leaves behind, over handlers that the test drives."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair.pair.envelope import copies
from sbpair.pair.pairing.aio.limits import CallLimits
from sbpair.pair.pairing.aio.shared_link import SharedLink
from sbpair.pair.pairing.aio.wire import AsyncWire
from sbpair.pair.pairing.shared.wire import FRAMES, TOKEN_CHECK, Wire
from tests.lacking import no_thread
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-66")


Settled = Callable[[object, object], Any]


class Tcp:
    """A connection of asyncio."""

    def __init__(self) -> None:
        self.is_lost = False
        self.aborted = 0

    def set_write_buffer_limits(self, *, high: int) -> None: ...

    def is_closing(self) -> bool:
        return self.is_lost

    def abort(self) -> None:
        self.aborted += 1


class Handler:
    """The SDK's client of one asyncio link: it records writes and reads one answer for each ``answer``."""

    def __init__(self) -> None:
        self.written: list[tuple[object, float]] = []
        self.pending: dict[object, Settled] = {}
        self.answers: asyncio.Queue[object] = asyncio.Queue()
        self.readers = self.most_readers = 0
        self.until_ready = 0
        self._link = self._connection = self

    async def client_ready_async(self) -> bool:
        self.until_ready -= 1
        return self.until_ready < 0

    async def send_transfer(self, message: object, *, on_send_complete: Settled, timeout: float) -> None:
        self.written.append((message, timeout))
        self.pending[message] = on_send_complete

    async def do_work_async(self) -> bool:
        self.readers += 1
        self.most_readers = max(self.readers, self.most_readers)
        try:
            answer = await self.answers.get()
        finally:
            self.readers -= 1
        if isinstance(answer, Exception):
            raise answer
        if answer is None:
            return False
        message, state = answer if isinstance(answer, tuple) else (answer, "accepted")
        await self.pending.pop(message)("settled", state)
        return True

    async def _on_send_complete_async(self, sending: Any, reason: object, state: object) -> None:
        if state == "accepted":
            sending.state, sending.reason = state, reason
        elif isinstance(state, Exception):
            sending.error = state

    async def _send_message_impl_async(self, message: object, *, timeout: float = 0) -> None:
        raise AssertionError("replaced")


def sharing() -> tuple[Handler, Tcp]:
    handler, tcp = Handler(), Tcp()
    transport = SimpleNamespace(
        writer=SimpleNamespace(transport=tcp), _write=lambda: None, receive_frame=lambda: None
    )
    assert SharedLink.of(handler, transport, CallLimits()) is not None
    return handler, tcp


def send(handler: Handler, message: str) -> asyncio.Future[None]:
    return asyncio.ensure_future(handler._send_message_impl_async(message, timeout=7.5))


async def test_a_message_is_written_once_and_its_answer_ends_the_send() -> None:
    handler, _ = sharing()
    sending = send(handler, "a")
    await turns()
    assert handler.written == [("a", 7.5)]
    assert not sending.done()
    handler.answers.put_nowait("a")
    assert await asyncio.wait_for(sending, PATIENCE) is None
    assert handler.written == [("a", 7.5)]


async def test_many_sends_write_at_once_and_one_reads_for_all() -> None:
    handler, _ = sharing()
    sends = [send(handler, name) for name in "abcd"]
    await turns()
    assert [message for message, _ in handler.written] == ["a", "b", "c", "d"]
    for name in "cbda":  # in any order, the reader's own neither first nor last
        handler.answers.put_nowait(name)
    await asyncio.wait_for(asyncio.gather(*sends), PATIENCE)
    assert handler.most_readers == 1


async def test_another_send_continues_reading_when_the_reading_one_is_answered() -> None:
    handler, _ = sharing()
    first, second, third = (send(handler, name) for name in "abc")
    await turns()
    handler.answers.put_nowait("a")
    await asyncio.wait_for(first, PATIENCE)
    await turns()
    assert handler.readers == 1
    handler.answers.put_nowait("c")
    await asyncio.wait_for(third, PATIENCE)
    assert not second.done()
    handler.answers.put_nowait("b")
    await asyncio.wait_for(second, PATIENCE)


async def test_another_send_continues_reading_when_the_reading_one_is_cancelled() -> None:
    handler, _ = sharing()
    first, second = send(handler, "a"), send(handler, "b")
    await turns()
    first.cancel()
    await turns()
    assert first.cancelled()
    assert handler.readers == 1
    handler.answers.put_nowait("b")
    await asyncio.wait_for(second, PATIENCE)


@pytest.mark.parametrize("broken", [OSError("reset"), None], ids=["error", "closed"])
async def test_all_sends_fail_when_the_connection_does(
    broken: Exception | None,
) -> None:
    handler, _ = sharing()
    sends = [send(handler, name) for name in "abc"]
    await turns()
    handler.answers.put_nowait(broken)
    raised = await asyncio.wait_for(asyncio.gather(*sends, return_exceptions=True), PATIENCE)
    if broken is not None:
        assert [repr(each) for each in raised] == ["OSError('reset')"] * 3
        assert len({id(each) for each in raised}) == 3
    else:
        assert {type(each) for each in raised} == {ServiceBusConnectionError}
        assert "The connection was closed under a send." in str(raised[0])
    again = send(handler, "d")
    await turns()
    handler.answers.put_nowait("d")
    await asyncio.wait_for(again, PATIENCE)


async def test_a_rejected_message_raises_its_error_and_so_does_a_missing_answer() -> None:
    handler, _ = sharing()
    rejected, unknown, good = (send(handler, name) for name in "abc")
    await turns()
    refusal = ServiceBusError("rejected")
    for answer in (("b", "neither"), ("a", refusal), "c"):
        handler.answers.put_nowait(answer)
    with pytest.raises(ServiceBusError) as raised:
        await asyncio.wait_for(rejected, PATIENCE)
    assert raised.value is refusal
    with pytest.raises(ServiceBusError, match="neither accepted nor rejected"):
        await asyncio.wait_for(unknown, PATIENCE)
    await asyncio.wait_for(good, PATIENCE)


async def test_nothing_is_written_on_a_lost_connection() -> None:
    handler, tcp = sharing()
    tcp.is_lost = True
    with pytest.raises(
        ServiceBusConnectionError, match="The connection was lost before the message was sent"
    ):
        await send(handler, "a")
    assert handler.written == []


async def test_a_send_waits_until_the_link_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    handler, _ = sharing()
    handler.until_ready = 3
    pauses: list[float] = []
    turn = asyncio.sleep

    async def pause(seconds: float) -> None:
        pauses.append(seconds)
        await turn(0)

    monkeypatch.setattr("sbpair.pair.pairing.aio.shared_link.asyncio.sleep", pause)
    sending = send(handler, "a")
    for _ in range(20):
        await turn(0)
    assert [each for each in pauses if each] == [0.05] * 3
    handler.answers.put_nowait("a")
    await asyncio.wait_for(sending, PATIENCE)


# --- the wire under a sender


class Opening:
    """An SDK handler that needs ``frames`` reads to open."""

    def __init__(self, transport: object, frames: int = 1, keep_alive: object = None) -> None:
        self._connection = SimpleNamespace(_transport=transport, _last_frame_received_time=None)
        self._keep_alive_thread = keep_alive
        self._frames = frames
        self.reads = 0
        self.opened_with: list[object] = []

    def open(self, connection: object = None) -> None:
        self.opened_with.append(connection)

    def client_ready(self) -> bool:
        self.reads += 1
        return self.reads >= self._frames

    async def open_async(self, connection: object = None) -> None:
        self.opened_with.append(connection)

    async def client_ready_async(self) -> bool:
        return self.client_ready()


class SdkSender:
    """An SDK sender, which creates its handler when it opens."""

    def __init__(self, handler: object) -> None:
        self._made = handler
        self._handler: object = None
        self._running = True
        self.auths: list[object] = []

    def open_with(self, auth: object) -> None:
        self._create_handler(auth)

    def has_handler(self) -> bool:
        return self._handler is not None

    async def close(self) -> None:
        await self._close_handler()

    def _create_handler(self, auth: object) -> None:
        self.auths.append(auth)
        self._handler = self._made

    async def _close_handler(self) -> None:
        self._handler = None


def test_opening_is_recorded_once_and_the_methods_of_the_sdk_are_restored() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        handler = Opening(SimpleNamespace(sock=ours, connected=True), FRAMES + 2, thread)
        sender = SdkSender(handler)
        wire = Wire(sender)
        sender.open_with("auth")
        assert sender.auths == ["auth"]
        assert {"open", "client_ready"} <= set(vars(handler))
        handler.open(connection="shared")
        assert handler.opened_with == ["shared"]
        assert "open" not in vars(handler)
        assert handler._keep_alive_thread is None
        assert handler.client_ready() is False  # sixteen frames in a row, then the SDK's pause
        assert handler.reads == FRAMES
        assert handler.client_ready() is True
        assert handler.reads == FRAMES + 2
        assert "client_ready" not in vars(handler)
        assert wire.signs() == [(True, None)]
        assert wire.is_open()
        wire.shut()
        assert peer.recv(1) == b""  # the peer sees the end
        wire.shut()
        wire.join(PATIENCE)
        assert not thread.is_alive()
        wire.release()
        assert ours.fileno() == -1
        assert wire.signs() == []


class Attached(Opening):
    """An SDK handler with a link, which is attached unless the test says otherwise."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(sock=None))
        self._cbs_authenticator = object()
        self.is_attached = True

    def _client_ready(self) -> bool:
        return self.is_attached


@pytest.mark.spec("P-2")
def test_a_link_is_examined_for_each_send_and_its_token_every_tenth_of_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = 100.0
    monkeypatch.setattr("sbpair.pair.pairing.shared.wire.time", SimpleNamespace(monotonic=lambda: now))
    handler = Attached()
    sender = SdkSender(handler)
    Wire(sender)
    sender.open_with(None)
    assert handler.client_ready()  # opens it

    def examined() -> int:
        before = handler.reads
        assert handler.client_ready()
        return handler.reads - before

    assert [examined(), examined(), examined()] == [1, 0, 0]
    now += TOKEN_CHECK
    assert [examined(), examined()] == [1, 0]
    handler._cbs_authenticator = object()  # of another connection
    assert [examined(), examined()] == [1, 0]
    handler.is_attached = False
    assert [examined(), examined()] == [1, 1]
    now += TOKEN_CHECK
    handler._frames = handler.reads + 2
    assert not handler.client_ready()
    assert [examined(), examined()] == [1, 1]
    handler.is_attached = True
    assert examined() == 0


@pytest.mark.spec("R-9")
def test_without_a_thread_a_token_is_fetched_in_the_thread_of_the_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fetched_in: list[threading.Thread] = []

    def fetch() -> str:
        fetched_in.append(threading.current_thread())
        return "token"

    wire = Wire(SdkSender(None))
    assert wire._fetch(fetch) == "token"
    monkeypatch.setattr("sbpair.pair.pairing.shared.wire.Job.start", no_thread)
    assert wire._fetch(fetch) == "token"
    assert [each is threading.current_thread() for each in fetched_in] == [False, True]


def test_a_handler_that_does_not_open_is_recorded_too() -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        handler = Opening(SimpleNamespace(sock=ours, connected=False))

        def refuse(connection: object = None) -> None:
            raise OSError("refused")

        handler.open = refuse  # type: ignore[method-assign]
        sender = SdkSender(handler)
        wire = Wire(sender)
        sender.open_with(None)
        with pytest.raises(OSError, match="refused"):
            handler.open()
        handler._connection._transport = None  # the SDK drops it without closing
        wire.release()
        assert ours.fileno() == -1


async def test_an_asyncio_link_is_shared_unless_a_plain_one_is_requested() -> None:
    for is_plain in (False, True):
        tcp = Tcp()
        handler = Opening(SimpleNamespace(writer=SimpleNamespace(transport=tcp), connected=True, _write=None))
        for name in (
            "_send_message_impl_async",
            "_on_send_complete_async",
            "do_work_async",
            "_link",
        ):
            setattr(handler, name, object())
        sender = SdkSender(handler)
        wire = AsyncWire(sender, is_plain=is_plain)
        assert wire.can_share is is_plain
        sender.open_with("auth")
        handler._connection._transport._write = lambda: None
        handler._connection._transport.receive_frame = lambda: None
        await handler.open_async()
        assert handler.opened_with == [None]
        assert wire.can_share
        assert hasattr(handler._connection._transport, "write") is not is_plain
        assert await handler.client_ready_async() is True
        assert "client_ready_async" not in vars(handler)
        await sender.close()
        assert sender.has_handler() is not is_plain  # the others on the link go on
        assert wire.is_open() is is_plain
        wire.let_close()
        await sender.close()
        assert not sender.has_handler()
        assert tcp.aborted == 0
        await wire.release()
        assert tcp.aborted


async def test_resources_the_sdk_leaves_open_of_an_asyncio_link_are_closed() -> None:
    closed: list[str] = []

    class Session:
        async def close(self) -> None:
            closed.append("session")

    async def keep_alive() -> None:
        await asyncio.Event().wait()

    task = asyncio.ensure_future(keep_alive())
    tcp = Tcp()
    transport = SimpleNamespace(writer=SimpleNamespace(transport=tcp), session=Session(), connected=True)
    handler = Opening(transport, keep_alive=task)
    sender = SdkSender(handler)
    wire = AsyncWire(sender, is_plain=True)
    sender.open_with(None)
    await handler.open_async()
    assert handler._keep_alive_thread is None
    handler._connection = SimpleNamespace(_transport=None)
    await wire.release()
    assert task.cancelled()
    assert closed == ["session"]
    assert tcp.aborted == 1
    assert wire.signs() == []


def test_a_handler_without_the_private_names_is_left_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_missed", set())
    for handler in (None, SimpleNamespace(open=None), SimpleNamespace(open=lambda connection=None: None)):
        sender = SdkSender(handler)
        wire = Wire(sender)
        sender.open_with(None)
        assert wire.signs() == ([] if handler is None or handler.open is None else [(None, None)])
        wire.shut()
        wire.release()
