"""A message whose lock would end while it waits is renewed or released; never settled late or dead-lettered."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest

from sbpair.auth.connection_string import parse
from sbpair.broker import Broker
from sbpair.broker.faults import RejectWith
from sbpair.client.dial import connect
from sbpair.client.errors import LinkRefused
from sbpair.syphon.locks import renew_locks
from tests.syphon.pair import BACKLOGS, PATIENCE, Pair, message_id, parked, take, until

LOCK = 5_000  # ms, the shortest there is: these tests wait for it, since the syphon goes by its own clock


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
        for path in ("orders", "invoices"):
            pair.primary.create_queue(path)
        for index in range(BACKLOGS):
            pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1, lock_duration=LOCK)
        yield pair


async def stop(shutdown: asyncio.Event, running: asyncio.Task[None]) -> None:
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


@pytest.mark.spec("F-62")
async def test_the_locks_are_renewed_while_a_primary_takes_longer_than_they_last(pair: Pair) -> None:
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await pair.park([parked(0)])
    await until(lambda: syphon.counters.completed == 1)  # the link is open: what follows is in flight

    pair.primary.take_down("silent")
    await pair.park([parked(number) for number in range(1, 6)])
    await until(lambda: syphon.counters.pending == 5)
    await asyncio.sleep(1.5 * LOCK / 1000)
    assert (syphon.counters.received, syphon.counters.lock_lost) == (6, 0)
    pair.primary.bring_up()

    await until(lambda: syphon.counters.completed == 6)
    assert (pair.primary.counts("orders").active, syphon.counters.lock_lost, pair.set_aside()) == (6, 0, 0)
    await stop(shutdown, running)


@pytest.mark.spec("F-62", "F-44")
async def test_what_is_held_for_a_busy_primary_keeps_its_lock_and_comes_once(pair: Pair) -> None:
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    with pair.primary.fault("orders", RejectWith("com.microsoft:server-busy", "busy")):
        await pair.park([parked(number) for number in range(5)])
        running = asyncio.create_task(syphon.run(shutdown))
        await until(lambda: syphon.counters.received == 5)
        await asyncio.sleep(1.5 * LOCK / 1000)
        assert (syphon.counters.completed, pair.waiting(), pair.set_aside()) == (0, 5, 0)

    await until(lambda: syphon.counters.completed == 5)
    found = sorted(map(message_id, await take(pair.primary, "orders", 5)))
    assert found == [f"m{number}" for number in range(5)]
    assert (syphon.counters.received, syphon.counters.lock_lost, pair.set_aside()) == (5, 0, 0)
    await stop(shutdown, running)


async def test_of_several_locks_those_that_hold_are_renewed_and_the_lost_are_told_apart(pair: Pair) -> None:
    await pair.park([parked(0), parked(1)])
    connection = await connect(parse(pair.secondary.connection_string))
    tags: list[bytes] = []
    try:
        receiver = await connection.open_receiver(pair.backlog(0), lambda event: tags.append(event.tag))
        receiver.flow(2)
        await until(lambda: len(tags) == 2)
        first, lost, last = await renew_locks(connection, pair.backlog(0), [tags[0], bytes(16), tags[1]])
        assert await renew_locks(connection, pair.backlog(0), [bytes(16)]) == [None]
    finally:
        await connection.close()
    assert lost is None
    assert first == pytest.approx(last, abs=1)
    assert first == pytest.approx(time.time() + LOCK / 1000, abs=3)


async def test_a_node_that_does_not_know_is_not_taken_for_a_lost_lock(pair: Pair) -> None:
    connection = await connect(parse(pair.secondary.connection_string))
    try:
        await connection.authorize(pair.backlog(0))
        with pytest.raises(LinkRefused):
            await renew_locks(connection, "nowhere", [bytes(16)])
    finally:
        await connection.close()
