"""A paired sender for a topic, healthy and parked, with both clients."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import EntityState, StoredIn
from tests.pair.outage.conftest import Either


def make_topic(namespace) -> None:
    namespace.create_topic("prices")
    namespace.create_subscription("prices", "all")


@pytest.mark.spec("P-1", "P-4")
async def test_a_topics_messages_are_sent_and_parked_like_a_queues(either: Either) -> None:
    make_topic(either.primary)
    client = either.client(interval=0, ping=60, backlogs=1)
    sender = client.get_topic_sender("prices")
    assert (await either.send(sender, ServiceBusMessage("one"))).stored_in is StoredIn.PRIMARY
    either.primary.take_down("refuse")
    assert (await either.send(sender, ServiceBusMessage("two"))).stored_in is StoredIn.BACKLOG
    assert client.state_of("prices") is EntityState.FAILED_OVER
    assert client.state_of("orders") is EntityState.HEALTHY
    either.primary.bring_up()
    receiver = client.get_subscription_receiver("prices", "all", receive_mode="receiveanddelete")
    (message,) = await either.done(receiver.receive_messages(5, max_wait_time=30))
    await either.done(receiver.close())
    assert b"".join(message.body) == b"one"
