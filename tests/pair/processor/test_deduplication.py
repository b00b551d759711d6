"""Deduplication: one handling for each message id within the window, on either side."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.processor.deduplication import Deduplication, Sighting
from sbpair.processor import DuplicatesCompleted, ReceivedMessage
from tests.costs import cpu_of
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered

WINDOW = timedelta(minutes=10)


@pytest.mark.spec("C-15")
def test_a_copy_on_the_other_side_is_completed_without_the_handler() -> None:
    async def story(story: Story) -> None:
        story.make("contoso-dr")
        async with story.processor(deduplicate=WINDOW) as processor:
            await story.put([numbered(1)])
            await story.until(lambda: processor.counters.completed == 1)
            await story.put([numbered(1)], "contoso-dr")
            await story.until(lambda: processor.counters.completed == 2)
            assert processor.counters.duplicates == 1
            await asyncio.sleep(601)
            await story.put([numbered(1)], "contoso-dr")
            await story.until(lambda: len(story.handled) == 2)
        assert [event.message_ids for event in story.said(DuplicatesCompleted)] == [("m1",)]

    play_with(story)


@pytest.mark.spec("C-15")
@pytest.mark.parametrize("fails", [False, True])
def test_a_concurrent_copy_waits_for_the_outcome(fails: bool) -> None:
    async def story(story: Story) -> None:
        may_end = asyncio.Event()
        calls: list[str] = []

        async def slow(message: ReceivedMessage) -> None:
            calls.append(message.side.value)
            await may_end.wait()
            if fails and len(calls) == 1:
                raise ValueError("boom")
            await story.note(message)

        story.make("contoso-dr")
        async with story.processor(slow, deduplicate=WINDOW) as processor:
            await story.put([numbered(1)])
            await story.until(lambda: len(calls) == 1)
            await story.put([numbered(1)], "contoso-dr")
            await asyncio.sleep(10)
            assert len(calls) == 1
            may_end.set()
            await story.until(lambda: processor.counters.completed == 2)
        assert (len(story.handled), len(calls)) == (1, 2 if fails else 1)
        assert story.left() == story.left("contoso-dr") == 0

    play_with(story)


@pytest.mark.spec("C-15")
@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.floats(0, 30), st.booleans())))
def test_memory_is_bounded_and_nothing_is_forgotten_within_the_window(steps) -> None:
    memory, now = Deduplication(60.0, most=4), 0.0
    handled: dict[str, float] = {}
    for name, passed, succeeds in steps:
        now += passed
        sighting = memory.begin(name, now)
        fresh = {each: at for each, at in handled.items() if at > now - 60.0}
        if name not in fresh:
            assert sighting is Sighting.NEW
        elif len(fresh) <= 4:
            assert sighting is Sighting.HANDLED
        if sighting is Sighting.NEW:
            memory.end(name, now, is_handled=succeeds)
            if succeeds:
                handled.pop(name, None)
                handled[name] = now
        assert len(memory) <= 4


@pytest.mark.spec("C-15", "R-49")
def test_the_cost_of_a_message_does_not_depend_on_forgotten_ones() -> None:
    def cost(forgotten: int) -> float:
        seen = Deduplication(10.0)
        for number in range(forgotten):
            seen.end(str(number), 0.0, is_handled=True)
        seen.end("later", 5.0, is_handled=True)
        seen.begin("first", 11.0)
        assert len(seen) == 1
        return cpu_of(lambda: [seen.begin(f"next-{number}", 11.0) for number in range(300)])

    few, many = (min(cost(count) for _ in range(3)) for count in (100, 100_000))
    assert many < 10 * few
