"""An outage of an hour in driven time: consumers go on, and nothing is lost or handled twice."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from sbpair.processor import ReceivedMessage
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.pair import parked

EVERY = 6.0  # seconds between two messages
LAND_AFTER = timedelta(minutes=5)


@pytest.mark.slow
@pytest.mark.spec("C-4", "C-10", "C-15")
def test_consumers_pause_no_longer_than_messages_take_to_land() -> None:
    async def story(story: Story) -> None:
        handled: Counter[str] = Counter()
        times: list[float] = []

        async def handle(message: ReceivedMessage) -> None:
            handled[str(message.message_id)] += 1
            times.append(story.now)

        async def send(count: int) -> None:
            """Park messages, as senders do while the primary is out of reach."""
            for _ in range(count):
                await story.driven.park([parked(len(sent))])
                sent.append(f"m{len(sent)}")
                await asyncio.sleep(EVERY)

        sent: list[str] = []
        story.make("contoso-dr")
        syphon = story.driven.syphon(land="either", land_after=LAND_AFTER)
        options = {"deduplicate": timedelta(minutes=10)}
        async with story.driven.running(syphon), story.processor(handle, **options) as processor:
            await send(8)
            with story.down():
                times.append(story.now)  # a pause is counted from the outage, not from the message before it
                await send(int(3600 / EVERY))
            await send(8)
            await story.until(lambda: len(handled) == len(sent))
            await asyncio.sleep(120)
            assert processor.counters.in_flight == 0
        assert set(handled) == set(sent)
        assert set(handled.values()) == {1}
        pauses = [after - before for before, after in itertools.pairwise(times)]
        assert max(pauses) <= LAND_AFTER.total_seconds() + 10

    play_with(story)


@pytest.mark.spec("C-13", "C-15")
@pytest.mark.parametrize("seed", range(5))
def test_connection_cuts_lose_nothing_and_with_deduplication_repeat_nothing(seed: int) -> None:
    async def story(story: Story) -> None:
        rng, handled = Random(seed), Counter[str]()

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(rng.uniform(0, 0.5))
            handled[str(message.message_id)] += 1

        story.make("contoso-dr")
        options = {"deduplicate": timedelta(minutes=30), "max_concurrent_calls": 20}
        async with story.processor(handle, **options) as processor:
            for start in range(0, 400, 20):
                side = rng.choice(("contoso", "contoso-dr"))
                await story.put([numbered(n) for n in range(start, start + 20)], side)
                await asyncio.sleep(rng.uniform(0, 1))
                story.cut(rng.choice(("contoso", "contoso-dr")))
            await story.until(lambda: story.left() + story.left("contoso-dr") == 0, within=600.0)
            assert processor.counters.in_flight == 0
        assert handled == Counter({f"m{n}": 1 for n in range(400)})

    play_with(story)
