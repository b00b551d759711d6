"""An outcome that cannot be sent: a property without an AMQP type, a reason that is no text, more than a frame."""

from __future__ import annotations

import pytest

from sbpair.processor import Abandon, DeadLetter, HandlerFailed, ReceivedMessage, ReceivingLost
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered

UNSENDABLE = {
    "a value without a type": Abandon({"a": object()}),
    "a property of a dead letter": DeadLetter("r", "d", {"a": object()}),
    "a reason that is no text": DeadLetter(5),  # type: ignore[arg-type]
    "more than a frame": Abandon({"a": "x" * 2_000_000}),
}


@pytest.mark.spec("R-105", "C-11")
@pytest.mark.parametrize("chosen", UNSENDABLE.values(), ids=UNSENDABLE.keys())
def test_an_unsendable_outcome_abandons_its_message_and_affects_no_other(
    chosen: Abandon | DeadLetter,
) -> None:
    async def story(story: Story) -> None:
        failing = [chosen]

        async def handle(message: ReceivedMessage) -> None:
            if message.message_id == "m1" and failing:
                raise failing.pop()
            await story.note(message)

        await story.put([numbered(n) for n in range(5)])
        async with story.processor(handle, secondary="never") as processor:
            await story.until(lambda: processor.counters.completed == 5, within=5.0)
        assert sorted(story.handled) == [f"m{n}" for n in range(5)]
        (failed,) = story.said(HandlerFailed)
        assert failed.message_id == "m1"
        assert "cannot be settled so" in failed.error
        assert story.said(ReceivingLost) == []

    play_with(story)


@pytest.mark.spec("R-105", "C-11")
def test_an_unsendable_outcome_by_hand_is_refused_and_the_message_stays_settleable() -> None:
    async def story(story: Story) -> None:
        async def handle(message: ReceivedMessage) -> None:
            with pytest.raises(
                ValueError, match="cannot be settled so: EncodeError: no AMQP type for object"
            ):
                await processor.abandon_message(message, {"a": object()})
            await story.note(message)

        await story.put([numbered(1)])
        async with story.processor(handle, secondary="never") as processor:
            await story.until(lambda: processor.counters.completed == 1, within=5.0)
        assert (story.handled, story.said(HandlerFailed)) == (["m1"], [])

    play_with(story)
