"""The unmodified asyncio SDK on partitioned queues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from sbpair.broker import NamespaceControl
from sbpair.broker.entities.partition import index_of


@pytest.fixture
async def client(contoso: NamespaceControl) -> AsyncIterator[ServiceBusClient]:
    async with ServiceBusClient.from_connection_string(contoso.connection_string, retry_total=0) as opened:
        yield opened


@pytest.fixture
def queue(make_queue: Callable[..., str]) -> str:
    return make_queue(enable_partitioning=True)


@pytest.mark.spec("Q-4", "Q-5", "Q-8", "Q-9", "Q-10")
async def test_an_unavailable_partition_fails_keyed_but_not_unkeyed_messages(client, contoso, queue):
    keys = {index_of(f"key-{n}", 16): f"key-{n}" for n in range(200)}
    async with client.get_queue_sender(queue) as sender, client.get_queue_receiver(queue) as receiver:
        with contoso.partition(queue, 7).take_down():
            with pytest.raises(ServiceBusError, match="Partition 7"):
                await sender.send_messages(ServiceBusMessage("x", partition_key=keys[7]))
            for _ in range(15):
                await sender.send_messages(ServiceBusMessage("x"))
        await sender.send_messages(ServiceBusMessage("x", partition_key=keys[7]))
        shown = []
        while page := await receiver.peek_messages(5):
            shown += [message.sequence_number for message in page]
        assert [number >> 48 for number in shown] == list(range(16))
        found = []
        while len(found) < 16:
            found += await receiver.receive_messages(16, max_wait_time=10)
        for message in found:
            await receiver.complete_message(message)
    assert contoso.counts(queue).total == 0


@pytest.mark.spec("Q-12")
async def test_a_session_lives_in_one_partition(client, make_queue):
    queue = make_queue(enable_partitioning=True, requires_session=True)
    async with client.get_queue_sender(queue) as sender:
        for n in range(4):
            await sender.send_messages(ServiceBusMessage(str(n), session_id="a"))
    async with client.get_queue_receiver(queue, session_id="a") as receiver:
        await receiver.session.set_state(b"begun")
        found = []
        while len(found) < 4:
            found += await receiver.receive_messages(4, max_wait_time=10)
        assert [str(message) for message in found] == list("0123")
        assert {message.sequence_number >> 48 for message in found} == {index_of("a", 16)}
        assert bytes(await receiver.session.get_state()) == b"begun"
