"""Session receivers against the broker: accepting a session, its lock, its state and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest

from sbpair.broker import Broker, Lose, ManualClock
from sbpair.pair.amqp.errors import SESSION_CANNOT_BE_LOCKED, SESSION_LOCK_LOST, TIMEOUT
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import (
    ConnectionLostError,
    LinkRefusedError,
    SessionUnavailableError,
    TokenRefusedError,
)
from sbpair.pair.client.request import RequestNode
from sbpair.pair.client.session import SessionReceiver
from tests.pair.syphon.pair import Pair, message_id, put
from tests.waiting import PATIENCE, until


def of_session(session_id: str, number: int) -> bytes:
    properties = Properties(message_id=f"{session_id}{number}", group_id=session_id)
    return Message(properties=properties, body=DataBody((b"x",))).encode()


class Collected(list[MessageReceived]):
    @property
    def ids(self) -> list[str]:
        return [message_id(event.payload) for event in self]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ManualClock()) as broker:
        yield broker


@pytest.fixture
async def connection(pair: Pair) -> AsyncIterator[NamespaceConnection]:
    pair.primary.create_queue("carts", requires_session=True, lock_duration=60_000)
    connection = await connect(parse(pair.primary.connection_string))
    try:
        async with asyncio.timeout(PATIENCE):
            yield connection
    finally:
        await connection.close()


async def accept(
    connection: NamespaceConnection, session_id: str | None = None, timeout: float = 30.0
) -> tuple[SessionReceiver, Collected]:
    received = Collected()
    receiver = await connection.open_session_receiver(
        "carts", received.append, session_id=session_id, timeout=timeout
    )
    return receiver, received


def management(connection: NamespaceConnection) -> RequestNode:
    return RequestNode(connection, connection.namespace.address("carts/$management"))


@pytest.mark.spec("C-16")
async def test_a_session_is_accepted_by_id_and_delivers_in_order(
    pair: Pair, connection: NamespaceConnection
) -> None:
    await put(pair.primary, "carts", [of_session(name, n) for n in range(3) for name in "ab"])
    receiver, received = await accept(connection, "b")
    receiver.flow(10)
    await until(lambda: len(received) == 3)
    assert receiver.session_id == "b"
    assert received.ids == ["b0", "b1", "b2"]
    answers = [await receiver.settle_and_wait(event.delivery_id, Accepted()) for event in received]
    assert answers == [Accepted()] * 3
    assert pair.primary.counts("carts").active == 3


@pytest.mark.spec("C-16")
async def test_the_next_available_session_is_named_in_the_answer(
    pair: Pair, connection: NamespaceConnection
) -> None:
    await put(pair.primary, "carts", [of_session(name, 0) for name in "abc"])
    taken = [(await accept(connection))[0].session_id for _ in range(3)]
    assert sorted(taken) == ["a", "b", "c"]


@pytest.mark.spec("C-16")
async def test_who_waits_for_a_session_gets_the_one_that_comes(
    pair: Pair, connection: NamespaceConnection
) -> None:
    waiting = asyncio.create_task(accept(connection))
    await asyncio.sleep(0)
    await put(pair.primary, "carts", [of_session("late", 0)])
    receiver, _ = await waiting
    assert receiver.session_id == "late"


@pytest.mark.spec("C-16")
async def test_a_timeout_waiting_for_a_session_has_its_own_error(
    connection: NamespaceConnection,
) -> None:
    with pytest.raises(SessionUnavailableError, match="carts") as raised:
        await accept(connection, timeout=0.0)
    assert raised.value.condition is not None
    assert raised.value.condition.symbol == TIMEOUT
    assert connection.claims == 1  # not an error of the token, so the next attempt does not put another


@pytest.mark.spec("C-16")
async def test_a_session_held_by_another_receiver_is_refused_as_such(
    pair: Pair, connection: NamespaceConnection
) -> None:
    await accept(connection, "a")
    with pytest.raises(SessionUnavailableError) as raised:
        await accept(connection, "a")
    assert raised.value.condition is not None
    assert raised.value.condition.symbol == SESSION_CANNOT_BE_LOCKED


@pytest.mark.spec("C-16")
async def test_a_session_is_free_again_once_its_receiver_is_closed(
    pair: Pair, connection: NamespaceConnection
) -> None:
    await put(pair.primary, "carts", [of_session("a", 0)])
    first, _ = await accept(connection, "a")
    await first.close()
    second, received = await accept(connection)
    second.flow(1)
    await until(lambda: received.ids == ["a0"])


@pytest.mark.spec("C-16")
async def test_a_renewed_session_outlives_its_first_lock(
    broker: Broker, pair: Pair, connection: NamespaceConnection
) -> None:
    receiver, _ = await accept(connection, "a")
    before = receiver.locked_until
    broker.advance(timedelta(seconds=40))
    after = await receiver.renew(management(connection))
    assert after - before == pytest.approx(40, abs=0.01)
    assert receiver.locked_until == after
    broker.advance(timedelta(seconds=40))
    assert await receiver.renew(management(connection)) > after
    assert receiver.is_open


@pytest.mark.spec("C-16")
async def test_a_lost_session_lock_detaches_the_receiver_with_the_reason(
    broker: Broker, connection: NamespaceConnection
) -> None:
    receiver, _ = await accept(connection, "a")
    broker.advance(timedelta(minutes=2))
    condition = await asyncio.wait_for(receiver.detached, PATIENCE)
    assert condition is not None
    assert condition.symbol == SESSION_LOCK_LOST
    with pytest.raises(LinkRefusedError) as raised:
        await receiver.renew(management(connection))
    assert raised.value.condition is not None
    assert raised.value.condition.symbol == SESSION_LOCK_LOST


@pytest.mark.spec("C-16")
async def test_the_state_of_a_session_is_kept_between_its_receivers(
    connection: NamespaceConnection,
) -> None:
    receiver, _ = await accept(connection, "a")
    node = management(connection)
    assert await receiver.state(node) is None
    await receiver.set_state(node, b"half done")
    await receiver.close()
    again, _ = await accept(connection, "a")
    assert await again.state(node) == b"half done"
    await again.set_state(node, None)
    assert await again.state(node) is None


async def test_an_empty_state_is_none(connection: NamespaceConnection) -> None:
    receiver, _ = await accept(connection, "")
    node = management(connection)
    await receiver.set_state(node, b"")
    assert await receiver.state(node) is None
    assert receiver.session_id == ""


async def test_a_queue_without_sessions_refuses_a_session_receiver(connection: NamespaceConnection) -> None:
    with pytest.raises((LinkRefusedError, TokenRefusedError)) as raised:
        await connection.open_session_receiver("orders", print)
    assert not isinstance(raised.value, SessionUnavailableError)


async def test_an_abandoned_wait_for_a_session_holds_none(
    pair: Pair, connection: NamespaceConnection
) -> None:
    given_up = asyncio.create_task(accept(connection))
    await asyncio.sleep(0)
    given_up.cancel()
    await asyncio.wait([given_up])
    await put(pair.primary, "carts", [of_session("a", 0)])
    receiver, _ = await accept(connection)
    assert receiver.session_id == "a"


async def test_a_wait_for_a_session_ends_with_its_connection(
    pair: Pair, connection: NamespaceConnection
) -> None:
    waiting = asyncio.create_task(accept(connection))
    await until(lambda: connection.claims == 1)
    pair.primary.take_down("reset")
    with pytest.raises(ConnectionLostError):
        await waiting


async def test_an_attach_that_is_never_answered_is_given_up(
    pair: Pair, connection: NamespaceConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "answer_timeout", 0.05)
    fault = pair.primary.fault("carts", Lose(), operation="attach")
    with fault, pytest.raises(LinkRefusedError, match="no answer within"):
        await accept(connection, timeout=0.05)
