"""Timers and shutdown on both event loops: nothing on the loop keeps a broker from stopping (R-50)."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker import Broker
from sbpair.broker.faults import Delay
from sbpair.broker.server import broker as server
from sbpair.broker.server import listener
from sbpair.broker.server.control import NamespaceControl
from sbpair.broker.server.event_loop import Alarm, new_event_loop
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.spec("R-50")
LOOPS = pytest.mark.parametrize(
    "make_loop", [new_event_loop, asyncio.new_event_loop], ids=["quick", "asyncio"]
)
MakeLoop = Callable[[], asyncio.AbstractEventLoop]


@LOOPS
def test_a_past_instant_rings_at_once_and_the_earliest_alarm_counts(make_loop: MakeLoop) -> None:
    async def rings() -> list[str]:
        loop, rung, done = asyncio.get_running_loop(), list[str](), asyncio.Event()
        late, soon = Alarm(lambda: rung.append("late")), Alarm(lambda: (rung.append("soon"), done.set()))
        late.set(loop.time() + 60)
        for at in (loop.time() + 60, loop.time() - 1, loop.time() - 1, loop.time() + 30):
            soon.set(at)
        async with asyncio.timeout(PATIENCE):
            await done.wait()
        late.cancel()
        late.cancel()
        return rung

    with asyncio.Runner(loop_factory=make_loop) as runner:
        assert runner.run(rings()) == ["soon"]


@LOOPS
def test_delayed_answers_arrive_while_the_broker_keeps_serving(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "new_event_loop", make_loop)
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        with (
            contoso.fault("orders", Delay(0.0)),
            ServiceBusClient.from_connection_string(contoso.connection_string) as client,
            client.get_queue_sender("orders") as sender,
        ):
            for _ in range(20):
                sender.send_messages(ServiceBusMessage("x"))
        assert contoso.counts("orders").active == 20


@LOOPS
def test_a_client_that_disconnects_first_does_not_keep_the_broker_from_stopping(
    make_loop: MakeLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "new_event_loop", make_loop)
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        client = socket.create_connection(("127.0.0.1", contoso.port))
        client.sendall(b"AMQP\x03\x01\x00\x00")
        assert client.recv(8)
        wires = contoso.server.wires

        def gone_meanwhile() -> None:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()  # a reset that the loop has not noticed yet
            for wire in list(wires.values()):
                wire._close_gracefully()

        broker._in_loop(gone_meanwhile)
        wait_until(lambda: not wires)


def failures_of_calls_until_it_stops() -> list[BaseException]:
    """Call a broker from a thread until after its end; return the errors."""
    failures: list[BaseException] = []
    has_begun, has_ended = threading.Event(), threading.Event()

    def call(contoso: NamespaceControl) -> None:
        try:
            while not has_ended.is_set():
                contoso.counts("orders")
                has_begun.set()
        except BaseException as error:
            failures.append(error)

    with Broker({"contoso": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        caller = threading.Thread(target=call, args=(broker.namespace("contoso"),))
        caller.start()
        assert has_begun.wait(PATIENCE) or failures
    has_ended.set()
    caller.join(2 * PATIENCE)  # a lost call would wait as long as a broker may take to stop
    return failures


def test_a_call_during_the_stop_of_the_broker_is_answered() -> None:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that the two threads interleave at every line
    try:
        for _ in range(100):
            assert failures_of_calls_until_it_stops() == []
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("is_tls", [False, True])
async def test_stopping_during_a_handshake_leaves_no_connection_open(
    is_tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop, aborted = asyncio.get_running_loop(), asyncio.Event()

    class Transport(asyncio.Transport):
        def __init__(self, sock: socket.socket) -> None:
            super().__init__()
            self._sock = sock

        def abort(self) -> None:
            self._sock.close()
            aborted.set()

    async def connect(_: object, sock: socket.socket, **__: object) -> tuple[asyncio.Transport, None]:
        adopting.cancel()  # it is complete, and its caller does not have it yet
        return Transport(sock), None

    monkeypatch.setattr(loop, "connect_accepted_socket", connect)
    ours, theirs = socket.socketpair()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER) if is_tls else None
    adopting = asyncio.create_task(listener._adopt(ours, lambda _: asyncio.Protocol(), context))
    with theirs, pytest.raises(asyncio.CancelledError):
        await adopting
    async with asyncio.timeout(PATIENCE):
        await aborted.wait()
