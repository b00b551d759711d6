"""Entities that a client of the JMS library names, on Premium, without a socket."""

from __future__ import annotations

import itertools

import pytest

from sbpair.broker.access import OpenAccess, SharedAccess
from sbpair.broker.auth import Right, SharedAccessPolicy
from sbpair.broker.entities import Namespace
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.frontends.rule_form import AmqpPropertyCodec
from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Source, Target
from sbpair.pair.amqp.types import Described, Symbol
from tests.broker.conftest import Lab

pytestmark = pytest.mark.spec("X-25")

JMS = {
    Symbol("com.microsoft:is-client-provider"): True,
    Symbol("com.microsoft:queue-auto-delete-on-idle-duration-in-seconds"): 600,
}
SENDER = SharedAccessPolicy("sender", "a2V5", "b3RoZXI=", frozenset({Right.SEND, Right.LISTEN}))
_NAMES = itertools.count()


def premium(**settings) -> Lab:
    settings = settings or {"tier": Tier.PREMIUM}
    return Lab(Namespace("contoso", codec=AmqpPropertyCodec(), **settings), OpenAccess())


def sender(client, **target):
    name = f"to-{next(_NAMES)}"
    link = client.session.attach_sender(name, target=Target(**target), source=Source(name))
    client.lab.run()
    return link


def receiver(client, *, credit=1, **source):
    link = client.session.attach_receiver("from", source=Source(**source), target=Target("from"))
    client.lab.run()
    if link.is_open:
        link.flow(credit)
        client.lab.run()
    return link


def refusals(client):
    return [event.condition.symbol for event in client.take(LinkDetached) if event.condition is not None]


@pytest.mark.parametrize(
    "settings", [{"tier": Tier.PREMIUM}, {"layout": Layout(premium=2)}], ids=["plain", "partitioned"]
)
def test_a_missing_entity_is_created_when_a_jms_client_attaches(settings):
    lab = premium(**settings)
    client = lab.client(properties=JMS)
    sender(client, address="orders", capabilities=("queue",))
    sender(client, address="news", capabilities=("topic",))

    assert not refusals(client)
    assert lab.namespace.queue("orders").description.auto_delete_on_idle == 600_000
    assert lab.namespace.topic("news").requested.auto_delete_on_idle is None


@pytest.mark.parametrize(
    ("tier", "properties", "capabilities"),
    [(Tier.STANDARD, JMS, ("queue",)), (Tier.PREMIUM, None, ("queue",)), (Tier.PREMIUM, JMS, None)],
    ids=["Standard", "another client", "no capability"],
)
def test_a_plain_attach_does_not_create_a_missing_entity(tier, properties, capabilities):
    client = premium(tier=tier).client(properties=properties)
    sender(client, address="orders", capabilities=capabilities)
    assert refusals(client) == ["amqp:not-found"]


def test_creating_an_entity_by_attach_needs_manage():
    lab = Lab(Namespace("contoso", tier=Tier.PREMIUM), SharedAccess((SENDER,)))
    client = lab.client(properties=JMS, mechanism="PLAIN", response=b"\0sender\0a2V5")
    sender(client, address="orders", capabilities=("queue",))
    sender(client, dynamic=True, capabilities=("temporary-queue",))
    assert refusals(client) == ["amqp:unauthorized-access"] * 2
    assert not lab.namespace.queues()


def test_a_temporary_queue_ends_with_its_link():
    lab = premium()
    client = lab.client(properties=JMS)
    link = sender(client, dynamic=True, capabilities=("temporary-queue",))
    address = link.remote_attach.target.address
    client.send(link, Message(body=DataBody((b"reply",))).encode())
    receiver(client, address=address, capabilities=("temporary-queue",))
    assert len(client.take(MessageReceived)) == 1
    link.detach()
    lab.run()
    assert not lab.namespace.queues()
    assert refusals(client) == ["amqp:resource-deleted"]


def test_a_non_jms_client_gets_no_temporary_queue():
    client = premium().client()
    sender(client, dynamic=True, capabilities=("temporary-queue",))
    assert refusals(client) == ["amqp:not-implemented"]


def test_a_topic_consumer_has_a_subscription_that_ends_with_its_link():
    lab = premium()
    client = lab.client(properties=JMS)
    selector = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), "n > 1")}
    link = receiver(client, credit=5, address="news", capabilities=("topic",), filter=selector)
    publisher = sender(client, address="news", capabilities=("topic",))
    for n in (1, 2):
        message = Message(properties=Properties(message_id=f"m{n}"), application_properties={"n": n})
        client.send(publisher, message.encode())
    (came,) = client.take(MessageReceived)
    assert Message.decode(came.payload).properties.message_id == "m2"
    link.detach()
    lab.run()
    assert not lab.namespace.subscriptions("news")


def test_a_temporary_topic_ends_with_its_link():
    lab = premium()
    client = lab.client(properties=JMS)
    link = sender(client, dynamic=True, capabilities=("temporary-topic",))
    address = link.remote_attach.target.address
    receiver(client, address=address, capabilities=("temporary-topic",))
    client.send(link, Message(body=DataBody((b"news",))).encode())
    assert len(client.take(MessageReceived)) == 1
    link.detach()
    lab.run()
    assert not lab.namespace.topics()


def named(client, name, *, source=None, **more):
    """Attach a receiver whose link has this name."""
    source = {"address": "news", "capabilities": ("topic",)} if source is None else source
    link = client.session.attach_receiver(
        name, source=Source(**source) if source else None, target=Target("t"), **more
    )
    client.lab.run()
    if link.is_open:
        link.flow(5)
        client.lab.run()
    return link


def publish(lab):
    client = lab.client(properties=JMS)
    client.send(
        sender(client, address="news", capabilities=("topic",)), Message(body=DataBody((b"x",))).encode()
    )


DURABLE = {"address": "news", "capabilities": ("topic",), "durable": 2}
SHARED = {"address": "news", "capabilities": ("topic", "shared", "global")}


def test_a_durable_subscription_stores_messages_until_it_is_unsubscribed():
    lab = premium()
    client = lab.client(properties=JMS)
    link = named(client, "audit", source=DURABLE)
    assert link.is_open
    named(client, "audit|2", source=DURABLE)
    assert refusals(client) == ["amqp:not-allowed"]  # one consumer at a time
    link.detach(closed=False)
    lab.run()
    publish(lab)
    named(client, "audit", source=DURABLE).detach(closed=False)
    lab.run()
    assert len(client.take(MessageReceived)) == 1
    assert len(lab.namespace.subscriptions("news")) == 1
    ending = named(client, "audit", source={})
    assert ending.remote_attach.source.address == "news"
    ending.detach()
    lab.run()
    assert not lab.namespace.subscriptions("news")


def test_a_changed_selector_recreates_a_durable_subscription():
    lab = premium()
    client = lab.client(properties=JMS)
    for text in ("n > 1", "n > 1", "n > 2"):
        selector = {Symbol("jms-selector"): Described(Symbol("apache.org:selector-filter:string"), text)}
        named(client, "audit", source=DURABLE | {"filter": selector}).detach(closed=False)
        lab.run()
        publish(lab)
    (made,) = lab.namespace.subscriptions("news")
    assert [each.filter.expression for each in made.rules] == ["n > 2"]


def test_consumers_of_a_shared_subscription_share_messages_and_the_last_one_ends_it():
    lab = premium()
    first, second = lab.client(properties=JMS), lab.client(properties=JMS)
    links = [named(client, f"audit|volatile{n}", source=SHARED) for n, client in enumerate((first, second))]
    assert all(link.is_open for link in links)
    for _ in range(4):
        publish(lab)
    assert len(first.take(MessageReceived)) + len(second.take(MessageReceived)) == 4
    (made,) = lab.namespace.subscriptions("news")
    assert made.path == "news/Subscriptions/audit"
    links[0].detach()
    lab.run()
    assert lab.namespace.subscriptions("news")
    links[1].detach()
    lab.run()
    assert not lab.namespace.subscriptions("news")


def test_unsubscribing_from_nothing_is_refused():
    lab = premium()
    client = lab.client(properties=JMS)
    named(client, "audit", source={})
    assert refusals(client) == ["amqp:not-found"]


def test_a_browser_sees_each_message_once_and_removes_none():
    lab = premium()
    client = lab.client(properties=JMS)
    link = sender(client, address="orders", capabilities=("queue",))
    for body in (b"a", b"b", b"c"):
        client.send(link, Message(body=DataBody((body,))).encode())
    browser = receiver(client, credit=2, address="orders", capabilities=("queue",), distribution_mode="copy")
    assert len(client.take(MessageReceived)) == 2
    browser.flow(10, drain=True)
    lab.run()
    (last,) = client.take(MessageReceived)
    assert bytes(Message.decode(last.payload).body.sections[0]) == b"c"
    assert last.settled
    assert browser.credit == 0
    assert lab.namespace.queue("orders").counts(0).active == 3


def test_a_browser_resumes_when_its_session_window_opens():
    lab = premium()
    client = lab.client(properties=JMS, limits=Limits(incoming_window=10))
    link = sender(client, address="orders", capabilities=("queue",))
    for number in range(250):
        client.send(link, Message(body=DataBody((b"%d" % number,))).encode())
    receiver(client, credit=500, address="orders", capabilities=("queue",), distribution_mode="copy")
    assert len(client.take(MessageReceived)) == 250


def test_non_jms_clients_get_no_browser_and_no_topic_source():
    lab = premium()
    made = sender(lab.client(properties=JMS), address="orders", capabilities=("queue",))
    assert made.is_open
    sender(lab.client(properties=JMS), address="news", capabilities=("topic",))
    client = lab.client()
    receiver(client, **DURABLE)
    assert refusals(client) == ["amqp:not-found"]
