"""Suspend the syphon for longer than a lock, so that its messages belong to another when it resumes."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import Iterator
from datetime import timedelta

import httpx
import pytest

from sbpair.broker import Broker, ShiftedClock
from tests.children import suspend
from tests.pair.syphon.pair import BACKLOGS, Pair, arrived, parked, start_syphon
from tests.waiting import PATIENCE, until

MESSAGES = 10  # fewer than the initial window, so it holds all of them at once


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        yield broker


@pytest.fixture
def pair(broker: Broker) -> Pair:
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    pair.primary.create_queue("orders")
    for index in range(BACKLOGS):
        pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1)
    return pair


async def page_of(process: asyncio.subprocess.Process) -> str:
    """Return the URL of the syphon's status page."""
    assert process.stderr is not None
    async with asyncio.timeout(PATIENCE):
        while line := (await process.stderr.readline()).decode():
            if found := re.search(r"http://127\.0\.0\.1:\d+/state", line):
                return found[0]
    raise AssertionError("the syphon ended before it said where its pages are")


@pytest.mark.slow
@pytest.mark.spec("F-17")
async def test_a_syphon_that_sleeps_past_its_locks_loses_nothing_and_repeats_each_message_once(
    broker: Broker, pair: Pair
) -> None:
    sleeper = await start_syphon(pair, "--status-port", "0")
    try:
        await trial(broker, pair, sleeper)
    finally:
        if sleeper.returncode is None:
            sleeper.kill()
            await sleeper.wait()


async def trial(broker: Broker, pair: Pair, sleeper: asyncio.subprocess.Process) -> None:
    page = await page_of(sleeper)
    await pair.park([parked(MESSAGES)])
    await until(lambda: pair.waiting() == 0)  # both links are open

    pair.primary.take_down("silent")
    await pair.park([parked(number) for number in range(MESSAGES)])
    async with asyncio.timeout(PATIENCE), httpx.AsyncClient() as client:
        while (await client.get(page)).json()["counters"]["pending"] < MESSAGES:
            await asyncio.sleep(0.02)
    suspend(sleeper.pid)
    pair.primary.bring_up()  # it reads what the suspended syphon had sent
    await until(lambda: pair.primary.counts("orders").active == MESSAGES + 1)
    broker.advance(timedelta(minutes=2))  # all locks have ended

    sleeper.send_signal(signal.SIGCONT)
    await until(lambda: pair.waiting() == 0)
    sleeper.send_signal(signal.SIGTERM)
    _, said = await sleeper.communicate()

    assert sleeper.returncode == 0, said.decode()
    found = await arrived(pair)
    assert set(found) == {f"m{number}" for number in range(MESSAGES + 1)}
    assert max(found.values()) == 2  # sent once before the suspension and once more
    assert pair.set_aside() == 0
