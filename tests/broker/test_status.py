"""Entity status over live links: what is barred ends or is refused at once, and works again when Active."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.amqp.events import LinkDetached, MessageReceived
from sbpair.amqp.message import DataBody, Message, Properties
from sbpair.amqp.performatives import Accepted, Rejected, Source
from sbpair.amqp.types import Symbol
from sbpair.broker.entities import SubscriptionDescription, TopicDescription

DISABLED = "com.microsoft:entity-disabled"
HELLO = Message(properties=Properties(message_id="1", group_id="a"), body=DataBody((b"hello",))).encode()
BARS = {
    "Active": (),
    "SendDisabled": ("send",),
    "ReceiveDisabled": ("receive",),
    "Disabled": ("send", "receive"),
}


def set_queue(lab, status):
    queue = lab.namespace.queue("orders")
    lab.namespace.update_queue("orders", replace(queue.description, status=status), lab.moment.entity)
    lab.run()


def detached(client):
    return [each.condition.symbol for each in client.take(LinkDetached)]


@pytest.mark.parametrize("status", BARS)
@pytest.mark.parametrize("is_spread", [False, True], ids=["plain", "partitioned"])
def test_a_live_sender_is_rejected_and_a_live_receiver_detached(lab, status, is_spread):
    lab.queue(enable_partitioning=is_spread)
    client = lab.client()
    sender = client.sender("orders")
    client.receiver("orders", credit=5)
    set_queue(lab, status)

    assert detached(client) == ([DISABLED] if "receive" in BARS[status] else [])
    answer = client.send(sender, HELLO)
    assert isinstance(answer, Rejected if "send" in BARS[status] else Accepted)
    assert not isinstance(answer, Rejected) or answer.error.symbol == DISABLED


@pytest.mark.parametrize("status", ["ReceiveDisabled", "Disabled"])
def test_who_holds_a_session_and_who_waits_for_one_are_detached(lab, status):
    lab.queue(requires_session=True)
    client = lab.client()
    client.send(client.sender("orders"), HELLO)
    for wanted in ("a", None):
        client.receiver(
            "orders",
            credit=5,
            source=Source("orders", filter={Symbol("com.microsoft:session-filter"): wanted}),
        )
    set_queue(lab, status)
    assert detached(client) == [DISABLED, DISABLED]


def test_what_was_locked_is_settled_all_the_same(lab):
    queue = lab.queue()
    client = lab.client()
    client.send(client.sender("orders"), HELLO)
    client.receiver("orders", credit=1)
    (delivery,) = client.take(MessageReceived)
    set_queue(lab, "SendDisabled")
    assert isinstance(client.settle(delivery, Accepted()), Accepted)
    assert queue.counts(lab.moment.entity).total == 0


def test_a_queue_that_is_active_again_takes_and_hands_out(lab):
    lab.queue(status="Disabled")
    set_queue(lab, "Active")
    client = lab.client()
    assert isinstance(client.send(client.sender("orders"), HELLO), Accepted)
    client.receiver("orders", credit=1)
    assert len(client.take(MessageReceived)) == 1


@pytest.mark.parametrize("status", BARS)
def test_a_topic_takes_nothing_while_it_is_barred(lab, status):
    topic = lab.namespace.create_topic("news", TopicDescription(), lab.moment.entity)
    client = lab.client()
    sender = client.sender("news")
    lab.namespace.update_topic("news", replace(topic.asked, status=status), lab.moment.entity)
    answer = client.send(sender, HELLO)
    assert isinstance(answer, Rejected if "send" in BARS[status] else Accepted)


@pytest.mark.parametrize("status", BARS)
def test_a_subscription_fills_and_hands_out_nothing_while_it_is_barred(lab, status):
    now = lab.moment.entity
    lab.namespace.create_topic("news", TopicDescription(), now)
    subscription = lab.namespace.create_subscription("news", "all", SubscriptionDescription(), now)
    client = lab.client()
    client.receiver("news/Subscriptions/all", credit=5)
    lab.namespace.update_subscription("news", "all", replace(subscription.asked, status=status), now)
    lab.run()
    assert detached(client) == ([DISABLED] if "receive" in BARS[status] else [])
    assert isinstance(client.send(client.sender("news"), HELLO), Accepted)
    assert subscription.counts(now).active == 1
