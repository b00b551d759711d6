"""Sessions: in order, one handler at a time in each, state, and room for the next."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from sbpair.broker.faults import FaultRule, LoseLock, Operation
from sbpair.processor import LockEnded, ProcessorOptions, ReceivedMessage, SessionAccepted, SessionReleased
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import Pair, numbered, put
from tests.waiting import until

SHORT = timedelta(seconds=2)


def of_sessions(sessions: int, each: int) -> list[bytes]:
    return [numbered(n, session=f"s{n % sessions}") for n in range(sessions * each)]


@pytest.mark.spec("C-16")
def test_session_messages_are_handled_in_order_one_at_a_time() -> None:
    async def story(story: Story) -> None:
        running: Counter[str] = Counter()
        most_sessions = 0
        seen: dict[str, list[int]] = {}

        async def handle(message: ReceivedMessage) -> None:
            nonlocal most_sessions
            session, properties = str(message.session_id), message.application_properties
            running[session] += 1
            most_sessions = max(most_sessions, running.total())
            assert running[session] == 1
            await asyncio.sleep(0.05)
            assert properties is not None
            seen.setdefault(session, []).append(int(properties["number"]))
            running[session] -= 1

        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(8, 20), path="chats")
        options = {"max_concurrent_sessions": 3, "session_idle_timeout": SHORT}
        async with story.processor(handle, "chats", **options) as processor:
            await story.until(lambda: processor.counters.completed == 160)
            await story.until(lambda: len(story.said(SessionReleased)) == 8)
        assert most_sessions == 3
        assert all(numbers == sorted(numbers) and len(numbers) == 20 for numbers in seen.values())
        assert len(story.said(SessionAccepted)) == 8

    play_with(story)


@pytest.mark.spec("C-13", "C-16")
def test_session_messages_handled_together_are_settled_by_one_disposition() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(2, 1), path="chats")
        async with story.processor(path="chats", max_concurrent_sessions=2) as processor:
            await story.until(lambda: processor.counters.completed == 2)
            frames = story.count_frames()
            await story.put(of_sessions(2, 500), path="chats")
            await story.until(lambda: processor.counters.completed == 1002)
            assert frames["contoso"] < 200  # dispositions and flows

    play_with(story)


@pytest.mark.spec("C-15", "C-16")
def test_duplicates_in_a_session_are_completed_consecutively_without_a_pause() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True)
        options = {"max_concurrent_sessions": 1, "deduplicate": timedelta(minutes=10)}
        async with story.processor(path="chats", **options) as processor:
            await story.put([numbered(1, session="a")], path="chats")
            await story.until(lambda: processor.counters.completed == 1)
            await story.put([numbered(1, session="a")] * 20, path="chats")
            await story.until(lambda: processor.counters.completed == 21, within=5.0)
        assert (story.handled, processor.counters.duplicates) == (["m1"], 20)

    play_with(story)


@pytest.mark.spec("C-16")
def test_a_message_settled_after_its_handler_returned_frees_the_session_at_once() -> None:
    async def story(story: Story) -> None:
        settling: list[asyncio.Task[None]] = []

        async def settle_later(message: ReceivedMessage) -> None:
            async def complete() -> None:
                await asyncio.sleep(0.01)
                await processor.complete_message(message)

            settling.append(asyncio.create_task(complete()))
            await story.note(message)

        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(1, 20), path="chats")
        options = {"max_concurrent_sessions": 1, "autosettle": False}
        async with story.processor(settle_later, "chats", **options) as processor:
            await story.until(lambda: processor.counters.completed == 20, within=5.0)
            await asyncio.gather(*settling)
        assert story.handled == [f"m{n}" for n in range(20)]

    play_with(story)


@pytest.mark.spec("C-16")
def test_an_abandoned_message_is_redelivered_before_later_ones() -> None:
    async def story(story: Story) -> None:
        seen: list[int] = []
        failures = [1, 1, 1]

        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.01)
            assert message.application_properties is not None
            number = int(message.application_properties["number"])
            if number == 30 and failures:
                failures.pop()
                raise ValueError("boom")
            seen.append(number)

        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(1, 100), path="chats")
        async with story.processor(handle, "chats", max_concurrent_sessions=2) as processor:
            await story.until(lambda: processor.counters.completed == 100)
        assert seen == list(range(100))

    play_with(story)


@pytest.mark.spec("R-92", "C-16")
def test_messages_abandoned_in_one_turn_are_redelivered_before_later_ones() -> None:
    async def story(story: Story) -> None:
        begun: dict[str, list[int]] = {}
        failing: dict[str, asyncio.Event] = {}

        async def fail_the_second(message: ReceivedMessage) -> None:
            properties, session = message.application_properties, str(message.session_id)
            assert properties is not None
            numbers = begun.setdefault(session, [])
            numbers.append(int(properties["number"]) // 6)
            if numbers == [0]:
                await asyncio.sleep(10)  # so that one message is in hand, and all credit is used
            elif numbers == [0, 1]:
                await failing.setdefault(session, asyncio.Event()).wait()
                raise ValueError("boom")

        story.make("contoso", "chats", requires_session=True)
        await story.put(
            [message for n, message in enumerate(of_sessions(6, 5)) if n % 6 or n < 12], path="chats"
        )
        async with story.processor(fail_the_second, "chats", max_concurrent_sessions=6) as processor:
            await story.until(lambda: len(failing) == 6)
            await asyncio.sleep(1)
            story.write_frames_apart()
            for n in range(6):
                failing[f"s{n}"].set()
            await story.until(lambda: processor.counters.completed == 27)
        assert begun.pop("s0") == [0, 1, 1]
        assert begun == {f"s{n}": [0, 1, 1, 2, 3, 4] for n in range(1, 6)}

    play_with(story)


@pytest.mark.spec("R-103", "C-16")
def test_a_session_whose_link_falls_silent_at_an_abandon_is_released_and_accepted_again() -> None:
    async def story(story: Story) -> None:
        begun: list[str] = []

        async def fail_at_first(message: ReceivedMessage) -> None:
            begun.append(str(message.message_id))
            await asyncio.sleep(1)
            if len(begun) == 5:
                story.lose_next_flow()
                raise ValueError("boom")

        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(1, 5), path="chats")
        options = {"max_concurrent_sessions": 2, "secondary": "never"}
        async with story.processor(fail_at_first, "chats", **options) as processor:
            await story.until(lambda: processor.counters.completed == 5)
        assert begun == ["m0", "m1", "m2", "m3", "m4", "m4"]

    play_with(story)


@pytest.mark.spec("C-16")
def test_the_lock_of_a_session_is_renewed_and_its_loss_cancels_the_handler() -> None:
    async def story(story: Story) -> None:
        ends: list[str] = []

        async def slow(message: ReceivedMessage) -> None:
            try:
                await asyncio.sleep(200)
                ends.append("returned")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        story.make("contoso", "chats", requires_session=True)
        await story.put([numbered(1, session="a")], path="chats")
        async with story.processor(slow, "chats", max_concurrent_sessions=1) as processor:
            await story.until(lambda: processor.counters.completed == 1)
            story.set_fault(FaultRule(LoseLock(5.0), "chats", Operation.RECEIVE, times=1))
            await story.put([numbered(2, session="b")], path="chats")
            await story.until(lambda: ends == ["returned", "cancelled"])
            await story.until(lambda: len(ends) == 3)
        assert ends == ["returned", "cancelled", "returned"]
        assert [event.message_id for event in story.said(LockEnded)] == ["m2"]

    play_with(story)


@pytest.mark.spec("C-16")
def test_an_idle_session_the_peer_does_not_release_closes_its_connection() -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=True)
        await story.put([numbered(1, session="a")], path="chats")
        options = {"max_concurrent_sessions": 1, "session_idle_timeout": SHORT, "secondary": "never"}
        async with story.processor(path="chats", **options):
            await story.until(lambda: len(story.handled) == 1)
            story.lose_detaches()
            await story.put([numbered(2, session="b")], path="chats")
            await story.until(lambda: len(story.handled) == 2, within=15.0)

    play_with(story)


@pytest.mark.spec("C-16")
def test_a_session_present_on_both_sides_is_handled_on_one_at_a_time() -> None:
    async def story(story: Story) -> None:
        running = most = 0

        async def handle(message: ReceivedMessage) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1
            await story.note(message)

        for side in ("contoso", "contoso-dr"):
            story.make(side, "chats", requires_session=True)
            await story.put([numbered(n, session="a") for n in range(5)], side, "chats")
        options = {"max_concurrent_sessions": 4, "session_idle_timeout": SHORT}
        async with story.processor(handle, "chats", **options) as processor:
            await story.until(lambda: processor.counters.completed == 10)
        assert most == 1

    play_with(story)


@pytest.mark.spec("C-16")
def test_sessions_are_accepted_again_after_their_connection_is_lost() -> None:
    async def story(story: Story) -> None:
        async def handle(message: ReceivedMessage) -> None:
            await asyncio.sleep(0.5)
            await story.note(message)

        story.make("contoso", "chats", requires_session=True)
        await story.put(of_sessions(3, 10), path="chats")
        async with story.processor(handle, "chats", max_concurrent_sessions=3) as processor:
            await story.until(lambda: len(story.handled) > 6)
            story.cut()
            await story.until(lambda: story.left(path="chats") == 0)
            assert processor.counters.in_flight == 0

    play_with(story)


@pytest.mark.spec("C-16", "C-17")
async def test_session_state_is_kept_between_messages(pair: Pair) -> None:
    pair.primary.create_queue("chats", requires_session=True)
    await put(pair.primary, "chats", [numbered(n, session="a") for n in range(5)])
    async with pair.client() as client:

        async def count(message: ReceivedMessage) -> None:
            state = await processor.get_session_state(message)
            await processor.set_session_state(message, state + b"x" if state else b"x")
            pair.handled.append(str(message.message_id))

        processor = client.get_queue_processor(
            "chats", count, options=ProcessorOptions(max_concurrent_sessions=2)
        )
        async with processor:
            await until(lambda: processor.counters.completed == 5)
        async with client._sdk().get_queue_receiver("chats", session_id="a") as receiver:
            assert await receiver.session.get_state() == b"xxxxx"
    assert pair.handled == [f"m{n}" for n in range(5)]
