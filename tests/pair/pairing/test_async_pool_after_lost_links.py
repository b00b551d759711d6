"""The pool of asyncio senders while links are lost under their calls: each call has a link of its own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbpair.pair.pairing.aio.sender_pool import MAX_SENDERS
from tests.pair.pairing.async_pools import MakePool, Pooled, pools
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-66")


@pytest.fixture
async def make() -> AsyncIterator[MakePool]:
    async with pools() as build:
        yield build


async def reduced(make: MakePool) -> Pooled:
    """A pool whose links were lost three times in a row, so that each call has a link of its own."""
    it = make()
    for _ in range(3):
        (pooled,) = await it.acquired(1)
        pooled.wire.is_shared = True
        it.pool.discard(pooled)
    return it


@pytest.mark.spec("H-54")
async def test_after_repeated_link_losses_each_call_waits_for_its_own_link(
    make: MakePool,
) -> None:
    it = await reduced(make)
    it.later.extend(Sender(hangs=True) for _ in range(3))
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(3)]
    await turns()
    first, second, third = it.made[-3:]
    assert all(each.is_entered.is_set() for each in (first, second, third))
    second.gate.set()
    await turns()
    assert sum(call.done() for call in calls) == 1  # which of those that wake together is asyncio's to say
    third.gate.set()
    first.gate.set()
    assert {(await call).sender for call in calls} == {first, second, third}
    assert len(it.made) == 6


@pytest.mark.spec("H-54")
async def test_a_failed_opening_ends_the_wait_of_only_one_isolated_call(make: MakePool) -> None:
    it = await reduced(make)
    refused = Sender(ServiceBusConnectionError(message="refused"), hangs=True)
    it.later.extend([Sender(hangs=True), refused])
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(2)]
    await turns()
    refused.gate.set()
    await turns()
    (ended,), (waiting,) = await asyncio.wait(calls, return_when=asyncio.FIRST_COMPLETED)
    with pytest.raises(ServiceBusConnectionError, match="refused"):
        await ended
    it.made[-2].gate.set()
    assert (await waiting).sender is it.made[-2]


@pytest.mark.spec("H-54")
async def test_a_fresh_isolated_call_does_not_disturb_links_in_use(make: MakePool) -> None:
    it = await reduced(make)
    busy, idle, failed = await it.several(3)
    it.pool.release(idle)
    it.pool.discard(failed)
    (fresh,) = await it.acquired(1, is_fresh=True)
    assert fresh not in (busy, idle, failed)
    assert (busy.is_retired, idle.is_retired) == (False, True)


@pytest.mark.spec("H-54")
async def test_calls_that_keep_apart_share_links_again_once_there_are_as_many_as_allowed(
    make: MakePool,
) -> None:
    it = await reduced(make)
    for pooled in await it.acquired(MAX_SENDERS):
        pooled.wire.is_shared = True
    assert it.pool.links == MAX_SENDERS
    (shared,) = await it.acquired(1)
    assert shared.calls == 2


@pytest.mark.spec("H-54")
async def test_calls_that_were_cancelled_are_no_lost_links(make: MakePool) -> None:
    it = make()
    for _ in range(4):
        (pooled,) = await it.acquired(1)
        it.pool.abandon(pooled)
    await turns()
    assert [bool(sender.closings) for sender in it.made] == [True] * 4


@pytest.mark.spec("H-54")
async def test_isolated_calls_share_the_existing_links_if_no_more_open(make: MakePool) -> None:
    it = await reduced(make)
    (busy,) = await it.acquired(1)
    busy.wire.is_shared = True
    it.later.append(Sender(ServiceBusConnectionError(message="refused")))
    assert await it.acquired(1) == [busy]
    busy.wire.is_shared = False
    it.later.append(Sender(ServiceBusConnectionError(message="refused")))
    with pytest.raises(ServiceBusConnectionError, match="refused"):  # there is no room on it
        await it.acquired(1)


@pytest.mark.spec("H-54", "R-8")
async def test_a_late_opening_does_not_end_the_openings_of_other_calls(make: MakePool) -> None:
    it = await reduced(make)
    it.later.extend(Sender(hangs=True) for _ in range(5))
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(4)]
    await turns()
    it.pool._opening.is_late = True  # a call gave up on it
    last = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    await turns()
    *awaited, _, new = it.made[-5:]
    for sender in (*awaited, new):
        sender.gate.set()
    found = await asyncio.wait_for(asyncio.gather(*calls, last), PATIENCE)
    assert {each.sender for each in found} >= {*awaited, new}
