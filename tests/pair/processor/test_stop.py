"""Stopping while a peer is silent, and while a side connects."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.faults import Outage
from sbpair.processor import (
    ReceivedMessage,
    ReceivingLost,
    ReceivingStarted,
    SettlementUnknown,
    SettlementUnknownError,
)
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered


@pytest.mark.spec("C-13", "C-17")
def test_a_completion_unconfirmed_by_a_silent_peer_ends_when_the_processor_stops() -> None:
    async def story(story: Story) -> None:
        kept: list[ReceivedMessage] = []

        async def keep(message: ReceivedMessage) -> None:
            kept.append(message)

        await story.put([numbered(1)])
        async with story.processor(keep, autosettle=False, secondary="never") as processor:
            await story.until(lambda: bool(kept))
            story.driven.servers["contoso"].take_down(Outage.SILENT)
            completing = asyncio.ensure_future(processor.complete_message(kept[0]))
            await asyncio.sleep(1)
        with pytest.raises(SettlementUnknownError):
            await asyncio.wait_for(completing, 1)
        assert [event.message_ids for event in story.said(SettlementUnknown)] == [("m1",)]

    play_with(story)


@pytest.mark.spec("C-17")
def test_a_connection_that_opens_while_the_processor_stops_is_closed() -> None:
    async def story(story: Story) -> None:
        for side in ("contoso", "contoso-dr"):
            story.make(side, "chats", requires_session=True)
        async with story.processor(path="chats", max_concurrent_sessions=1):
            await story.until(lambda: len(story.said(ReceivingStarted)) == 2)
            story.driven.at_distance(0.4)
            story.cut("contoso")
            story.driven.servers["contoso-dr"].take_down(Outage.SILENT)  # its close takes five seconds
            await story.until(lambda: bool(story.said(ReceivingLost)))
            await asyncio.sleep(story.said(ReceivingLost)[0].retry_in + 0.1)
        await asyncio.sleep(1)
        assert story.driven.live() == []

    play_with(story)
