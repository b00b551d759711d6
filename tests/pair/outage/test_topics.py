"""A paired sender for a topic, healthy and parked, with both clients."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import EntityState, StoredIn


def make_topic(namespace) -> None:
    namespace.create_topic("prices")
    namespace.create_subscription("prices", "all")


@pytest.mark.spec("P-1", "P-4")
def test_a_topics_messages_are_sent_and_parked_like_a_queues(pairing) -> None:
    make_topic(pairing.primary)
    client = pairing.client(interval=0, ping=60, backlogs=1)
    with client.get_topic_sender("prices") as sender:
        assert sender.send_messages(ServiceBusMessage("one")).stored_in is StoredIn.PRIMARY
        pairing.primary.take_down("refuse")
        assert sender.send_messages(ServiceBusMessage("two")).stored_in is StoredIn.BACKLOG
    assert client.state_of("prices") is EntityState.FAILED_OVER
    assert client.state_of("orders") is EntityState.HEALTHY
    pairing.primary.bring_up()
    with client.get_subscription_receiver("prices", "all", receive_mode="receiveanddelete") as receiver:
        (message,) = receiver.receive_messages(5, max_wait_time=30)
    assert b"".join(message.body) == b"one"


@pytest.mark.spec("P-1", "P-4")
async def test_with_asyncio_too(aio_pairing) -> None:
    make_topic(aio_pairing.primary)
    client = aio_pairing.client(interval=0, ping=60, backlogs=1)
    async with client.get_topic_sender("prices") as sender:
        assert (await sender.send_messages(ServiceBusMessage("one"))).stored_in is StoredIn.PRIMARY
        aio_pairing.primary.take_down("refuse")
        assert (await sender.send_messages(ServiceBusMessage("two"))).stored_in is StoredIn.BACKLOG
    aio_pairing.primary.bring_up()
    async with client.get_subscription_receiver("prices", "all", receive_mode="receiveanddelete") as receiver:
        (message,) = await receiver.receive_messages(5, max_wait_time=30)
    assert b"".join(message.body) == b"one"
