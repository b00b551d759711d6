"""The unmodified SDK defers messages and receives them by their sequence numbers only."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import (
    ServiceBusMessage,
    ServiceBusMessageState,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError


@pytest.fixture
def aside(client, queue):
    """The sequence numbers of three deferred messages."""
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(str(i)) for i in range(3)])
    with client.get_queue_receiver(queue) as receiver:
        messages = receiver.receive_messages(3)
        for message in messages:
            receiver.defer_message(message)
    return [message.sequence_number for message in messages]


def test_deferred_messages_are_received_by_number_under_locks(client, contoso, queue, aside):
    assert contoso.counts(queue).deferred == 3
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        shown = receiver.peek_messages(9, sequence_number=1)
        assert {message.state for message in shown} == {ServiceBusMessageState.DEFERRED}
        first, second = receiver.receive_deferred_messages(aside[:2])
        assert (str(first), str(second), first.lock_token is not None) == ("0", "1", True)
        assert first.state is ServiceBusMessageState.DEFERRED
        assert receiver.renew_message_lock(first)
        receiver.complete_message(first)
        receiver.dead_letter_message(second, reason="poison")
        with pytest.raises(MessageNotFoundError, match=f"Missing sequence numbers: {aside[0]}, {aside[1]}"):
            receiver.receive_deferred_messages(aside)
        (third,) = receiver.receive_deferred_messages(aside[2])
        receiver.abandon_message(third)
        (third,) = receiver.receive_deferred_messages(
            aside[2]
        )  # still deferred, with a higher delivery count
        assert third.delivery_count == 2
        receiver.defer_message(third)
    counts = contoso.counts(queue)
    assert (counts.deferred, counts.active, counts.dead_letter) == (1, 0, 1)


@pytest.mark.spec("X-1", "X-2")
def test_deferring_counts_a_delivery_except_in_a_dead_letter_queue(client, queue, aside):
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_deferred_messages(aside[0])
        assert message.delivery_count == 1
        receiver.dead_letter_message(message)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
        for _ in range(3):
            (dead,) = graves.receive_messages(1)
            assert dead.delivery_count == 1
            graves.abandon_message(dead)


def test_receive_and_delete_removes_deferred_messages(client, contoso, queue, aside):
    with client.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        assert [str(message) for message in receiver.receive_deferred_messages(aside)] == ["0", "1", "2"]
    assert contoso.counts(queue).total == 0


def test_a_deferred_message_with_an_expired_lock_stays_deferred(client, contoso, queue, aside, broker):
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_deferred_messages(aside[0])
        broker.advance(timedelta(seconds=61))
        with pytest.raises(MessageLockLostError):
            receiver.complete_message(message)
        (again,) = receiver.receive_deferred_messages(aside[0])
        assert again.delivery_count == 2
        receiver.complete_message(again)


def test_an_expired_deferred_message_is_dead_lettered_on_access(client, contoso, make_queue, broker):
    queue = make_queue(dead_lettering_on_message_expiration=True)
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
    with client.get_queue_receiver(queue) as receiver:
        (message,) = receiver.receive_messages(1)
        receiver.defer_message(message)
        broker.advance(timedelta(minutes=2))
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        assert contoso.counts(queue).deferred == 1
        with pytest.raises(MessageNotFoundError):
            receiver.receive_deferred_messages(message.sequence_number)
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as graves:
        (grave,) = graves.receive_messages(1)
        assert grave.dead_letter_reason == "TTLExpiredException"
