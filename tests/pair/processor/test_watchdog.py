"""The watchdog: silent links are replaced, and nothing else is done while idle."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sbpair.broker.faults import FaultRule, Operation, SilenceLink
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.processor import LinkSilent, ReceivingLost
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.driven import STRING


@pytest.mark.spec("C-14")
def test_a_silent_link_is_detected_replaced_and_reported() -> None:
    async def story(story: Story) -> None:
        rule = FaultRule(SilenceLink(), "orders", Operation.RECEIVE, times=1)
        async with story.processor() as processor:
            await asyncio.sleep(5)
            story.set_fault(rule)
            await story.put([numbered(n) for n in range(20)])
            took = await story.until(lambda: len(story.handled) == 20)
            assert took <= 60 + 5 + 5
            assert processor.counters.silent_links == 1
        assert [event.side for event in story.said(LinkSilent)] == ["primary"]
        assert story.said(ReceivingLost) == []

    play_with(story)


@pytest.mark.spec("C-14")
def test_a_silent_link_that_is_not_even_detached_closes_its_connection() -> None:
    async def story(story: Story) -> None:
        async with story.processor(secondary="never"):
            await asyncio.sleep(5)
            story.set_fault(FaultRule(SilenceLink(), "orders", Operation.RECEIVE, times=1))
            await story.put([numbered(n) for n in range(20)])
            story.lose_detaches()
            took = await story.until(lambda: len(story.handled) == 20, within=700.0)
            assert (
                took <= 60 + 5 + 5 + 5 + 5
            )  # the peek, its detach, the wait, the detach of the link, the rest

    play_with(story)


@pytest.mark.spec("C-14")
def test_messages_held_by_another_consumer_do_not_make_a_link_silent() -> None:
    async def story(story: Story) -> None:
        held: list[int] = []
        await story.put([numbered(1)])
        connection = await connect(parse(STRING.format("contoso")))
        receiver = await connection.open_receiver("orders", lambda event: held.append(event.delivery_id))
        receiver.flow(1)
        async with story.processor():
            for _ in range(30):
                await asyncio.sleep(55)  # keeps the lock for half an hour
                await receiver.settle_and_wait(held[-1], Accepted())
                await story.put([numbered(2)])
                receiver.flow(1)
            attached = sum(type(event).__name__ == "ReceivingStarted" for event in story.events)
        assert attached <= 8  # each replacement without messages doubles the wait for the next
        assert story.said(LinkSilent) == []
        await connection.close()

    play_with(story)


@pytest.mark.spec("C-14", "R-152")
@pytest.mark.parametrize(("seconds", "most"), [(None, 61), (10, 11), (300, 65)])
def test_a_half_open_connection_is_found_by_its_heartbeats(seconds: int | None, most: int) -> None:
    """By default within a minute, and with any option within twice the heartbeat of a peer."""
    options = {} if seconds is None else {"operation_timeout": timedelta(seconds=seconds)}

    async def story(story: Story) -> None:
        async with story.processor(**options):
            await asyncio.sleep(5)
            for pipe in story.driven.network.pipes(side="contoso"):
                pipe.stalled_until = story.now + 3600
            took = await story.until(lambda: bool(story.said(ReceivingLost)))
            assert took <= most
            await story.put([numbered(1)])
            await story.until(lambda: story.handled == ["m1"])

    play_with(story)


@pytest.mark.spec("C-14")
def test_an_idle_hour_costs_heartbeats_and_one_peek_per_minute() -> None:
    async def story(story: Story) -> None:
        story.make("contoso-dr")
        async with story.processor():
            await asyncio.sleep(10)
            counts = story.count_frames()
            await asyncio.sleep(3600)
        for side, frames in counts.items():
            assert frames <= 60 * FRAMES_OF_A_PEEK + 3600 / 30 + 20, (side, frames)

    play_with(story)


FRAMES_OF_A_PEEK = 12  # two attaches, a flow, a transfer, a disposition, two detaches, and a few more
