"""A client's transactions, frame by frame without a socket: declaring, working and the answers."""

from __future__ import annotations

import itertools
import uuid

import pytest

from sbpair.broker.frontends.amqp.coordinator import MAX_OPEN
from sbpair.pair.amqp.events import DispositionReceived, LinkAttached, LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody, encode_request
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    RELEASED,
    Accepted,
    Condition,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Modified,
    Rejected,
    Source,
    TransactionalState,
)
from sbpair.pair.amqp.types import Array, Symbol, Timestamp

HELLO = Message(properties=Properties(message_id="one"), body=DataBody((b"hello",))).encode()
MINUTE = 60_000
VIA = "com.microsoft:transfer-destination-address"
_TAGS = itertools.count(1)


class Controller:
    """A client's link to the transaction coordinator, and operations in transactions."""

    def __init__(self, client, session=None):
        self.client = client
        self.link = (session or client.session).attach_sender(f"txn-{next(_TAGS)}", target=Coordinator())
        client.lab.run()

    def declare(self):
        state = self.client.send(self.link, encode_request(Declare()))
        assert isinstance(state, Declared), state
        return state.txn_id

    def discharge(self, txn_id, fail=False):
        return self.client.send(self.link, encode_request(Discharge(txn_id, fail)))

    def send(self, link, txn_id, payload=HELLO, settled=False):
        number = link.transfer(
            payload, tag=next(_TAGS).to_bytes(4, "big"), settled=settled, state=TransactionalState(txn_id)
        )
        self.client.lab.run()
        answers = self.client.take(DispositionReceived)
        assert settled or answers[-1].first == number
        return None if settled else answers[-1].state

    def settle(self, delivery, txn_id, outcome):
        return self.client.settle(delivery, TransactionalState(txn_id, outcome))


@pytest.fixture
def orders(lab):
    return lab.queue()


@pytest.fixture
def client(lab, orders):
    return lab.client()


@pytest.fixture
def controller(client):
    return Controller(client)


def received(client, path="orders", count=1):
    """Send messages and return their deliveries."""
    sender = client.sender(path)
    for _ in range(count):
        client.send(sender, HELLO)
    receiver = client.receiver(path, credit=count)
    deliveries = client.take(MessageReceived)
    assert len(deliveries) == count
    return receiver, deliveries


def symbol(state):
    assert isinstance(state, Rejected), state
    return state.error.symbol


class TestController:
    def test_a_transaction_is_declared_and_ended(self, controller):
        assert controller.link.is_open
        first, second = controller.declare(), controller.declare()

        assert first != second
        assert controller.discharge(first) == ACCEPTED
        assert controller.discharge(second, fail=True) == ACCEPTED

    def test_a_finished_or_undeclared_transaction_is_unknown(self, client, controller):
        txn_id = controller.declare()
        controller.discharge(txn_id)
        sender = client.sender("orders")

        for unknown in (txn_id, b"", b"\xff" * 40):
            assert symbol(controller.discharge(unknown)) == "amqp:transaction:unknown-id"
            assert symbol(controller.send(sender, unknown)) == "amqp:transaction:unknown-id"

    def test_a_transaction_of_another_client_is_unknown(self, lab, controller):
        txn_id = controller.declare()
        other = Controller(lab.client())

        assert symbol(other.discharge(txn_id)) == "amqp:transaction:unknown-id"
        assert controller.discharge(txn_id) == ACCEPTED

    def test_a_distributed_transaction_is_not_implemented(self, client, controller):
        state = client.send(controller.link, encode_request(Declare("global")))

        assert symbol(state) == "amqp:not-implemented"

    @pytest.mark.parametrize("payload", [b"", HELLO, b"\xff\xff"])
    def test_an_empty_coordinator_request_is_refused_and_the_link_stays(self, client, controller, payload):
        assert symbol(client.send(controller.link, payload)) == "amqp:decode-error"
        assert controller.declare()

    @pytest.mark.spec("S-7")
    def test_the_number_of_open_transactions_is_bounded(self, controller):
        for _ in range(MAX_OPEN):
            first = controller.declare()
        state = controller.client.send(controller.link, encode_request(Declare()))
        assert symbol(state) == "amqp:resource-limit-exceeded"
        controller.discharge(first, fail=True)

        assert controller.declare()

    def test_a_coordinator_link_always_has_credit(self, controller):
        for _ in range(300):
            assert controller.discharge(controller.declare()) == ACCEPTED


class TestWork:
    def test_sends_and_settlements_are_committed_together(self, lab, orders, client, controller):
        _, (one, two, three, four) = received(client, count=4)
        sender, txn_id = client.sender("orders"), controller.declare()
        dead = Rejected(Condition("com.microsoft:dead-letter", None, {"DeadLetterReason": "because"}))

        assert controller.settle(one, txn_id, ACCEPTED) == TransactionalState(txn_id, ACCEPTED)
        abandoned = Modified(True, False)
        assert controller.settle(two, txn_id, abandoned) == TransactionalState(txn_id, abandoned)
        deferred = Modified(True, True)
        assert controller.settle(three, txn_id, deferred) == TransactionalState(txn_id, deferred)
        assert controller.settle(four, txn_id, dead) == TransactionalState(txn_id, Rejected())
        assert controller.send(sender, txn_id) == TransactionalState(txn_id, ACCEPTED)
        before = orders.counts(lab.now.entity)
        assert (before.active, before.deferred, before.dead_letter) == (4, 0, 0)

        assert controller.discharge(txn_id) == ACCEPTED
        after = orders.counts(lab.now.entity)
        assert (after.active, after.deferred, after.dead_letter) == (2, 1, 1)

    def test_a_commit_delivers_to_waiting_receivers(self, client, controller):
        client.receiver("orders", credit=1)
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        assert client.take(MessageReceived) == []
        controller.discharge(txn_id)

        assert len(client.take(MessageReceived)) == 1

    def test_a_rollback_keeps_the_lock_under_its_token(self, lab, orders, client, controller):
        _, (delivery,) = received(client)
        txn_id = controller.declare()
        controller.settle(delivery, txn_id, ACCEPTED)
        controller.discharge(txn_id, fail=True)
        assert orders.receive(lab.now.entity) is None

        answer = client.ask("orders/$management", update_disposition(delivery.tag))
        assert answer.application_properties["statusCode"] == 200
        assert orders.counts(lab.now.entity).active == 0

    def test_an_impossible_commit_is_reported_and_changes_nothing(self, lab, orders, client, controller):
        _, (delivery,) = received(client)
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.settle(delivery, txn_id, ACCEPTED)
        controller.send(sender, txn_id)
        lab.advance(entity=MINUTE)

        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert orders.counts(lab.now.entity).active == 1

    def test_a_transaction_is_rolled_back_two_minutes_after_its_first_operation(
        self, lab, orders, client, controller
    ):
        sender, txn_id = client.sender("orders"), controller.declare()
        lab.advance(entity=5 * MINUTE)
        controller.send(sender, txn_id)
        lab.advance(entity=2 * MINUTE)

        assert symbol(controller.send(sender, txn_id)) == "amqp:transaction:rollback"
        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert orders.counts(lab.now.entity).active == 0

    @pytest.mark.parametrize("settled", [False, True])
    def test_a_refused_send_fails_the_transaction(self, lab, orders, client, controller, settled):
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        answer = controller.send(sender, txn_id, payload=b"\xff", settled=settled)
        assert settled or symbol(answer) == "amqp:decode-error"
        assert symbol(controller.send(sender, txn_id)) == "amqp:transaction:rollback"

        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert orders.counts(lab.now.entity).active == 0

    @pytest.mark.parametrize("settled", [False, True])
    def test_a_refused_settlement_fails_the_transaction(self, lab, orders, client, controller, settled):
        receiver, (delivery,) = received(client)
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        lab.advance(entity=MINUTE)
        state = TransactionalState(txn_id, ACCEPTED)
        receiver.dispose(delivery.delivery_id, delivery.delivery_id, state, settled=settled)
        lab.run()

        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert orders.counts(lab.now.entity).active == 1

    def test_a_refused_request_fails_the_transaction(self, lab, orders, client, controller):
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        answer = ask_in(client, txn_id, update_disposition(b"\0" * 16))
        assert answer.application_properties["errorCondition"] == "com.microsoft:message-lock-lost"

        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"

    def test_a_failed_transaction_can_be_rolled_back(self, client, controller):
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id, payload=b"\xff")

        assert controller.discharge(txn_id, fail=True) == ACCEPTED

    def test_a_settlement_without_an_outcome_releases(self, lab, orders, client, controller):
        _, (delivery,) = received(client)
        txn_id = controller.declare()

        assert controller.settle(delivery, txn_id, None) == TransactionalState(txn_id, RELEASED)
        controller.discharge(txn_id)
        assert orders.receive(lab.now.entity).delivery_count == 0


class TestManagement:
    def test_settling_by_lock_token_is_part_of_the_transaction(self, lab, orders, client, controller):
        _, (delivery,) = received(client)
        txn_id = controller.declare()
        answer = ask_in(client, txn_id, update_disposition(delivery.tag))

        assert answer.application_properties["statusCode"] == 200
        assert orders.counts(lab.now.entity).active == 1
        controller.discharge(txn_id)
        assert orders.counts(lab.now.entity).active == 0

    def test_a_lock_is_renewed_immediately_in_a_transaction(self, lab, client, controller):
        _, (delivery,) = received(client)
        txn_id = controller.declare()
        lab.advance(entity=50_000)
        renew = management("renew-lock", {"lock-tokens": Array(0x98, (uuid.UUID(bytes_le=delivery.tag),))})
        answer = ask_in(client, txn_id, renew)

        (until,) = answer.body.value["expirations"].items
        assert until == lab.now.entity + MINUTE

    def test_a_scheduled_number_is_returned_at_once_and_valid_after_the_commit(
        self, lab, orders, client, controller
    ):
        at = {Symbol("x-opt-scheduled-enqueue-time"): Timestamp(lab.now.entity + MINUTE)}
        later = Message(message_annotations=at, body=DataBody((b"later",))).encode()
        schedule = management("schedule-message", {"messages": [{"message-id": "a", "message": later}]})
        kept, undone = controller.declare(), controller.declare()
        first = ask_in(client, kept, schedule).body.value["sequence-numbers"].items
        second = ask_in(client, undone, schedule).body.value["sequence-numbers"].items
        client.send(client.sender("orders"), HELLO)
        assert orders.counts(lab.now.entity).scheduled == 0
        controller.discharge(kept)
        controller.discharge(undone, fail=True)

        assert (first, second) == ((1,), (2,))
        shown = orders.peek(0, 9, lab.now.entity)
        assert [(each.sequence_number, each.state.name) for each in shown] == [
            (1, "SCHEDULED"),
            (3, "ACTIVE"),
        ]
        orders.cancel_scheduled([1], lab.now.entity)

    def test_peeking_is_not_part_of_a_transaction(self, client, controller):
        peek = management("peek-message", {"from-sequence-number": 0, "message-count": 1})
        answer = ask_in(client, controller.declare(), peek)

        assert answer.application_properties["statusCode"] == 400
        assert (
            "peek-message cannot be part of a transaction"
            in (answer.application_properties["statusDescription"])
        )

    def test_an_unknown_transaction_id_is_reported(self, client, controller):
        answer = ask_in(client, b"nobody's", update_disposition(b"\0" * 16))

        assert answer.application_properties["errorCondition"] == "amqp:transaction:unknown-id"


class TestSessions:
    """The lock of a session covers the messages received under it."""

    @pytest.fixture
    def held(self, lab):
        """Return a client, a controller, a delivery of session `a` and its receiver."""
        lab.queue("sessions", requires_session=True)
        client = lab.client()
        message = Message(properties=Properties(message_id="m", group_id="a"), body=DataBody((b"x",)))
        client.send(client.sender("sessions"), message.encode())
        source = Source("sessions", filter={Symbol("com.microsoft:session-filter"): "a"})
        link = client.receiver("sessions", source=source, credit=1)
        (delivery,) = client.take(MessageReceived)
        return client, Controller(client), delivery, link

    def test_session_messages_are_settled_in_a_transaction(self, lab, held):
        _, controller, delivery, _ = held
        txn_id = controller.declare()
        assert controller.settle(delivery, txn_id, ACCEPTED) == TransactionalState(txn_id, ACCEPTED)
        assert controller.discharge(txn_id) == ACCEPTED

        assert lab.namespace.queue("sessions").counts(lab.now.entity).active == 0

    def test_a_session_released_before_the_commit_undoes_the_transaction(self, lab, held):
        _, controller, delivery, link = held
        txn_id = controller.declare()
        controller.settle(delivery, txn_id, ACCEPTED)
        link.detach()
        lab.run()

        assert symbol(controller.discharge(txn_id)) == "amqp:transaction:rollback"
        assert lab.namespace.queue("sessions").counts(lab.now.entity).active == 1


class TestEnds:
    def test_detaching_the_controller_rolls_back(self, lab, orders, client, controller):
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        controller.link.detach()
        lab.run()

        assert symbol(controller.send(sender, txn_id)) == "amqp:transaction:unknown-id"
        assert orders.counts(lab.now.entity).active == 0

    def test_the_end_of_the_connection_rolls_back_and_keeps_the_locks(self, lab, orders, client, controller):
        _, (delivery,) = received(client)
        sender, txn_id = client.sender("orders"), controller.declare()
        controller.send(sender, txn_id)
        controller.settle(delivery, txn_id, ACCEPTED)
        client.server.receive_eof(lab.now)
        lab.clients.remove(client)

        assert orders.counts(lab.now.entity).active == 1
        assert orders.receive(lab.now.entity) is None  # still locked
        lab.advance(entity=MINUTE)
        assert orders.receive(lab.now.entity).delivery_count == 1


class TestEntities:
    @pytest.fixture
    def apart(self, client):
        """A controller on a separate session, so that no link anchors its transactions."""
        session = client.engine.begin()
        client.lab.run()
        return Controller(client, session)

    def test_a_second_entity_in_a_transaction_is_refused(self, lab, orders, client, apart):
        lab.queue("bills")
        orders_link, bills_link, txn_id = client.sender("orders"), client.sender("bills"), apart.declare()
        apart.send(orders_link, txn_id)
        state = apart.send(bills_link, txn_id)

        assert symbol(state) == "amqp:not-allowed"
        assert "Local transactions cannot span multiple top-level entities" in state.error.description
        assert symbol(apart.discharge(txn_id)) == "amqp:transaction:rollback"
        assert orders.counts(lab.now.entity).active == 0

    def test_a_link_with_a_via_entity_transfers(self, lab, orders, client, apart):
        bills = lab.queue("bills")
        _, (delivery,) = received(client)
        link, txn_id = client.sender("orders", properties={VIA: "Bills"}), apart.declare()
        assert link.remote_attach.properties[VIA] == "bills"
        apart.settle(delivery, txn_id, ACCEPTED)
        apart.send(link, txn_id)
        assert bills.counts(lab.now.entity).active == 0
        apart.discharge(txn_id)

        held = orders.counts(lab.now.entity).active, bills.counts(lab.now.entity).active
        assert held == (0, 1)

    def test_a_via_send_without_a_transaction_is_transferred_at_once(self, lab, orders, client):
        bills = lab.queue("bills")
        link = client.sender("orders", properties={VIA: "bills"})
        assert isinstance(client.send(link, HELLO), Accepted)
        lab.namespace.delete_queue("bills", lab.now.entity)
        assert isinstance(client.send(link, HELLO), Accepted)

        assert bills.counts(lab.now.entity).active == 1
        dead = client.receiver("orders/$Transfer/$DeadLetterQueue", credit=1)
        (failed,) = client.take(MessageReceived)
        assert failed.link is dead
        properties = Message.decode(failed.payload).application_properties
        assert properties["DeadLetterReason"] == "MessagingEntityNotFoundException"

    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("nowhere", "amqp:not-found"),
            ("bills/$DeadLetterQueue", "amqp:not-allowed"),
            (7, "com.microsoft:argument-error"),
        ],
    )
    def test_a_via_link_to_a_missing_entity_is_refused(self, lab, client, path, expected):
        lab.queue("bills")
        client.sender("orders", properties={VIA: path})
        client.take(LinkAttached)
        (detached,) = client.take(LinkDetached)

        assert detached.condition.symbol == expected

    @pytest.mark.spec("Q-13", "F-54")
    def test_a_send_that_breaks_the_key_rule_is_reported_and_nothing_is_sent(self, lab, client, apart):
        parted = lab.queue("parted", enable_partitioning=True)
        link, txn_id = client.sender("parted"), apart.declare()
        keyed = {Symbol("x-opt-partition-key"): "a"}
        with_key = Message(message_annotations=keyed, body=DataBody((b"x",))).encode()
        assert apart.send(link, txn_id, payload=with_key) == TransactionalState(txn_id, ACCEPTED)

        assert symbol(apart.send(link, txn_id)) == "amqp:not-allowed"
        assert symbol(apart.discharge(txn_id)) == "amqp:transaction:rollback"
        assert parted.counts(lab.now.entity).active == 0

    @pytest.mark.spec("Q-14", "F-54")
    def test_a_message_of_another_session_undoes_the_transaction(self, lab, client, apart):
        parted = lab.queue("parted", enable_partitioning=True, requires_session=True)
        link, txn_id = client.sender("parted"), apart.declare()
        assert apart.send(link, txn_id, payload=of_session("a")) == TransactionalState(txn_id, ACCEPTED)

        assert symbol(apart.send(link, txn_id, payload=of_session("b"))) == "amqp:not-allowed"
        assert symbol(apart.discharge(txn_id)) == "amqp:transaction:rollback"
        assert parted.counts(lab.now.entity).active == 0

    def test_links_in_the_session_of_the_controller_go_via_the_first_entity(
        self, lab, orders, client, controller
    ):
        bills = lab.queue("bills")
        _, (delivery,) = received(client)
        link, txn_id = client.sender("bills"), controller.declare()
        controller.settle(delivery, txn_id, ACCEPTED)
        assert controller.send(link, txn_id) == TransactionalState(txn_id, ACCEPTED)
        controller.discharge(txn_id)

        held = orders.counts(lab.now.entity).active, bills.counts(lab.now.entity).active
        assert held == (0, 1)

    def test_settling_a_message_of_another_entity_is_refused_in_the_transaction(
        self, lab, orders, client, controller
    ):
        lab.queue("bills")
        client.sender("orders")
        _, (delivery,) = received(client, "bills")
        txn_id = controller.declare()

        assert symbol(controller.settle(delivery, txn_id, ACCEPTED)) == "amqp:not-allowed"


def of_session(session):
    return Message(properties=Properties(group_id=session), body=DataBody((b"x",))).encode()


def management(operation, body):
    return Message(
        properties=Properties(message_id="ask", reply_to="orders/$management"),
        application_properties={"operation": f"com.microsoft:{operation}"},
        body=ValueBody(body),
    )


def update_disposition(tag):
    tokens = Array(0x98, (uuid.UUID(bytes_le=tag),))
    return management("update-disposition", {"disposition-status": "completed", "lock-tokens": tokens})


def ask_in(client, txn_id, message):
    """Send one request in a transaction and return its response."""
    client.ask(
        "orders/$management", management("peek-message", {"from-sequence-number": 0, "message-count": 1})
    )
    sender = client.nodes["orders/$management"][1]
    sender.transfer(message.encode(), tag=b"in", state=TransactionalState(txn_id))
    client.lab.run()
    (answer,) = client.take(DispositionReceived)
    assert answer.state == TransactionalState(txn_id, ACCEPTED)
    (response,) = client.take(MessageReceived)
    return Message.decode(response.payload)
