"""The proxy forwards everything unchanged and breaks exactly what it is told to."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.broker import Broker
from sbpair.broker.testing.chaos_proxy import CHUNK
from sbpair.broker.testing.frames import IN, MAX_FRAME_BYTES, Action, Conversation, alter
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.testing import ChaosProxy
from tests.pair.syphon.pair import parked
from tests.waiting import PATIENCE, wait_until

pytestmark = [
    pytest.mark.usefixtures("forgiving_of_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


@pytest.fixture(scope="module")
def broker():
    with Broker({"contoso": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


@pytest.fixture
def contoso(broker):
    namespace = broker.namespace("contoso")
    namespace.delete_queue("orders")
    namespace.create_queue("orders")
    return namespace


@pytest.fixture
def proxy(contoso):
    with ChaosProxy("127.0.0.1", contoso.port) as running:
        yield running


@pytest.fixture
def client(proxy, contoso):
    through = proxy.connection_string(contoso.connection_string)
    with ServiceBusClient.from_connection_string(through, retry_total=0) as opened:
        yield opened


@pytest.fixture
def echo():
    """The address of a server that echoes its only client."""
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:

        def answer():
            peer, _ = server.accept()
            with peer:
                while data := peer.recv(100):
                    peer.sendall(data)

        done = pool.submit(answer)
        yield server.getsockname()
        done.result(60)


def received(raw, size):
    got = b""
    while len(got) < size:
        got += raw.recv(100)
    return got


OPEN = b"\x00\x00\x00\x0c\x02\x00\x00\x00\x00\x53\x10\x45"


def send(client, body="x", timeout=10.0):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(body), timeout=timeout)


@asynccontextmanager
async def raw_sender(proxy, contoso):
    """A link to "orders" through the proxy, whose sends wait for their answers without a deadline."""
    connection = await connect(parse(proxy.connection_string(contoso.connection_string)))
    try:
        yield await connection.open_sender("orders")
    finally:
        connection.abort()


def seconds_of_a_send(client):
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("opens the link"))
        began = time.perf_counter()
        sender.send_messages(ServiceBusMessage("x"))
        return time.perf_counter() - began


class TestPassing:
    def test_traffic_without_a_matching_rule_passes(self, client, contoso, proxy):
        send(client, "y" * 200_000)
        with client.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(1, max_wait_time=30)
            assert b"".join(message.body) == b"y" * 200_000
            receiver.complete_message(message)
        assert contoso.counts("orders").active == 0
        assert proxy.passed["in"] > 200_000 < proxy.passed["out"]

    def test_frames_split_into_single_bytes_are_reassembled(self, proxy, client, contoso):
        proxy.slice = 1
        send(client)
        assert contoso.counts("orders").active == 1

    def test_bytes_that_are_no_amqp_pass_unchanged(self, echo):
        with ChaosProxy(*echo) as proxy, socket.create_connection(("127.0.0.1", proxy.port), 60) as raw:
            for sent in (b"\x16\x03\x01", b"hello", b"\x00\x00\x00\x01" * 4):
                raw.sendall(sent)
                assert received(raw, len(sent)) == sent

    async def test_the_proxy_works_with_asyncio(self, contoso):
        async with ChaosProxy("127.0.0.1", contoso.port) as proxy:
            assert proxy.port > 0


class TestTime:
    def test_latency_lengthens_a_round_trip_by_the_given_time(self, proxy, client):
        proxy.rtt = 0.3
        spans = [seconds_of_a_send(client)]
        while spans[-1] >= 0.6:  # two round trips: the machine was busy, or it takes longer than it should
            assert len(spans) < 20, spans
            spans.append(seconds_of_a_send(client))
        assert min(spans) >= 0.3

    def test_latency_does_not_limit_the_data_in_flight(self, echo):
        with (
            ChaosProxy(*echo, rtt=0.2) as proxy,
            socket.create_connection(("127.0.0.1", proxy.port), 60) as raw,
        ):
            raw.sendall(b"\x16")
            assert received(raw, 1) == b"\x16"
            began = time.perf_counter()
            for _ in range(300):
                raw.sendall(b"x")
                time.sleep(0.001)  # pieces of their own
            assert received(raw, 300) == b"x" * 300
            assert 0.2 <= time.perf_counter() - began < 30  # one after the other they would take a minute

    def test_limited_bandwidth_delays_data(self, proxy, client):
        send(client)
        proxy.bandwidth = 100_000
        began = time.perf_counter()
        send(client, "x" * 50_000)
        assert time.perf_counter() - began >= 0.5


class TestBreaking:
    @pytest.mark.parametrize(("direction", "count"), [("in", 0), ("in", 100), ("out", 4), ("out", 300)])
    def test_a_connection_is_cut_after_the_exact_number_of_bytes(
        self, proxy, client, contoso, direction, count
    ):
        proxy.cut_next(direction, count)
        with pytest.raises(ServiceBusError):
            send(client)
        assert proxy.passed[direction] == count
        assert contoso.counts("orders").active == 0

    async def test_an_acknowledgement_that_is_dropped_leaves_the_message(self, proxy, contoso):
        async with raw_sender(proxy, contoso) as sender:
            await sender.send(parked(1))
            lost = proxy.on("disposition", direction="out", address="orders", action="drop")
            unanswered = asyncio.create_task(sender.send(parked(2)))
            assert await asyncio.to_thread(lost.wait, 60)
            await sender.send(parked(3))
            assert not unanswered.done()
            unanswered.cancel()
        assert lost.hits == 1
        assert contoso.counts("orders").active == 3

    async def test_the_nth_transfer_to_an_entity_is_dropped_without_counting_claims(self, proxy, contoso):
        lost = proxy.on("transfer", direction="in", address="orders", nth=2, action="drop")
        async with raw_sender(proxy, contoso) as sender:
            await sender.send(parked(1))
            unanswered = asyncio.create_task(sender.send(parked(2)))
            assert await asyncio.to_thread(lost.wait, 60)
            assert not unanswered.done()
            unanswered.cancel()
        assert (lost.seen, lost.hits) == (2, 1)
        assert contoso.counts("orders").active == 1

    @pytest.mark.parametrize("action", ["cut", "reset"])
    @pytest.mark.parametrize(("after", "stored"), [(False, 0), (True, 1)])
    def test_a_rule_cuts_the_connection_before_or_after_a_transfer(
        self, proxy, client, contoso, action, after, stored
    ):
        ended = proxy.on("transfer", direction="in", address="orders", action=action, after=after)
        with pytest.raises(ServiceBusError):
            send(client)
        assert ended.hits == 1
        until(lambda: contoso.counts("orders").active == stored)

    def test_a_delayed_frame_arrives_late(self, proxy, client):
        proxy.on("disposition", direction="out", address="orders", action="delay", seconds=0.5)
        began = time.perf_counter()
        send(client)
        assert time.perf_counter() - began >= 0.5

    def test_a_held_frame_waits_until_it_is_released(self, proxy, client, contoso):
        held = proxy.on("transfer", direction="in", address="orders", action="hold")
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(send, client)
            assert held.wait()
            assert contoso.counts("orders").active == 0
            held.release()
            sending.result(60)
        assert contoso.counts("orders").active == 1

    @pytest.mark.spec("E-7")
    def test_held_connections_do_not_prevent_others_from_connecting(self):
        with ExitStack() as opened:
            target = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            target.settimeout(PATIENCE)
            proxy = opened.enter_context(ChaosProxy("localhost", target.getsockname()[1]))
            held = proxy.on("open", direction="in", action="hold", nth=None)
            for number in range(1, 41):  # more than asyncio has threads for names of hosts
                client = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
                opened.enter_context(target.accept()[0])
                client.sendall(OPEN)
                wait_until(lambda awaited=number: held.hits == awaited)

    @pytest.mark.spec("E-7")
    def test_a_rule_still_holds_after_a_held_connection_was_cut(self):
        with ExitStack() as opened:
            target = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
            target.settimeout(PATIENCE)
            proxy = opened.enter_context(ChaosProxy(*target.getsockname()))
            held = proxy.on("open", direction="in", action="hold", nth=None)
            for number in (1, 2):
                proxy.cut()
                client = opened.enter_context(socket.create_connection(("127.0.0.1", proxy.port)))
                peer = opened.enter_context(target.accept()[0])
                client.sendall(OPEN)
                wait_until(lambda awaited=number: held.hits == awaited)
            assert proxy.passed["in"] == 0
            held.release()
            peer.settimeout(PATIENCE)
            assert received(peer, len(OPEN)) == OPEN

    def test_a_black_hole_swallows_data_and_keeps_the_connection_open(self, proxy, client, contoso):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("1"))
            proxy.blackhole()
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(ServiceBusMessage("2"), timeout=1)
            assert proxy.connection_count == 1
            proxy.blackhole(False)
        assert contoso.counts("orders").active == 1

    @pytest.mark.slow
    @pytest.mark.spec("E-8")
    @pytest.mark.parametrize(("direction", "stored"), [("in", 1), ("out", 2)])
    def test_a_one_way_black_hole_passes_the_other_direction(self, proxy, client, contoso, direction, stored):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("1"))
            proxy.blackhole(direction=direction)
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(ServiceBusMessage("2"), timeout=5)
            proxy.blackhole(False)
        until(lambda: contoso.counts("orders").active == stored)

    @pytest.mark.spec("E-8")
    def test_half_of_a_truncated_frame_arrives_before_the_connection_ends(self, proxy, client, contoso):
        truncated = proxy.on("transfer", direction="in", address="orders", action="truncate")
        with client.get_queue_sender("orders") as sender:
            before = proxy.passed["in"]
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("y" * 20_000))
            assert truncated.hits == 1
            assert 10_000 <= proxy.passed["in"] - before < 20_000
        assert contoso.counts("orders").active == 0

    @pytest.mark.spec("E-8")
    def test_a_repeated_frame_arrives_twice(self, proxy, client, contoso):
        repeated = proxy.on("disposition", direction="out", address="orders", action="repeat")
        before = proxy.passed["out"]
        send(client)
        assert repeated.hits == 1
        assert proxy.passed["out"] > before
        assert contoso.counts("orders").active == 1

    def test_every_connection_can_be_reset_at_once(self, proxy, client):
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("1"))
            proxy.reset()
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("2"))
            sender.send_messages(ServiceBusMessage("3"))

    @pytest.mark.spec("F-2")
    def test_a_sender_killed_before_its_acknowledgement_left_its_message_once(self, proxy, contoso):
        with subprocess.Popen(
            [sys.executable, "-c", SENDER, proxy.connection_string(contoso.connection_string)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            killed = proxy.on(
                "disposition", direction="out", address="orders", action="kill", pid=process.pid
            )
            said, _ = process.communicate("go\n", timeout=60)
        assert killed.hits == 1
        assert process.returncode == -9
        assert "acknowledged" not in said
        assert contoso.counts("orders").active == 1


SENDER = """
import sys
from azure.servicebus import ServiceBusClient, ServiceBusMessage
sys.stdin.readline()
with ServiceBusClient.from_connection_string(sys.argv[1], retry_total=0) as client:
    with client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("x"))
        print("acknowledged", flush=True)
"""


class TestRules:
    @pytest.mark.parametrize(
        ("wrong", "names"),
        [
            ({"performative": "transmit", "action": "drop"}, "transmit"),
            ({"action": "explode"}, "explode.*one of drop, delay"),
            ({"action": "drop", "direction": "up"}, "up"),
            ({"action": "drop", "nth": 0}, "nth"),
            ({"action": "delay", "seconds": -1}, "seconds"),
            ({"action": "kill"}, "pid"),
            ({"action": "drop", "pid": 1}, "pid"),
        ],
    )
    def test_what_cannot_be_meant_is_refused_by_name(self, proxy, wrong, names):
        with pytest.raises(ValueError, match=names):
            proxy.on(**wrong)

    def test_a_black_hole_in_no_direction_is_refused(self, proxy):
        with pytest.raises(ValueError, match="up"):
            proxy.blackhole(direction="up")

    @pytest.mark.spec("E-8")
    @pytest.mark.parametrize(
        ("action", "arrives"),
        [
            (Action.TRUNCATE, b"\x00\x00\x00\x0a"),
            (Action.REPEAT, b"\x00\x00\x00\x0aabcdef\x00\x00\x00\x0aabcdef"),
            (Action.OVERSIZE, b"\x04\x00\x00\x00abcdef"),
            (Action.CUT, b"\x00\x00\x00\x0aabcdef"),
        ],
    )
    def test_an_altered_frame_arrives_with_the_expected_bytes(self, action, arrives):
        assert alter(action, b"\x00\x00\x00\x0aabcdef")[: len(arrives)] == arrives

    @pytest.mark.spec("E-7")
    def test_an_invalid_port_is_refused(self):
        with pytest.raises(OverflowError, match="0-65535"):
            ChaosProxy("127.0.0.1", 1, listen=("127.0.0.1", 70_000)).__enter__()

    def test_a_cut_in_no_direction_is_refused(self, proxy):
        with pytest.raises(ValueError, match="up"):
            proxy.cut_next("up", 1)


def until(holds):
    by = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < by, "it did not happen in time"
        with suppress(InterruptedError):
            time.sleep(0.005)


def fill(peer):
    """Send until no byte has left for a while: the buffers on the way are full, or this machine is busy."""
    peer.settimeout(0.5)
    with suppress(TimeoutError):
        while True:
            peer.sendall(b"\x16" * 1_000_000)
    peer.settimeout(PATIENCE)


def ends(peer):
    with suppress(ConnectionError):
        while peer.recv(1_000_000):
            pass
    return True


def proxies_that_run():
    return {thread for thread in threading.enumerate() if thread.name == "sbpair-chaos"}


@contextmanager
def proxied():
    """Yield a listening target that reads nothing by itself, a proxy to it, and a client of the proxy."""
    with (
        socket.create_server(("127.0.0.1", 0)) as target,
        ChaosProxy(*target.getsockname()) as proxy,
        socket.create_connection(("127.0.0.1", proxy.port)) as client,
    ):
        yield target, proxy, client


@pytest.mark.slow
@pytest.mark.spec("E-7")
def test_a_cut_reaches_the_client_while_the_target_does_not_read():
    with proxied() as (_, proxy, client):
        fill(client)
        proxy.cut()
        assert ends(client)


@pytest.mark.spec("E-7")
def test_a_proxy_stops_while_its_target_does_not_read():
    before = proxies_that_run()
    with proxied() as (_, proxy, client):
        fill(client)
        proxy.__exit__(None, None, None)
        wait_until(lambda: proxies_that_run() <= before)


@pytest.mark.slow
@pytest.mark.spec("E-7")
def test_a_connection_that_was_cut_can_be_reset_while_its_client_does_not_read():
    with proxied() as (server, proxy, client):
        target, _ = server.accept()
        with target:
            fill(target)
            proxy.cut()
            assert ends(target)
            proxy.reset()
            client.settimeout(PATIENCE)
            assert ends(client)


@pytest.mark.filterwarnings("default:unclosed <socket:ResourceWarning")
def test_a_proxy_that_stops_during_connects_closes_the_accepted_connections(contoso, recwarn):
    for _ in range(20):
        with ChaosProxy("127.0.0.1", contoso.port) as proxy:
            clients = [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(8)]
        for client in clients:
            client.close()
    gc.collect()

    assert [str(warning.message) for warning in recwarn if "unclosed" in str(warning.message)] == []


@pytest.mark.spec("R-119")
def test_a_frame_of_64_mib_takes_time_proportional_to_its_size():
    conversation, chunk = Conversation(), bytes(CHUNK)
    head = MAX_FRAME_BYTES.to_bytes(4, "big") + b"\x02\x00\x00\x00"
    began = time.process_time()
    assert conversation.feed(IN, head) == []
    for _ in range(MAX_FRAME_BYTES // CHUNK - 1):
        assert conversation.feed(IN, chunk) == []
    (passing,) = conversation.feed(IN, chunk[len(head) :])
    assert time.process_time() - began < 3.0  # measured: 0.1 s; with a copy of all for each chunk 11 s
    assert len(passing.raw) == MAX_FRAME_BYTES


@pytest.mark.spec("R-119")
@pytest.mark.parametrize("size", [1, 3, 7, 8, 11])
def test_frames_and_other_bytes_survive_splitting_at_any_size(size):
    said = b"AMQP\x00\x01\x00\x00" + b"\x00\x00\x00\x08\x02\x00\x00\x00" + b"GET / HTTP/1.1\r\n\r\n"
    conversation = Conversation()
    pieces = [said[at : at + size] for at in range(0, len(said), size)]
    passed = [each.raw for piece in pieces for each in conversation.feed(IN, piece)]
    assert passed[:2] == [said[:8], said[8:16]]
    assert b"".join(passed) + conversation.rest(IN) == said
