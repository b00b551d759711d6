"""The unmodified SDK schedules, cancels and receives scheduled messages."""

from __future__ import annotations

from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageState
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.exceptions import MessageNotFoundError

from tests.broker.wire.elsewhere import entity_time


def in_an_hour(contoso):
    """Return the time an hour from now on the broker's clock, which earlier tests advanced."""
    return entity_time(contoso) + timedelta(hours=1)


@pytest.mark.does("schedule")
def test_scheduled_messages_arrive_when_due_with_new_numbers(client, contoso, queue, broker):
    at = in_an_hour(contoso)
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage(str(i)) for i in range(3)], at)
        assert numbers == [1, 2, 3]
        assert sender.schedule_messages(ServiceBusMessage("single"), at) == [4]
    assert (contoso.counts(queue).scheduled, contoso.counts(queue).active) == (4, 0)
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
        shown = receiver.peek_messages(9, sequence_number=1)
        assert {message.state for message in shown} == {ServiceBusMessageState.SCHEDULED}
        broker.advance(timedelta(hours=1, seconds=1))
        messages = receiver.receive_messages(4)
        assert [message.sequence_number for message in messages] == [5, 6, 7, 8]
        assert [message.enqueued_sequence_number for message in messages] == [1, 2, 3, 4]
        assert abs(messages[0].enqueued_time_utc - at) < timedelta(milliseconds=1)
        assert messages[0].state is ServiceBusMessageState.SCHEDULED


@pytest.mark.does("cancel")
def test_a_cancelled_message_does_not_arrive(client, contoso, queue, broker):
    at = in_an_hour(contoso)
    with client.get_queue_sender(queue) as sender:
        numbers = sender.schedule_messages([ServiceBusMessage(str(i)) for i in range(3)], at)
        sender.cancel_scheduled_messages(numbers[1])
        with pytest.raises(MessageNotFoundError, match="Missing sequence numbers: 2"):
            sender.cancel_scheduled_messages(numbers)
        assert contoso.counts(queue).scheduled == 2
        sender.cancel_scheduled_messages([numbers[0], numbers[2]])
    assert contoso.counts(queue).total == 0


@pytest.mark.spec("T-5")
def test_the_time_to_live_counts_from_the_scheduled_time(client, contoso, queue, broker):
    at = in_an_hour(contoso)
    with client.get_queue_sender(queue) as sender:
        sender.schedule_messages(ServiceBusMessage("x", time_to_live=timedelta(minutes=10)), at)
    with client.get_queue_receiver(queue) as receiver:
        broker.advance(timedelta(hours=1, minutes=9))
        (message,) = receiver.receive_messages(1)
        assert message.expires_at_utc == message.enqueued_time_utc + timedelta(minutes=10)
        receiver.abandon_message(message)
        broker.advance(timedelta(minutes=1))
        assert receiver.receive_messages(1, max_wait_time=0.3) == []
    assert contoso.counts(queue).total == 0


@pytest.mark.does("schedule", "cancel")
async def test_the_asyncio_client_schedules_and_cancels(contoso, queue, broker):
    at = in_an_hour(contoso)
    async with (
        AsyncClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
        client.get_queue_sender(queue) as sender,
    ):
        numbers = await sender.schedule_messages([ServiceBusMessage("a"), ServiceBusMessage("b")], at)
        await sender.cancel_scheduled_messages(numbers[0])
    assert contoso.counts(queue).scheduled == 1
