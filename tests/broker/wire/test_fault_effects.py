"""Each fault effect as the unmodified SDK meets it, and the state of the queue afterwards."""

from __future__ import annotations

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
    ServiceBusServerBusyError,
)

from sbpair.broker import (
    Broker,
    BrokerError,
    CloseConnection,
    CutAfter,
    Delay,
    DetachLink,
    Disabled,
    Down,
    FaultRule,
    Full,
    LateVisibility,
    Lose,
    NoCredit,
    PartitionDown,
    RejectWith,
    Throttle,
    Withhold,
)
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("forgiving_of_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]


def send(client, queue, timeout=30.0):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x"), timeout=timeout)


def is_barred(client):
    try:
        send(client, "orders")
    except MessagingEntityDisabledError:
        return True
    return False


class TestOperations:
    @pytest.mark.parametrize(
        ("effect", "error", "stored"),
        [
            (Lose(), OperationTimeoutError, 0),
            (Throttle(), ServiceBusServerBusyError, 0),
            (Full(), ServiceBusQuotaExceededError, 0),
            (DetachLink(), ServiceBusError, 0),
            (DetachLink(carried_out=True), ServiceBusError, 1),
            (CloseConnection(), ServiceBusConnectionError, 0),
            (CloseConnection(carried_out=True), ServiceBusConnectionError, 1),
        ],
        ids=lambda value: getattr(value, "name", None),
    )
    def test_a_struck_send_fails_as_its_effect_describes(self, client, contoso, queue, effect, error, stored):
        with contoso.fault(queue, effect) as fault, pytest.raises(error):
            send(client, queue, timeout=5 if error is OperationTimeoutError else 30)
        wait_until(lambda: fault.hits == 1)
        assert contoso.counts(queue).active == stored

    def test_a_delayed_answer_arrives_late_but_the_message_does_not(self, client, contoso, queue):
        with contoso.fault(queue, Delay(0.5)):
            began = time.monotonic()
            send(client, queue)
            assert time.monotonic() - began >= 0.5
        assert contoso.counts(queue).active == 1

    def test_a_message_becomes_visible_when_its_delay_is_over(self, broker, client, contoso, queue):
        with contoso.fault(queue, LateVisibility(60)):
            send(client, queue)
        assert (contoso.counts(queue).active, contoso.counts(queue).scheduled) == (0, 1)
        broker.advance(timedelta(seconds=61))
        assert contoso.counts(queue).active == 1

    def test_a_link_without_credit_still_opens(self, contoso, queue):
        with contoso.fault(queue, NoCredit()) as fault:
            client = ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0)
            with client:
                send(client, queue)  # this SDK ignores credit
        assert fault.hits == 1

    def test_a_refused_attach_has_the_condition_of_its_effect(self, client, contoso, queue):
        with (
            contoso.fault(queue, RejectWith("com.microsoft:entity-disabled"), operation="attach"),
            pytest.raises(MessagingEntityDisabledError),
        ):
            send(client, queue)
        assert contoso.counts(queue).active == 0

    @pytest.mark.parametrize(
        ("effect", "left"), [(Withhold(), 0), (Lose(), 1), (DetachLink(carried_out=True), 0)]
    )
    def test_a_struck_settlement_is_applied_or_not_as_described(self, client, contoso, queue, effect, left):
        send(client, queue)
        with client.get_queue_receiver(queue, max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages(1)
            with contoso.fault(queue, effect, operation="settle") as fault, ThreadPoolExecutor(1) as pool:
                settling = pool.submit(receiver.complete_message, message)  # it waits 60 s for an answer
                wait_until(lambda: fault.hits == 1)
                assert contoso.counts(queue).active == left
                contoso.take_down("reset")
                contoso.bring_up()
                with suppress(ServiceBusError):
                    settling.result(60)

    def test_a_message_lost_in_delivery_is_locked(self, client, contoso, queue):
        send(client, queue)
        with (
            contoso.fault(queue, Withhold(), operation="receive", times=1),
            client.get_queue_receiver(queue) as receiver,
        ):
            assert receiver.receive_messages(1, max_wait_time=0.5) == []
        assert contoso.counts(queue).active == 1

    def test_management_requests_have_their_own_faults(self, client, contoso, queue):
        send(client, queue)
        with (
            contoso.fault(queue, Throttle(), operation="manage"),
            client.get_queue_receiver(queue) as receiver,
            pytest.raises(ServiceBusServerBusyError),
        ):
            receiver.peek_messages()


class TestConnections:
    @pytest.mark.parametrize(("direction", "count"), [("out", 8), ("in", 8), ("out", 0), ("in", 200)])
    def test_a_connection_is_cut_after_so_many_bytes(self, client, contoso, queue, direction, count):
        with contoso.fault(None, CutAfter(count, direction)) as fault, pytest.raises(ServiceBusError):
            send(client, queue)
        assert fault.hits >= 1
        assert contoso.counts(queue).active == 0
        send(client, queue)  # the next connection is not affected

    def test_a_cut_connection_got_exactly_the_given_number_of_bytes(self, contoso):
        with (
            contoso.fault(None, CutAfter(5)),
            socket.create_connection(("127.0.0.1", contoso.port), 5) as raw,
        ):
            raw.sendall(b"AMQP\x03\x01\x00\x00")
            got = b""
            while more := raw.recv(100):
                got += more
        assert got == b"AMQP\x03"


@pytest.fixture
def fragile():
    """A separate namespace that the test may take down."""
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders")
        with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
            yield broker, namespace, client


class TestNamespace:
    def test_an_unknown_outage_is_reported_with_the_known_ones(self, contoso):
        with pytest.raises(BrokerError, match="how is 'refus', use one of refuse, reset"):
            contoso.take_down("refus")

    def test_a_slow_namespace_answers_late_and_loses_nothing(self, fragile):
        _, namespace, client = fragile
        namespace.take_down("slow", delay=0.1)
        began = time.monotonic()
        send(client, "orders")
        assert time.monotonic() - began >= 0.5  # headers, open, claim, attach and outcome each wait
        namespace.bring_up()
        assert namespace.counts("orders").active == 1

    def test_half_open_silently_kills_existing_connections_and_serves_new_ones(self, fragile):
        _, namespace, client = fragile
        with client.get_queue_sender("orders") as sender:
            sender.send_messages(ServiceBusMessage("before"))
            namespace.take_down("half-open")
            with pytest.raises(OperationTimeoutError):
                sender.send_messages(ServiceBusMessage("during"), timeout=1)
            with ServiceBusClient.from_connection_string(namespace.connection_string) as another:
                send(another, "orders")
            namespace.bring_up()
            assert namespace.counts("orders").active == 2

    def test_a_standing_fault_begins_and_ends_on_time(self, fragile):
        broker, namespace, client = fragile
        with namespace.fault(None, Down("refuse"), after=60, lasting=60, every=300) as fault:
            send(client, "orders")
            for seconds, is_down in ((61, True), (60, False), (240, True), (60, False)):
                broker.advance_connections(timedelta(seconds=seconds))
                assert _is_refused(namespace.port) is is_down
            assert fault.hits == 2

    def test_a_standing_fault_ends_with_its_context_manager(self, fragile):
        _, namespace, client = fragile
        with namespace.fault(None, Down("refuse")):
            assert _is_refused(namespace.port)
        send(client, "orders")

    def test_only_an_existing_partition_can_be_taken_down(self, fragile):
        _, namespace, _ = fragile
        with pytest.raises(BrokerError), namespace.fault("orders", PartitionDown(0)):
            pass  # it is not partitioned
        assert namespace.faults == []

    def test_a_fault_on_a_partition_ends_when_its_entity_is_deleted(self, fragile):
        _, namespace, _ = fragile
        namespace.create_queue("parts", enable_partitioning=True)
        with namespace.fault("parts", PartitionDown(0, throttled=True)):
            namespace.delete_queue("parts")
        assert namespace.faults == []

    def test_the_broker_stops_with_a_fault_on_a_partition_of_a_deleted_entity(self):
        broker = Broker({"contoso": 0, "fabrikam": 0})
        with broker:
            namespace = broker.namespace("contoso")
            namespace.create_queue("parts", enable_partitioning=True)
            namespace.set_fault(FaultRule(PartitionDown(0, throttled=True), "parts"))
            namespace.delete_queue("parts")
            port = broker.namespace("fabrikam").port
        assert _is_refused(port)

    def test_a_fault_that_cannot_begin_does_not_prevent_others(self, fragile):
        broker, namespace, client = fragile
        namespace.create_queue("gone")
        with (
            namespace.fault("gone", Disabled("Disabled"), after=60),
            namespace.fault("orders", Disabled("SendDisabled"), after=120, lasting=120) as barring,
        ):
            namespace.delete_queue("gone")
            broker.advance_connections(timedelta(seconds=130))
            assert barring.hits == 1
            assert is_barred(client)
            broker.advance_connections(timedelta(seconds=120))
            assert not is_barred(client)

    def test_faults_may_be_set_before_the_broker_starts(self):
        broker = Broker({"contoso": 0})
        namespace = broker.namespace("contoso")
        with namespace.fault(None, Down("reset")):
            with (
                broker,
                pytest.raises(ConnectionResetError),
                socket.create_connection(("127.0.0.1", namespace.port), 5) as raw,
            ):
                raw.recv(1)
            assert len(namespace.faults) == 1


def _is_refused(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5).close()
    except ConnectionRefusedError:
        return True
    return False
