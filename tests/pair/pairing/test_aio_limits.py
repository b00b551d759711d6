"""The time limits of asyncio calls that share one timer."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from sbpair.pair.pairing.aio.limits import CallLimits
from tests.waiting import turns

pytestmark = pytest.mark.spec("G-18")
PATIENCE = 60.0  # seconds; a bound, not a pace


async def forever() -> None:
    await asyncio.Event().wait()


async def test_a_hanging_body_is_timed_out_and_the_task_stays_uncancelled() -> None:
    limits = CallLimits()
    with pytest.raises(TimeoutError), limits.within(0.0):
        await forever()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_in_time_leaves_no_trace_and_the_timer_stops() -> None:
    limits = CallLimits()
    with limits.within(PATIENCE) as limit:
        pass
    assert not limit.is_over
    with pytest.raises(TimeoutError), limits.within(0.0):
        await forever()
    while limits._timer is not None:
        await asyncio.sleep(0)
    assert not limits._active


async def test_the_expired_one_of_two_nested_timeouts_raises() -> None:
    limits = CallLimits()
    with limits.within(PATIENCE) as outer, pytest.raises(TimeoutError), limits.within(0.0):
        await forever()
    assert not outer.is_over
    with pytest.raises(TimeoutError), limits.within(0.0), limits.within(PATIENCE):
        await forever()


async def test_a_task_also_cancelled_by_its_caller_stays_cancelled() -> None:
    limits = CallLimits()

    async def work() -> None:
        with limits.within(PATIENCE) as limit:
            try:
                await forever()
            finally:
                limit.end()  # the time ends while the cancellation is on its way

    task = asyncio.create_task(work())
    await turns(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert task.cancelled()


async def test_a_cancellation_swallowed_by_the_body_is_raised_after_it() -> None:
    limits = CallLimits()

    async def work() -> None:
        with limits.within(PATIENCE), contextlib.suppress(asyncio.CancelledError):
            await forever()

    task = asyncio.create_task(work())
    await turns(5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_of_the_body_is_raised_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), CallLimits().within(PATIENCE):
        raise ZeroDivisionError


async def test_shortened_limits_end_the_calls_in_progress() -> None:
    limits = CallLimits()

    async def work() -> None:
        with limits.within(PATIENCE):
            await forever()

    tasks = [asyncio.create_task(work()) for _ in range(3)]
    await turns(5)
    limits.shorten(0.0)
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(each) for each in ended] == [TimeoutError] * 3


async def test_many_calls_share_one_timer() -> None:
    limits, loop = CallLimits(), asyncio.get_running_loop()
    with contextlib.ExitStack() as stack:
        stack.enter_context(limits.within(PATIENCE))
        timer = limits._timer
        for _ in range(10):
            stack.enter_context(limits.within(PATIENCE))
        assert limits._timer is timer
        assert timer is not None
        assert timer.when() <= loop.time() + PATIENCE
        timer.cancel()
