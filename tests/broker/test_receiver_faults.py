"""Faults of receivers: a link that falls silent, a lock that ends early, an outcome that is never confirmed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from sbpair.broker import Broker, LoseLock, NamespaceControl, SilenceLink
from sbpair.pair.amqp.errors import MESSAGE_LOCK_LOST, SESSION_LOCK_LOST
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import Message, Properties
from sbpair.pair.amqp.performatives import Accepted, Rejected
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from tests.pair.syphon.pair import put
from tests.waiting import PATIENCE, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as broker:
        yield broker


@pytest.fixture
def contoso(broker: Broker) -> NamespaceControl:
    namespace = broker.namespace("contoso")
    namespace.create_queue("orders")
    namespace.create_queue("carts", requires_session=True)
    return namespace


@pytest.fixture
async def connection(contoso: NamespaceControl) -> AsyncIterator[NamespaceConnection]:
    connection = await connect(parse(contoso.connection_string))
    try:
        async with asyncio.timeout(PATIENCE):
            yield connection
    finally:
        await connection.close()


def messages(count: int, session_id: str | None = None) -> list[bytes]:
    return [
        Message(properties=Properties(message_id=f"m{n}", group_id=session_id)).encode() for n in range(count)
    ]


def delivery_count(event: MessageReceived) -> int | None:
    header = Message.decode(event.payload).header
    return header.delivery_count if header else None


async def test_a_silent_link_delivers_nothing_more_and_another_link_gets_the_rest(
    contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    others: list[MessageReceived] = []
    with contoso.fault("orders", SilenceLink(), nth=3) as fault:
        receiver = await connection.open_receiver("orders", came.append)
        receiver.flow(10)
        await put(contoso, "orders", messages(5))
        await until(lambda: fault.hits == 1)
        assert receiver.is_open
        receiver.flow(20)  # more credit does not revive it
        other = await connection.open_receiver("orders", others.append)
        other.flow(10)
        await until(lambda: len(others) == 3)
    assert len(came) == 2
    assert {delivery_count(event) for event in others} == {0}


async def test_a_silent_link_answers_settlements_but_no_drain(
    contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    drained: list[bool] = []
    with contoso.fault("orders", SilenceLink(), nth=2) as fault:
        receiver = await connection.open_receiver(
            "orders", came.append, on_drained=lambda: drained.append(True)
        )
        receiver.flow(10)
        await put(contoso, "orders", messages(2))
        await until(lambda: fault.hits == 1)
        receiver.flow(10, drain=True)
        assert await receiver.settle_and_wait(came[0].delivery_id, Accepted()) == Accepted()
    assert drained == []


async def test_messages_of_a_silent_session_go_to_its_next_holder(
    contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    await put(contoso, "carts", messages(2, "s"))
    with contoso.fault("carts", SilenceLink(), times=1) as fault:
        receiver = await connection.open_session_receiver("carts", came.append)
        receiver.flow(10)
        await until(lambda: fault.hits == 1)
        await receiver.close()
        again = await connection.open_session_receiver("carts", came.append)
        again.flow(10)
        await until(lambda: len(came) == 2)


async def test_an_early_lost_lock_refuses_the_settlement_and_redelivers_the_message(
    contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    await put(contoso, "orders", messages(1))
    with contoso.fault("orders", LoseLock(), times=1):
        receiver = await connection.open_receiver("orders", came.append)
        receiver.flow(10)
        await until(lambda: len(came) == 2)
    answer = await receiver.settle_and_wait(came[0].delivery_id, Accepted())
    assert isinstance(answer, Rejected)
    assert answer.error is not None
    assert answer.error.symbol == MESSAGE_LOCK_LOST
    assert await receiver.settle_and_wait(came[1].delivery_id, Accepted()) == Accepted()
    assert [delivery_count(event) for event in came] == [0, 1]


async def test_a_message_settled_before_the_lock_loss_stays_settled(
    broker: Broker, contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    await put(contoso, "orders", messages(2))
    with contoso.fault("orders", LoseLock(seconds=100), times=1):
        receiver = await connection.open_receiver("orders", came.append)
        receiver.flow(1)
        await until(lambda: len(came) == 1)
        assert await receiver.settle_and_wait(came[0].delivery_id, Accepted()) == Accepted()
        broker.advance_connections(timedelta(seconds=101))
        receiver.flow(1)
        await until(lambda: len(came) == 2)
    assert delivery_count(came[1]) == 0


async def test_a_session_lock_that_is_lost_early_detaches_its_receiver(
    contoso: NamespaceControl, connection: NamespaceConnection
) -> None:
    came: list[MessageReceived] = []
    await put(contoso, "carts", messages(1, "s"))
    with contoso.fault("carts", LoseLock(), times=1):
        receiver = await connection.open_session_receiver("carts", came.append)
        receiver.flow(1)
        condition = await receiver.detached
    assert condition is not None
    assert condition.symbol == SESSION_LOCK_LOST
