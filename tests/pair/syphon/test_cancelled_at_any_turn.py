"""A syphon that is cancelled in any turn of the loop leaves no task and no connection."""

from __future__ import annotations

import asyncio

import pytest

from tests.pair.syphon.driven import Driven, play
from tests.pair.syphon.pair import parked
from tests.turns import Seeded, at_turn, permuted

TURNS = range(120)  # from its start until it has connected and forwarded


@pytest.mark.slow
@pytest.mark.spec("R-96")
def test_a_syphon_cancelled_at_any_turn_leaves_nothing_open() -> None:
    async def story(driven: Driven, turn: int) -> None:
        await driven.park([parked(n) for n in range(5)])
        before = asyncio.all_tasks()
        running = asyncio.ensure_future(driven.syphon().run(asyncio.Event()))
        at_turn(driven.loop, turn, running.cancel)
        await driven.until(running.done)
        await asyncio.sleep(1)
        assert asyncio.all_tasks() <= before
        assert driven.live() == []

    for turn in TURNS:
        with permuted(Seeded(str(turn))):
            play(lambda each, turn=turn: story(each, turn))
