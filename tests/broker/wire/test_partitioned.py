"""Partitioned queues and topics look to the unmodified SDK as documented."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack, closing
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import (
    MessageNotFoundError,
    MessageSizeExceededError,
    ServiceBusError,
    ServiceBusServerBusyError,
)
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, NamespaceControl, ShiftedClock
from sbpair.broker.auth import make_token
from sbpair.broker.entities.partition import index_of
from sbpair.broker.faults import FrontEndCache
from tests.broker.wire.elsewhere import fresh

PARTITION_ID = b"x-opt-partition-id"


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    return make_queue(enable_partitioning=True)


def key_of(index: int) -> str:
    return next(key for n in range(10_000) if index_of(key := f"key-{n}", 16) == index)


def send(client: ServiceBusClient, queue: str, *messages: ServiceBusMessage) -> None:
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


@pytest.mark.spec("Q-5", "Q-8", "Q-10")
def test_messages_without_a_key_are_spread_and_all_are_received_and_settled(client, contoso, queue):
    send(client, queue, *(ServiceBusMessage(str(n)) for n in range(20)))
    with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
        messages = []
        while len(messages) < 20:
            messages += receiver.receive_messages(20, max_wait_time=10)
        partitions = {message.raw_amqp_message.annotations[PARTITION_ID] for message in messages}
        assert partitions == set(range(16))
        assert {message.sequence_number >> 48 for message in messages} == partitions
        for settle in (receiver.abandon_message, receiver.defer_message, receiver.dead_letter_message):
            settle(messages.pop())
        for message in messages:
            receiver.renew_message_lock(message)
            receiver.complete_message(message)
    counts = contoso.counts(queue)
    assert (counts.active, counts.deferred, counts.dead_letter) == (1, 1, 1)

    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
        (buried,) = graves.receive_messages(1, max_wait_time=10)
        graves.complete_message(buried)
    assert contoso.counts(queue).dead_letter == 0


@pytest.mark.spec("Q-4", "Q-6")
def test_messages_of_a_key_share_a_partition_and_keep_their_order(client, queue):
    send(client, queue, *(ServiceBusMessage(str(n), partition_key=key_of(5)) for n in range(5)))
    with client.get_queue_receiver(queue) as receiver:
        messages = []
        while len(messages) < 5:
            messages += receiver.receive_messages(5, max_wait_time=10)
        assert [str(message) for message in messages] == list("01234")
        assert {message.partition_key for message in messages} == {key_of(5)}
        assert [message.sequence_number for message in messages] == [5 << 48 | n for n in range(1, 6)]


@pytest.mark.spec("Q-6", "F-54")
def test_a_batch_with_several_keys_is_refused_in_the_words_of_the_service(client, contoso, queue):
    with (
        client.get_queue_sender(queue) as sender,
        pytest.raises(ServiceBusError, match="Batching brokered messages with distinct SessionId") as caught,
    ):
        sender.send_messages([ServiceBusMessage("1", partition_key="a"), ServiceBusMessage("2")])
    assert "amqp:not-allowed" in str(caught.value)
    assert contoso.counts(queue).total == 0


@pytest.mark.spec("Q-7")
def test_conflicting_keys_are_an_invalid_operation(client, contoso, queue):
    clash = AmqpAnnotatedMessage(
        data_body=b"x",
        properties=AmqpMessageProperties(group_id="s"),
        annotations={"x-opt-partition-key": "p"},  # the SDK's message class refuses it before it is sent
    )
    with client.get_queue_sender(queue) as sender, pytest.raises(ServiceBusError, match="differ") as caught:
        sender.send_messages(clash)
    assert "amqp:not-allowed" in str(caught.value)


@pytest.mark.spec("Q-4", "Q-5", "F-50")
def test_an_unavailable_partition_fails_only_its_keys(client, contoso, queue):
    with contoso.partition(queue, 5).take_down(), client.get_queue_sender(queue) as sender:
        with pytest.raises(ServiceBusError, match="Partition 5 of the entity") as caught:
            sender.send_messages(ServiceBusMessage("lost", partition_key=key_of(5)))
        assert "partition-not-available" in str(caught.value)
        assert not isinstance(caught.value, ServiceBusServerBusyError)
        sender.send_messages(ServiceBusMessage("keyed", partition_key=key_of(6)))
        for _ in range(16):
            sender.send_messages(ServiceBusMessage("unkeyed"))
    assert contoso.counts(queue).active == 17
    send(client, queue, ServiceBusMessage("back", partition_key=key_of(5)))


@pytest.mark.spec("Q-4")
def test_a_throttled_partition_is_busy(client, contoso, queue):
    with (
        contoso.partition(queue, 5).throttle(),
        client.get_queue_sender(queue) as sender,
        pytest.raises(ServiceBusServerBusyError, match="50009"),
    ):
        sender.send_messages(ServiceBusMessage("busy", partition_key=key_of(5)))


@pytest.mark.spec("Q-1", "Q-8")
def test_receivers_continue_and_are_woken_when_a_partition_is_back(client, contoso, queue):
    send(client, queue, *(ServiceBusMessage("x", partition_key=key_of(n)) for n in (4, 5)))
    down = contoso.partition(queue, 5).take_down()
    down.__enter__()
    with client.get_queue_receiver(queue) as receiver:
        (first,) = receiver.receive_messages(2, max_wait_time=20)
        assert first.sequence_number >> 48 == 4
        back = threading.Timer(0.2, lambda: down.__exit__(None, None, None))
        back.start()
        (second,) = receiver.receive_messages(1, max_wait_time=20)
        assert second.sequence_number >> 48 == 5
        back.join()


@pytest.mark.spec("Q-16")
def test_a_send_that_meets_a_fresh_partition_outage_is_answered_after_it_moved(
    client, broker, contoso, queue
):
    with (
        contoso.partition(queue, 0).take_down(reroute_after=15_000),
        client.get_queue_sender(queue) as sender,
    ):
        sender.create_message_batch()  # the link is open
        sending = threading.Thread(target=sender.send_messages, args=(ServiceBusMessage("moved"),))
        sending.start()
        sending.join(0.3)
        assert sending.is_alive()
        assert contoso.counts(queue).total == 0
        broker.advance(timedelta(seconds=15))
        sending.join(20)
        assert not sending.is_alive()
    with client.get_queue_receiver(queue) as receiver:
        (moved,) = receiver.peek_messages(1)
    assert moved.sequence_number >> 48 == 1


@pytest.mark.spec("Q-9")
def test_repeated_peeking_shows_all_messages_and_ends(client, queue):
    send(client, queue, *(ServiceBusMessage(str(n)) for n in range(40)))
    with client.get_queue_receiver(queue) as receiver:
        shown = []
        while page := receiver.peek_messages(10):
            assert len(page) < 10  # all of one partition
            shown += [str(message) for message in page]
    assert sorted(shown, key=int) == [str(n) for n in range(40)]


@pytest.mark.spec("Q-8", "Q-10")
def test_scheduled_and_deferred_messages_of_several_partitions_are_found_by_number(client, contoso, queue):
    later = datetime.now(UTC) + timedelta(days=365)  # the clock of the shared broker may be ahead
    with client.get_queue_sender(queue) as sender:
        numbers = [sender.schedule_messages(ServiceBusMessage("later"), later)[0] for _ in range(3)]
        assert {number >> 48 for number in numbers} == {0, 1, 2}
        with pytest.raises(MessageNotFoundError, match=r"Missing sequence numbers: 77\."):
            sender.cancel_scheduled_messages([*numbers, 9 << 48 | 77])
        sender.cancel_scheduled_messages(numbers)
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        sender.send_messages(ServiceBusMessage("c"))
    assert contoso.counts(queue).scheduled == 0
    with client.get_queue_receiver(queue) as receiver:
        deferred = []
        while len(deferred) < 3:
            for message in receiver.receive_messages(3, max_wait_time=10):
                receiver.defer_message(message)
                deferred.append(message.sequence_number)
        again = receiver.receive_deferred_messages(deferred)
        assert [message.sequence_number for message in again] == deferred
        for message in again:
            receiver.complete_message(message)
    assert contoso.counts(queue).total == 0


@pytest.mark.slow
@pytest.mark.spec("Q-12")
def test_sessions_keep_their_order_and_their_state(client, make_queue):
    queue = make_queue(enable_partitioning=True, requires_session=True)
    send(client, queue, *(ServiceBusMessage(str(n), session_id=f"s-{n % 4}") for n in range(12)))
    with client.get_queue_receiver(queue, session_id="s-2") as receiver:
        receiver.session.set_state(b"half")
        messages = []
        while len(messages) < 3:
            messages += receiver.receive_messages(3, max_wait_time=10)
        assert [str(message) for message in messages] == ["2", "6", "10"]
        for message in messages:
            receiver.complete_message(message)
    found = set()
    for _ in range(3):
        with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=5) as receiver:
            found.add(receiver.session.session_id)
            for message in receiver.receive_messages(3, max_wait_time=10):
                receiver.complete_message(message)
    assert found == {"s-0", "s-1", "s-3"}
    with client.get_queue_receiver(queue, session_id="s-2") as receiver:
        assert bytes(receiver.session.get_state()) == b"half"


@pytest.mark.spec("Q-11")
def test_copies_are_dropped_only_if_their_keys_are_equal(client, contoso, make_queue):
    queue = make_queue(enable_partitioning=True, requires_duplicate_detection=True)
    for key in ("a", "a", "b", None, None):  # of partitions 3, 9, and that of the id
        send(client, queue, ServiceBusMessage("x", message_id="m-1", partition_key=key))
    assert contoso.counts(queue).active == 3


@pytest.mark.spec("Q-1", "Q-8")
def test_a_subscription_of_a_partitioned_topic_is_partitioned(client, contoso):
    contoso.create_topic("partitioned-events", enable_partitioning=True)
    contoso.create_subscription("partitioned-events", "billing")
    with client.get_topic_sender("partitioned-events") as sender:
        for _ in range(16):
            sender.send_messages(ServiceBusMessage("x"))
        with contoso.partition("partitioned-events", 3).take_down():
            with pytest.raises(ServiceBusError, match="Partition 3"):
                sender.send_messages(ServiceBusMessage("x", partition_key=key_of(3)))
            with client.get_subscription_receiver("partitioned-events", "billing") as receiver:
                found = []
                while len(found) < 15:
                    found += receiver.receive_messages(15, max_wait_time=20)
                assert {message.sequence_number >> 48 for message in found} == set(range(16)) - {3}
                assert receiver.receive_messages(1, max_wait_time=0.3) == []


def taken(contoso, connection) -> int:
    """Receive and lock over HTTP; return the status."""
    where = dict(part.partition("=")[::2] for part in contoso.connection_string.split(";"))
    token = make_token(
        "http://localhost/orders", where["SharedAccessKeyName"], where["SharedAccessKey"], 2_000_000_000
    )
    connection.request("POST", "/orders/messages/head?timeout=0", headers={"Authorization": token})
    answer = connection.getresponse()
    answer.read()
    return answer.status


def taken_anew(contoso) -> int:
    """Receive and lock over HTTP without keep-alive; return the status."""
    with closing(HTTPConnection("localhost", contoso.port, timeout=20)) as connection:
        return taken(contoso, connection)


@pytest.mark.spec("R-82")
@pytest.mark.parametrize("how", ["switch", "fault"])
def test_every_http_connection_has_its_own_cache(how):
    with Broker({"contoso": 0}, clock=ShiftedClock()) as broker, ExitStack() as stack:
        contoso = broker.namespace("contoso")
        if how == "switch":
            contoso.let_front_ends_cache()
        else:
            stack.enter_context(contoso.fault(None, FrontEndCache()))
        contoso.create_queue("orders", enable_partitioning=True)
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            send(client, "orders", *(ServiceBusMessage("x") for _ in range(3)))
        kept = HTTPConnection("localhost", contoso.port, timeout=20)
        assert taken(contoso, kept) == 201
        assert taken_anew(contoso) == 204
        assert taken(contoso, kept) == 201
        kept.close()
        assert taken_anew(contoso) == 204
        broker.advance(timedelta(minutes=1))  # the locks end, also of what the connection kept
        stack.close()
        contoso.let_front_ends_cache(False)
        found = [taken_anew(contoso) for _ in range(4)]
        assert found == [201, 201, 201, 204]


@pytest.mark.spec("Q-8", "Q-18")
def test_messages_cached_for_one_connection_are_not_given_to_another():
    with Broker({"contoso": 0}, clock=ShiftedClock()) as broker:
        contoso = broker.namespace("contoso")
        contoso.let_front_ends_cache()
        contoso.create_queue("orders", enable_partitioning=True)
        with (
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as one,
            ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as other,
        ):
            send(one, "orders", *(ServiceBusMessage("x") for _ in range(3)))
            with one.get_queue_receiver("orders") as mine, other.get_queue_receiver("orders") as theirs:
                mine.complete_message(mine.receive_messages(1, max_wait_time=10)[0])
                assert theirs.receive_messages(1, max_wait_time=0.3) == []
                mine.complete_message(mine.receive_messages(1, max_wait_time=10)[0])
                broker.advance(timedelta(minutes=1))  # the lock of what is left in the cache ends
                (came_back,) = theirs.receive_messages(1, max_wait_time=10)
                assert came_back.delivery_count == 1


@pytest.mark.spec("Q-2", "Q-3", "Q-17", "F-52")
def test_administration_needs_all_partitions_and_reports_limited(broker: Broker, contoso: NamespaceControl):
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as administration:
        path = fresh("spread")
        made = administration.create_queue(path, enable_partitioning=True, max_size_in_megabytes=5120)
        assert (made.enable_partitioning, made.max_size_in_megabytes) == (True, 81_920)
        made.lock_duration = timedelta(seconds=30)
        administration.update_queue(made)
        with contoso.partition(path, 9).take_down():
            assert administration.get_queue(path).availability_status == "Limited"
            assert administration.get_queue_runtime_properties(path).total_message_count == 0
            with pytest.raises(HttpResponseError, match="Partition 9"):
                administration.update_queue(made)
            with pytest.raises(HttpResponseError, match="Partition 9"):
                administration.delete_queue(path)
        assert administration.get_queue(path).availability_status == "Available"
        with contoso.store(9).take_down(), pytest.raises(HttpResponseError, match="Partition 9"):
            administration.create_queue("another", enable_partitioning=True)
        made.enable_partitioning = False
        with pytest.raises(HttpResponseError, match="Partitioning cannot be changed for Queue"):
            administration.update_queue(made)
        administration.delete_queue(path)


@pytest.mark.spec("Q-21")
@pytest.mark.parametrize("version", ["2013-10", "2024-05"])
def test_old_and_new_api_versions_show_partitioning(broker, contoso, version):
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string,
        connection_verify=str(broker.ca_file),
        api_version=version,
        retry_total=0,
    ) as administration:
        name = fresh(f"spread-{version}")
        administration.create_queue(name, enable_partitioning=True)
        assert administration.get_queue(name).enable_partitioning is True


@pytest.mark.spec("Q-15")
def test_a_message_forwarded_between_partitioned_queues_keeps_its_key_and_its_partition(client, make_queue):
    target = make_queue(enable_partitioning=True)
    source = make_queue(enable_partitioning=True, forward_to=target)
    send(client, source, *(ServiceBusMessage(str(n), partition_key=key_of(n)) for n in (3, 7, 11)))
    with client.get_queue_receiver(target) as receiver:
        messages = []
        while len(messages) < 3:
            messages += receiver.receive_messages(3, max_wait_time=10)

    assert {m.partition_key: m.sequence_number >> 48 for m in messages} == {key_of(n): n for n in (3, 7, 11)}


@pytest.mark.spec("Q-19", "F-54")
def test_a_message_on_a_partitioned_premium_namespace_has_at_most_one_megabyte():
    with Broker({"contoso": 0}, partitions={"contoso": 2}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders", enable_partitioning=True)
        with (
            ServiceBusAdministrationClient.from_connection_string(
                contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
            ) as administration,
            pytest.raises(HttpResponseError, match="at most 1024 on a partitioned namespace"),
        ):
            administration.create_queue("big", enable_partitioning=True, max_message_size_in_kilobytes=1025)
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            with pytest.raises(MessageSizeExceededError):
                send(client, "orders", ServiceBusMessage(b"x" * (1 << 20)))
            send(client, "orders", ServiceBusMessage(b"x" * 1_000_000))
            assert contoso.counts("orders").active == 1


@pytest.mark.spec("Q-20")
def test_a_send_to_and_a_receive_from_16_partitions_each_count_as_one_operation():
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders", enable_partitioning=True)
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            send(client, "orders", ServiceBusMessage("x"))
            with client.get_queue_receiver("orders") as receiver:
                assert len(receiver.receive_messages(1, max_wait_time=10)) == 1
        assert (contoso.operations.sends, contoso.operations.receives) == (1, 1)


@pytest.mark.spec("Q-2", "R-85")
def test_every_entity_of_a_partitioned_premium_namespace_is_partitioned():
    with Broker({"contoso": 0}, partitions={"contoso": 2}) as broker:
        contoso = broker.namespace("contoso")
        with ServiceBusAdministrationClient.from_connection_string(
            contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
        ) as administration:
            assert administration.get_namespace_properties().messaging_sku == "Premium"
            with pytest.raises(HttpResponseError, match="Non-partitioned entities are not allowed"):
                administration.create_queue("plain", enable_partitioning=False)
            administration.create_queue("orders")
            assert administration.get_queue("orders").enable_partitioning
            administration.create_topic("prices")
            assert administration.get_topic("prices").enable_partitioning
            contoso.create_queue("made-here")
            contoso.create_topic("made-here-too")
            assert administration.get_queue("made-here").enable_partitioning
            assert administration.get_topic("made-here-too").enable_partitioning
        with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
            send(client, "orders", *(ServiceBusMessage("x") for _ in range(4)))
            with client.get_queue_receiver("orders") as receiver:
                shown = receiver.peek_messages(4) + receiver.peek_messages(4)
                assert [message.sequence_number >> 48 for message in shown] == [0, 0, 1, 1]
