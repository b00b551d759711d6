"""Messages of the largest size that a namespace accepts are forwarded."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.message import Message
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client import connection
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.pair.syphon.events import BacklogDetached, MessageSetAside
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, redrive
from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, peek_parked
from tests.pair.syphon.pair import BACKLOGS, Pair, parked, take
from tests.waiting import PATIENCE, until

MB = 1_000_000
LARGEST = 102_400  # KB, the limit of a Premium entity


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Two Premium namespaces whose queues accept the largest messages."""
    with Broker({"contoso": 0, "contoso-dr": 0}, tier="Premium") as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
        pair.primary.create_queue("orders", max_message_size_in_kilobytes=LARGEST)
        pair.primary.create_queue("small")
        for index in range(BACKLOGS):
            pair.secondary.create_queue(
                pair.backlog(index), max_delivery_count=2**31 - 1, max_message_size_in_kilobytes=LARGEST
            )
        yield pair


@pytest.mark.slow
@pytest.mark.spec("R-21")
async def test_messages_of_any_size_accepted_by_their_entity_come_home(pair: Pair) -> None:
    sizes = [2 * MB, 1, 40 * MB, 5 * MB]
    for number, size in enumerate(sizes):
        await pair.park([parked(number, body=bytes(size))])

    async with asyncio.timeout(3 * PATIENCE):
        counters = await pair.syphon().drain()

    assert (counters.completed, counters.dead_lettered) == (4, 0)
    arrived = [Message.decode(each) for each in await take(pair.primary, "orders", 4)]
    assert sorted(len(message.body.data) for message in arrived) == sorted(sizes)


@pytest.mark.spec("R-21")
async def test_a_message_too_large_for_its_entity_is_dead_lettered_and_can_be_redriven(
    pair: Pair,
) -> None:
    await pair.park([parked(1, "small", bytes(3 * MB)), parked(2, "small", bytes(2 * MB)), parked(3)])

    counters = await pair.syphon().drain()

    assert (counters.forwarded, counters.dead_lettered) == (1, 2)
    assert [event.reason for event in pair.said(MessageSetAside)] == ["MessageSizeExceeded"] * 2
    client = await connect(parse(pair.secondary.connection_string))
    try:
        seen = [each async for each in peek_parked(client, pair.backlog(0) + DEAD_LETTERS)]
        assert [message.message_id for message in seen] == ["m1", "m2"]
        counts = RedriveCounts()
        await redrive(client, pair.backlog(0), counts, stop=asyncio.Event())
        assert (counts.redriven, counts.refused) == (2, 0)
    finally:
        await client.close()
    assert (pair.waiting(), pair.set_aside()) == (2, 0)


@pytest.mark.spec("R-21")
async def test_no_local_limit_settles_a_message(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message beyond the syphon's memory stays in its backlog, and the state reports it as not served."""
    monkeypatch.setattr(connection, "MAX_MESSAGE_BYTES", MB)
    await pair.park([parked(1, body=bytes(2 * MB))])
    syphon, shutdown = pair.syphon(), asyncio.Event()
    running = asyncio.ensure_future(syphon.run(shutdown))
    await until(lambda: bool(pair.said(BacklogDetached)))
    assert "amqp:link:message-size-exceeded" in pair.said(BacklogDetached)[0].reason
    assert (pair.waiting(), pair.set_aside(), syphon.counters.received) == (1, 0, 0)
    shutdown.set()
    await running


@pytest.mark.spec("R-21")
async def test_an_oversized_answer_is_an_error_and_not_a_silence(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_MESSAGE_BYTES", MB)
    await pair.park([parked(1, body=bytes(2 * MB))])
    client = await connect(parse(pair.secondary.connection_string))
    try:
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(LinkRefusedError, match="message-size-exceeded"):
                [each async for each in peek_parked(client, pair.backlog(0))]
    finally:
        await client.close()


@pytest.mark.spec("R-27", "R-21")
async def test_a_syphon_stops_reading_while_its_memory_is_full_and_continues_after(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over real sockets: credit granted for small messages is used by large ones."""
    paused: list[int] = []
    pause = connection.NamespaceConnection.pause_reading

    def pausing(self: connection.NamespaceConnection) -> None:
        paused.append(1)
        pause(self)

    monkeypatch.setattr(connection.NamespaceConnection, "pause_reading", pausing)
    for index in range(BACKLOGS):
        await pair.park([parked(number, body=bytes(2 * MB)) for number in range(12)], index)

    async with asyncio.timeout(3 * PATIENCE):
        counters = await pair.syphon(memory_budget=3 * MB).drain()

    assert (counters.completed, counters.dead_lettered, counters.lock_lost) == (24, 0, 0)
    assert paused
    assert pair.primary.counts("orders").active == 24
