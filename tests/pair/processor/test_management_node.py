"""The ``$management`` node of a processor's sessions, whose links can end while the connection stays open."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.faults import FaultRule, Operation, RejectWith
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from sbpair.processor import LockEnded, ReceivedMessage, SessionAccepted
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered

OPTIONS = {"max_concurrent_sessions": 2, "secondary": "never"}


@pytest.mark.spec("C-12", "C-16")
def test_the_lock_of_a_session_is_renewed_after_the_peer_detached_the_node() -> None:
    async def story(story: Story) -> None:
        async def slow(message: ReceivedMessage) -> None:
            await asyncio.sleep(200)

        story.make("contoso", "chats", requires_session=True)
        await story.put([numbered(1, session="a")], path="chats")
        async with story.processor(slow, "chats", **OPTIONS) as processor:
            for _ in range(2):
                await story.until(lambda: len(story.links_to_node("chats")) == 2)
                story.detach_node("chats")
                await story.until(lambda: not story.links_to_node("chats"))
            await story.until(lambda: processor.counters.completed == 1)
        assert (story.left(path="chats"), story.said(LockEnded)) == (0, [])
        assert len(story.said(SessionAccepted)) == 1

    play_with(story)


@pytest.mark.spec("C-16")
def test_the_state_of_a_session_is_read_again_after_the_peer_detached_the_node() -> None:
    async def story(story: Story) -> None:
        states: list[object] = []

        async def handle(message: ReceivedMessage) -> None:
            await processor.set_session_state(message, b"x")
            story.detach_node("chats")
            await story.until(lambda: not story.links_to_node("chats"))
            try:
                states.append(await processor.get_session_state(message))
            except ConnectionLostError:
                states.append("lost")
            states.append(await processor.get_session_state(message))

        story.make("contoso", "chats", requires_session=True)
        await story.put([numbered(1, session="a")], path="chats")
        async with story.processor(handle, "chats", **OPTIONS) as processor:
            await story.until(lambda: processor.counters.completed == 1)
        assert states == ["lost", b"x"]

    play_with(story)


@pytest.mark.spec("C-16")
def test_a_refused_request_does_not_fail_another_in_flight() -> None:
    async def story(story: Story) -> None:
        outcomes: list[object] = []

        async def handle(message: ReceivedMessage) -> None:
            async def set_state(after: float) -> None:
                await asyncio.sleep(after)
                await processor.set_session_state(message, b"x")

            assert await processor.get_session_state(message) is None  # opens the links
            story.set_fault(FaultRule(RejectWith(), "chats", Operation.MANAGE, times=1))
            outcomes.extend(await asyncio.gather(set_state(0.0), set_state(0.1), return_exceptions=True))
            outcomes.append(await processor.get_session_state(message))

        story.make("contoso", "chats", requires_session=True)
        story.driven.at_distance(1.0)
        await story.put([numbered(1, session="a")], path="chats")
        async with story.processor(handle, "chats", **OPTIONS) as processor:
            await story.until(lambda: processor.counters.completed == 1)
            assert len(story.links_to_node("chats")) == 2  # those of the refused request are detached
        refused, *others = outcomes
        assert isinstance(refused, LinkRefusedError)
        assert others == [None, b"x"]

    play_with(story)
