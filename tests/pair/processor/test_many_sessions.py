"""Many sessions at a time, and what the refusal of one of them costs."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from unittest.mock import patch

import pytest

from sbpair.broker.faults import FaultRule, Operation, RejectWith, Throttle
from sbpair.pair.amqp.connection import Connection
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.processor import EntityMissing, ReceivedMessage, ReceivingLost, SessionReleased
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.driven import STRING

LONG = timedelta(minutes=10)


def one_each(first: int, last: int) -> list[bytes]:
    return [numbered(n, session=f"s{n}") for n in range(first, last)]


@pytest.mark.slow
@pytest.mark.spec("R-90", "C-16")
def test_the_number_of_concurrently_held_sessions_is_an_option() -> None:
    async def story(story: Story) -> None:
        held, may_end = story.hold()
        story.make("contoso", "chats", requires_session=True)
        await story.put(one_each(0, 300), path="chats")
        options = {"max_concurrent_sessions": 1000, "secondary": "never"}
        async with story.processor(held, "chats", **options) as processor:
            await story.until(lambda: processor.counters.in_flight == 300)
            may_end.set()
            await story.until(lambda: processor.counters.completed == 300)
        assert story.said(ReceivingLost) == []

    play_with(story)


async def holding_one(story: Story, refusal: FaultRule) -> None:
    """Hold one session while links to others are refused; expect that they come, and that it is kept."""
    cancelled: list[str] = []

    async def handle(message: ReceivedMessage) -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            cancelled.append(str(message.message_id))
            raise
        await story.note(message)

    story.make("contoso", "chats", requires_session=True)
    await story.put(one_each(0, 1), path="chats")
    options = {"max_concurrent_sessions": 10, "secondary": "never"}
    async with story.processor(handle, "chats", **options) as processor:
        await story.until(lambda: processor.counters.in_flight == 1)
        connection = await connect(parse(STRING.format("contoso")))
        sender = await connection.open_sender("chats")
        story.set_fault(refusal)
        await asyncio.gather(*map(sender.send, one_each(1, 4)))
        await story.until(lambda: len(story.handled) == 4)
        await connection.close()
    assert (cancelled, story.said(ReceivingLost)) == ([], [])


@pytest.mark.spec("R-90", "C-16")
@pytest.mark.parametrize("effect", [Throttle(), RejectWith("amqp:internal-error")])
def test_a_refused_session_does_not_affect_the_others(effect: Throttle | RejectWith) -> None:
    rule = FaultRule(effect, "chats", Operation.ATTACH, times=4)
    play_with(lambda story: holding_one(story, rule))


@pytest.mark.spec("R-90", "C-16")
def test_a_peer_with_few_channels_limits_the_sessions_and_ends_none() -> None:
    async def story(story: Story) -> None:
        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(5)
            await story.note(message)

        init = Connection.__init__

        def narrow(self: Connection, **settings: object) -> None:
            init(self, **{"channel_max": 7, **settings})  # type: ignore[arg-type]

        story.make("contoso", "chats", requires_session=True)
        await story.put(one_each(0, 40), path="chats")
        options = {
            "max_concurrent_sessions": 20,
            "secondary": "never",
            "session_idle_timeout": timedelta(seconds=1),
        }
        with patch.object(Connection, "__init__", narrow):
            async with story.processor(handle, "chats", **options):
                await story.until(lambda: len(story.handled) == 40)
        assert story.said(ReceivingLost) == []

    play_with(story)


@pytest.mark.spec("R-90", "C-10")
def test_a_side_that_refuses_all_sessions_is_lost_once_it_holds_none() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True)
        await story.put(one_each(0, 1), path="chats")
        options = {
            "max_concurrent_sessions": 10,
            "secondary": "never",
            "session_idle_timeout": timedelta(seconds=5),
        }
        async with story.processor(path="chats", **options):
            await story.until(lambda: len(story.handled) == 1)
            story.set_fault(FaultRule(RejectWith("amqp:internal-error"), "chats", Operation.ATTACH))
            await story.until(lambda: bool(story.said(ReceivingLost)), within=LONG.total_seconds())
        assert len(story.said(SessionReleased)) == 1
        assert story.said(EntityMissing) == []

    play_with(story)
