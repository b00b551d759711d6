"""A syphon far from its namespaces: distance is not taken for a destination that does not answer. In driven time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sbpair.broker.faults import Effect, Full, Operation, Withhold
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import MAX_ROUND_TRIP_SECONDS, connect
from sbpair.pair.syphon.events import DestinationHeld
from sbpair.syphon import SyphonState
from tests.pair.syphon.driven import BACKLOGS, STRING, Driven, play
from tests.pair.syphon.pair import parked

pytestmark = pytest.mark.spec("R-22")

FAR = 1.0  # seconds of a round trip
COUNT = 3000
OTHERS = 50
SOON = 60.0  # seconds of the virtual clock, where half would do


async def fill(world: Driven, backlogs: int = 1) -> None:
    """Park COUNT messages, spread over the backlogs."""
    for number in range(backlogs):
        backlog = f"contoso/x-servicebus-transfer/{number}"
        if backlog not in BACKLOGS:
            world.make(backlog, "contoso-dr")
        await world.park((parked(each) for each in range(number, COUNT, backlogs)), backlog)


def test_a_connection_measures_its_round_trip_by_the_fastest_answer() -> None:
    async def story(world: Driven) -> None:
        world.at_distance(FAR)
        connection = await connect(parse(STRING.format("contoso")))
        for now, least in ((FAR, FAR), (3 * FAR, FAR), (FAR / 10, FAR / 10), (FAR, FAR / 10)):
            world.at_distance(now)
            await connection.open_sender("orders")
            assert connection.round_trip == pytest.approx(least, abs=1e-4)
        connection.abort()
        world.at_distance(3 * MAX_ROUND_TRIP_SECONDS)
        connection = await connect(parse(STRING.format("contoso")))
        assert connection.round_trip == MAX_ROUND_TRIP_SECONDS
        connection.abort()

    play(story)


@pytest.mark.parametrize("backlogs", [1, 10])
def test_messages_go_home_over_high_latency_once_each_without_a_hold(backlogs: int) -> None:
    async def story(world: Driven) -> None:
        await fill(world, backlogs)
        world.at_distance(FAR)
        async with asyncio.timeout(SOON):
            counters = await world.syphon(backlog_queue_count=10).drain()
        assert (counters.received, counters.completed) == (COUNT, COUNT)
        assert world.active("contoso", "orders") == COUNT
        assert not world.said(DestinationHeld)

    play(story)


def test_a_connection_with_growing_latency_continues_at_the_longer_pace() -> None:
    async def story(world: Driven) -> None:
        await fill(world)
        syphon = world.syphon()
        async with world.running(syphon):
            await world.until(lambda: syphon.counters.completed > 0)
            world.at_distance(FAR)
            assert await world.until(lambda: syphon.counters.completed == COUNT) < SOON
        assert syphon.counters.received == COUNT

    play(story)


def test_changing_latency_holds_no_message() -> None:
    async def story(world: Driven) -> None:
        await fill(world)
        world.at_distance(0.2, late=FAR)
        async with asyncio.timeout(SOON):
            counters = await world.syphon().drain()
        assert (counters.received, counters.completed) == (COUNT, COUNT)

    play(story)


@pytest.mark.parametrize("effect", [Full(), Withhold()])
def test_with_high_latency_messages_waiting_for_one_destination_leave_room_for_others(effect: Effect) -> None:
    async def story(world: Driven) -> None:
        world.make("others")
        await fill(world)
        await world.park(parked(COUNT + number, "others") for number in range(OTHERS))
        world.at_distance(FAR)
        syphon = world.syphon()
        with world.fault("contoso", "orders", effect, Operation.SEND):
            async with world.running(syphon):
                await world.until(lambda: syphon.status.state is SyphonState.RUNNING)
                assert await world.until(lambda: world.active("contoso", "others") == OTHERS) < SOON
                assert {event.path for event in world.said(DestinationHeld)} <= {"orders"}

    play(story)


@pytest.mark.slow
def test_locks_of_waiting_messages_are_renewed_in_time_over_high_latency() -> None:
    async def story(world: Driven) -> None:
        await fill(world)
        world.at_distance(FAR)
        syphon = world.syphon()
        with world.fault("contoso", "orders", Full(), Operation.SEND):
            async with world.running(syphon):
                await world.until(lambda: syphon.counters.received == COUNT)
                await asyncio.sleep(300.0)
                assert (syphon.counters.received, syphon.counters.lock_lost) == (COUNT, 0)

    play(story)


@pytest.mark.slow
def test_messages_land_over_high_latency_without_a_hold() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", "contoso-dr")
        await fill(world)
        world.at_distance(FAR)
        world.cut("contoso")
        syphon = world.syphon(land="either", land_after=timedelta(0))
        async with world.running(syphon):
            await world.until(lambda: syphon.status.state is SyphonState.LANDING)
            assert await world.until(lambda: syphon.counters.landed == COUNT) < 5 * SOON
        assert not [event for event in world.said(DestinationHeld) if "does not answer" in event.reason]

    play(story)
