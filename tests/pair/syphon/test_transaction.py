"""Transactions of the AMQP client: a settlement and a send to another entity, together or not at all."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from sbpair.broker import Broker, ManualClock
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.performatives import ACCEPTED, Rejected, TransactionalState
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import (
    ConnectionLostError,
    LinkRefusedError,
    RolledBackError,
    TokenRefusedError,
)
from sbpair.pair.client.link import Receiver, Sender
from sbpair.pair.syphon.land.transaction import MAX_OPEN, TransactionController
from tests.pair.syphon.pair import Pair, message_id, pair_of, parked, put, take
from tests.waiting import until

COUNT = 3


@dataclass
class Step:
    """Unsettled messages from ``orders``, and a link that sends to ``invoices`` via ``orders``."""

    connection: NamespaceConnection
    controller: TransactionController
    receiver: Receiver
    sender: Sender
    came: list[MessageReceived]

    @property
    def ids(self) -> tuple[int, int]:
        numbers = [each.delivery_id for each in self.came]
        return min(numbers), max(numbers)

    async def move(self, txn_id: bytes) -> None:
        """Forward and complete each message in the transaction; every step must be accepted."""
        noted = TransactionalState(txn_id, ACCEPTED)
        for each in self.came:
            assert await self.sender.send(each.payload, state=TransactionalState(txn_id)) == noted
        assert await self.receiver.settled_run(*self.ids, noted) == [noted] * len(self.came)


@asynccontextmanager
async def step(pair: Pair) -> AsyncIterator[Step]:
    await put(pair.primary, "orders", [parked(number) for number in range(COUNT)])
    connection = await connect(parse(pair.primary.connection_string))
    try:
        came: list[MessageReceived] = []
        receiver = await connection.open_receiver("orders", came.append)
        receiver.flow(COUNT)
        await until(lambda: len(came) == COUNT)
        sender = await connection.open_sender("invoices", via="orders")
        yield Step(connection, TransactionController(connection), receiver, sender, came)
    finally:
        await connection.close()


def counts(pair: Pair) -> tuple[int, int]:
    return pair.primary.counts("orders").active, pair.primary.counts("invoices").active


@pytest.mark.spec("C-2")
async def test_a_committed_transaction_moves_messages_between_entities(pair: Pair) -> None:
    async with step(pair) as work:
        txn_id = await work.controller.declare()
        await work.move(txn_id)
        assert counts(pair) == (COUNT, 0)
        await work.controller.commit(txn_id)
        assert counts(pair) == (0, COUNT)
    assert [message_id(each) for each in await take(pair.primary, "invoices", COUNT)] == ["m0", "m1", "m2"]


@pytest.mark.spec("C-2")
@pytest.mark.parametrize("how", ["rolled back", "its link closed", "its connection lost"])
async def test_an_uncommitted_transaction_changes_nothing(pair: Pair, how: str) -> None:
    async with step(pair) as work:
        txn_id = await work.controller.declare()
        await work.move(txn_id)
        if how == "rolled back":
            await work.controller.roll_back(txn_id)
        elif how == "its link closed":
            await work.controller.close()
        else:
            work.connection.abort()
    assert counts(pair) == (COUNT, 0)


@pytest.mark.spec("C-2")
async def test_a_lost_lock_rolls_the_whole_transaction_back() -> None:
    clock = ManualClock()
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=clock) as broker:
        pair = pair_of(broker)
        async with step(pair) as work:
            txn_id = await work.controller.declare()
            clock.advance(61_000)
            await work.sender.send(work.came[0].payload, state=TransactionalState(txn_id))
            answer = await work.receiver.settle_and_wait(work.ids[0], TransactionalState(txn_id, ACCEPTED))
            assert isinstance(answer, Rejected)
            with pytest.raises(RolledBackError, match="amqp:transaction:rollback"):
                await work.controller.commit(txn_id)
        assert counts(pair) == (COUNT, 0)


async def test_a_transaction_that_is_not_open_cannot_be_committed(pair: Pair) -> None:
    async with step(pair) as work:
        with pytest.raises(RolledBackError, match="amqp:transaction:unknown-id"):
            await work.controller.commit(b"no such id")


async def test_a_controller_whose_link_was_lost_opens_another(pair: Pair) -> None:
    async with step(pair) as work:
        before = await work.controller.declare()
        work.controller._opening.result().let_go()  # type: ignore[union-attr]
        with pytest.raises((RolledBackError, ConnectionLostError)):
            await work.controller.commit(before)
        txn_id = await work.controller.declare()
        await work.move(txn_id)
        await work.controller.commit(txn_id)
    assert counts(pair) == (0, COUNT)


async def test_a_failed_transaction_leaves_room_for_others(pair: Pair) -> None:
    async with step(pair) as work:
        endings: list[Callable[[bytes], object]] = [work.controller.commit, work.controller.roll_back]
        for number in range(2 * MAX_OPEN):
            txn_id = await work.controller.declare()
            await endings[number % 2](txn_id)  # type: ignore[misc]
        assert work.controller._room._value == MAX_OPEN


async def test_an_ended_connection_fails_transaction_requests(pair: Pair) -> None:
    async with step(pair) as work:
        work.connection.abort()
        with pytest.raises(ConnectionLostError, match="the connection has ended"):
            await work.controller.declare()


async def test_a_namespace_of_the_basic_tier_refuses_transactions() -> None:
    with Broker({"basic": 0}, tier="Basic") as broker:
        connection = await connect(parse(broker.namespace("basic").connection_string))
        try:
            with pytest.raises(LinkRefusedError, match="Basic tier"):
                await TransactionController(connection).declare()
        finally:
            await connection.close()


async def test_a_missing_destination_is_refused_when_the_link_opens(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    try:
        with pytest.raises((LinkRefusedError, TokenRefusedError), match="nowhere"):
            await connection.open_sender("nowhere", via="orders")
    finally:
        await connection.close()
