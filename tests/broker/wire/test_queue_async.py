"""The unmodified asyncio SDK on a queue."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusAuthenticationError

from sbpair.broker import NamespaceControl


@pytest.fixture
async def client(contoso: NamespaceControl) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as opened:
        yield opened


@pytest.mark.does(
    "send",
    "batch",
    "receive",
    "receive-and-delete",
    "complete",
    "abandon",
    "defer",
    "dead-letter",
    "renew",
    "peek",
)
async def test_sent_messages_are_received_and_every_settlement_is_answered(client, contoso, queue):
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("first"))
        await sender.send_messages([ServiceBusMessage(str(i)) for i in range(4)])
        batch = await sender.create_message_batch()
        batch.add_message(ServiceBusMessage("last"))
        await sender.send_messages(batch)
    async with client.get_queue_receiver(queue) as receiver:
        messages = await receiver.receive_messages(6)
        assert [str(message) for message in messages] == ["first", "0", "1", "2", "3", "last"]
        await receiver.complete_message(messages[0])
        await receiver.abandon_message(messages[1])
        await receiver.dead_letter_message(messages[2], reason="poison")
        await receiver.defer_message(messages[3])
        assert await receiver.renew_message_lock(messages[4])
        await receiver.complete_message(messages[4])
        await receiver.complete_message(messages[5])
        (again,) = await receiver.receive_messages(1)
        assert (str(again), again.delivery_count) == ("0", 1)
        (deferred,) = await receiver.receive_deferred_messages(messages[3].sequence_number)
        await receiver.complete_message(deferred)
        assert [str(peeked) for peeked in await receiver.peek_messages(9, sequence_number=1)] == ["0"]
        await receiver.complete_message(again)
    counts = contoso.counts(queue)
    assert (counts.active, counts.deferred, counts.dead_letter) == (0, 0, 1)

    graves = client.get_queue_receiver(
        queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    async with graves:
        (buried,) = await graves.receive_messages(1)
        assert buried.dead_letter_reason == "poison"
    assert contoso.counts(queue).total == 0


async def test_a_send_wakes_a_waiting_receiver(client, queue):
    async with client.get_queue_receiver(queue) as receiver, client.get_queue_sender(queue) as sender:
        waiting = asyncio.create_task(receiver.receive_messages(1, max_wait_time=20))
        await asyncio.sleep(0)
        await sender.send_messages(ServiceBusMessage("x"))
        (got,) = await asyncio.wait_for(waiting, 30)
        await receiver.complete_message(got)


async def test_an_expired_lock_wakes_a_waiting_receiver(client, contoso, broker, make_queue):
    queue = make_queue(lock_duration=5_000)
    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages(ServiceBusMessage("x"))
    async with client.get_queue_receiver(queue) as holder, client.get_queue_receiver(queue) as other:
        assert len(await holder.receive_messages(1)) == 1
        waiting = asyncio.create_task(other.receive_messages(1, max_wait_time=20))
        polls = contoso.operations.polls
        while contoso.operations.polls == polls:  # until the broker has its credit
            await asyncio.sleep(0.01)
        broker.advance(timedelta(seconds=5))
        (got,) = await asyncio.wait_for(waiting, 30)
        assert got.delivery_count == 1


async def test_receivers_of_one_queue_share_its_messages_without_duplicates(client, queue):
    taken: list[str] = []

    async def take(count: int) -> None:
        async with client.get_queue_receiver(
            queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
        ) as receiver:
            while len(taken) < 300:
                messages = await receiver.receive_messages(count, max_wait_time=0.3)
                taken.extend(str(message) for message in messages)

    async with client.get_queue_sender(queue) as sender:
        await sender.send_messages([ServiceBusMessage(str(i)) for i in range(300)])
    await asyncio.gather(*(take(20) for _ in range(3)))

    assert sorted(map(int, taken)) == list(range(300))


async def test_a_wrong_key_is_refused(contoso, queue):
    key = contoso.connection_string.split("SharedAccessKey=")[1].split(";")[0]
    wrong = contoso.connection_string.replace(key, "bm90IHRoZSBrZXk=")
    async with ServiceBusClient.from_connection_string(wrong, retry_total=0) as client:
        with pytest.raises(ServiceBusAuthenticationError):
            await client.get_queue_sender(queue).__aenter__()
