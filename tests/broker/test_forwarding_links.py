"""Entities that forward, as AMQP clients see them, in virtual time."""

from __future__ import annotations

from dataclasses import replace

from sbpair.pair.amqp.events import LinkDetached

NOON = 1_800_000_000_000


class TestOverAmqp:
    def test_a_waiting_receiver_is_detached_when_forwarding_is_set(self, lab):
        lab.queue("archive")
        orders = lab.queue("orders")
        client = lab.client()
        client.receiver("orders", credit=1)
        lab.namespace.update_queue("orders", replace(orders.description, forward_to="archive"), NOON)
        lab.run()

        (detached,) = client.take(LinkDetached)
        assert "auto-forwarding enabled" in detached.condition.description
