"""What a processor promises whatever happens first, last or together: with permuted turns (tests/turns.py)."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from random import Random

import pytest

from sbpair.processor import ReceivedMessage
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.turns import Seeded, permuted

SESSIONS, EACH = 6, 8


def of_sessions() -> list[bytes]:
    return [numbered(n, session=f"s{n % SESSIONS}") for n in range(SESSIONS * EACH)]


@pytest.mark.spec("R-92", "C-16")
@pytest.mark.parametrize("seed", range(6))
def test_each_session_is_handled_in_order_despite_raising_handlers(seed: int) -> None:
    async def story(story: Story) -> None:
        draw = Random(seed)
        takes = draw.choice(
            [0.05, 20.0]
        )  # seconds: with slow handlers no message waits beside the one in hand
        handled: dict[str, list[int]] = {f"s{n}": [] for n in range(SESSIONS)}
        out_of_order: list[tuple[str, int]] = []
        running: set[str] = set()

        async def handle(message: ReceivedMessage) -> None:
            properties, session = message.application_properties, str(message.session_id)
            assert properties is not None
            number = int(properties["number"]) // SESSIONS
            if session in running or number != len(handled[session]):
                out_of_order.append((session, number))
            running.add(session)
            await asyncio.sleep(takes - story.now % takes)  # so that many end at one instant
            running.discard(session)
            if draw.random() < 0.3:
                raise ValueError("boom")
            handled[session].append(number)

        story.make("contoso", "chats", requires_session=True, max_delivery_count=1000)
        await story.put(of_sessions(), path="chats")
        options = {"max_concurrent_sessions": SESSIONS, "session_idle_timeout": timedelta(seconds=2)}
        async with story.processor(handle, "chats", **options) as processor:
            await story.until(lambda: processor.counters.completed == SESSIONS * EACH, within=3600.0)
        assert out_of_order == []
        assert all(numbers == list(range(EACH)) for numbers in handled.values())

    with permuted(Seeded(str(seed))):
        play_with(story)
