"""Idle links and connections are closed with the service's own error texts, and no others."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.events import ConnectionClosed, LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Accepted
from tests.broker.conftest import Client, Lab

MINUTE = 60.0
PAYLOAD = Message(body=DataBody((b"x",))).encode()


def detached(client: Client) -> list[tuple[str, str]]:
    """Return condition and text of the links that the broker closed."""
    found = [event.condition for event in client.take(LinkDetached)]
    return [(str(each.symbol), str(each.description)) for each in found if each is not None]


def closed(client: Client) -> list[str]:
    """Return the texts with which the broker closed the connection."""
    conditions = [event.condition for event in client.take(ConnectionClosed)]
    assert all(each is not None and each.symbol == "amqp:connection:forced" for each in conditions)
    return [str(each.description) for each in conditions if each is not None]


@pytest.mark.spec("F-33")
def test_an_idle_link_is_detached_after_ten_minutes(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    client.sender("orders")
    client.receiver("orders", credit=5)

    lab.advance(ahead=10 * MINUTE - 1)
    assert detached(client) == []
    lab.advance(ahead=1)

    said = detached(client)
    assert [symbol for symbol, _ in said] == ["amqp:link:detach-forced"] * 2
    assert all("Idle timeout: 00:10:00." in text for _, text in said)
    assert {"AmqpMessagePublisher" in text for _, text in said} == {True, False}
    assert {"TrackingId:" in text for _, text in said} == {True, False}  # a sender's has none


def test_transfers_in_either_direction_are_link_activity(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    sender, receiver = client.sender("orders"), client.receiver("orders", credit=5)
    lab.advance(ahead=9 * MINUTE)

    client.send(sender, PAYLOAD)  # and deliver it to the receiver
    lab.advance(ahead=9 * MINUTE)
    assert detached(client) == []
    (delivery,) = client.take(MessageReceived)
    assert client.settle(delivery, Accepted()) == Accepted()
    client.send(sender, PAYLOAD)
    lab.advance(ahead=9 * MINUTE)
    receiver.flow(7)
    lab.run()
    lab.advance(ahead=9 * MINUTE)

    assert [text.split("AmqpMessage")[1][:9] for _, text in detached(client)] == ["Publisher"]


def test_an_idle_link_is_detached_once_and_may_be_attached_again(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    client.sender("orders")
    lab.advance(ahead=10 * MINUTE)
    assert len(detached(client)) == 1
    lab.advance(ahead=MINUTE)
    assert detached(client) == []

    assert client.send(client.sender("orders"), PAYLOAD) == Accepted()


def test_idle_cbs_links_are_not_detached(lab: Lab) -> None:
    client = lab.client()
    client.receiver("$cbs")
    client.sender("$cbs")

    for _ in range(12):
        lab.advance(ahead=10 * MINUTE)

    assert detached(client) + closed(client) == []


@pytest.mark.spec("F-33")
def test_a_new_connection_without_a_link_is_closed_after_a_minute(lab: Lab) -> None:
    client = lab.client()
    lab.advance(ahead=MINUTE - 1)
    assert closed(client) == []
    lab.advance(ahead=1)

    (text,) = closed(client)
    assert "because it did not have any active links in the past 60000 milliseconds." in text


@pytest.mark.spec("F-33")
def test_a_connection_without_links_is_closed_after_five_minutes(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    link = client.sender("orders")
    lab.advance(ahead=2 * MINUTE)
    link.detach()
    lab.run()

    lab.advance(ahead=5 * MINUTE - 1)
    assert closed(client) == []
    lab.advance(ahead=1)

    assert "active links in the past 300000 milliseconds" in closed(client)[0]


def test_a_new_link_within_five_minutes_keeps_the_connection(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    lab.advance(ahead=59)
    client.sender("orders")
    lab.advance(ahead=9 * MINUTE)

    assert closed(client) + detached(client) == []


def test_a_shifted_entity_clock_ends_no_link(lab: Lab) -> None:
    lab.queue("orders")
    client = lab.client()
    client.sender("orders")
    lab.advance(entity=24 * 3600 * 1000)

    assert closed(client) + detached(client) == []


def test_the_timer_is_set_to_the_earliest_due_time(lab: Lab) -> None:
    """A timer in the past would make the loop spin."""
    lab.queue("orders")
    client = lab.client()
    client.sender("orders")
    for step in (30.0, MINUTE, 9 * MINUTE, MINUTE, 5 * MINUTE):
        lab.advance(ahead=step)
        timer = client.server.next_timer()
        assert timer is None or timer > lab.now.connection
