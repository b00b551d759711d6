"""Message sessions with the unmodified SDK: accept, receive in order, set the state, lose the lock."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    AutoLockRenewer,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusError,
    SessionCannotBeLockedError,
    SessionLockLostError,
)

from tests.broker.wire.elsewhere import entity_time


@pytest.fixture
def queue(make_queue):
    """The path of a queue that requires sessions."""
    return make_queue(requires_session=True)


def send(client, queue, *session_ids):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            [ServiceBusMessage(str(i), session_id=session_id) for i, session_id in enumerate(session_ids)]
        )


def texts(messages):
    return [str(message) for message in messages]


@pytest.mark.does("sessions")
def test_a_receiver_of_a_named_session_gets_only_that_session_in_order(client, queue, contoso, broker):
    send(client, queue, "a", "b", "a", "b", "a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        messages = receiver.receive_messages(5, max_wait_time=20)

        assert texts(messages) == ["0", "2", "4"]
        assert {message.session_id for message in messages} == {"a"}
        assert receiver.session.session_id == "a"
        now = entity_time(contoso)  # earlier tests advanced the clock
        left = receiver.session.locked_until_utc - now
        assert timedelta(seconds=50) < left <= timedelta(seconds=60)
        for message in messages:
            receiver.complete_message(message)
    assert contoso.counts(queue).active == 2


@pytest.mark.does("sessions")
def test_the_next_available_sessions_are_accepted_one_after_another(client, queue):
    send(client, queue, "a", "b")
    with (
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as first,
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as second,
    ):
        assert [first.session.session_id, second.session.session_id] == ["a", "b"]
        with (
            pytest.raises(OperationTimeoutError, match="within the allotted timeout"),
            client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5),
        ):
            pass


def test_a_receiver_waiting_for_a_session_gets_the_next_one(client, queue, contoso):
    got = []

    def wait():
        with client.get_queue_receiver(
            queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=20
        ) as receiver:
            got.append(receiver.session.session_id)

    waiting = threading.Thread(target=wait)
    waiting.start()
    send(client, queue, "late")
    waiting.join(20)
    assert got == ["late"]


def test_a_session_is_held_by_one_receiver_until_it_closes(client, queue):
    send(client, queue, "a")
    with client.get_queue_receiver(queue, session_id="a") as holder:
        assert len(holder.receive_messages(1)) == 1
        with (
            pytest.raises(SessionCannotBeLockedError, match="The requested session 'a' cannot be accepted"),
            client.get_queue_receiver(queue, session_id="a"),
        ):
            pass
    with client.get_queue_receiver(queue, session_id="a") as holder:
        (again,) = holder.receive_messages(1)
        assert again.delivery_count == 0  # closed, not lost


def test_every_settlement_has_its_effect(client, queue, contoso):
    send(client, queue, *"aaaaa")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        complete, abandon, defer, bury, keep = receiver.receive_messages(5)
        receiver.complete_message(complete)
        receiver.abandon_message(abandon)
        receiver.defer_message(defer)
        receiver.dead_letter_message(bury, reason="poison")
        receiver.complete_message(keep)
        (again,) = receiver.receive_messages(1)
        assert (str(again), again.delivery_count) == ("1", 1)
        receiver.complete_message(again)
        (deferred,) = receiver.receive_deferred_messages(defer.sequence_number)
        receiver.complete_message(deferred)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
        (grave,) = graves.receive_messages(1)
        assert (str(grave), grave.session_id, grave.dead_letter_reason) == ("3", "a", "poison")
        graves.complete_message(grave)
    assert contoso.counts(queue).total == 0


@pytest.mark.does("sessions")
def test_a_state_outlives_its_messages(client, queue):
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert not receiver.session.get_state()
        receiver.session.set_state("step 2")
    assert list(client.list_queue_sessions(queue)) == ["a"]
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert receiver.session.get_state() == b"step 2"
        receiver.session.set_state(None)
    assert list(client.list_queue_sessions(queue)) == []


def test_sessions_are_listed_by_pages_and_by_when_their_state_was_set(client, queue):
    names = [f"s{i:03}" for i in range(120)]
    send(client, queue, *names)
    assert sorted(client.list_queue_sessions(queue)) == names

    before = datetime.now(UTC) - timedelta(hours=1)
    assert list(client.list_queue_sessions(queue, state_updated_after=before)) == []
    with client.get_queue_receiver(queue, session_id="s007") as receiver:
        receiver.session.set_state(b"x")
    assert list(client.list_queue_sessions(queue, state_updated_after=before)) == ["s007"]


@pytest.mark.does("sessions")
def test_a_session_lock_is_renewed_manually_and_by_the_renewer(client, queue):
    with AutoLockRenewer() as renewer, client.get_queue_receiver(queue, session_id="a") as receiver:
        before = receiver.session.locked_until_utc
        assert receiver.session.renew_lock() >= before
        renewer.register(receiver, receiver.session, max_lock_renewal_duration=60)
        assert receiver.session.auto_renew_error is None


def test_an_expired_session_lock_ends_the_receiver_and_counts_a_delivery(client, queue, broker):
    send(client, queue, "a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        (message,) = receiver.receive_messages(1)
        broker.advance(timedelta(seconds=61))
        with pytest.raises(SessionLockLostError):
            receiver.complete_message(message)
        with pytest.raises(SessionLockLostError):
            receiver.receive_messages(1, max_wait_time=20)
    with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
        (again,) = receiver.receive_messages(1)
        assert again.delivery_count == 1


def test_sends_and_receives_without_a_session_are_refused(client, queue, contoso):
    with (
        client.get_queue_sender(queue) as sender,
        pytest.raises(ServiceBusError, match="The SessionId was not set on a message, and it cannot be sent"),
    ):
        sender.send_messages(ServiceBusMessage("x"))
    with (
        pytest.raises(ServiceBusError, match="requires sessions"),
        client.get_queue_receiver(queue),
    ):
        pass
    assert contoso.counts(queue).total == 0


def test_a_peek_shows_the_session_of_the_receiver(client, queue):
    send(client, queue, "a", "b", "a")
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        assert texts(receiver.peek_messages(9, sequence_number=1)) == ["0", "2"]


@pytest.mark.spec("P-31")
def test_a_pings_session_is_neither_offered_nor_listed(client, queue):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            ServiceBusMessage(
                b"",
                session_id="ping",
                content_type="application/vnd.ms-servicebus-ping",
                time_to_live=timedelta(seconds=1),
            )
        )
    assert list(client.list_queue_sessions(queue)) == []
    with (
        pytest.raises(OperationTimeoutError),
        client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=0.5),
    ):
        pass


@pytest.mark.does("sessions")
async def test_the_asyncio_client_uses_sessions(contoso, queue):
    async with AsyncClient.from_connection_string(contoso.connection_string, retry_total=0) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage(str(i), session_id="a") for i in range(3)])
        async with client.get_queue_receiver(queue, session_id=NEXT_AVAILABLE_SESSION) as receiver:
            messages = await receiver.receive_messages(3)
            assert texts(messages) == ["0", "1", "2"]
            await receiver.session.set_state("noted")
            assert await receiver.session.get_state() == b"noted"
            assert await receiver.session.renew_lock()
            await receiver.defer_message(messages[0])
            await receiver.complete_message(messages[1])
            await receiver.complete_message(messages[2])
            (deferred,) = await receiver.receive_deferred_messages(messages[0].sequence_number)
            await receiver.complete_message(deferred)
        async with client.get_queue_receiver(queue, session_id="a") as receiver:
            assert await receiver.session.get_state() == b"noted"
        assert [name async for name in client.list_queue_sessions(queue)] == ["a"]
        with pytest.raises(ServiceBusError, match="requires sessions"):
            async with client.get_queue_receiver(
                queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
            ):
                pass
    assert contoso.counts(queue).total == 0


@pytest.mark.spec("X-7")
def test_the_empty_session_id_is_valid_beside_a_partition_key(client, queue):
    message = ServiceBusMessage("x", session_id="")
    message.raw_amqp_message.annotations = {"x-opt-partition-key": "key"}
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(message)
        other = ServiceBusMessage("y", session_id="a")
        other.raw_amqp_message.annotations = {"x-opt-partition-key": "key"}
        with pytest.raises(ServiceBusError, match="differ"):
            sender.send_messages(other)
    with client.get_queue_receiver(queue, session_id="") as receiver:
        (received,) = receiver.receive_messages(1)
        assert (str(received), received.session_id, received.partition_key) == ("x", "", "key")
        receiver.session.set_state("kept")
        assert receiver.session.get_state() == b"kept"


@pytest.mark.spec("X-9")
def test_an_empty_session_state_reads_as_none(client, queue):
    with client.get_queue_receiver(queue, session_id="a") as receiver:
        receiver.session.set_state(b"something")
        receiver.session.set_state(b"")
        assert receiver.session.get_state() is None
