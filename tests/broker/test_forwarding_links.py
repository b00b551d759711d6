"""Entities that forward, as AMQP clients see them, in virtual time."""

from __future__ import annotations

from dataclasses import replace

from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message

NOON = 1_800_000_000_000
HELLO = Message(body=DataBody((b"hello",))).encode()


class TestOverAmqp:
    def test_what_a_client_sends_is_received_at_the_target(self, lab):
        lab.queue("archive")
        lab.queue("orders", forward_to="archive")
        client = lab.client()
        receiver = client.receiver("archive", credit=1)
        client.send(client.sender("orders"), HELLO)

        (delivery,) = client.take(MessageReceived)
        assert delivery.link is receiver

    def test_a_receiver_on_a_source_is_refused(self, lab):
        lab.queue("archive")
        lab.queue("orders", forward_to="archive")
        client = lab.client()
        client.receiver("orders")

        (detached,) = client.take(LinkDetached)
        assert detached.condition.symbol == "amqp:not-allowed"
        assert "auto-forwarding enabled" in detached.condition.description

    def test_a_receiver_that_waits_is_detached_when_forwarding_is_set(self, lab):
        lab.queue("archive")
        orders = lab.queue("orders")
        client = lab.client()
        client.receiver("orders", credit=1)
        lab.namespace.update_queue("orders", replace(orders.description, forward_to="archive"), NOON)
        lab.run()

        (detached,) = client.take(LinkDetached)
        assert "auto-forwarding enabled" in detached.condition.description
