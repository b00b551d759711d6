"""Sessions that both sides hold: handled on one side at a time, while the other side goes on with its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count

import pytest

from sbpair.processor import ReceivedMessage, ReceivingStarted, SessionAccepted
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered

LOCK = 10.0  # seconds
OPTIONS = {"max_concurrent_sessions": 2, "session_idle_timeout": timedelta(seconds=2)}


@asynccontextmanager
async def busy_on_the_secondary(story: Story) -> AsyncIterator[None]:
    """Run a processor whose secondary handles session "a" without a pause, and whose primary waits for it."""
    is_over = False

    async def feed() -> None:
        for number in count():
            if is_over:
                return
            await story.put([numbered(number, session="a")], "contoso-dr", "chats")
            await asyncio.sleep(1)

    for side in ("contoso", "contoso-dr"):
        story.make(side, "chats", requires_session=True, lock_duration=int(LOCK * 1000))
    async with asyncio.TaskGroup() as group, story.processor(path="chats", **OPTIONS):
        group.create_task(feed())
        try:
            await story.until(lambda: len(story.handled) > 1)
            await story.put([numbered(1000, session="a")], "contoso", "chats")
            await story.until(lambda: "primary" in {each.side for each in story.said(SessionAccepted)})
            yield
        finally:
            is_over = True


def starts_of_the_primary(story: Story) -> int:
    return sum(each.side == "primary" for each in story.said(ReceivingStarted))


@pytest.mark.spec("C-16")
def test_a_session_waiting_for_the_other_side_occupies_one_slot() -> None:
    async def story(story: Story) -> None:
        async with busy_on_the_secondary(story):
            await asyncio.sleep(5 * LOCK)
            await story.put([numbered(2000, session="b")], "contoso", "chats")
            await story.until(lambda: "m2000" in story.handled, within=30.0)
            assert "m1000" not in story.handled

    play_with(story)


@pytest.mark.spec("C-10", "C-16")
def test_a_side_whose_session_waits_for_the_other_side_reconnects() -> None:
    async def story(story: Story) -> None:
        async with busy_on_the_secondary(story):
            story.cut("contoso")
            await story.until(lambda: starts_of_the_primary(story) == 2, within=30.0)
            assert "m1000" not in story.handled

    play_with(story)


@pytest.mark.spec("C-16")
def test_a_session_that_moves_to_the_other_side_is_still_handled_on_one_at_a_time() -> None:
    async def story(story: Story) -> None:
        running = most = 0
        sides: list[str] = []

        async def handle(message: ReceivedMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            sides.append(message.side.value)
            await asyncio.sleep(5)
            running -= 1

        for side in ("contoso", "contoso-dr"):
            story.make(side, "chats", requires_session=True)
        await story.put([numbered(0, session="a")], "contoso", "chats")
        async with story.processor(handle, "chats", **OPTIONS) as processor:
            await story.until(lambda: sides == ["primary"])
            await story.put([numbered(1, session="a")], "contoso-dr", "chats")
            await story.until(lambda: sides == ["primary", "secondary"])
            await story.put([numbered(2, session="a")], "contoso", "chats")
            await story.until(lambda: processor.counters.completed == 3)
        assert most == 1

    play_with(story)
