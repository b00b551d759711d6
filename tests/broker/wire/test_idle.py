"""Idle links and expired tokens end, in advanced connection time, and unmodified clients do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.syphon import ConnectionLostError, LinkRefusedError
from tests.pair.syphon.pair import Pair, parked
from tests.waiting import until


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A separate broker, so that the connections of other tests do not age."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        yield broker


@pytest.mark.spec("F-33")
def test_an_idle_sender_sends_again_without_a_failover(broker: Broker) -> None:
    contoso, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    told: list[object] = []
    with (
        PairedServiceBusClient.from_connection_strings(
            contoso.connection_string,
            secondary.connection_string,
            options=PairedNamespaceOptions(primary_namespace_name="contoso"),
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        sender.send_messages(ServiceBusMessage("before"))
        client.on_event(told.append)
        broker.advance_connections(timedelta(minutes=11))
        sender.send_messages(ServiceBusMessage("after"))
    assert contoso.counts("orders").active == 2
    assert not [event for event in told if "Failed" in type(event).__name__]


@pytest.mark.spec("F-33", "P-41")
async def test_an_idle_syphon_keeps_its_connections_and_reattaches_its_links(
    broker: Broker,
) -> None:
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    for index in range(2):
        pair.secondary.create_queue(pair.backlog(index))
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: syphon.counters.receives == 2)
    await until(lambda: bool(pair.events))  # connected

    for minutes in (1, 3, 5):
        broker.advance_connections(timedelta(minutes=minutes))
    assert (pair.primary.connection_count, pair.secondary.connection_count) == (1, 1)
    assert syphon.counters.receives == 2
    broker.advance_connections(timedelta(minutes=1))

    await until(lambda: syphon.counters.receives == 4)
    await pair.park([parked(1)])
    await until(lambda: syphon.counters.completed == 1)
    assert [type(event).__name__ for event in pair.events] == ["SyphonConnected"]
    shutdown.set()
    async with asyncio.timeout(30):
        await running


@pytest.mark.spec("F-33", "P-41")
async def test_an_idle_connection_closed_by_the_primary_is_reopened_silently(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key for single entities cannot claim the namespace, so such a connection is closed."""
    monkeypatch.setattr("sbpair.pair.syphon.forward.forwarding.MIN_IDLE_SECONDS", 0.0)
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    for index in range(2):
        pair.secondary.create_queue(pair.backlog(index))
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: syphon.counters.receives == 2)
    await until(lambda: bool(pair.events))  # connected

    pair.primary.take_down("reset")
    pair.primary.bring_up()
    await until(lambda: pair.primary.connection_count == 1)

    await pair.park([parked(1)])
    await until(lambda: syphon.counters.completed == 1)
    assert [type(event).__name__ for event in pair.events] == ["SyphonConnected"]
    assert syphon.counters.receives == 2
    shutdown.set()
    async with asyncio.timeout(30):
        await running


async def test_a_connection_that_never_shows_a_claim_is_closed_after_twenty_seconds(broker: Broker) -> None:
    connection = await connect(parse(broker.namespace("contoso").connection_string))
    broker.advance_connections(timedelta(seconds=19))
    assert connection.is_open
    broker.advance_connections(timedelta(seconds=1))

    async with asyncio.timeout(30):
        condition = await connection.closed
    assert condition is not None
    assert condition.symbol == "amqp:connection:forced"
    await connection.close()


@pytest.mark.spec("F-41")
async def test_an_expired_token_ends_its_links(broker: Broker) -> None:
    connection = await connect(parse(broker.namespace("contoso").connection_string))
    try:
        sender = await connection.open_sender("orders")
        for _ in range(13):
            broker.advance_connections(timedelta(minutes=5))
            assert isinstance(await sender.send(parked(1)), Accepted) or sender.detached.done()
        async with asyncio.timeout(30):
            condition = await sender.detached
        assert condition is not None
        assert condition.symbol == "amqp:link:detach-forced"
        assert "Code: RenewToken." in (condition.description or "")
        with pytest.raises((LinkRefusedError, ConnectionLostError)):
            await connection.open_sender("orders")
    finally:
        await connection.close()


def test_entity_time_cannot_be_set_back(broker: Broker) -> None:
    with pytest.raises(ValueError, match="cannot go back"):
        broker.advance_connections(timedelta(seconds=-1))


@pytest.mark.slow
def test_an_idle_sdk_receiver_receives_again(broker: Broker) -> None:
    contoso = broker.namespace("contoso")
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
        client.get_queue_sender("orders") as sender,
    ):
        assert receiver.receive_messages(max_wait_time=0.2) == []
        broker.advance_connections(timedelta(minutes=11))
        sender.send_messages(ServiceBusMessage("after"))
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.complete_message(message)
