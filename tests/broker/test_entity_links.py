"""Which entity a link is for, and what an update does to it, without a socket."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sbpair.broker.auth import make_token
from sbpair.broker.entities import StoredMessage, SubscriptionDescription, TopicDescription
from sbpair.broker.frontends.amqp.client_connection import ClientConnection
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import AMQP_HEADER, frame
from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, ValueBody
from sbpair.pair.amqp.performatives import Attach, Begin, Open, Source, Target
from sbpair.pair.amqp.types import Int, Symbol


@pytest.mark.spec("X-21")
@pytest.mark.parametrize(
    ("kind", "path", "is_refused"),
    [
        (0, "orders", False),
        (0, "orders/$DeadLetterQueue", False),
        (1, "orders", True),
        (2, "orders", True),
        (0, "news/Subscriptions/all", True),
        (2, "news/Subscriptions/all", False),
        (2, "news/Subscriptions/all/$DeadLetterQueue", False),
        (7, "orders", False),
        ("queue", "orders", False),
    ],
)
def test_a_link_for_the_wrong_kind_of_entity_is_refused(lab, kind, path, is_refused):
    lab.queue()
    lab.namespace.create_topic("news", TopicDescription(), lab.now.entity)
    lab.namespace.create_subscription("news", "all", SubscriptionDescription(), lab.now.entity)
    client = lab.client()
    value = Int(kind) if isinstance(kind, int) else kind
    client.receiver(path, properties={Symbol("com.microsoft:entity-type"): value})
    conditions = [event.condition.symbol for event in client.take(LinkDetached)]
    assert conditions == ["amqp:not-allowed"] * is_refused


@pytest.mark.spec("X-21")
def test_a_queue_client_cannot_send_to_a_topic(lab):
    lab.namespace.create_topic("news", TopicDescription(), lab.now.entity)
    client = lab.client()
    client.sender("news", properties={Symbol("com.microsoft:entity-type"): Int(1)})
    assert not client.take(LinkDetached)
    client.sender("news", properties={Symbol("com.microsoft:entity-type"): Int(0)})
    (refused,) = client.take(LinkDetached)
    assert refused.condition.symbol == "amqp:not-allowed"


@pytest.mark.spec("X-19")
def test_the_old_address_of_subscription_dead_letters_works(guarded):
    now = guarded.now.entity
    news = guarded.namespace.create_topic("news", TopicDescription(), now)
    made = guarded.namespace.create_subscription("news", "All", SubscriptionDescription(), now)
    news.enqueue(StoredMessage(b"\x00\x53\x75\xa0\x01x"), now)
    made.dead_letter(made.receive(now).lock_token, now, {})
    old = "news/Subscriptions/All/$DeadLetterQueue/Subscriptions/All"
    client = guarded.client()
    token = make_token(f"sb://contoso/{old}", "Root", "a2V5", guarded.now.wall + 60)
    answer = client.ask(
        "$cbs",
        Message(
            application_properties={"operation": "put-token", "name": f"sb://contoso/{old}", "type": "sas"},
            body=ValueBody(token),
        ),
    )
    assert answer.application_properties["status-code"] == 202
    client.receiver(old, credit=1)
    assert len(client.take(MessageReceived)) == 1
    client.receiver(old.replace("Subscriptions/All", "Subscriptions/Other", 1))
    assert len(client.take(LinkDetached)) == 1


@pytest.mark.spec("X-11")
def test_an_update_detaches_the_receivers_of_an_entity_and_no_other_link(lab, is_partitioned):
    path = lab.queue(enable_partitioning=is_partitioned).path
    client = lab.client()
    sender, receiver = client.sender(path), client.receiver(path, credit=1)
    dead = client.receiver(f"{path}/$DeadLetterQueue", credit=1)
    described = lab.namespace.queue(path).description
    lab.namespace.update_queue(path, described, lab.now.entity)
    lab.run()
    assert not client.take(LinkDetached)  # nothing has changed
    lab.namespace.update_queue(path, replace(described, max_delivery_count=3), lab.now.entity)
    lab.run()
    (detached,) = client.take(LinkDetached)
    assert detached.link is receiver
    assert detached.condition.symbol == "amqp:link:detach-forced"
    assert (sender.is_open, dead.is_open) == (True, True)
    client.receiver(path, credit=1)
    client.send(sender, Message(body=DataBody((b"x",))).encode())
    assert len(client.take(MessageReceived)) == 1


@pytest.mark.spec("X-11")
def test_a_disabling_update_is_named_in_the_detach(lab):
    lab.queue()
    client = lab.client()
    client.receiver("orders", credit=1)
    described = lab.namespace.queue("orders").description
    lab.namespace.update_queue("orders", replace(described, status="Disabled"), lab.now.entity)
    lab.run()
    (detached,) = client.take(LinkDetached)
    assert detached.condition.symbol == "com.microsoft:entity-disabled"


@pytest.mark.spec("X-5", "S-5")
def test_a_connection_without_sasl_must_present_a_token(guarded):
    guarded.queue()
    server = ClientConnection(guarded.frontend, guarded.now)
    data = AMQP_HEADER
    for channel, performative in (
        (0, Open("plain", hostname="contoso")),
        (0, Begin(None, 0, 100, 100)),
        (0, Attach("to", 0, False, source=Source("to"), target=Target("orders"), initial_delivery_count=0)),
        (0, Attach("cbs", 1, False, source=Source("cbs"), target=Target("$cbs"), initial_delivery_count=0)),
    ):
        data += frame(channel, encode_composite(performative))
    server.receive_data(data, guarded.now)
    assert not server.is_closed
    nodes = list(server.links)
    assert [type(node).__name__ for node in nodes] == ["RequestLink"]
    assert b"".join(server.pieces_to_send()).count(b"amqp:unauthorized-access") == 1
