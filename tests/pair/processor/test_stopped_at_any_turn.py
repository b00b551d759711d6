"""A processor that is stopped in any turn of the loop leaves no task and no connection, and no message locked."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.turns import Seeded, at_turn, permuted

TURNS = range(120)  # from its start until it has connected, received and handled


@pytest.mark.slow
@pytest.mark.spec("C-17")
@pytest.mark.parametrize("path", ["orders", "chats"])
def test_a_processor_stopped_at_any_turn_leaves_no_resource_open(path: str) -> None:
    async def story(story: Story, turn: int) -> None:
        story.make("contoso", "chats", requires_session=True)
        await story.put([numbered(n, session=f"s{n % 3}") for n in range(9)], path=path)
        most = 4 if path == "chats" else None
        before, stopping = asyncio.all_tasks(), list[asyncio.Task[None]]()
        processor = story.processor(
            path=path, max_concurrent_sessions=most, stop_timeout=timedelta(seconds=1)
        )
        await processor.__aenter__()
        at_turn(story.driven.loop, turn, lambda: stopping.append(asyncio.ensure_future(processor.stop())))
        await story.until(lambda: bool(stopping) and stopping[0].done())
        await asyncio.sleep(1)
        assert asyncio.all_tasks() <= before
        assert story.driven.live() == []
        assert story.left(path=path) == 9 - processor.counters.completed
        assert processor.counters.in_flight == 0

    for turn in TURNS:
        with permuted(Seeded(str(turn))):
            play_with(lambda each, turn=turn: story(each, turn))
