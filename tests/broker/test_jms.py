"""Entities that a client of the JMS library names, on Premium, without a socket."""

from __future__ import annotations

import itertools

import pytest

from sbpair.amqp.events import LinkDetached, MessageReceived
from sbpair.amqp.message import DataBody, Message, Properties
from sbpair.amqp.performatives import Source, Target
from sbpair.amqp.types import Described, Symbol
from sbpair.broker.access import OpenAccess, SharedAccess
from sbpair.broker.auth import Right, SharedAccessPolicy
from sbpair.broker.entities import Namespace
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.frontends.rule_form import AmqpPropertyCodec
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
def test_a_missing_entity_is_created_as_its_client_attaches(settings):
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
def test_for_any_other_attach_a_missing_entity_is_missing(tier, properties, capabilities):
    client = premium(tier=tier).client(properties=properties)
    sender(client, address="orders", capabilities=capabilities)
    assert refusals(client) == ["amqp:not-found"]


def test_to_create_one_needs_manage():
    lab = Lab(Namespace("contoso", tier=Tier.PREMIUM), SharedAccess((SENDER,)))
    client = lab.client(properties=JMS, mechanism="PLAIN", response=b"\0sender\0a2V5")
    sender(client, address="orders", capabilities=("queue",))
    sender(client, dynamic=True, capabilities=("temporary-queue",))
    assert refusals(client) == ["amqp:unauthorized-access"] * 2
    assert not lab.namespace.queues()


def test_a_temporary_queue_lasts_as_long_as_its_link():
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


def test_another_client_gets_no_temporary_queue():
    client = premium().client()
    sender(client, dynamic=True, capabilities=("temporary-queue",))
    assert refusals(client) == ["amqp:not-implemented"]


def test_a_consumer_of_a_topic_has_a_subscription_as_long_as_its_link():
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


@pytest.mark.parametrize(
    "source", [{"durable": 2}, {"capabilities": ("topic", "shared")}], ids=["durable", "shared"]
)
def test_a_durable_or_shared_consumer_of_a_topic_is_refused(source):
    client = premium().client(properties=JMS)
    receiver(client, **{"address": "news", "capabilities": ("topic",), **source})
    assert refusals(client) == ["amqp:not-allowed"]
