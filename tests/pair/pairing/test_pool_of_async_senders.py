"""The pool of asyncio senders over scripted senders that open, hang or fail, without real time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.pair.pairing.aio.sender_pool import (
    IDLE,
    LOOK,
    MAX_SENDERS,
)
from sbpair.pair.pairing.decide.crowding import CROWD
from sbpair.pair.pairing.shared import waiting
from sbpair.pair.pairing.shared.waiting import StillWaitingError
from tests.pair.pairing.async_pools import MakePool, pools
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-66")


@pytest.fixture
async def make() -> AsyncIterator[MakePool]:
    async with pools() as build:
        yield build


async def test_a_sender_is_opened_beside_and_used_again(make: MakePool) -> None:
    it = make()
    began = time.monotonic()
    (pooled,) = await it.acquired(1)
    assert pooled.sender is it.made[0]
    assert (pooled.calls, pooled.opened_at > began, pooled.is_open) == (1, True, True)
    assert (it.pool.links, it.pool.calls, it.opened) == (1, 1, [1])
    it.pool.release(pooled)
    assert (pooled.calls, it.pool.calls) == (0, 0)
    assert await it.acquired(1) == [pooled]
    assert len(it.made) == 1


@pytest.mark.spec("R-8")
async def test_an_unused_link_opened_before_its_call_may_have_died_while_idle(
    make: MakePool,
) -> None:
    it = make()
    it.pool.warm()
    await it.tasks.join(PATIENCE)
    began = time.monotonic()
    (pooled,) = await it.acquired(1)
    assert pooled.sender is it.made[0]
    assert pooled.opened_at < began


async def test_calls_share_a_sender_up_to_a_limit_and_then_another_is_opened(make: MakePool) -> None:
    it = make()
    (first,) = await it.acquired(1)
    first.wire.is_shared = True
    assert set(await it.acquired(CROWD - 1)) == {first}
    assert first.calls == CROWD
    await turns()
    assert len(it.made) == 1
    assert it.pool.try_acquire() is first  # no call waits while any sender has room
    await turns()
    assert len(it.made) == it.pool.links == 2
    second = it.pool.try_acquire()
    assert second is not None
    assert second.sender is it.made[1]
    second.wire.is_shared = True
    second.calls = CROWD + 5
    assert it.pool.try_acquire() is first  # the one with the fewest calls


async def test_an_unshareable_sender_serves_one_call(make: MakePool) -> None:
    it = make()
    one, two = await it.several(2)
    assert one is not two
    it.pool.release(one)
    it.pool.release(two)
    assert it.pool.try_acquire() is one
    assert it.pool.try_acquire() is two
    assert it.pool.try_acquire() is None


async def test_the_number_of_senders_is_limited_and_a_call_waits_for_one(
    make: MakePool,
) -> None:
    it = make()
    used = await it.several(MAX_SENDERS)
    waiting = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    await turns()
    assert len(it.made) == MAX_SENDERS
    assert not waiting.done()
    it.pool.release(used[3])
    assert await asyncio.wait_for(waiting, PATIENCE) is used[3]
    with pytest.raises(StillWaitingError, match="All links to the entity are in use"):
        await it.pool.acquire(time.monotonic() - 1.0)


async def test_calls_that_wait_are_served_in_order(make: MakePool) -> None:
    it = make()
    used = await it.several(MAX_SENDERS)
    order: list[int] = []

    async def call(number: int) -> None:
        await it.pool.acquire(time.monotonic() + PATIENCE)
        order.append(number)

    calls = []
    for number in range(3):
        calls.append(asyncio.ensure_future(call(number)))
        await turns()
    for pooled in used[:3]:
        it.pool.release(pooled)
        await turns()
    await asyncio.gather(*calls)
    assert order == [0, 1, 2]


async def test_a_call_that_is_woken_in_vain_keeps_its_place(make: MakePool) -> None:
    it = make()
    used = await it.several(MAX_SENDERS)
    order: list[int] = []

    async def call(number: int) -> None:
        await it.pool.acquire(time.monotonic() + PATIENCE)
        order.append(number)

    calls = [asyncio.ensure_future(call(number)) for number in range(3)]
    await turns()
    it.pool.release(used[0])
    assert it.pool.try_acquire() is used[0]  # another was quicker
    await turns()
    assert order == []
    for pooled in used[:3]:
        it.pool.release(pooled)
        await turns()
    assert order == [0, 1, 2]
    await asyncio.gather(*calls)


async def test_a_failed_opening_raises_a_copy_of_its_error_to_every_waiting_call(
    make: MakePool,
) -> None:
    refused = ServiceBusError("refused")
    it = make(Sender(refused, hangs=True))
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(2)]
    await turns()
    it.made[0].gate.set()
    raised = await asyncio.gather(*calls, return_exceptions=True)
    assert [str(each) for each in raised] == ["refused", "refused"]
    assert raised[0] is not raised[1]
    assert it.failures == []
    await turns()
    assert it.made[0].closings == ["sbpair-close"]
    assert it.pool.links == 0
    assert (await it.acquired(1))[0].sender is it.made[1]


async def test_a_failed_opening_without_waiting_calls_is_reported_unless_the_pool_is_closed(
    make: MakePool,
) -> None:
    refused = ServiceBusError("refused")
    it = make(Sender(refused), Sender(refused, hangs=True))
    it.pool.warm()
    await turns()
    assert it.failures == [refused]
    it.pool.warm()
    await turns()
    it.pool.close()
    it.made[1].gate.set()
    await turns()
    assert it.failures == [refused]


async def test_only_one_sender_is_opened_ahead(make: MakePool) -> None:
    it = make(Sender(hangs=True))
    it.pool.warm()
    it.pool.warm()
    await turns()
    it.made[0].gate.set()
    await turns()
    it.pool.warm()
    await turns()
    assert len(it.made) == 1
    assert it.pool.links == 1
    assert it.opened == [1]


async def test_warming_waits_for_the_opening_and_raises_nothing(make: MakePool) -> None:
    it = make(Sender(ServiceBusError("refused")), Sender(hangs=True))
    await it.pool.warmed(time.monotonic() + PATIENCE)
    assert len(it.failures) == 1
    await it.pool.warmed(time.monotonic())  # no time to wait
    assert it.pool.links == 0
    it.made[1].gate.set()
    await it.pool.warmed(time.monotonic() + PATIENCE)
    assert it.pool.links == 1
    await it.pool.warmed(time.monotonic() + PATIENCE)


async def test_the_host_is_looked_up_before_a_link_is_opened(make: MakePool) -> None:
    found, looked_up = asyncio.Event(), []

    async def find() -> None:
        looked_up.append(True)
        await found.wait()

    it = make(find=find)
    it.pool.warm()
    await turns()
    assert looked_up
    assert it.made == []
    found.set()
    await turns()
    assert len(it.made) == 1
    await it.pool.try_out(time.monotonic() + PATIENCE)
    assert len(looked_up) == 2


async def test_a_host_that_is_not_found_in_time_is_a_failed_opening(make: MakePool) -> None:
    async def find() -> None:
        raise TimeoutError

    it = make(find=find)
    with pytest.raises(OperationTimeoutError, match="The name of the host was not found in time"):
        await it.pool.acquire(time.monotonic() + PATIENCE)
    assert it.made == []


async def test_a_call_that_is_late_leaves_the_opening_to_the_next(make: MakePool) -> None:
    it = make(Sender(hangs=True))
    with pytest.raises(OperationTimeoutError, match="The link was not opened in time"):
        await it.pool.acquire(time.monotonic() - 1.0)
    it.made[0].gate.set()
    assert (await it.acquired(1))[0].sender is it.made[0]
    assert len(it.made) == 1


@pytest.mark.spec("R-8")
async def test_after_a_call_gave_up_on_a_silent_peer_the_next_opens_its_own_link(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    it = make(Sender(ServiceBusError("refused"), hangs=True))
    with pytest.raises(OperationTimeoutError) as late:
        await it.pool.acquire(time.monotonic() - 1.0)
    assert not isinstance(late.value, StillWaitingError)
    assert (await it.acquired(1))[0].sender is it.made[1]
    it.made[0].gate.set()
    await turns()
    assert it.failures == []  # the call that gave up has reported the peer


@pytest.mark.spec("R-8")
async def test_a_slow_peer_may_still_answer_the_first_two_openings_of_calls_that_gave_up(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    it = make(*(Sender(hangs=True) for _ in range(4)))
    for _ in range(4):
        with pytest.raises(OperationTimeoutError):
            await it.pool.acquire(time.monotonic() - 1.0)
        await turns()
    while not it.made[2].closings:
        await asyncio.sleep(0)
    assert not any(it.made[n].closings for n in (0, 1, 3))
    it.made[0].gate.set()
    await turns()  # its answer is there before the next call asks
    assert (await it.acquired(1))[0].sender is it.made[0]


@pytest.mark.spec("R-8")
async def test_a_call_is_judged_by_the_first_opening_it_waited_for(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    it = make(*(Sender(hangs=True) for _ in range(2)))
    early = asyncio.create_task(it.pool.acquire(time.monotonic() + 1000.0))
    await turns()
    it.pool.renew()
    it.pool.warm()
    await turns()
    (old,), new = it.pool._outdated, it.pool._opening
    assert new is not None
    old.progress.probe(time.monotonic())
    monkeypatch.setattr(old.progress, "_changed_at", time.monotonic() - waiting.OVERDUE)
    monkeypatch.setattr(new.progress, "_changed_at", time.monotonic() + PATIENCE)
    (waiter,) = it.pool._waiters.values()
    it.pool._late(waiter, old)
    with pytest.raises(OperationTimeoutError) as late:
        await early
    assert not isinstance(late.value, StillWaitingError)
    assert (old.is_late, new.is_late) == (True, False)


async def test_a_sender_in_doubt_gets_no_more_calls_and_is_closed_after_its_last(make: MakePool) -> None:
    it = make()
    (pooled,) = await it.acquired(1)
    pooled.wire.is_shared = True
    await it.acquired(1)
    it.pool.discard(pooled)
    assert pooled.is_retired
    assert (it.pool.links, it.pool.calls) == (1, 1)
    assert it.pool.try_acquire() is None
    await turns()
    assert it.made[0].closings == []
    it.pool.release(pooled)
    assert (it.pool.links, it.pool.calls) == (0, 0)
    await turns()
    assert it.made[0].closings == ["sbpair-close"]


async def test_after_a_failure_a_fresh_call_uses_only_senders_with_a_later_success(make: MakePool) -> None:
    it = make()
    idle, busy, failed, working = await it.several(4)
    it.pool.release(idle)
    it.pool.discard(failed)
    it.pool.release(working)
    assert await it.acquired(1, is_fresh=True) == [working]
    await turns()
    assert [bool(sender.closings) for sender in it.made] == [True, False, True, False]
    assert busy.is_retired
    it.pool.release(busy)
    await turns()
    assert it.made[1].closings == ["sbpair-close"]


async def test_a_call_waiting_while_its_pool_closes_gets_the_next_returned_sender(
    make: MakePool,
) -> None:
    it = make()
    used = await it.several(MAX_SENDERS)
    waiting = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    gives_up = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    await turns()
    it.pool.close()
    it.pool.release(used[0])
    assert await asyncio.wait_for(waiting, PATIENCE) is used[0]
    it.pool.release(used[1])
    gives_up.cancel()
    await turns()
    for pooled in (used[0], *used[2:]):
        it.pool.release(pooled)
    await turns()
    assert it.pool.links == 0
    assert all(sender.closings for sender in it.made)


async def test_a_call_that_is_not_fresh_uses_any_sender(make: MakePool) -> None:
    it = make()
    idle, failed = await it.several(2)
    it.pool.release(idle)
    it.pool.discard(failed)
    assert await it.acquired(1) == [idle]


async def test_renewing_keeps_no_earlier_sender(make: MakePool) -> None:
    it = make(Sender(), Sender(hangs=True))
    (idle,) = await it.acquired(1)
    it.pool.release(idle)
    it.pool.renew()
    await turns()
    assert it.made[0].closings == ["sbpair-close"]
    it.pool.warm()
    await turns()
    it.pool.renew()  # while a sender opens: no later call waits for that one
    (fresh,) = await it.acquired(1)
    assert fresh.sender is it.made[2]
    it.made[1].gate.set()
    await turns()
    assert it.pool.links == 2


async def test_the_failure_of_an_opening_that_was_renewed_is_nobodys(make: MakePool) -> None:
    it = make(Sender(ServiceBusError("refused"), hangs=True))
    it.pool.warm()
    await turns()
    it.pool.renew()
    it.made[0].gate.set()
    await turns()
    assert it.failures == []
    assert it.made[0].closings == ["sbpair-close"]


async def test_a_waiting_call_is_recalled_when_its_entity_fails_over(make: MakePool) -> None:
    it = make(Sender(hangs=True))
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(2)]
    await turns()
    it.pool.recall()
    it.pool.recall()
    raised = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(each) for each in raised] == [StillWaitingError, StillWaitingError]
    assert "The entity failed over meanwhile." in str(raised[0])


@pytest.mark.parametrize("keep", [0, 1, 2])
async def test_senders_that_are_idle_for_a_minute_are_closed_but_for_those_kept(
    make: MakePool, keep: int
) -> None:
    it = make()
    used = await it.several(3)
    for at, pooled in enumerate(used):
        it.pool.release(pooled)
        pooled.used_at = 100.0 + at
    assert it.pool.trim(100.0 + IDLE - 0.5, keep) == 100.0 + IDLE
    assert it.pool.links == 3
    assert it.pool.trim(100.0 + IDLE, keep) == (101.0 + IDLE if keep < 2 else None)
    assert it.pool.trim(1000.0, keep) is None
    await turns()
    assert [bool(sender.closings) for sender in it.made] == [True] * (3 - keep) + [False] * keep
    assert it.pool.links == keep


async def test_senders_in_use_are_not_trimmed_and_are_looked_at_again_soon(make: MakePool) -> None:
    it = make()
    for pooled in await it.several(2):
        pooled.used_at = 100.0
    assert it.pool.trim(1000.0) == pytest.approx(1000.0 + LOOK)
    assert it.pool.links == 2


async def test_a_closed_pool_closes_idle_senders_now_and_the_others_on_return(
    make: MakePool,
) -> None:
    it = make()
    idle, busy = await it.several(2)
    it.pool.release(idle)
    it.pool.close()
    await turns()
    assert [bool(sender.closings) for sender in it.made] == [True, False]
    it.pool.release(busy)
    await turns()
    assert it.made[1].closings == ["sbpair-close"]
    assert it.pool.links == 0


async def test_an_opening_ends_with_its_pool_unless_a_call_waits_for_it(make: MakePool) -> None:
    it = make(Sender(hangs=True))
    waiting = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    await turns()
    it.pool.close()
    it.made[0].gate.set()
    assert (await asyncio.wait_for(waiting, PATIENCE)).sender is it.made[0]
    alone = make(Sender(hangs=True))
    alone.pool.warm()
    await turns()
    alone.pool.close()
    await alone.tasks.join(PATIENCE)
    assert alone.made[0].closings == ["sbpair-close"]
    assert alone.pool.links == 0


async def test_calls_end_with_a_pool_that_is_closed_at_once(make: MakePool) -> None:
    it = make(Sender(), Sender(hangs=True))
    (busy,) = await it.several(1)

    async def hang() -> None:
        await asyncio.Event().wait()

    call = asyncio.ensure_future(busy.run(hang(), time.monotonic() + PATIENCE))
    waiting = asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE))
    await turns()
    it.pool.close(now=True)
    with pytest.raises(ServiceBusError, match="The paired client was closed during a call"):
        await waiting
    with pytest.raises(ServiceBusConnectionError, match="The paired client was closed during a call"):
        await call
    assert busy.has_overrun
    it.pool.discard(busy)
    with pytest.raises(ServiceBusError, match="The paired client was closed during a call"):
        await it.pool.acquire(time.monotonic() + PATIENCE)


async def test_a_link_is_tried_out_apart_from_the_pool(make: MakePool) -> None:
    refused = ServiceBusError("refused")
    it = make(Sender(), Sender(refused), Sender(hangs=True))
    await it.pool.try_out(time.monotonic() + PATIENCE)
    with pytest.raises(ServiceBusError) as raised:
        await it.pool.try_out(time.monotonic() + PATIENCE)
    assert raised.value is refused
    with pytest.raises(OperationTimeoutError, match="The call did not end by its deadline"):
        await it.pool.try_out(time.monotonic() - 1.0)
    await it.tasks.join(PATIENCE)
    assert [sender.closings for sender in it.made] == [["sbpair-close"]] * 3
    assert it.pool.links == 0
    assert it.opened == []


@pytest.mark.spec("R-5")
async def test_renewing_opens_a_link_for_the_calls_that_wait(make: MakePool) -> None:
    it = make(Sender(ServiceBusError("refused"), hangs=True))
    calls = [asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(3)]
    await turns()
    it.pool.renew()
    it.made[0].gate.set()  # the opening that they waited for fails
    found = await asyncio.wait_for(asyncio.gather(*calls), PATIENCE)
    assert it.made[0] not in [each.sender for each in found]
    assert it.failures == []


@pytest.mark.spec("R-5")
async def test_the_slot_of_a_cancelled_call_goes_to_the_next(make: MakePool) -> None:
    it = make()
    used = await it.several(MAX_SENDERS)
    first, second = (asyncio.ensure_future(it.pool.acquire(time.monotonic() + PATIENCE)) for _ in range(2))
    await turns()
    it.pool.release(used[0])
    first.cancel()
    assert await asyncio.wait_for(second, PATIENCE) is used[0]
    assert first.cancelled()
