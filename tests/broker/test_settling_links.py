"""A client's settlements, frame by frame: their effect and the answers."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.message import (
    DataBody,
    Message,
)
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Condition,
    Modified,
    Received,
    Rejected,
)
from sbpair.pair.amqp.types import Symbol, UInt
from tests.broker.test_links import HELLO, NOON


class TestSettling:
    @pytest.fixture
    def held(self, lab):
        lab.queue()
        client = lab.client()
        client.send(client.sender("orders"), HELLO)
        client.receiver("orders", credit=1)
        (delivery,) = client.take(MessageReceived)
        return client, delivery

    DEAD = Rejected(
        Condition(
            "com.microsoft:dead-letter",
            "why",
            {Symbol("DeadLetterReason"): "poison", Symbol("DeadLetterErrorDescription"): "bad"},
        )
    )

    @pytest.mark.parametrize(
        ("sent", "answered", "counts"),
        [
            (Accepted(), Accepted(), (0, 0, 0)),
            (Modified(True, False), Modified(True, False), (1, 0, 0)),
            (Modified(None, False), Modified(None, False), (1, 0, 0)),
            (Modified(True, True), Modified(True, True), (0, 1, 0)),
            (DEAD, Rejected(), (0, 0, 1)),
            (Rejected(), Rejected(), (0, 0, 1)),
            (RELEASED, RELEASED, (1, 0, 0)),
        ],
    )
    def test_each_delivery_state_gets_the_expected_answer(self, lab, held, sent, answered, counts):
        client, delivery = held

        assert client.settle(delivery, sent) == answered
        found = lab.namespace.queue("orders").counts(NOON)
        assert (found.active, found.deferred, found.dead_letter) == counts

    @pytest.mark.parametrize(
        ("state", "count"),
        [(Modified(True), 1), (Modified(None), 1), (Modified(False), 0), (RELEASED, 0), (None, 0)],
    )
    def test_only_a_failed_delivery_increments_the_count(self, lab, held, state, count):
        _, delivery = held
        delivery.link.dispose(delivery.delivery_id, delivery.delivery_id, state, settled=True)
        lab.run()

        assert lab.namespace.queue("orders").receive(NOON).delivery_count == count

    def test_undecodable_properties_do_not_prevent_dead_lettering(self, lab):
        lab.queue()
        client = lab.client()
        garbled = bytes.fromhex("005374 c1020140")  # a map of one item
        client.send(client.sender("orders"), garbled + HELLO[-10:])
        client.receiver("orders", credit=1)
        (delivery,) = client.take(MessageReceived)
        client.settle(delivery, self.DEAD)
        client.receiver("orders/$DeadLetterQueue", credit=1)

        (buried,) = client.take(MessageReceived)
        message = Message.decode(buried.payload)
        assert message.application_properties["DeadLetterReason"] == "poison"
        assert message.body == DataBody((b"hello",))

    def test_properties_changed_by_an_abandon_reach_the_next_receiver(self, lab, held):
        client, delivery = held
        client.settle(delivery, Modified(True, False, {Symbol("tries"): UInt(1)}))
        client.receiver("orders", credit=1)

        (again,) = client.take(MessageReceived)
        assert Message.decode(again.payload).application_properties == {"tries": UInt(1)}

    def test_a_non_terminal_state_settles_nothing(self, lab, held):
        client, delivery = held
        delivery.link.dispose(delivery.delivery_id, delivery.delivery_id, Received(0, 0), settled=False)
        lab.run()

        assert client.settle(delivery, ACCEPTED) == ACCEPTED

    def test_a_range_is_settled_and_answered_as_a_range(self, lab):
        lab.queue()
        client = lab.client()
        link = client.sender("orders")
        for _ in range(10):
            client.send(link, HELLO)
        receiver = client.receiver("orders", credit=10)
        deliveries = client.take(MessageReceived)
        receiver.dispose(deliveries[0].delivery_id, deliveries[-1].delivery_id, ACCEPTED, settled=False)
        lab.run()

        answers = client.take(DispositionReceived)
        assert [(a.first, a.last) for a in answers] == [
            (deliveries[0].delivery_id, deliveries[-1].delivery_id)
        ]
        assert lab.namespace.queue("orders").counts(NOON).total == 0
