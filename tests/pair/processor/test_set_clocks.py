"""A clock that is set, and a process that is suspended: messages go on, and those whose locks ended are not handled."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from unittest.mock import patch

import pytest

from sbpair.pair.client import locks
from sbpair.processor import LockEnded, ReceivedMessage
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered

LONG_WAIT = 3600.0  # seconds


@pytest.mark.spec("R-103", "C-12")
@pytest.mark.parametrize("step", [60.0, -60.0, 3600.0])
def test_changing_the_wall_clock_costs_nothing(step: float) -> None:
    async def story(story: Story) -> None:
        async with story.processor(secondary="never") as processor:
            await story.put([numbered(1)])
            await story.until(lambda: processor.counters.completed == 1)
            wall = time.time
            with patch.object(time, "time", lambda: wall() + step):  # the broker reads another clock
                await story.put([numbered(n) for n in range(2, 52)])
                await story.until(lambda: processor.counters.completed == 51, within=5.0)
                await asyncio.sleep(LONG_WAIT)
                await story.put([numbered(52)])
                await story.until(lambda: processor.counters.completed == 52, within=5.0)
        assert processor.counters.released == 0

    play_with(story)


@pytest.mark.spec("R-103", "C-12")
@pytest.mark.parametrize("calls", [1, 16])
@pytest.mark.parametrize("takes", [0.0, 10.0])
def test_a_broker_clock_set_back_costs_one_delivery_of_messages_in_transit(calls: int, takes: float) -> None:
    async def story(story: Story) -> None:
        async def handle(message: object) -> None:
            await asyncio.sleep(takes)

        options = {"secondary": "never", "max_concurrent_calls": calls}
        async with story.processor(handle, **options) as processor:
            await story.put([numbered(1)])
            await story.until(lambda: processor.counters.completed == 1)
            steady = locks.steady
            with patch.object(locks, "steady", lambda: steady() + 60):  # as seen from here
                await story.put([numbered(n) for n in range(2, 22)])
                await story.until(lambda: processor.counters.completed == 21, within=30 + 21 * takes)
        assert processor.counters.released <= 20
        assert story.said(LockEnded) == []

    play_with(story)


@pytest.mark.spec("R-103", "C-12")
@pytest.mark.parametrize(("takes", "messages"), [(0.1, 200), (20.0, 2)])  # with credit left, and without
def test_a_resumed_process_checks_the_locks_of_messages_it_releases(takes: float, messages: int) -> None:
    async def story(story: Story) -> None:
        async def handle(message: ReceivedMessage) -> None:
            running.append(message)
            await asyncio.sleep(takes)
            running.remove(message)
            await story.note(message)

        running: list[ReceivedMessage] = []
        options = {"max_concurrent_calls": 1}
        async with story.processor(handle, secondary="never", **options) as processor:
            await story.put([numbered(1)])
            await story.until(lambda: processor.counters.completed == 1)
            (pipe,) = (each for each in story.driven.network.pipes(side="contoso") if not each.client.is_over)
            pipe.stalled_until = story.now + 40.0  # what the broker writes comes afterwards, late in its lock
            await story.put([numbered(n) for n in range(2, 2 + messages)])
            await asyncio.sleep(40)
            await story.until(lambda: processor.counters.released > 0 and bool(running), within=1.0)
            wanted = 1 + messages
            await story.until(lambda: processor.counters.completed == wanted, within=5 + takes * messages)
        assert (len(story.handled), story.said(LockEnded)) == (wanted, [])

    play_with(story)


@pytest.mark.spec("R-103", "C-12")
def test_a_session_whose_lock_expired_during_suspension_is_handled_afterwards() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True)
        options = {
            "secondary": "never",
            "max_concurrent_sessions": 2,
            "session_idle_timeout": timedelta(minutes=10),
        }
        async with story.processor(path="chats", **options) as processor:
            await story.put([numbered(1, session="a")], path="chats")
            await story.until(lambda: processor.counters.completed == 1)
            (pipe,) = (each for each in story.driven.network.pipes(side="contoso") if not each.client.is_over)
            pipe.stalled_until = story.now + 70.0
            await story.put([numbered(n, session="a") for n in range(2, 12)], path="chats")
            await asyncio.sleep(70)
            await story.until(lambda: processor.counters.completed == 11, within=15.0)
        assert story.handled == [f"m{n}" for n in range(1, 12)]

    play_with(story)
