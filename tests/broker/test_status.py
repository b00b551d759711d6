"""Entity status with open links: disabled directions end or are refused at once, and work again when Active."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker.entities import SubscriptionDescription, TopicDescription
from sbpair.broker.entities.topic import Subscription, Topic
from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Accepted, Rejected, Source
from sbpair.pair.amqp.types import Symbol

DISABLED = "com.microsoft:entity-disabled"
HELLO = Message(properties=Properties(message_id="1", group_id="a"), body=DataBody((b"hello",))).encode()
BARS = {
    "Active": (),
    "SendDisabled": ("send",),
    "ReceiveDisabled": ("receive",),
    "Disabled": ("send", "receive"),
}


@pytest.fixture(params=["described", "imposed"])
def give(request, lab):
    """Set the status of an entity, by its description or by a fault; None ends the fault."""

    def describe(path, status):
        namespace, now = lab.namespace, lab.now.entity
        entity = namespace.queue(path)
        asked = replace(getattr(entity, "requested", entity.description), status=status)
        if isinstance(entity, Topic):
            namespace.update_topic(path, asked, now)
        elif isinstance(entity, Subscription):
            namespace.update_subscription(entity.topic.path, entity.name, asked, now)
        else:
            namespace.update_queue(path, asked, now)

    def impose(path, status):
        lab.namespace.impose_status(path, None if status == "Active" else status, lab.now.entity)

    def to(path, status):
        (describe if request.param == "described" else impose)(path, status)
        lab.run()

    return to


def detached(client):
    return [each.condition.symbol for each in client.take(LinkDetached)]


@pytest.mark.parametrize("status", BARS)
@pytest.mark.parametrize("is_spread", [False, True], ids=["plain", "partitioned"])
def test_disabling_rejects_live_senders_and_detaches_live_receivers(lab, give, status, is_spread):
    lab.queue(enable_partitioning=is_spread)
    client = lab.client()
    sender = client.sender("orders")
    client.receiver("orders", credit=5)
    give("orders", status)

    assert detached(client) == ([DISABLED] if "receive" in BARS[status] else [])
    answer = client.send(sender, HELLO)
    assert isinstance(answer, Rejected if "send" in BARS[status] else Accepted)
    assert not isinstance(answer, Rejected) or answer.error.symbol == DISABLED


def test_disabling_detaches_receivers_with_and_without_outstanding_credit(lab, give):
    lab.queue()
    client = lab.client()
    link = client.receiver("orders")
    give("orders", "ReceiveDisabled")
    link.flow(5, drain=True)
    lab.run()
    assert detached(client) == [DISABLED]


@pytest.mark.parametrize("status", ["ReceiveDisabled", "Disabled"])
def test_disabling_detaches_session_holders_and_waiting_receivers(lab, give, status):
    lab.queue(requires_session=True)
    client = lab.client()
    client.send(client.sender("orders"), HELLO)
    for wanted in ("a", None):
        client.receiver(
            "orders",
            credit=5,
            source=Source("orders", filter={Symbol("com.microsoft:session-filter"): wanted}),
        )
    give("orders", status)
    assert detached(client) == [DISABLED, DISABLED]


def test_a_message_locked_before_the_change_can_be_settled(lab, give):
    queue = lab.queue()
    client = lab.client()
    client.send(client.sender("orders"), HELLO)
    client.receiver("orders", credit=1)
    (delivery,) = client.take(MessageReceived)
    give("orders", "SendDisabled")
    assert isinstance(client.settle(delivery, Accepted()), Accepted)
    assert queue.counts(lab.now.entity).total == 0


@pytest.mark.parametrize("status", BARS)
def test_a_disabled_topic_accepts_nothing(lab, give, status):
    lab.namespace.create_topic("news", TopicDescription(), lab.now.entity)
    client = lab.client()
    sender = client.sender("news")
    give("news", status)
    answer = client.send(sender, HELLO)
    assert isinstance(answer, Rejected if "send" in BARS[status] else Accepted)


@pytest.mark.parametrize("status", BARS)
def test_a_disabled_subscription_stores_messages_and_delivers_none(lab, give, status):
    now = lab.now.entity
    lab.namespace.create_topic("news", TopicDescription(), now)
    subscription = lab.namespace.create_subscription("news", "all", SubscriptionDescription(), now)
    client = lab.client()
    client.receiver("news/Subscriptions/all", credit=5)
    give("news/Subscriptions/all", status)
    assert detached(client) == ([DISABLED] if "receive" in BARS[status] else [])
    assert isinstance(client.send(client.sender("news"), HELLO), Accepted)
    assert subscription.counts(now).active == 1


@pytest.mark.parametrize("is_spread", [False, True], ids=["plain", "partitioned"])
def test_an_imposed_status_is_not_in_the_description_and_covers_the_dead_letters(lab, is_spread):
    queue = lab.queue(enable_partitioning=is_spread)
    client = lab.client()
    client.receiver("orders/$DeadLetterQueue", credit=1)
    lab.namespace.impose_status("orders", "Disabled", lab.now.entity)
    lab.run()
    assert detached(client) == [DISABLED]
    assert (queue.status, queue.description.status) == ("Disabled", "Active")

    changed = replace(queue.description, status="SendDisabled", max_delivery_count=3)
    lab.namespace.update_queue("orders", changed, lab.now.entity)
    assert queue.status == "Disabled"  # the fault overrides any description set meanwhile
    lab.namespace.impose_status("orders", None, lab.now.entity)
    assert (queue.status, queue.description.max_delivery_count) == ("SendDisabled", 3)
