"""A syphon whose clock differs from the brokers' by minutes, and one that resumes after its locks ended."""

from __future__ import annotations

import asyncio
import signal
import time
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from sbpair.broker import Broker, ShiftedClock
from sbpair.broker.faults import RejectWith
from sbpair.pair.syphon.events import ClockDiffers
from tests.children import suspend
from tests.pair.syphon.pair import BACKLOGS, arrived, pair_of, parked, start_syphon
from tests.waiting import PATIENCE, until

MESSAGES = 300
LOCK = 5_000  # ms, the shortest allowed; one test waits for its end


@pytest.mark.spec("F-66", "G-4")
@pytest.mark.parametrize("minutes", [-5, -1, 1, 5])
async def test_a_syphon_with_a_wrong_clock_forwards_each_message_once_and_says_so(
    monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    renewals = count_renewals(monkeypatch)
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock(timedelta(minutes=minutes))) as broker:
        pair = pair_of(broker)
        await pair.park([parked(number) for number in range(MESSAGES)])
        ours = time.time()  # frozen, so that a pause of this machine does not age a lock
        for module in ("pump", "locks"):
            monkeypatch.setattr(
                f"sbpair.pair.syphon.forward.{module}.time", SimpleNamespace(time=lambda: ours)
            )
        syphon = pair.syphon()
        shutdown = asyncio.Event()
        running = asyncio.create_task(syphon.run(shutdown))
        await until(lambda: syphon.counters.completed == MESSAGES)
        if abs(minutes) == 5:
            await until(lambda: bool(pair.said(ClockDiffers)))
        shutdown.set()
        await running

        assert await arrived(pair) == {f"m{number}": 1 for number in range(MESSAGES)}
        assert (syphon.counters.lock_lost, syphon.counters.released, pair.set_aside()) == (0, 0, 0)
        assert renewals == []  # no renewal where the clock is known
        for event in pair.said(ClockDiffers):
            assert event.ahead == pytest.approx(60 * minutes, abs=PATIENCE)


def count_renewals(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the number of locks in each renewal."""

    from sbpair.pair.client import locks

    asked: list[int] = []
    renew = locks.renew_locks

    async def counted(connection, backlog, tags):
        asked.append(len(tags))
        return await renew(connection, backlog, tags)

    monkeypatch.setattr(locks, "renew_locks", counted)
    return asked


@pytest.mark.spec("F-66")
async def test_a_clock_set_ahead_during_a_drain_costs_a_renewal_and_no_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    renewals = count_renewals(monkeypatch)
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        pair = pair_of(broker)
        syphon = pair.syphon()
        shutdown = asyncio.Event()
        running = asyncio.create_task(syphon.run(shutdown))
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)

        renewals.clear()
        offset = time.time
        ahead = [0.0]
        monkeypatch.setattr(time, "time", lambda: offset() + ahead[0])
        ahead[0] = 100.0  # the local clock jumps ahead: each delivery appears to be 100 s old
        await pair.park([parked(number) for number in range(1, 11)])
        await until(lambda: syphon.counters.completed == 11)
        assert 1 <= sum(renewals) <= 10
        asked = sum(renewals)
        await pair.park([parked(number) for number in range(11, 21)])
        await until(lambda: syphon.counters.completed == 21)
        assert sum(renewals) == asked  # the clock is known now
        shutdown.set()
        await running
        assert await arrived(pair) == {f"m{number}": 1 for number in range(21)}


@pytest.mark.slow
@pytest.mark.spec("F-66", "G-4")
async def test_a_resumed_syphon_does_not_repeat_what_its_successor_forwarded() -> None:
    """It is suspended with deliveries in its socket; their locks end and another syphon forwards the messages."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = pair_of(broker)
        for index in range(BACKLOGS):
            queue = pair.secondary.description(pair.backlog(index))
            pair.secondary.update_queue(pair.backlog(index), replace(queue, lock_duration=LOCK))
        sleeper = await start_syphon(pair, "--window", "10")  # no credit remains for redeliveries
        try:
            await pair.park([parked(1000)], 0)
            await until(lambda: pair.primary.counts("orders").active == 1 and pair.waiting() == 0)

            suspend(sleeper.pid)
            await pair.park([parked(number) for number in range(10)], 0)  # in transit to its socket
            await pair.park(
                [parked(number) for number in range(10, 20)], 1
            )  # the first deliveries of their link
            for index in range(BACKLOGS):  # the next receiver gets the full lock duration
                queue = pair.secondary.description(pair.backlog(index))
                pair.secondary.update_queue(pair.backlog(index), replace(queue, lock_duration=60_000))
            counters = await pair.syphon().drain()  # waits until those locks have ended
            assert (counters.forwarded, pair.primary.counts("orders").active) == (20, 21)

            sleeper.send_signal(signal.SIGCONT)
            await pair.park([parked(2000)], 0)
            await until(lambda: pair.primary.counts("orders").active >= 22 and pair.waiting() == 0)
            sleeper.send_signal(signal.SIGTERM)
            async with asyncio.timeout(PATIENCE):
                _, said = await sleeper.communicate()
            assert sleeper.returncode == 0, said.decode()
        finally:
            if sleeper.returncode is None:
                sleeper.kill()
                await sleeper.wait()
        assert await arrived(pair) == {f"m{number}": 1 for number in (*range(20), 1000, 2000)}


@pytest.mark.spec("F-66", "F-44")
async def test_a_message_waiting_for_a_busy_primary_is_sent_only_under_a_valid_lock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        pair = pair_of(broker)
        syphon = pair.syphon()
        shutdown = asyncio.Event()
        with pair.primary.fault("orders", RejectWith("com.microsoft:server-busy", "busy")):
            await pair.park([parked(number) for number in range(5)])
            running = asyncio.create_task(syphon.run(shutdown))
            await until(lambda: syphon.counters.pending == 5)
            for message in syphon._session._pumps[0]._messages.values():
                message.lock_ends = 0.0  # simulates having slept until now
            broker.advance(timedelta(minutes=2))
        await until(lambda: syphon.counters.completed == 5)
        shutdown.set()
        await running
        assert syphon.counters.lock_lost == 0
        assert await arrived(pair) == {f"m{number}": 1 for number in range(5)}
