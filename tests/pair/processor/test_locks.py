"""Locks over time: renewed, lost, and outlasting their link."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from sbpair.broker.faults import (
    FaultRule,
    Lose,
    LoseLock,
    Operation,
    RejectWith,
    Withhold,
)
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.processor import (
    LockEnded,
    MessagesReceived,
    ReceivedMessage,
    ReceivingLost,
    ReceivingStarted,
    SettlementRefused,
    SettlementUnknown,
)
from tests.pair.processor.driven import Story, play_with
from tests.pair.processor.pair import numbered
from tests.pair.syphon.driven import CLOCK


@pytest.mark.spec("C-12")
def test_a_lock_is_renewed_while_its_handler_runs() -> None:
    async def story(story: Story) -> None:
        await story.put([numbered(1)])
        async with story.processor(story.note_slowly) as processor:
            await story.until(lambda: processor.counters.completed == 1)
        assert (story.handled, story.left(), story.said(LockEnded)) == (["m1"], 0, [])
        assert 200 <= round(processor.counters.handler_seconds, 6) < 201

    play_with(story)


@pytest.mark.spec("C-12")
def test_a_handler_is_cancelled_once_its_lock_has_ended_after_the_longest_renewal() -> None:
    async def story(story: Story) -> None:
        cancelled_at: list[float] = []

        async def endless(message: ReceivedMessage) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled_at.append(story.now)

        await story.put([numbered(1)])
        async with story.processor(endless, max_lock_renewal=timedelta(minutes=2)) as processor:
            await story.until(lambda: bool(cancelled_at))
            assert 120 <= cancelled_at[0] <= 120 + 62
            assert processor.counters.locks_lost == 1
        assert [(event.message_id, event.handled) for event in story.said(LockEnded)][:1] == [("m1", False)]

    play_with(story)


@pytest.mark.spec("C-12")
def test_a_lost_lock_is_noticed_by_its_renewal_and_the_handler_is_cancelled() -> None:
    async def story(story: Story) -> None:
        ends: list[str] = []

        async def slow(message: ReceivedMessage) -> None:
            try:
                await asyncio.sleep(100)
                ends.append("returned")
            except asyncio.CancelledError:
                ends.append("cancelled")
                raise

        with story.driven.fault("contoso", "orders", LoseLock(5.0), Operation.RECEIVE):
            await story.put([numbered(1)])
            async with story.processor(slow):
                await story.until(lambda: bool(ends))
        assert ends[0] == "cancelled"
        assert story.now < 100

    play_with(story)


@pytest.mark.spec("C-12")
def test_a_message_waiting_for_a_handler_is_released_at_half_of_its_lock() -> None:
    async def story(story: Story) -> None:
        delays = iter([0.01] * 40)

        async def uneven(message: ReceivedMessage) -> None:
            await asyncio.sleep(next(delays, 500))  # quick at first, then stuck
            await story.note(message)

        await story.put([numbered(n) for n in range(200)])
        stuck = story.processor(uneven, max_concurrent_calls=1, stop_timeout=timedelta(0))
        async with stuck:
            await story.until(lambda: len(story.handled) == 40)
            async with story.processor(secondary="never"):
                await story.until(lambda: len(story.handled) == 199, within=40.0)
            assert stuck.counters.released == stuck.counters.received - 41

    play_with(story)


LONGEST = timedelta(minutes=10)  # between two attempts to attach a link


async def detached_for_long(story: Story) -> None:
    """Detach the only link each time it is attached, until the next attempt is more than half a minute away."""

    def lost() -> list[ReceivingLost]:
        return story.said(ReceivingLost)

    while not lost() or lost()[-1].retry_in < 30:
        before = len(lost())
        await story.until(lambda: len(story.said(ReceivingStarted)) > before)  # noqa: B023
        story.detach_receiver()
        await story.until(lambda: len(lost()) > before)  # noqa: B023


@pytest.mark.spec("C-12")
def test_a_lock_is_renewed_while_its_link_reconnects() -> None:
    async def story(story: Story) -> None:
        await story.put([numbered(1)])
        async with story.processor(
            story.note_slowly, secondary="never", retry_backoff_max=LONGEST
        ) as processor:
            await detached_for_long(story)
            await story.until(lambda: processor.counters.completed == 1)
        assert (story.handled, story.left(), story.said(LockEnded)) == (["m1"], 0, [])

    play_with(story)


def refused(*_: object, **__: object) -> None:
    """Refuse a link to an entity, while its ``$management`` node can be reached."""
    raise LinkRefusedError("the entity is busy")


@pytest.mark.spec("C-12", "C-13")
def test_a_lock_is_renewed_over_a_new_connection_whose_link_is_refused() -> None:
    async def story(story: Story) -> None:
        await story.put([numbered(1)])
        async with story.processor(story.note_slowly, secondary="never") as processor:
            await story.until(lambda: processor.counters.in_flight == 1)
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(NamespaceConnection, "attach_receiver", refused)
                story.cut()
                await story.until(lambda: not processor.counters.in_flight)
                assert len(story.said(ReceivingStarted)) == 1
                await story.until(lambda: processor.counters.completed == 1, within=10.0)
        assert (story.handled, story.left(), story.said(LockEnded)) == (["m1"], 0, [])

    play_with(story)


@pytest.mark.spec("C-12", "C-16")
@pytest.mark.parametrize("session", [None, "a"])
def test_a_lock_survives_renewals_without_an_answer(session: str | None) -> None:
    async def story(story: Story) -> None:
        story.make("contoso", "chats", requires_session=session is not None)
        await story.put([numbered(1, session=session)], path="chats")
        story.set_fault(FaultRule(Withhold(), "chats", Operation.MANAGE, times=2))
        most = None if session is None else 1
        async with story.processor(story.note_slowly, "chats", max_concurrent_sessions=most) as processor:
            await story.until(lambda: not processor.counters.in_flight and bool(processor.counters.received))
            await story.until(lambda: processor.counters.completed == 1, within=10.0)
        assert (story.handled, story.left(path="chats"), story.said(LockEnded)) == (["m1"], 0, [])

    play_with(story)


@pytest.mark.spec("C-13")
def test_a_handler_that_ends_while_its_link_reconnects_completes_its_message_at_once() -> None:
    async def story(story: Story) -> None:
        held, may_end = story.hold()
        await story.put([numbered(1)])
        async with story.processor(held, secondary="never", retry_backoff_max=LONGEST) as processor:
            await story.until(lambda: processor.counters.in_flight == 1)
            await detached_for_long(story)
            attached = len(story.said(ReceivingStarted))
            may_end.set()
            await story.until(lambda: processor.counters.completed == 1, within=2.0)
            assert len(story.said(ReceivingStarted)) == attached
        assert (story.handled, story.left()) == (["m1"], 0)

    play_with(story)


@pytest.mark.spec("C-13")
def test_a_completion_refused_while_no_link_is_attached_is_repeated() -> None:
    async def story(story: Story) -> None:
        held, may_end = story.hold()
        await story.put([numbered(1)])
        async with story.processor(held, secondary="never", retry_backoff_max=LONGEST) as processor:
            await story.until(lambda: processor.counters.in_flight == 1)
            await detached_for_long(story)
            busy = RejectWith("com.microsoft:server-busy")
            story.set_fault(FaultRule(busy, "orders", Operation.MANAGE, times=3))
            may_end.set()
            await story.until(lambda: processor.counters.completed == 1, within=10.0)
        assert (story.handled, story.left()) == (["m1"], 0)
        assert story.said(SettlementRefused) == story.said(SettlementUnknown) == []

    play_with(story)


@pytest.mark.spec("C-13")
def test_a_handler_that_outlives_its_link_still_completes_its_message() -> None:
    async def story(story: Story) -> None:
        held, may_end = story.hold()
        await story.put([numbered(n) for n in range(10)])
        async with story.processor(held) as processor:
            await story.until(lambda: processor.counters.in_flight == 10)
            story.cut()
            await asyncio.sleep(5)
            may_end.set()
            await story.until(lambda: processor.counters.completed == 10)
            await asyncio.sleep(120)
        assert (len(story.handled), story.left()) == (10, 0)
        assert story.said(LockEnded) == story.said(SettlementUnknown) == []

    play_with(story)


@pytest.mark.spec("C-13", "C-19")
def test_a_confirmation_lost_with_its_link_is_reported_as_unknown() -> None:
    async def story(story: Story) -> None:
        story.set_fault(FaultRule(Withhold(), "orders", Operation.SETTLE, times=1))
        await story.put([numbered(1)])
        async with story.processor() as processor:
            processor.reports_messages = True
            await story.until(lambda: processor.counters.messages_handled == 1)
            await asyncio.sleep(1)
            story.cut()
            await story.until(lambda: bool(story.said(SettlementUnknown)))
            assert processor.counters.completed == 0
        assert story.said(SettlementUnknown)[0].message_ids == ("m1",)
        assert [event.message_ids for event in story.said(MessagesReceived)] == [("m1",)]
        assert story.left() == 0

    play_with(story)


@pytest.mark.spec("C-13")
def test_a_settlement_on_a_new_connection_whose_answer_is_lost_is_reported_as_unknown() -> None:
    async def story(story: Story) -> None:
        held, may_end = story.hold()
        await story.put([numbered(1)])
        story.set_fault(FaultRule(Withhold(), "orders", Operation.MANAGE, times=1))
        async with story.processor(held, secondary="never") as processor:
            await story.until(lambda: processor.counters.in_flight == 1)
            story.cut()
            await asyncio.sleep(0.01)
            may_end.set()  # there is no link to send the settlement over
            await story.until(lambda: story.left() == 0)
            story.cut()
            await story.until(lambda: bool(story.said(SettlementUnknown) + story.said(LockEnded)))
            assert processor.counters.locks_lost == 0
        assert [event.message_ids for event in story.said(SettlementUnknown)] == [("m1",)]

    play_with(story)


@pytest.mark.spec("C-13")
def test_an_unanswered_settlement_closes_its_connection_and_is_repeated() -> None:
    async def story(story: Story) -> None:
        story.make("contoso-dr")
        story.driven.servers["contoso"].frontend.namespace.delete_queue("orders", CLOCK.now())
        story.make("contoso", lock_duration=300_000)
        story.set_fault(FaultRule(Lose(), "orders", Operation.SETTLE, times=1))
        await story.put([numbered(1)])
        async with story.processor() as processor:
            await story.until(lambda: processor.counters.completed == 1)
            assert 60 <= story.now <= 65
        assert (story.handled, story.left()) == (["m1"], 0)

    play_with(story)


@pytest.mark.spec("C-13")
def test_a_settlement_lost_in_transit_is_repeated_on_another_link() -> None:
    async def story(story: Story) -> None:
        await story.put([numbered(n) for n in range(5)])
        held, may_end = story.hold()
        async with story.processor(held) as processor:
            await story.until(lambda: processor.counters.in_flight == 5)
            may_end.set()
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            story.cut()  # what was written is lost with the connection
            await story.until(lambda: processor.counters.completed == 5)
            await asyncio.sleep(120)
        assert (len(story.handled), story.left()) == (5, 0)

    play_with(story)


@pytest.mark.spec("C-15", "C-19")
def test_a_handler_that_returns_after_its_lock_expired_is_reported_once() -> None:
    async def story(story: Story) -> None:
        async def stubborn(message: ReceivedMessage) -> None:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await story.note(message)  # the completion takes effect nevertheless

        with story.driven.fault("contoso", "orders", LoseLock(5.0), Operation.RECEIVE):
            await story.put([numbered(1)])
            async with story.processor(stubborn, deduplicate=timedelta(hours=1)) as processor:
                processor.reports_messages = True
                await story.until(lambda: processor.counters.duplicates > 0 and story.left() == 0)
        assert story.handled == ["m1"]
        assert [each for event in story.said(MessagesReceived) for each in event.message_ids] == ["m1"]

    play_with(story)


@pytest.mark.spec("C-13")
def test_waiting_messages_are_dropped_unhandled_after_the_broker_forgot_their_locks() -> None:
    async def story(story: Story) -> None:
        calls: Counter[str] = Counter()
        may_end = asyncio.Event()

        async def handle(message: ReceivedMessage) -> None:
            calls[str(message.message_id)] += 1
            if len(calls) > 10:  # quick at first, so that others may wait
                await may_end.wait()
                await asyncio.sleep(1)

        await story.put([numbered(n) for n in range(60)])
        async with story.processor(handle, max_concurrent_calls=1) as processor:
            await story.until(lambda: processor.counters.completed == 10)
            await story.until(lambda: len(calls) == 11 and processor.counters.in_flight > 20)
            with story.down():
                queue = story.driven.queue("contoso", "orders")
                for waiting in queue.browse(0, 100):
                    if waiting.lock_token is not None:
                        queue.release(waiting.lock_token, CLOCK.now())
            await story.until(lambda: len(story.said(ReceivingStarted)) == 2)
            may_end.set()
            await story.until(lambda: story.left() == processor.counters.in_flight == 0)
        assert (
            sum(calls.values()) <= 62
        )  # redelivered: the message of the running handler, and the one begun meanwhile

    play_with(story)
