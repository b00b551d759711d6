"""A late answer does not keep the others waiting, and its message is sent again once the answer seems to be lost."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from sbpair.broker.faults import FaultRule, Operation, Withhold
from sbpair.observation import Journal, PairLabels, WriterRole, read
from sbpair.pair.syphon.events import MessagesForwarded
from sbpair.pair.syphon.forward.delivery import DETACHED_WITHIN
from sbpair.pair.syphon.forward.waiting import LATE_AFTER, AwaitedAnswers
from tests.pair.syphon.driven import Driven, play
from tests.pair.syphon.pair import parked
from tests.pair.syphon.scripted import ANSWER, LOCK, Scene, driven, now, turns

pytestmark = pytest.mark.spec("H-12")


@driven
async def test_an_answer_is_late_after_five_seconds_or_eight_times_the_usual() -> None:
    first, second = Scene().post([1, 2])
    for usual, late_after in ((0.1, LATE_AFTER), (2.0, 16.0)):
        awaited = AwaitedAnswers()
        awaited.sent(first, 0.0)
        awaited.answered(first, usual)
        awaited.sent(second, 10.0)
        assert awaited.late(10.0 + late_after - 0.01) == 0
        assert awaited.late(10.0 + late_after) == 1
        assert awaited.oldest(12.0) == 2.0
        awaited.forget(second)
        assert (awaited.late(100.0), awaited.oldest(100.0)) == (0, 0.0)


@driven
async def test_late_answers_are_passed_over_all_after_a_later_one_and_otherwise_singly() -> None:
    messages = Scene().post(range(5))
    awaited = AwaitedAnswers()
    for number, message in enumerate(messages):
        awaited.sent(message, float(number))
    assert awaited.late(50.0) == 1
    awaited.answered(messages[3], 3.5)
    assert awaited.late(50.0) == 4  # three before it, and one


@driven
async def test_after_one_lost_answer_the_rest_continues_after_five_seconds_on_the_same_link() -> None:
    scene = Scene()
    scene.post([1])
    await asyncio.sleep(1.0)
    scene.post([2, 3, 4])
    assert scene.link.all_sent == [1]
    await asyncio.sleep(LATE_AFTER - 1.1)
    assert scene.link.all_sent == [1]
    await asyncio.sleep(0.5)
    assert scene.link.all_sent == [1, 2]
    scene.link.sent.reverse()
    scene.link.answer()
    await turns()
    assert scene.link.all_sent[:4] == [1, 2, 3, 4]
    assert len(scene.links) == 1


@driven
async def test_an_unanswered_message_is_resent_only_after_a_later_one_was_answered() -> None:
    scene = Scene()
    scene.post([1], lock_ends=10 * LOCK)
    await turns()
    number = 1
    while len(scene.links) == 1 and number < 1000:
        number += 1
        scene.post([number], lock_ends=10 * LOCK)
        await asyncio.sleep(0.2)
        scene.link.sent.sort(key=lambda message: -message.delivery_id)
        while len(scene.links) == 1 and len(scene.link.sent) > 1:
            scene.link.answer()
    old, new = scene.links
    assert number * 0.2 == pytest.approx(LATE_AFTER, abs=1.0)
    assert [message.delivery_id for message in old.sent if message.delivery_id == 1] == [1]
    await asyncio.sleep(DETACHED_WITHIN - 0.5)
    assert old.let_go_at is None
    await asyncio.sleep(1.0)
    assert old.let_go_at is not None
    old.sent.sort(key=lambda message: -message.delivery_id)
    for _ in range(len(old.sent) - 1):
        old.answer()
    old.detach()
    new.accept_all()
    await asyncio.sleep(0.6)
    assert new.all_sent.count(1) == 1
    assert scene.orders.is_open


@driven
async def test_the_answer_of_a_lone_message_is_awaited_five_seconds_then_ten_twenty_and_forty() -> None:
    """It is sent again only after its peer has detached the link."""
    scene = Scene()
    scene.post([1], lock_ends=10 * LOCK)
    used = [0.0]
    while now() < 3 * ANSWER:
        await asyncio.sleep(0.1)
        for link in scene.links:
            if link.let_go_at is not None and not link.detached.done():
                link.detach()
        if len(scene.links) > len(used):
            used.append(now())
    waits = [later - each for each, later in pairwise(used)]
    again = DETACHED_WITHIN + 0.5  # seconds until the message is sent again
    assert waits[:3] == pytest.approx([LATE_AFTER, again + 2 * LATE_AFTER, again + 4 * LATE_AFTER], abs=1.0)
    assert sum(link.all_sent.count(1) for link in scene.links) <= 6


@driven
async def test_a_copy_is_sent_to_an_unresponsive_peer_only_after_the_time_limit() -> None:
    scene = Scene()
    scene.post([1], lock_ends=10 * LOCK)
    await asyncio.sleep(ANSWER - 0.1)
    assert [link.all_sent for link in scene.links] == [[1], []]
    assert not [entry for entry in scene.host if entry[0] == "unresponsive"]
    await asyncio.sleep(2 * DETACHED_WITHIN)
    assert [entry for entry in scene.host if entry[0] == "unresponsive"]


@pytest.mark.parametrize("others", [0, 100])
def test_one_lost_answer_delays_its_message_by_at_most_15_seconds(others: int) -> None:
    async def story(world: Driven) -> None:
        server = world.servers["contoso"]
        syphon = world.syphon()
        async with world.running(syphon):
            await asyncio.sleep(1.0)
            rule = FaultRule(Withhold(), "orders", Operation.SEND, times=1)
            server.frontend.set_fault(rule, server.read_clocks().idle)
            await world.park([parked(0)])
            for number in range(others):
                await asyncio.sleep(0.1)
                await world.park([parked(1 + number)])
            await world.until(lambda: syphon.counters.completed == 1 + others, within=15.0 - 0.1 * others)
        assert world.active("contoso", "orders") == 1 + others + 1  # that one twice

    play(story)


@pytest.mark.slow
def test_one_lost_acknowledgement_delays_other_messages_by_at_most_six_seconds() -> None:
    async def story(world: Driven) -> None:
        server = world.servers["contoso"]
        server.frontend.set_fault(FaultRule(Withhold(), "orders", nth=20), server.read_clocks().idle)
        syphon = world.syphon()
        async with world.running(syphon):
            for number in range(100):
                await world.park([parked(number)])
                await asyncio.sleep(0.2)
            await world.until(lambda: syphon.counters.completed >= 99, within=6.0)
            await world.until(lambda: syphon.counters.completed == 100, within=90.0)
        assert world.active("contoso", "orders") == 101  # the one without an answer arrived twice

    play(story)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [2, 5])
def test_after_one_lost_answer_at_most_five_messages_are_later_than_eight_seconds(rate: int) -> None:
    async def story(world: Driven) -> None:
        parked_at: dict[str, float] = {}
        took: dict[str, float] = {}

        def on_event(event: object) -> None:
            if isinstance(event, MessagesForwarded):
                for each in event.message_ids:
                    took.setdefault(each, world.loop.time() - parked_at[each])

        syphon = world.syphon(report_forwards=True)
        syphon.on_event(on_event)
        async with world.running(syphon):
            await asyncio.sleep(1.0)
            for number in range(rate * 60):
                if number == rate * 10:
                    server = world.servers["contoso"]
                    rule = FaultRule(Withhold(), "orders", Operation.SEND, times=1)
                    server.frontend.set_fault(rule, server.read_clocks().idle)
                parked_at[f"m{number}"] = world.loop.time()
                await world.park([parked(number)])
                await asyncio.sleep(1 / rate)
            await world.until(lambda: len(took) == rate * 60)
        assert 1 <= sum(each > 8.0 for each in took.values()) <= 5

    play(story)


@pytest.mark.spec("R-243")
def test_the_journal_explains_the_copy_made_after_a_lost_answer(tmp_path: Path) -> None:
    """The primary stored the message twice, and both journals say why: an audit of them finds nothing to ask."""

    async def story(world: Driven) -> None:
        server = world.servers["contoso"]
        syphon = world.syphon(report_forwards=True)
        with Journal(tmp_path, role=WriterRole.SYPHON, pair=PairLabels("contoso", "contoso-dr")) as journal:
            syphon.on_event(journal.write)
            async with world.running(syphon):
                await asyncio.sleep(1.0)
                rule = FaultRule(Withhold(), "orders", Operation.SEND, times=1)
                server.frontend.set_fault(rule, server.read_clocks().idle)
                await world.park([parked(0)])
                await world.until(lambda: syphon.counters.completed == 1)
        assert world.active("contoso", "orders") == 2

    play(story)
    (file,) = tmp_path.glob("*.jsonl")
    told = [(each["event"], each["message_ids"]) for each in read(file) if "message_ids" in each]
    assert told == [("messages_in_doubt", ["m0"]), ("messages_forwarded", ["m0"])]
