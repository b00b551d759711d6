"""Messages for a stuck destination wait without blocking the others. In driven time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbpair.broker.faults import Full, NoCredit, Operation, Withhold
from sbpair.pair.syphon.events import DestinationHeld, DestinationResumed, SyphonDisconnected
from sbpair.pair.syphon.forward import forwarding
from sbpair.pair.syphon.watch.peeking import has_more
from tests.pair.syphon.driven import BACKLOGS, CLOCK, Driven, play
from tests.pair.syphon.pair import parked

OTHERS = 50
SOON = 5.0  # seconds of the virtual clock, where a second or two would do
WAYS = {
    "creditless": (NoCredit(), Operation.ATTACH),
    "full": (Full(), Operation.SEND),
    "silent": (Withhold(), Operation.SEND),
}


def stuck(world: Driven, how: str, path: str = "orders"):
    effect, operation = WAYS[how]
    return world.fault("contoso", path, effect, operation)


@pytest.mark.slow
@pytest.mark.spec("R-22")
@pytest.mark.parametrize(
    ("how", "count"),
    [
        *((how, 100) for how in WAYS),
        ("full", 2100),  # more than is kept in memory; the other two run each night
        pytest.param("creditless", 2100, marks=pytest.mark.long),
        pytest.param("silent", 2100, marks=pytest.mark.long),
    ],
)
def test_messages_waiting_for_one_destination_leave_room_for_others(how: str, count: int) -> None:
    """The messages are forwarded once possible, without repeated redelivery meanwhile."""

    async def story(world: Driven) -> None:
        world.make("others")
        await world.park(parked(number) for number in range(count))
        await world.park(parked(count + number, "others") for number in range(OTHERS))
        syphon = world.syphon()
        async with world.running(syphon):
            with stuck(world, how):
                took = await world.until(lambda: world.active("contoso", "others") == OTHERS)
                assert took < SOON
                await asyncio.sleep(600.0)
                assert syphon.counters.received <= count + OTHERS, "none came twice"
                assert syphon.counters.lock_lost == 0
                assert [event.path for event in world.said(DestinationHeld)][:1] == ["orders"]
            done = count + OTHERS
            await world.until(lambda: syphon.counters.completed == done, within=900.0)
            assert world.active("contoso", "others") == OTHERS
            assert not world.said(SyphonDisconnected), "no connection was cut"
            if how != "silent":  # messages without an answer were stored and are sent again
                assert world.active("contoso", "orders") == count
            if how != "creditless":
                assert world.said(DestinationResumed)
            assert syphon.counters.received <= 2 * count + OTHERS
            assert syphon.counters.pending == 0

    play(story)


@pytest.mark.slow
@pytest.mark.spec("R-22")
@pytest.mark.parametrize("stuck_ones", [1, 3, 10])
def test_any_number_of_stuck_destinations_leaves_room_for_the_others(stuck_ones: int) -> None:
    async def story(world: Driven) -> None:
        world.make("others")
        paths = [f"stuck-{number}" for number in range(stuck_ones)]
        for path in paths:
            world.make(path)
        for backlog in BACKLOGS:
            messages = [parked(number, path) for number in range(300) for path in paths]
            await world.park(messages, backlog)
            await world.park((parked(number, "others") for number in range(OTHERS)), backlog)
        syphon = world.syphon()
        async with world.running(syphon):
            with stuck(world, "full", "stuck-*"):
                expected = OTHERS * len(BACKLOGS)
                assert await world.until(lambda: world.active("contoso", "others") == expected) < SOON
                await asyncio.sleep(120.0)
                assert syphon.counters.received == 300 * stuck_ones * len(BACKLOGS) + expected
            total = 300 * stuck_ones * len(BACKLOGS) + expected
            await world.until(lambda: syphon.counters.completed == total, within=900.0)
            for path in paths:
                assert world.active("contoso", path) == 300 * len(BACKLOGS)

    play(story)


@pytest.mark.slow
@pytest.mark.spec("R-22")
def test_above_the_lock_limit_all_messages_are_held_and_each_arrives_at_most_twice() -> None:
    async def story(world: Driven) -> None:
        world.make("others")
        await world.park(parked(number) for number in range(3000))
        await world.park([parked(3000, "others")])
        syphon = world.syphon(window=10)  # 40 messages stay in memory
        async with world.running(syphon):
            with stuck(world, "full"):
                await world.until(lambda: world.active("contoso", "others") == 1)
                await asyncio.sleep(600.0)
                assert syphon.counters.received == 3001
            await world.until(lambda: syphon.counters.completed == 3001)
            assert syphon.counters.received < 2 * 3001
            assert syphon.counters.lock_lost == 0
        assert world.active("contoso", "orders") == 3000

    play(story)


@pytest.mark.spec("R-22", "F-62")
@pytest.mark.parametrize("how", WAYS)
def test_a_lock_is_renewed_when_a_third_of_it_is_left_and_not_at_the_last_moment(how: str) -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(50))
        syphon = world.syphon(window=5)  # active, held and shelved messages
        with stuck(world, how):
            async with world.running(syphon):
                await world.until(lambda: syphon.counters.received == 50)
                queue, least = world.queue("contoso-dr", BACKLOGS[0]), 60_000
                for _ in range(300):
                    await asyncio.sleep(1.0)
                    locks = [
                        message.locked_until - CLOCK.now() for message in queue.peek(1, 100, CLOCK.now())
                    ]
                    assert len(locks) == 50
                    least = min(least, *locks)
        assert 60_000 / 3 - 3_000 < least < 60_000 / 3 + 1_000

    play(story)


@pytest.mark.spec("R-22")
def test_an_unanswering_destination_gets_one_message_a_minute_and_cuts_no_connection() -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(20))
        syphon = world.syphon()
        with stuck(world, "silent"):
            async with world.running(syphon):
                await asyncio.sleep(605.0)
                stored = world.active("contoso", "orders")
                assert 20 < stored <= 20 + 10
                assert not world.said(SyphonDisconnected)

    play(story)


@pytest.mark.spec("R-22")
def test_a_destination_that_accepts_one_a_second_gets_them_and_others_do_not_wait() -> None:
    async def story(world: Driven) -> None:
        world.make("others")
        await world.park(parked(number) for number in range(100))
        await world.park(parked(100 + number, "others") for number in range(OTHERS))
        syphon = world.syphon()
        with world.fault("contoso", "orders", NoCredit(), Operation.ATTACH):
            async with world.running(syphon):
                await world.until(lambda: world.active("contoso", "others") == OTHERS, within=SOON)
                link = next(
                    node._link
                    for wire in world.servers["contoso"].wires.values()
                    for node in wire.client.links
                    if node.queue is not None and node.queue.path == "orders"
                )
                for number in range(10):
                    link.flow(1)
                    next(iter(world.servers["contoso"].wires.values())).flush()
                    await asyncio.sleep(1.0)
                    assert world.active("contoso", "orders") == number + 1

    play(story)


@pytest.mark.spec("R-22", "G-25")
def test_a_drain_polls_again_after_late_arrivals_before_it_looks_for_locked_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found: list[bool] = []

    async def looking(*asked: Any) -> bool:
        found.append(await has_more(*asked))
        return found[-1]

    monkeypatch.setattr(forwarding, "has_more", looking)

    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(1000))
        await world.syphon().drain()
        assert world.active("contoso", "orders") == 1000
        assert found == [False] * len(BACKLOGS), "nobody was sent to look while there was more to receive"

    play(story)


@pytest.mark.spec("R-22")
def test_a_message_that_waited_arrives_in_its_order() -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number) for number in range(300))
        syphon = world.syphon()
        async with world.running(syphon):
            with stuck(world, "full"):
                await world.until(lambda: syphon.counters.received == 300)
                await asyncio.sleep(20.0)
            await world.until(lambda: syphon.counters.completed == 300)
        arrived = world.queue("contoso", "orders").peek(1, 300, CLOCK.now())
        assert [message.message_id for message in arrived] == [f"m{number}" for number in range(300)]

    play(story)
