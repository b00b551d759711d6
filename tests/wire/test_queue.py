"""The unmodified blocking SDK on a queue: what is sent is received, and each settlement does what it says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessageSizeExceededError,
    ServiceBusAuthenticationError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from sbpair.broker import Broker
from tests.wire.elsewhere import fresh

DELETE = ServiceBusReceiveMode.RECEIVE_AND_DELETE


def send(client, queue, *messages):
    with client.get_queue_sender(queue) as sender:
        for message in messages:
            sender.send_messages(message)


def receive_all(client, queue, most=100, wait=20.0, **how):
    """What is there, and gone after; ``wait`` seconds at most for the first of it."""
    with client.get_queue_receiver(queue, receive_mode=DELETE, **how) as receiver:
        return receiver.receive_messages(most, max_wait_time=wait)


def texts(messages):
    return [str(message) for message in messages]


class TestSending:
    @pytest.mark.does("send", "receive-and-delete")
    def test_one_message_arrives_with_all_it_carried(self, client, contoso, queue):
        sent = ServiceBusMessage(
            b"body",
            application_properties={"count": 3, "name": "x", "yes": True, "raw": b"\x00x"},
            message_id="one",
            correlation_id="other",
            subject="subject",
            content_type="text/plain",
            reply_to="back",
            to="there",
            partition_key="key",
            time_to_live=timedelta(minutes=5),
        )
        send(client, queue, sent)

        (got,) = receive_all(client, queue)
        assert b"".join(got.body) == b"body"
        assert got.application_properties == {b"count": 3, b"name": b"x", b"yes": True, b"raw": b"\x00x"}
        assert (got.message_id, got.correlation_id, got.subject) == ("one", "other", "subject")
        assert (got.content_type, got.reply_to, got.to) == ("text/plain", "back", "there")
        assert (got.partition_key, got.time_to_live) == ("key", timedelta(minutes=5))
        assert got.expires_at_utc - got.enqueued_time_utc == timedelta(minutes=5)
        assert (got.sequence_number, got.delivery_count) == (1, 0)

    def test_a_list_is_sent_as_one_batch_in_order(self, client, contoso, queue):
        send(client, queue, [ServiceBusMessage(str(i)) for i in range(250)])

        assert contoso.counts(queue).active == 250
        got = []
        while len(got) < 250:
            got += receive_all(client, queue, 250 - len(got))
        assert texts(got) == [str(i) for i in range(250)]

    @pytest.mark.does("batch")
    def test_a_batch_object_is_taken_whole(self, client, contoso, queue):
        with client.get_queue_sender(queue) as sender:
            batch = sender.create_message_batch()
            for i in range(10):
                batch.add_message(ServiceBusMessage(str(i), message_id=f"id-{i}"))
            sender.send_messages(batch)

        assert [got.message_id for got in receive_all(client, queue)] == [f"id-{i}" for i in range(10)]

    @pytest.mark.parametrize("value", [None, 0, "", {"a": [1, 2]}, [1, "x"]])
    def test_a_value_body_is_delivered_as_it_came_even_when_it_is_none(self, client, queue, value):
        send(client, queue, AmqpAnnotatedMessage(value_body=value))

        (got,) = receive_all(client, queue)
        if value:
            assert got.body_type is AmqpMessageBodyType.VALUE
        assert got.message_id  # given by the broker: the sender had none

    def test_a_message_of_several_frames_arrives_whole(self):
        body = bytes(range(256)) * 12_000  # 3 MB: more than one frame of 1 MiB
        with Broker({"contoso": 0}, tier="Premium") as broker:
            large = broker.namespace("contoso")
            large.create_queue("large", max_message_size_in_kilobytes=4096)
            with ServiceBusClient.from_connection_string(large.connection_string) as client:
                send(client, "large", ServiceBusMessage(body))
                (got,) = receive_all(client, "large")
                assert b"".join(got.body) == body

    def test_a_message_over_the_limit_is_refused(self, client, queue, contoso):
        with client.get_queue_sender(queue) as sender:
            with pytest.raises(MessageSizeExceededError):
                sender.send_messages(ServiceBusMessage(bytes(300 * 1024)))
            sender.send_messages(ServiceBusMessage("small"))  # the link lives

        assert contoso.counts(queue).active == 1

    def test_a_full_queue_refuses_messages_batches_and_schedules_until_there_is_room(
        self, client, make_queue
    ):
        queue = make_queue(max_size_in_megabytes=1)
        large, soon = ServiceBusMessage(bytes(250 * 1024)), datetime.now(UTC) + timedelta(hours=1)
        with client.get_queue_sender(queue) as sender:
            for _ in range(4):
                sender.send_messages(large)
            for refused in (large, [large]):
                with pytest.raises(ServiceBusQuotaExceededError, match="maximum entity size"):
                    sender.send_messages(refused)
            with pytest.raises(ServiceBusQuotaExceededError, match="maximum entity size"):
                sender.schedule_messages(large, soon)
            assert len(receive_all(client, queue, 1)) == 1
            sender.send_messages(large)

    def test_a_queue_that_is_not_there_is_an_authentication_error_as_in_the_cloud(self, client):
        with pytest.raises(ServiceBusAuthenticationError), client.get_queue_sender("nowhere") as sender:
            sender.send_messages(ServiceBusMessage("x"))

    def test_a_path_with_slashes_works_as_any_other(self, client, contoso):
        path = f"{fresh('contoso')}/x-servicebus-transfer/0"
        contoso.create_queue(path)
        send(client, path, ServiceBusMessage("parked"))

        assert texts(receive_all(client, path.upper())) == ["parked"]

    def test_a_deleted_queue_detaches_its_links(self, client, contoso, queue):
        with client.get_queue_sender(queue) as sender:
            sender.send_messages(ServiceBusMessage("x"))
            contoso.delete_queue(queue)
            with pytest.raises(ServiceBusError):
                sender.send_messages(ServiceBusMessage("y"))


class TestSettling:
    @pytest.mark.does("receive", "complete")
    def test_complete_removes_the_message(self, client, contoso, queue):
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            receiver.complete_message(got)

        assert contoso.counts(queue).total == 0

    @pytest.mark.does("abandon")
    def test_abandon_brings_it_back_one_delivery_richer(self, client, queue):
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            assert got.delivery_count == 0
            receiver.abandon_message(got)
            (again,) = receiver.receive_messages(1)
            assert again.delivery_count == 1
            receiver.complete_message(again)

    @pytest.mark.does("dead-letter")
    def test_dead_letter_keeps_reason_and_description(self, client, contoso, queue):
        send(client, queue, ServiceBusMessage("bad", application_properties={"mine": 1}))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            receiver.dead_letter_message(got, reason="poison", error_description="it was bad")
        assert contoso.counts(queue).dead_letter == 1

        (buried,) = receive_all(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert str(buried) == "bad"
        assert (buried.dead_letter_reason, buried.dead_letter_error_description) == ("poison", "it was bad")
        assert buried.dead_letter_source is None  # it was not forwarded
        assert buried.application_properties[b"mine"] == 1

    def test_a_dead_lettered_message_can_be_settled_too(self, client, contoso, queue):
        send(client, queue, ServiceBusMessage("bad"))
        with client.get_queue_receiver(queue) as receiver:
            receiver.dead_letter_message(receiver.receive_messages(1)[0])
        with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
            (buried,) = graves.receive_messages(1)
            assert buried.dead_letter_reason is None
            graves.abandon_message(buried)
            graves.complete_message(graves.receive_messages(1)[0])

        assert contoso.counts(queue).total == 0

    @pytest.mark.does("defer")
    def test_defer_sets_it_aside_for_its_number(self, client, queue):
        send(client, queue, ServiceBusMessage("later"))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            receiver.defer_message(got)
            assert receiver.receive_messages(1, max_wait_time=0.3) == []
            (deferred,) = receiver.receive_deferred_messages(got.sequence_number)
            assert str(deferred) == "later"
            receiver.complete_message(deferred)

    def test_one_delivery_too_many_goes_to_the_dead_letter_queue(self, client, make_queue):
        queue = make_queue(max_delivery_count=2)
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            for _ in range(2):
                receiver.abandon_message(receiver.receive_messages(1)[0])

        (buried,) = receive_all(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert buried.dead_letter_reason == "MaxDeliveryCountExceeded"

    def test_settling_when_the_lock_has_ended_raises(self, client, contoso, broker, make_queue):
        queue = make_queue(lock_duration=300_000)  # the SDK looks at its own clock first: keep the lock long
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            broker.advance(timedelta(minutes=5))
            with pytest.raises(MessageLockLostError):
                receiver.complete_message(got)

        assert contoso.counts(queue).active == 1

    @pytest.mark.does("renew")
    def test_a_renewed_lock_holds_longer(self, client, contoso, broker, make_queue):
        queue = make_queue(lock_duration=60_000)
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            before = got.locked_until_utc
            broker.advance(timedelta(seconds=50))
            longer = receiver.renew_message_lock(got) - before
            assert timedelta(seconds=50) <= longer < timedelta(seconds=60)
            broker.advance(timedelta(seconds=50))
            receiver.complete_message(got)

        assert contoso.counts(queue).total == 0

    def test_a_lock_outlives_its_connection(self, client, contoso, queue, forgiving_of_sockets):
        send(client, queue, ServiceBusMessage("x"))
        patient = ServiceBusClient.from_connection_string(contoso.connection_string)
        with patient, patient.get_queue_receiver(queue) as receiver:
            (got,) = receiver.receive_messages(1)
            contoso.take_down("reset")
            contoso.bring_up()
            receiver.complete_message(got)  # the SDK settles through $management, on a new connection

        assert contoso.counts(queue).total == 0

    def test_messages_left_in_a_receivers_buffer_cost_no_delivery(self, client, queue):
        send(client, queue, [ServiceBusMessage(str(i)) for i in range(20)])
        with client.get_queue_receiver(queue, prefetch_count=20) as receiver:
            receiver.complete_message(receiver.receive_messages(1)[0])

        with client.get_queue_receiver(queue) as receiver:
            left = receiver.receive_messages(19, max_wait_time=20)
            assert [message.delivery_count for message in left] == [0] * 19

    def test_receive_and_delete_needs_no_settlement(self, client, contoso, queue):
        send(client, queue, ServiceBusMessage("x"))

        assert texts(receive_all(client, queue)) == ["x"]
        assert contoso.counts(queue).total == 0


class TestLooking:
    @pytest.mark.does("peek")
    def test_peek_shows_what_is_locked_and_what_is_scheduled(self, client, broker, queue):
        when = datetime.now(UTC) + timedelta(days=365)
        send(client, queue, ServiceBusMessage("a"), ServiceBusMessage("b", scheduled_enqueue_time_utc=when))
        with client.get_queue_receiver(queue) as receiver:
            (locked,) = receiver.receive_messages(1)
            assert texts(receiver.peek_messages(10, sequence_number=1)) == ["a", "b"]
            receiver.complete_message(locked)
            (scheduled,) = receiver.peek_messages(10, sequence_number=1)
            assert scheduled.scheduled_enqueue_time_utc is not None

    def test_peeking_at_an_empty_queue_finds_nothing(self, client, queue):
        with client.get_queue_receiver(queue) as receiver:
            assert receiver.peek_messages(5) == []


class TestTime:
    @pytest.mark.spec("T-2", "T-4", "T-10")
    def test_an_expired_message_is_found_in_the_dead_letter_queue_once_somebody_listens(
        self, client, contoso, broker, make_queue
    ):
        queue = make_queue(dead_lettering_on_message_expiration=True)
        send(client, queue, ServiceBusMessage("old", time_to_live=timedelta(seconds=10)))
        broker.advance(timedelta(seconds=10))
        assert contoso.counts(queue).active == 1

        assert receive_all(client, queue, wait=0.3) == []
        assert contoso.counts(queue).active == 0
        (buried,) = receive_all(client, queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER)
        assert buried.dead_letter_reason == "TTLExpiredException"

    @pytest.mark.spec("T-7")
    def test_the_entitys_time_to_live_shows_on_a_receive_and_not_on_a_peek(self, client, make_queue):
        queue = make_queue(default_message_time_to_live=60_000)
        send(client, queue, ServiceBusMessage("x"))
        with client.get_queue_receiver(queue) as receiver:
            assert receiver.peek_messages(1)[0].time_to_live is None
            (got,) = receiver.receive_messages(1)
            assert got.time_to_live == timedelta(minutes=1)
            assert got.expires_at_utc == got.enqueued_time_utc + timedelta(minutes=1)
            receiver.complete_message(got)

    @pytest.mark.spec("T-7")
    def test_a_messages_own_time_to_live_shows_on_both(self, client, queue):
        send(client, queue, ServiceBusMessage("x", time_to_live=timedelta(minutes=3)))
        with client.get_queue_receiver(queue) as receiver:
            (peeked,), (got,) = receiver.peek_messages(1), receiver.receive_messages(1)
            assert peeked.expires_at_utc == got.expires_at_utc == got.enqueued_time_utc + timedelta(minutes=3)
            receiver.complete_message(got)

    def test_a_scheduled_message_reaches_a_waiting_receiver_at_its_time(self, client, broker, queue):
        when = datetime.fromtimestamp(broker._clock.now() / 1000, UTC) + timedelta(hours=30)
        send(client, queue, ServiceBusMessage("later", scheduled_enqueue_time_utc=when))
        assert receive_all(client, queue, wait=0.3) == []

        broker.advance(timedelta(hours=31))
        (got,) = receive_all(client, queue)
        assert got.enqueued_time_utc == got.scheduled_enqueue_time_utc

    @pytest.mark.spec("P-30", "P-31", "P-34")
    def test_a_ping_is_accepted_and_seen_by_nobody(self, client, contoso, queue):
        before = contoso.operations
        ping = ServiceBusMessage(
            b"", content_type="application/vnd.ms-servicebus-ping", time_to_live=timedelta(seconds=1)
        )
        send(client, queue, ping, ServiceBusMessage("real"))

        assert texts(receive_all(client, queue)) == ["real"]
        after = contoso.operations
        assert (after.pings - before.pings, after.sends - before.sends) == (1, 1)

    @pytest.mark.spec("P-43")
    def test_operations_are_counted_one_for_each_send_and_each_receive(self, client, contoso, queue):
        before = contoso.operations
        send(client, queue, [ServiceBusMessage(str(i)) for i in range(5)])
        assert len(receive_all(client, queue)) == 5
        after = contoso.operations

        assert (after.sends - before.sends, after.receives - before.receives) == (5, 5)
        assert after.billed - before.billed == 10
