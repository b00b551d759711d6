"""A rejected message waits by itself; its entity is held only when it accepts almost none."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.faults import FaultRule, RejectWith
from sbpair.pair.syphon.events import DestinationHeld
from sbpair.pair.syphon.forward.delivery import OPEN, WAITING
from sbpair.pair.syphon.forward.pace import Pace
from sbpair.pair.syphon.forward.waiting import MIN_ANSWERS, MOST_ALONE, SPAN, RecentAnswers
from tests.pair.syphon.driven import Driven, play
from tests.pair.syphon.pair import parked
from tests.pair.syphon.scripted import BUSY, INTERNAL, Scene, driven, now, turns

pytestmark = pytest.mark.spec("H-11")


def answered(accepted: int, rejected: int, at: float = 0.0) -> RecentAnswers:
    answers = RecentAnswers()
    for _ in range(accepted):
        answers.note(at, is_rejection=False)
    for _ in range(rejected):
        answers.note(at, is_rejection=True)
    return answers


@pytest.mark.parametrize(
    ("accepted", "rejected", "awaited", "is_refusing"),
    [
        (2, 18, 5, True),
        (3, 17, 5, False),
        (0, MIN_ANSWERS - 1, 1, False),
        (0, MIN_ANSWERS, 1, True),
        (0, 1, 0, True),
        (1, 1, 0, False),
        (20, 179, 0, False),
        (20, 180, 0, True),
    ],
)
def test_an_entity_refuses_with_nine_tenths_of_twenty_answers_or_all_of_a_few(
    accepted: int, rejected: int, awaited: int, is_refusing: bool
) -> None:
    assert answered(accepted, rejected).is_refusing(0.5, awaited) is is_refusing


def test_answers_are_forgotten_after_ten_seconds_and_on_a_restart() -> None:
    answers = answered(5, 0, at=0.0)
    answers.note(5.0, is_rejection=True)
    assert not answers.is_refusing(SPAN - 0.1, 0)
    assert answers.is_refusing(SPAN + 0.1, 0)
    answers.restart()
    answers.note(11.0, is_rejection=False)
    assert not answers.is_refusing(11.0, 0)


@driven
async def test_a_rejected_message_waits_alone_ever_longer_while_others_continue() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    scene.link.answer(INTERNAL)
    scene.link.answer()
    for number, wait in ((10, 0.5), (11, 1.0), (12, 2.0), (13, 4.0), (14, 4.0), (15, 4.0)):
        began = now()
        assert (scene.orders.state, scene.orders.waiting, scene.orders.takes_more) == (OPEN, 1, True)
        scene.post([number])
        scene.link.answer()
        await asyncio.sleep(wait - 0.01)
        assert scene.link.all_sent[-1] == number
        await asyncio.sleep(began + wait - now() + 0.001)
        assert scene.link.all_sent[-1] == 1
        scene.post([100 + number])
        scene.link.sent.reverse()
        scene.link.answer()
        scene.link.answer(INTERNAL)
    assert scene.events == []
    assert "out of reach" not in [entry[0] for entry in scene.host]


@driven
async def test_an_entity_that_rejects_nearly_all_is_held_together_with_messages_waiting_alone() -> None:
    scene = Scene()
    scene.post(range(1, 41))
    await turns()
    for _ in range(MIN_ANSWERS - 1):
        scene.link.answer(BUSY)
    assert scene.orders.state is OPEN
    scene.link.answer(BUSY)
    assert scene.orders.state is WAITING
    assert len(scene.said(DestinationHeld)) == 1
    assert scene.orders.waiting == MIN_ANSWERS
    scene.link.accept_all()
    await asyncio.sleep(0.51)
    assert scene.link.all_sent[40:] == [1]
    scene.link.answer()
    await turns()
    scene.link.accept_all()
    await asyncio.sleep(0.1)
    assert scene.link.all_sent[40:43] == [1, 2, 3]


@driven
async def test_a_message_that_is_always_rejected_does_not_probe_forever() -> None:
    scene = Scene()
    scene.post([1])
    await turns()
    scene.link.answer(BUSY)
    scene.post([2])
    await asyncio.sleep(0.51)
    assert scene.link.all_sent == [1, 1]
    scene.link.answer(BUSY)
    await asyncio.sleep(1.01)
    assert scene.link.all_sent == [1, 1, 2]
    scene.link.answer()
    await asyncio.sleep(0.1)  # evenly, after busy
    scene.link.answer(BUSY)
    assert scene.orders.state is OPEN
    scene.post([3])
    await asyncio.sleep(0.1)
    assert scene.link.all_sent == [1, 1, 2, 1, 3]


@driven
async def test_a_message_waiting_alone_can_be_withdrawn_diverted_and_released_at_the_end() -> None:
    scene = Scene()
    first, *_ = scene.post([1, 2, 3, 4])
    await turns()
    for _ in range(3):
        scene.link.answer(INTERNAL)
    scene.link.answer()
    assert scene.orders.waiting == 3
    scene.orders.withdraw(first)
    gone: list[int] = []
    scene.orders.divert(lambda message: gone.append(message.delivery_id))
    assert (gone, scene.orders.waiting) == ([2, 3], 0)
    scene.orders.detour = None
    scene.post([5, 6])
    scene.link.answer(INTERNAL)
    scene.orders.stop()
    await asyncio.sleep(5.0)
    assert scene.link.all_sent == [1, 2, 3, 4, 5, 6]


@driven
async def test_the_number_of_messages_waiting_alone_is_bounded() -> None:
    pace = Pace()
    for _ in range(MOST_ALONE + 1000):
        pace.accepted(0.0)
    scene = Scene(pace=pace)
    scene.post(range(1, MOST_ALONE + 1000))
    await turns()
    scene.link.grant(MOST_ALONE)
    for _ in range(500):
        scene.link.answer()
    while scene.orders.state is OPEN:
        scene.link.answer(INTERNAL)
        if scene.orders.state is OPEN and scene.orders.waiting % 2:
            scene.post([10_000 + scene.orders.waiting])
            scene.link.grant(1)
            scene.link.sent.insert(0, scene.link.sent.pop())
            scene.link.answer()
    assert scene.orders.state is WAITING
    assert scene.orders.waiting == MOST_ALONE + 1


@pytest.mark.slow
def test_a_drain_in_which_every_fifth_answer_is_a_rejection_holds_no_entity() -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(2000))
        rule = FaultRule(RejectWith(), "orders", probability=0.2, seed=7)
        server = world.servers["contoso"]
        server.frontend.set_fault(rule, server.read_clocks().idle)
        syphon = world.syphon()
        async with world.running(syphon):
            took = await world.until(lambda: syphon.counters.completed == 2000)
        assert took < 8.0  # a few are rejected three times
        assert world.said(DestinationHeld) == []
        assert world.active("contoso", "orders") == 2000

    play(story)


def test_a_drain_with_every_fifth_message_rejected_once_takes_at_most_three_seconds() -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(2000))
        syphon = world.syphon()
        server = world.servers["contoso"]
        rule = FaultRule(RejectWith(), "orders", probability=0.2, seed=7)
        active = server.frontend.set_fault(rule, server.read_clocks().idle)
        async with world.running(syphon):
            began = world.loop.time()
            await world.until(lambda: syphon.counters.received == 2000)
            server.frontend.faults.remove(active)
            assert syphon.counters.completed < 1900
            await world.until(lambda: syphon.counters.completed == 2000)
            assert world.loop.time() - began <= 3.0

    play(story)
