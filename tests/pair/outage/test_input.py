"""Unusual and extreme messages, sent to the primary and parked, with both clients."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties

from sbpair import EntityState, StoredIn
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import RejectWith
from sbpair.broker.frontends.amqp.queue_sender import QueueSender
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.events import EntityFailedOver


def peeked(either, queue: str, namespace: object) -> list[object]:
    """Peek the messages of a queue, oldest first."""
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,  # type: ignore[attr-defined]
        client.get_queue_receiver(queue) as receiver,
    ):
        return list(receiver.peek_messages(50))


def parked_in(either) -> list[object]:
    return peeked(either, "contoso/x-servicebus-transfer/0", either.secondary)


def held(either):
    """Create a client that parks, and a sender."""
    client = either.client(interval=0, ping=60, backlogs=1)
    client.hold("orders")
    return client, client.get_queue_sender("orders")


@pytest.mark.spec("F-79")
async def test_ids_at_their_limit_are_accepted_and_longer_ones_are_the_callers_error(
    either,
) -> None:
    client, sender = held(either)
    for is_parked in (True, False):
        for name in ("message_id", "group_id"):
            for length in (128, 129):
                properties = AmqpMessageProperties(**{name: "i" * length})
                message = AmqpAnnotatedMessage(data_body=b"x", properties=properties)
                if length == 128:
                    await either.send(sender, message)
                elif name == "message_id" or is_parked:
                    with pytest.raises(Exception, match="128"):
                        await either.send(sender, message)
        client.mark_path_healthy("orders")
    assert client.state_of("orders") is EntityState.HEALTHY
    assert len(parked_in(either)) == 2


@pytest.mark.spec("P-2")
async def test_a_closed_sender_cannot_be_entered_again_as_the_sdks_cannot(either) -> None:
    sender = either.client(backlogs=1).get_queue_sender("orders")
    enter = sender.__aenter__ if either.is_asyncio else sender.__enter__
    assert await either.done(enter()) is sender
    await either.done(sender.close())
    with pytest.raises(ValueError, match="the sender is closed; get another"):
        await either.done(enter())


@pytest.mark.spec("F-79")
async def test_a_path_at_its_limit_is_accepted_and_a_longer_one_is_an_error(either) -> None:
    client = either.client(backlogs=1)
    client.hold("q" * 260)
    assert (await either.send(client.get_queue_sender("q" * 260), ServiceBusMessage("x"))).backlog == 0
    for get in (client.get_queue_sender, client.get_topic_sender):
        with pytest.raises(ValueError, match="at most 260 characters, not 261"):
            get("q" * 261)


@pytest.mark.spec("F-81")
async def test_text_that_cannot_be_encoded_is_the_callers_error_and_nul_is_text(either) -> None:
    client, sender = held(either)
    for _ in ("parked", "straight"):
        with pytest.raises(Exception, match="surrogates not allowed"):
            await either.send(sender, ServiceBusMessage("x", application_properties={"a": "\ud800"}))
        await either.send(sender, ServiceBusMessage("a\0b", application_properties={"nul": "a\0b"}))
        client.mark_path_healthy("orders")
    (parked,) = parked_in(either)
    (straight,) = peeked(either, "orders", either.primary)
    for message in (parked, straight):
        assert str(message) == "a\0b"
        assert message.application_properties[b"nul"] == b"a\0b"
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("F-83")
async def test_whatever_holds_messages_is_read_once_before_the_first_attempt(either) -> None:
    client = either.client(interval=0, ping=60, backlogs=1)
    sender = client.get_queue_sender("orders")
    with either.primary.fault("orders", RejectWith("amqp:internal-error")):  # the second attempt is parked
        receipt = await either.send(sender, (ServiceBusMessage(str(n)) for n in range(3)))
        assert (receipt.stored_in, len(receipt.message_ids)) == (StoredIn.BACKLOG, 3)
        client.hold("orders")  # the first ping may come when the fault is over
    for given in (iter([{"body": "3"}]), ({"body": "4"},), {"body": "5"}, [ServiceBusMessage("6")]):
        assert len((await either.send(sender, given)).message_ids) == 1
    for nothing in ([], (), iter(()), (m for m in ())):
        assert (await either.send(sender, nothing)).message_ids == ()
    assert [str(message) for message in parked_in(either)] == [str(n) for n in range(7)]


@pytest.mark.spec("F-84")
async def test_a_message_object_sent_twice_and_changed_afterwards_keeps_its_id(
    either,
) -> None:
    client, sender = held(either)
    message = ServiceBusMessage("before", message_id="m", session_id="s", application_properties={"a": 1})
    if either.is_asyncio:
        await asyncio.gather(*(either.send(sender, message) for _ in range(4)))
    else:
        threads = [threading.Thread(target=sender.send_messages, args=(message,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
    assert message.application_properties == {"a": 1}
    assert (message.session_id, message.message_id) == ("s", "m")
    batch = await either.done(sender.create_message_batch())
    batch.add_message(message)
    message.application_properties["a"] = 2
    message.session_id = "other"
    await either.send(sender, batch)
    found = parked_in(either)
    assert len(found) == 5
    for each in found:
        assert each.message_id == "m"
        assert each.application_properties[b"a"] == 1
        assert each.application_properties[b"x-ms-sessionid"] == b"s"
    client.mark_path_healthy("orders")
    await either.send(sender, message)
    (straight,) = peeked(either, "orders", either.primary)
    assert straight.application_properties == {b"a": 2}


@pytest.mark.spec("F-85", "P-20")
async def test_a_time_without_a_zone_is_utc_and_the_year_9999_is_kept(either) -> None:
    _, sender = held(either)
    for at in (datetime(2031, 1, 2, 3, 4, 5), datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)):  # noqa: DTZ001
        await either.send(sender, ServiceBusMessage("x", scheduled_enqueue_time_utc=at))
    found = [each.application_properties[b"x-ms-scheduledenqueuetimeutc"] for each in parked_in(either)]
    assert found == [b"2031-01-02T03:04:05Z", b"9999-12-31T23:59:59Z"]


@pytest.mark.spec("G-16")
async def test_a_span_without_an_end_is_the_callers_error_straight_and_parked(either) -> None:
    client, sender = held(either)
    for _ in ("parked", "straight"):
        with pytest.raises(Exception, match=r"time to live|unsigned int"):
            await either.send(sender, ServiceBusMessage("x", time_to_live=timedelta.max))
        client.mark_path_healthy("orders")
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("P-3", "P-4")
async def test_the_backlog_link_is_open_before_the_first_message_needs_it(either) -> None:
    client = either.client(interval=1.5, ping=60, backlogs=1, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("straight"))
    with either.primary.fault("orders", RejectWith("amqp:internal-error")):
        with pytest.raises(Exception, match="internal-error"):
            await either.send(sender, ServiceBusMessage("raised"))
        await either.heard(EntityFailedOver)
        await either.until(lambda: senders_of(either.secondary) == 1)
        links = links_of(either.secondary)
        assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG
    assert links_of(either.secondary) == links  # the link that was opened in advance


def links_of(namespace: NamespaceControl) -> set[int]:
    """Return every link that is open at a namespace."""

    def found(server: NamespaceServer) -> set[int]:
        return {id(node) for wire in server.wires.values() for node in wire.client.links}

    return namespace.inspect(found)


def senders_of(namespace: NamespaceControl) -> int:
    """Count the links that send to a queue of a namespace."""

    def found(server: NamespaceServer) -> int:
        nodes = [node for wire in server.wires.values() for node in wire.client.links]
        return sum(isinstance(node, QueueSender) for node in nodes)

    return namespace.inspect(found)
