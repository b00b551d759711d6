"""Injected faults: the errors that the unmodified client gets, and normal service afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from contextlib import suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.broker import (
    AnswerModified,
    AnswerReleased,
    Broker,
    BrokerError,
    TwoFieldError,
    Withhold,
)
from sbpair.broker.server.namespace_server import Outage
from sbpair.broker.server.wire import AmqpWire
from tests.waiting import until, wait_until

pytestmark = [
    pytest.mark.usefixtures("forgiving_of_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


class TestEntityFaults:
    @pytest.mark.slow
    def test_a_withheld_answer_stores_the_message_and_leaves_the_sender_in_doubt(
        self, client, contoso, queue
    ):
        with client.get_queue_sender(queue) as sender, contoso.fault(queue, Withhold()) as fault:
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(ServiceBusMessage("x"), timeout=5)
            wait_until(lambda: fault.hits == 1)

        assert contoso.counts(queue).active == 1

    @pytest.mark.parametrize("fault", [AnswerReleased(), AnswerModified(), TwoFieldError()])
    async def test_a_fault_that_makes_the_sdk_hang_stores_nothing(self, contoso, queue, fault):
        client = AsyncClient.from_connection_string(contoso.connection_string, retry_total=0)
        async with client, client.get_queue_sender(queue) as sender:
            with contoso.fault(queue, fault) as active:
                sending = asyncio.create_task(sender.send_messages(ServiceBusMessage("x"), timeout=60))
                await until(lambda: active.hits)
                with pytest.raises((TimeoutError, ServiceBusError)):
                    await asyncio.wait_for(sending, 0.5)

        assert contoso.counts(queue).active == 0

    def test_a_fault_on_a_missing_entity_is_refused(self, contoso):
        with pytest.raises(BrokerError, match="nowhere"), contoso.fault("nowhere", Withhold()):
            pass


@pytest.fixture
def fragile(contoso):
    """A namespace that is brought up again afterwards."""
    yield contoso
    contoso.bring_up()


class TestOutages:
    def test_a_refusing_namespace_cuts_connections_and_returns_on_the_same_port(self, client, fragile, queue):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("before"))
            port = fragile.port
            fragile.take_down("refuse")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", port), 5)
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage("during"))
            assert fragile.connection_count == 0
            fragile.bring_up()
            assert fragile.port == port
            sender.send_messages(ServiceBusMessage("after"))

        assert fragile.counts(queue).active == 2

    def test_a_resetting_namespace_accepts_and_resets(self, client, fragile, queue):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("before"))
            fragile.take_down("reset")
            with (
                pytest.raises(ConnectionResetError),  # when connecting or when reading
                socket.create_connection(("127.0.0.1", fragile.port), 5) as raw,
            ):
                raw.recv(1)
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage("during"))
            fragile.bring_up()
            sender.send_messages(ServiceBusMessage("after"))

        assert fragile.counts(queue).active == 2

    def test_a_silent_namespace_accepts_connections_and_sends_nothing_until_it_is_back(self, fragile, queue):
        client = ServiceBusClient.from_connection_string(fragile.connection_string, retry_total=0)
        with client, client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("before"))
            fragile.take_down("silent")
            with socket.create_connection(("127.0.0.1", fragile.port), 5) as raw:
                raw.sendall(b"AMQP\x03\x01\x00\x00")
                raw.settimeout(0.3)
                with pytest.raises(TimeoutError):
                    raw.recv(1)
                with pytest.raises(OperationTimeoutError):
                    sender.send_messages(ServiceBusMessage("during"), timeout=1)
                assert fragile.counts(queue).active == 1
                fragile.bring_up()
                raw.settimeout(30)
                assert raw.recv(8) == b"AMQP\x03\x01\x00\x00"

    def test_a_silence_that_begins_during_a_handshake_applies_to_that_client_too(self):
        with (
            Broker({"contoso": 0}) as broker,
            socket.create_connection(("127.0.0.1", broker.namespace("contoso").port), 30) as raw,
        ):
            namespace = broker.namespace("contoso")
            wait_until(lambda: namespace.inspect(lambda server: len(server._sniffer._greetings)) == 1)
            namespace.take_down("silent")
            raw.sendall(b"AMQP\x03\x01\x00\x00")
            raw.settimeout(0.3)
            with pytest.raises(TimeoutError):
                raw.recv(1)
            namespace.bring_up()
            raw.settimeout(30)
            assert raw.recv(8) == b"AMQP\x03\x01\x00\x00"

    def test_an_outage_of_one_namespace_does_not_affect_the_other(self, broker, fragile):
        other = broker.namespace("contoso-dr")
        if "steady" not in other.queue_names():
            other.create_queue("steady")
        fragile.take_down("refuse")
        client = ServiceBusClient.from_connection_string(other.connection_string, retry_total=0)
        with client, client.get_queue_sender("steady") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        assert other.counts("steady").active >= 1


GARBAGE = [
    b"\x00" * 64,
    b"GET / HTTP/9.9\r\n\r\n\r\n",
    b"\x16\x03\x01\x00\x05hello",
    b"AMQP\x00\x00\x09\x01",
    b"AMQP\x02\x01\x00\x00",
    b"AMQP\x03\x01\x00\x00" + b"\xff" * 64,
    b"AMQP\x03\x01\x00\x00\x00\x00\x00\x10\x02\x00\x00\x00\x00\x53\x10\xc0\x03\x01\xa1\x00",
    b"A",
    b"hello\r\n",
]


class TestBadNeighbours:
    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_garbage_ends_only_its_own_connection(self, contoso, queue, client, garbage):
        with socket.create_connection(("127.0.0.1", contoso.port), 5) as raw:
            raw.settimeout(10)
            with suppress(ConnectionError, OSError):  # it may be closed while the client still sends
                raw.sendall(garbage)
                raw.shutdown(socket.SHUT_WR)
                while raw.recv(65536):
                    pass

        assert contoso.counts(queue).active == 0  # the broker keeps serving

    def test_a_flood_of_empty_connections_does_not_stop_the_broker(self, contoso, queue, client):
        raws = [socket.create_connection(("127.0.0.1", contoso.port), 5) for _ in range(200)]
        try:
            with client.get_queue_sender(queue) as sender:
                sender.send_messages(ServiceBusMessage("x"))
        finally:
            for raw in raws:
                raw.close()
        assert contoso.counts(queue).active == 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="descriptors are counted through /proc")
class TestLife:
    def test_the_broker_answers_when_start_returns_and_is_gone_when_stop_returns(self):
        broker = Broker({"contoso": 0})
        broker.start()
        port = broker.namespace("contoso").port
        with socket.create_connection(("127.0.0.1", port), 5) as raw:
            raw.sendall(b"AMQP\x03\x01\x00\x00")
            assert raw.recv(8) == b"AMQP\x03\x01\x00\x00"
        broker.stop()
        broker.stop()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 5)

    def test_a_stopped_broker_leaves_no_thread_and_no_descriptor(self):
        def held():
            found = set()
            for descriptor in os.listdir("/proc/self/fd"):
                with suppress(FileNotFoundError):  # closed meanwhile by another owner
                    found.add(os.readlink(f"/proc/self/fd/{descriptor}"))
            return found

        threads, before = set(threading.enumerate()), held()
        with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
            contoso = broker.namespace("contoso")
            for first in (b"AMQP\x03\x01\x00\x00", b"", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03"):
                raw = socket.create_connection(("127.0.0.1", contoso.port), 5)
                raw.sendall(first)
                raw.settimeout(0.2)
                with raw, suppress(OSError):
                    raw.recv(1)
            contoso.take_down("silent")
            raw = socket.create_connection(("127.0.0.1", contoso.port), 5)
            raw.close()

        assert set(threading.enumerate()) <= threads  # threads of other owners may have ended meanwhile
        assert held() <= before

    def test_a_restarted_broker_keeps_its_messages(self):
        broker = Broker({"contoso": 0})
        broker.namespace("contoso").create_queue("orders")
        for _ in range(2):
            with broker:
                assert broker.namespace("contoso").queue_names() == ["orders"]

    async def test_the_broker_is_an_async_context_manager(self):
        async with Broker({"contoso": 0}) as broker:
            assert broker.namespace("contoso").port > 0

    def test_starting_twice_is_refused(self):
        with Broker({"contoso": 0}) as broker, pytest.raises(BrokerError, match="running"):
            broker.start()

    def test_a_running_clock_cannot_be_advanced_by_hand(self):
        with Broker({"contoso": 0}) as broker, pytest.raises(BrokerError, match="ManualClock"):
            broker.advance(1)

    def test_a_missing_namespace_is_named(self):
        with pytest.raises(BrokerError, match="fabrikam"):
            Broker({"contoso": 0}).namespace("fabrikam")

    @pytest.mark.slow
    def test_locks_expire_by_the_wall_clock(self):
        with Broker({"contoso": 0}) as broker:
            contoso = broker.namespace("contoso")
            contoso.create_queue("orders", lock_duration=5_000)
            client = ServiceBusClient.from_connection_string(contoso.connection_string)
            with client, client.get_queue_sender("orders") as sender:
                sender.send_messages(ServiceBusMessage("x"))
                with client.get_queue_receiver("orders", max_wait_time=30) as first:
                    assert len(first.receive_messages(1)) == 1
                    with client.get_queue_receiver("orders", receive_mode="receiveanddelete") as second:
                        (again,) = second.receive_messages(1, max_wait_time=30)
                        assert again.delivery_count == 1


@pytest.mark.spec("R-50")
def test_a_namespace_that_goes_down_during_a_handshake_can_be_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The outage begins between sniffing the first byte and handing over the connection."""
    taken_in = threading.Event()
    broker = Broker({"contoso": 0})
    server = broker.namespace("contoso").server
    connection_made = AmqpWire.connection_made

    def then_goes_down(wire: AmqpWire, transport: asyncio.BaseTransport) -> None:
        connection_made(wire, transport)
        asyncio.get_running_loop().call_soon(server.take_down, Outage.RESET)
        taken_in.set()

    monkeypatch.setattr(AmqpWire, "connection_made", then_goes_down)
    with broker, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"AMQP\x03\x01\x00\x00")
        assert taken_in.wait(30)
        with pytest.raises(ConnectionResetError):
            read_to_the_end(client)


def read_to_the_end(client: socket.socket) -> None:
    while client.recv(4096):
        pass
