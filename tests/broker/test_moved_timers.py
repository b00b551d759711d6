"""Timers are looked up again only when they may have moved."""

from __future__ import annotations

import pytest

from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.faults import Delay, FaultRule, Operation
from tests.broker.test_links import HELLO, MINUTE, NOON


@pytest.fixture
def orders(namespace):
    queue = namespace.create_queue("orders", QueueDescription(lock_duration=MINUTE), NOON)
    namespace.take_moved_timer()
    return queue


def test_a_new_lock_moves_the_timer_once(namespace, orders):
    orders.enqueue(StoredMessage(b""), NOON)
    assert namespace.take_moved_timer() is None

    orders.receive(NOON)
    assert namespace.take_moved_timer() == NOON + MINUTE
    assert namespace.take_moved_timer() is None


@pytest.mark.spec("F-7")
def test_a_renewal_by_a_shorter_duration_than_before_moves_the_timer(namespace, orders):
    orders.enqueue(StoredMessage(b""), NOON)
    message = orders.receive(NOON)
    assert namespace.take_moved_timer() == NOON + MINUTE
    namespace.update_queue("orders", QueueDescription(lock_duration=MINUTE // 6), NOON)
    namespace.take_moved_timer()

    orders.renew(message.lock_token, NOON)

    assert namespace.take_moved_timer() == NOON + MINUTE // 6


def test_a_timer_read_in_between_is_still_set(namespace, orders):
    orders.enqueue(StoredMessage(b""), NOON)
    orders.receive(NOON)

    assert namespace.next_timer() == namespace.take_moved_timer() == NOON + MINUTE


def test_executed_timers_may_have_moved(namespace, orders):
    namespace.call_at(NOON + 1, lambda _: None)
    namespace.call_at(NOON + 9, lambda _: None)
    assert namespace.take_moved_timer() == NOON + 1

    namespace.handle_timer(NOON + 1)
    assert namespace.take_moved_timer() == NOON + 9


@pytest.fixture
def sending(lab):
    """A client with an open sender whose timers have been looked up."""
    lab.queue()
    client = lab.client()
    sender = client.sender("orders")
    client.server.timers_moved = False
    return client, sender


def test_a_message_for_a_queue_moves_no_connection_timer(lab, sending):
    client, sender = sending

    client.send(sender, HELLO)

    assert not client.server.timers_moved


def test_a_delayed_answer_moves_the_timer(lab, sending):
    client, sender = sending
    lab.frontend.set_fault(FaultRule(Delay(5.0), operation=Operation.SEND), 0.0)

    client.send(sender, HELLO)

    assert client.server.timers_moved
    assert client.server.next_timer() == pytest.approx(lab.now.connection + 5.0)


def test_an_opening_or_ending_link_moves_the_timer(lab, sending):
    client, sender = sending

    sender.detach()
    lab.run()
    assert client.server.timers_moved

    client.server.timers_moved = False
    client.receiver("orders")
    assert client.server.timers_moved
