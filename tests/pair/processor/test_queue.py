"""A processor of a queue: both sides, the outcomes of a handler, and what it reports."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.processor.queue_link import QueueLink
from sbpair.processor import (
    Abandon,
    DeadLetter,
    Defer,
    EntityMissing,
    HandlerFailed,
    ProcessorOptions,
    ReceivedMessage,
    ReceivingLost,
    ReceivingStarted,
)
from tests.pair.processor.pair import Pair, numbered, put
from tests.waiting import PATIENCE, until

SOON = timedelta(seconds=1)


@pytest.mark.spec("C-10", "C-11")
async def test_messages_of_both_sides_are_handled_and_completed(pair: Pair) -> None:
    pair.secondary.create_queue("orders")
    await put(pair.primary, "orders", [numbered(n) for n in range(50)])
    await put(pair.secondary, "orders", [numbered(n) for n in range(50, 100)])
    async with pair.client() as client, client.get_queue_processor("orders", pair.note) as processor:
        await pair.handles(100)
        await pair.settles()
        await until(lambda: processor.counters.completed == 100)
    assert sorted(pair.handled) == sorted(f"m{n}" for n in range(100))
    assert pair.sides.count("primary") == pair.sides.count("secondary") == 50


@pytest.mark.spec("C-11")
async def test_a_subscription_is_handled_like_a_queue(pair: Pair) -> None:
    pair.primary.create_topic("news")
    pair.primary.create_subscription("news", "all")
    await put(pair.primary, "news", [numbered(1)])
    async with pair.client() as client, client.get_subscription_processor("news", "all", pair.note):
        await pair.handles(1)
        await until(lambda: not pair.primary.counts("news/Subscriptions/all").active)


@pytest.mark.spec("C-11")
async def test_each_outcome_of_a_handler_reaches_the_queue(pair: Pair) -> None:
    outcomes: dict[str, list[Exception]] = {
        "m1": [DeadLetter("BadOrder", "no customer", {"checked": True})],
        "m2": [Defer({"later": 1})],
        "m3": [Abandon({"tried": "once"})],
        "m4": [ValueError("boom")],
    }
    seen: list[ReceivedMessage] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(message)
        left = outcomes[str(message.message_id)]
        if left:
            raise left.pop()

    await put(pair.primary, "orders", [numbered(n) for n in range(1, 5)])
    async with pair.client() as client:
        processor = client.get_queue_processor("orders", handle)
        processor.on_event(pair.events.append)
        async with processor:
            await until(lambda: len(seen) == 6)
            await until(lambda: processor.counters.completed == 2)
    counts = pair.primary.counts("orders")
    assert (counts.active, counts.dead_letter, counts.deferred) == (0, 1, 1)
    assert [(e.message_id, e.error) for e in pair.said(HandlerFailed)] == [("m4", "ValueError: boom")]
    again = {str(m.message_id): m for m in seen[4:]}
    assert again["m3"].application_properties == {"number": 3, "tried": "once"}
    assert again["m4"].delivery_count == 1
    assert processor.counters.settled_otherwise == 4


@pytest.mark.spec("C-10")
async def test_a_missing_twin_is_looked_up_again_and_logged_once(pair: Pair) -> None:
    options = ProcessorOptions(missing_entity_interval=SOON)
    async with pair.client() as client:
        processor = client.get_queue_processor("orders", pair.note, options=options)
        processor.on_event(pair.events.append)
        async with processor:
            await until(lambda: bool(pair.said(EntityMissing)))
            pair.secondary.create_queue("orders")
            await put(pair.secondary, "orders", [numbered(1)])
            await pair.handles(1)
    assert [event.side for event in pair.said(EntityMissing)] == ["secondary"]
    assert pair.sides == ["secondary"]


@pytest.mark.spec("C-10")
@pytest.mark.parametrize("how", ["refuse", "reset", "silent"])
async def test_a_side_that_is_down_does_not_affect_the_other(pair: Pair, how: str) -> None:
    pair.secondary.create_queue("orders")
    await put(pair.secondary, "orders", [numbered(n) for n in range(20)])
    pair.primary.take_down(how)
    options = ProcessorOptions(retry_backoff_max=SOON)
    async with pair.client() as client:
        processor = client.get_queue_processor("orders", pair.note, options=options)
        processor.on_event(pair.events.append)
        async with processor:
            await pair.handles(20)
            if how != "silent":
                await until(lambda: any(e.side == "primary" for e in pair.said(ReceivingLost)))
            pair.primary.bring_up()
            await put(pair.primary, "orders", [numbered(21)])
            if how != "silent":
                await pair.handles(21)
    assert set(pair.sides[:20]) == {"secondary"}


@pytest.mark.spec("C-10")
@pytest.mark.parametrize(("secondary", "sides"), [("never", ["primary"]), ("only", ["secondary"])])
async def test_a_single_side_is_read_on_request(pair: Pair, secondary: str, sides: list[str]) -> None:
    pair.secondary.create_queue("orders")
    for side in (pair.primary, pair.secondary):
        await put(side, "orders", [numbered(1)])
    async with pair.client() as client:
        processor = client.get_queue_processor(
            "orders", pair.note, options=ProcessorOptions(secondary=secondary)
        )
        processor.on_event(pair.events.append)
        async with processor:
            await pair.handles(1)
            await until(lambda: processor.counters.completed == 1)
    assert pair.sides == sides
    assert {event.side for event in pair.said(ReceivingStarted)} == set(sides)
    assert pair.left() == 1


@pytest.mark.spec("C-11")
async def test_without_autosettle_a_message_is_settled_by_hand_and_confirmed(pair: Pair) -> None:
    await put(pair.primary, "orders", [numbered(n) for n in range(4)])
    kept: list[ReceivedMessage] = []

    async def keep(message: ReceivedMessage) -> None:
        kept.append(message)

    async with pair.client() as client:
        options = ProcessorOptions(autosettle=False)
        async with client.get_queue_processor("orders", keep, options=options) as processor:
            await until(lambda: len(kept) == 4)
            await processor.complete_message(kept[0])
            await processor.defer_message(kept[1])
            await processor.dead_letter_message(kept[2], "BadOrder", "no customer")
            with pytest.raises(Exception, match="settled, or its lock is lost"):
                await processor.complete_message(kept[0])
    counts = pair.primary.counts("orders")
    assert (counts.active, counts.dead_letter, counts.deferred) == (1, 1, 1)


@pytest.mark.spec("C-17")
async def test_stopping_lets_handlers_finish_and_releases_the_rest(pair: Pair) -> None:
    began, may_end = asyncio.Event(), asyncio.Event()

    async def slow(message: ReceivedMessage) -> None:
        began.set()
        await may_end.wait()
        await pair.note(message)

    await put(pair.primary, "orders", [numbered(n) for n in range(10)])
    async with pair.client() as client:
        processor = client.get_queue_processor(
            "orders", slow, options=ProcessorOptions(max_concurrent_calls=2)
        )
        running = asyncio.create_task(processor.run())
        await began.wait()
        processor.request_stop()
        await asyncio.sleep(0)
        may_end.set()
        async with asyncio.timeout(PATIENCE):
            await running
    assert 1 <= len(pair.handled) <= 2
    assert pair.left() == 10 - len(pair.handled)


@pytest.mark.spec("C-17")
async def test_a_handler_that_outlasts_the_stop_is_cancelled_and_its_message_released(pair: Pair) -> None:
    began = asyncio.Event()

    async def endless(message: ReceivedMessage) -> None:
        began.set()
        await asyncio.Event().wait()

    await put(pair.primary, "orders", [numbered(1)])
    options = ProcessorOptions(stop_timeout=timedelta(0))
    async with pair.client() as client:
        async with client.get_queue_processor("orders", endless, options=options):
            await began.wait()
        async with client.get_queue_processor("orders", pair.note):
            await pair.handles(1)  # without waiting for the lock to end


@pytest.mark.spec("C-10")
async def test_a_defect_in_one_attempt_does_not_end_a_side(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, failures = QueueLink.run, ["boom"]

    async def fails_once(link: QueueLink, connection: NamespaceConnection) -> Condition | None:
        if failures:
            raise ZeroDivisionError(failures.pop())
        return await run(link, connection)

    monkeypatch.setattr(QueueLink, "run", fails_once)
    await put(pair.primary, "orders", [numbered(1)])
    async with pair.client() as client:
        processor = client.get_queue_processor(
            "orders", pair.note, options=ProcessorOptions(secondary="never")
        )
        processor.on_event(pair.events.append)
        async with processor:
            await pair.handles(1)
    assert "ZeroDivisionError: boom" in str(pair.said(ReceivingLost))
    assert "receiving from orders on the primary failed" in caplog.text
