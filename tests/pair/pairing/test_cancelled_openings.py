"""An opening that is cancelled, wherever it waits, leaves no timer and no call that waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest
from azure.servicebus.exceptions import ServiceBusError

from sbpair.pair.pairing.aio.sender_pool import LOOK, AsyncSenderPool, Tasks
from sbpair.pair.pairing.shared.waiting import MAX_LATE_OPENINGS, StillWaitingError
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-107")


async def found() -> None:
    """The name is known."""


async def never_found() -> None:
    await asyncio.Event().wait()


async def no_thread() -> None:
    raise StillWaitingError(message="earlier operations still hang")


# Where an opening waits: for the name, for the link, in the pause after it got no thread.
PLACES = pytest.mark.parametrize("find", [found, never_found, no_thread])
TURNS = pytest.mark.parametrize("turn", range(6))


def timers() -> list[object]:
    """The timers of the loop that will fire."""
    return [handle for handle in asyncio.get_running_loop()._scheduled if not handle.cancelled()]  # type: ignore[attr-defined]


def pool_of(find: Callable[[], Awaitable[None]], tasks: Tasks) -> AsyncSenderPool:
    return AsyncSenderPool(lambda: Sender(hangs=True), tasks, find=find)  # type: ignore[arg-type, return-value]


@PLACES
@TURNS
async def test_the_end_of_a_client(find: Callable[[], Awaitable[None]], turn: int) -> None:
    tasks = Tasks()
    pool = pool_of(find, tasks)
    call = asyncio.ensure_future(pool.acquire(time.monotonic() + PATIENCE))
    for _ in range(turn):
        await asyncio.sleep(0)
    tasks.cancel()
    pool.close(now=True)
    with pytest.raises(ServiceBusError, match="closed"):
        await call
    await tasks.join(PATIENCE)
    await turns()
    assert timers() == []


@PLACES
@TURNS
async def test_cancelling_an_opening_cancels_only_its_tasks(
    find: Callable[[], Awaitable[None]], turn: int
) -> None:
    tasks = Tasks()
    pool = pool_of(find, tasks)
    call = asyncio.ensure_future(pool.acquire(time.monotonic() + PATIENCE))
    await asyncio.sleep(0)  # the opening is a task
    for _ in range(turn):
        await asyncio.sleep(0)
    tasks.cancel()
    with pytest.raises(ServiceBusError, match="closed"):
        await asyncio.wait_for(call, PATIENCE)
    await tasks.join(PATIENCE)
    await turns()
    assert timers() == []


@PLACES
@TURNS
async def test_one_of_many_late_openings_is_cancelled(find: Callable[[], Awaitable[None]], turn: int) -> None:
    tasks = Tasks()
    pool = pool_of(find, tasks)
    for _ in range(MAX_LATE_OPENINGS + 2):
        pool.warm()
        for _ in range(turn):
            await asyncio.sleep(0)
        pool.renew()  # what opens is outdated; all but a few end
    await turns()
    opening = [task for task in asyncio.all_tasks() if task.get_name() == "sbpair-open"]
    assert len(opening) <= MAX_LATE_OPENINGS
    tasks.cancel()
    pool.close(now=True)
    await tasks.join(PATIENCE)
    await turns()
    assert timers() == []


async def test_the_timer_of_a_waiting_opening_continues() -> None:
    tasks = Tasks()
    pool = pool_of(never_found, tasks)
    pool.warm()
    await turns()
    assert len(timers()) == 2  # its own, and the limit of its time
    assert all(handle.when() - asyncio.get_running_loop().time() > 0 for handle in timers())  # type: ignore[attr-defined]
    assert min(handle.when() for handle in timers()) <= asyncio.get_running_loop().time() + LOOK  # type: ignore[attr-defined]
    pool.close(now=True)
    await tasks.join(PATIENCE)
