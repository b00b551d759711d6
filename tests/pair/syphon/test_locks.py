"""A message whose lock would end while it waits is renewed or released; never settled late or dead-lettered."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from sbpair.broker.faults import Delay, Operation, RejectWith
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.pair.client.locks import renew_locks
from tests.pair.syphon.driven import BACKLOGS, CLOCK, Driven, play
from tests.pair.syphon.pair import Pair, parked
from tests.waiting import until

LOCK = 60.0  # seconds, the lock duration of a backlog


@pytest.mark.spec("F-62")
def test_locks_are_renewed_while_the_primary_takes_longer_than_they_last() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon(operation_timeout=timedelta(minutes=5))
        async with world.running(syphon):
            with world.fault("contoso", "orders", Delay(2.5 * LOCK), Operation.SEND):
                await world.park(parked(number) for number in range(5))
                await world.until(lambda: syphon.counters.pending == 5)
                await asyncio.sleep(1.5 * LOCK)
                assert (syphon.counters.received, syphon.counters.completed) == (5, 0)
                await world.until(lambda: syphon.counters.completed == 5)
        assert (world.active("contoso", "orders"), syphon.counters.received) == (5, 5)
        assert (syphon.counters.lock_lost, set_aside(world)) == (0, 0)

    play(story)


@pytest.mark.spec("F-62", "F-44")
def test_a_message_held_for_a_busy_primary_keeps_its_lock_and_arrives_once() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        await world.park(parked(number) for number in range(5))
        async with world.running(syphon):
            with world.fault("contoso", "orders", RejectWith("com.microsoft:server-busy", "busy")):
                await world.until(lambda: syphon.counters.received == 5)
                await asyncio.sleep(1.5 * LOCK)
                assert (syphon.counters.completed, world.active("contoso-dr", BACKLOGS[0])) == (0, 5)
                assert set_aside(world) == 0
            await world.until(lambda: syphon.counters.completed == 5)
        found = sorted(
            str(each.message_id) for each in world.queue("contoso", "orders").peek(1, 9, CLOCK.now())
        )
        assert found == [f"m{number}" for number in range(5)]
        assert (syphon.counters.received, syphon.counters.lock_lost, set_aside(world)) == (5, 0, 0)

    play(story)


def set_aside(world: Driven) -> int:
    return sum(world.queue("contoso-dr", path).counts(CLOCK.now()).dead_letter for path in BACKLOGS)


async def test_valid_locks_are_renewed_and_lost_ones_reported_separately(pair: Pair) -> None:
    await pair.park([parked(0), parked(1)])
    connection = await connect(parse(pair.secondary.connection_string))
    tags: list[bytes] = []
    try:
        receiver = await connection.open_receiver(pair.backlog(0), lambda event: tags.append(event.tag))
        receiver.flow(2)
        await until(lambda: len(tags) == 2)
        before = time.time()
        first, lost, last = await renew_locks(connection, pair.backlog(0), [tags[0], bytes(16), tags[1]])
        assert await renew_locks(connection, pair.backlog(0), [bytes(16)]) == [None]
    finally:
        await connection.close()
    assert lost is None
    for end in (first, last):
        assert before - 0.1 <= end - LOCK <= time.time() + 0.1


async def test_a_node_without_an_answer_is_not_taken_for_a_lost_lock(pair: Pair) -> None:
    connection = await connect(parse(pair.secondary.connection_string))
    try:
        await connection.authorize(pair.backlog(0))
        with pytest.raises(LinkRefusedError):
            await renew_locks(connection, "nowhere", [bytes(16)])
    finally:
        await connection.close()
