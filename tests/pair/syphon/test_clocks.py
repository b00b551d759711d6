"""Suspended machines, slow answers and peers with short timeouts (R-28)."""

from __future__ import annotations

import asyncio
import sys

import pytest

from sbpair.pair.amqp.performatives import Condition, Rejected
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.client.link import DEAD_LETTER, REASON
from sbpair.pair.syphon.forward import in_flight
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, redrive
from tests.pair.syphon.pair import Pair, parked
from tests.pair.syphon.test_sides import running
from tests.waiting import PATIENCE, until


class Suspended:
    """A clock of suspended time that the test sets."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.spec("R-28", "F-66")
async def test_locks_are_checked_after_the_machine_was_suspended(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended = Suspended()
    monkeypatch.setattr(in_flight, "time_suspended", suspended)
    asked = []
    true = in_flight.InFlightMessage.may_go

    def may_go(message: in_flight.InFlightMessage, now: float) -> bool:
        if not asked:
            suspended.seconds += 3600  # between arrival and forwarding
        asked.append(true(message, now))
        return asked[-1]

    monkeypatch.setattr(in_flight.InFlightMessage, "may_go", may_go)
    syphon = pair.syphon()
    async with running(syphon):
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)
    assert asked == [False, True]  # not before its lock was renewed
    assert pair.primary.counts("orders").active == 1


@pytest.mark.spec("R-28")
@pytest.mark.skipif(sys.platform != "linux", reason="this system does not tell")
def test_the_suspended_time_does_not_grow_while_running() -> None:
    before = in_flight.time_suspended()
    assert abs(in_flight.time_suspended() - before) < in_flight.MIN_SUSPENSION


@pytest.mark.spec("R-28")
async def test_the_first_heartbeat_is_sent_when_the_peer_needs_it(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    try:
        due = connection._engine.next_timer()
        assert due is not None
        assert connection._timer is not None
        assert connection._timer.when() <= due
    finally:
        await connection.close()


@pytest.mark.spec("R-28")
async def test_a_close_after_a_long_silence_has_its_full_timeout(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    engine = connection._engine
    engine._now -= 3600  # how long nothing was received
    now = asyncio.get_running_loop().time()
    closing = asyncio.create_task(connection.close())
    await asyncio.sleep(0)
    assert engine._close_deadline is not None
    assert engine._close_deadline >= now
    await closing


async def set_aside(pair: Pair, count: int) -> None:
    """Dead-letter ``count`` messages, the last of them with a different reason."""
    await pair.park([parked(number) for number in range(count)])
    connection = await connect(parse(pair.secondary.connection_string))
    try:
        came: list = []
        receiver = await connection.open_receiver(pair.backlog(0), came.append)
        receiver.flow(count)
        await until(lambda: len(came) == count)
        for event in came:
            reason = "rare" if event is came[-1] else "common"
            info = {REASON: reason}
            receiver.settle(event.delivery_id, event.delivery_id, Rejected(Condition(DEAD_LETTER, "x", info)))
        await until(lambda: pair.set_aside() == count)
    finally:
        await connection.close()


@pytest.mark.spec("R-28")
async def test_a_rare_reason_is_found_behind_dead_letters_whose_locks_expire(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.syphon.watch.deadletters.ROUND", 5)
    await set_aside(pair, 30)
    connection = await connect(parse(pair.secondary.connection_string))
    counts, rounds = RedriveCounts(), 0

    async def renewed(connection, path, tags):
        """Locks of a second, so that a message is redelivered in every other round."""
        nonlocal rounds
        rounds += 1
        return [None] * len(tags) if rounds % 2 else [1.0] * len(tags)

    monkeypatch.setattr("sbpair.pair.syphon.watch.deadletters.TICK", 0.0)
    monkeypatch.setattr("sbpair.pair.client.locks.MIN_MARGIN_SECONDS", 300.0)
    monkeypatch.setattr("sbpair.pair.client.locks.renew_locks", renewed)
    try:
        async with asyncio.timeout(PATIENCE):
            await redrive(connection, pair.backlog(0), counts, reason="RARE", stop=asyncio.Event())
    finally:
        await connection.close()
    assert (counts.redriven, counts.left, counts.missed) == (1, 29, 0)


@pytest.mark.spec("R-28")
async def test_a_dead_letter_locked_by_another_client_is_counted_as_missed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.syphon.watch.deadletters.WAIT_FOR_OTHERS", 0.1)
    monkeypatch.setattr("sbpair.pair.syphon.watch.deadletters.PEEK_EVERY", 0.01)
    await set_aside(pair, 3)
    connection = await connect(parse(pair.secondary.connection_string))
    counts = RedriveCounts()
    try:
        came: list = []
        receiver = await connection.open_receiver(pair.backlog(0) + "/$DeadLetterQueue", came.append)
        receiver.flow(3)
        await until(lambda: len(came) == 3)
        async with asyncio.timeout(PATIENCE):
            await redrive(connection, pair.backlog(0), counts, stop=asyncio.Event())
    finally:
        await connection.close()
    assert (counts.redriven, counts.missed) == (0, 3)
