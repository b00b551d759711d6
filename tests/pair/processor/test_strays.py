"""Settlements over ``$management``, none of which waits for a later one."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.performatives import ACCEPTED
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.processor.delivery import Delivery
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.strays import Stray, Strays
from sbpair.testing import ChaosProxy


async def connected(connection_string: str) -> NamespaceConnection:
    """A connection that may settle messages of "orders"."""
    connection = await connect(parse(connection_string))
    await connection.open_receiver("orders", lambda message: None, lambda disposition: None)
    return connection


def stray() -> Stray:
    """Create a settlement with a lock that the broker does not know."""
    tag = uuid4().bytes
    delivery = Delivery(None, None, 0, tag, ReceivedMessage(b"", tag), 0.0, 60.0)  # type: ignore[arg-type]
    delivery.state = ACCEPTED
    return Stray(delivery, was_sent=False)


@pytest.mark.spec("C-13")
async def test_a_settlement_while_the_shared_node_closes_does_not_wait_for_lock_expiry() -> None:
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders")
        with ChaosProxy("127.0.0.1", namespace.port) as proxy:
            closing = proxy.on("detach", direction="in", address="orders/$management", action="hold")
            connection = await connected(proxy.connection_string(namespace.connection_string))
            ended: asyncio.Queue[Stray] = asyncio.Queue()
            strays = Strays("orders", lambda each, refusal: ended.put_nowait(each), lambda unknown: None)
            strays.connection = connection
            try:
                first, second = stray(), stray()
                strays.add(first)
                assert await asyncio.wait_for(ended.get(), 6) is first
                assert await asyncio.to_thread(closing.wait, 6)
                strays.add(second)
                closing.release()
                assert await asyncio.wait_for(ended.get(), 6) is second
            finally:
                await strays.close(6)
                connection.abort()


@pytest.mark.spec("C-13")
async def test_settlements_interrupted_by_a_lost_connection_continue_on_the_next_at_once() -> None:
    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue("orders")
        with ChaosProxy("127.0.0.1", namespace.port) as proxy:
            answer = proxy.on("transfer", direction="in", address="orders/$management", action="drop")
            lost = await connected(proxy.connection_string(namespace.connection_string))
            next_one = await connected(namespace.connection_string)
            ended: asyncio.Queue[Stray] = asyncio.Queue()
            strays = Strays(
                "orders", lambda each, refusal: None, lambda unknown: ended.put_nowait(unknown[0])
            )
            strays.connection = lost
            try:
                only = stray()
                strays.add(only)
                assert await asyncio.to_thread(answer.wait, 6)
                strays.connection = next_one  # before the loss of the former is noticed
                strays.settle()
                lost.abort()
                assert await asyncio.wait_for(ended.get(), 6) is only  # its first answer was lost
            finally:
                await strays.close(6)
                lost.abort()
                next_one.abort()
