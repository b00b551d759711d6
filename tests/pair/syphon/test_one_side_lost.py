"""A syphon that loses one side keeps the connection, the links and the locks of the other, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from sbpair.broker.faults import Lose, Operation
from sbpair.pair.syphon.events import SyphonConnected, SyphonDisconnected
from sbpair.pair.syphon.forward.forwarding import KEPT
from sbpair.syphon import SyphonState
from tests.pair.syphon.driven import BACKLOGS, Driven, play
from tests.pair.syphon.pair import parked

pytestmark = pytest.mark.spec("R-66")


def connections(world: Driven, side: str) -> list[object]:
    return [pipe for pipe in world.network.pipes(side=side) if not pipe.client.is_over]


async def caught(world: Driven, count: int) -> None:
    """Park messages, and let the primary answer none of them."""
    with world.fault("contoso", "orders", Lose(), Operation.SEND):
        await world.park(map(parked, range(count)))
        await asyncio.sleep(2.0)
        world.cut("contoso")


@pytest.mark.parametrize("seconds", [1.0, KEPT - 5.0])
def test_the_loss_of_the_primary_keeps_the_links_and_the_locks_of_the_secondary(seconds: float) -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            await asyncio.sleep(1.0)
            before, links = connections(world, "contoso-dr"), world.open_at_the_brokers()["contoso-dr"]
            await caught(world, 50)
            await asyncio.sleep(seconds)
            assert syphon.status.state is SyphonState.CONNECTING
            await world.park([parked(50)])  # is not received meanwhile
            world.restored("contoso")
            assert await world.until(lambda: syphon.counters.completed == 51) <= 6.0
            assert syphon.status.state is SyphonState.RUNNING
            assert (connections(world, "contoso-dr"), world.open_at_the_brokers()["contoso-dr"][2:]) == (
                before, links[2:],
            )  # fmt: skip
            assert syphon.counters.received == 51
            assert len(world.said(SyphonConnected)) == 2
        assert world.active("contoso", "orders") == 51

    play(story)


def test_messages_waiting_for_an_absent_primary_are_released_after_a_minute() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            await asyncio.sleep(1.0)
            before = connections(world, "contoso-dr")
            await caught(world, 50)
            await asyncio.sleep(KEPT - 5.0)
            assert (syphon.counters.released, syphon.counters.pending) == (0, 50)
            await asyncio.sleep(6.0)
            assert (syphon.counters.released, syphon.counters.pending) == (50, 0)
            await asyncio.sleep(3600.0)
            assert syphon.counters.received == 50
            world.restored("contoso")
            assert await world.until(lambda: syphon.counters.completed == 50) <= 6.0
            assert connections(world, "contoso-dr") == before

    play(story)


def test_the_loss_of_the_secondary_keeps_the_links_of_the_primary() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            await world.park([parked(0)])
            await world.until(lambda: syphon.counters.completed == 1)
            before, links = connections(world, "contoso"), world.open_at_the_brokers()["contoso"]
            world.cut("contoso-dr")
            await asyncio.sleep(30.0)
            assert syphon.status.state is SyphonState.CONNECTING
            world.restored("contoso-dr")
            await asyncio.sleep(4.0)
            assert syphon.status.state is SyphonState.RUNNING
            for backlog in BACKLOGS:
                await world.park([parked(1)], backlog)
            await world.until(lambda: syphon.counters.completed == 3)
            assert (connections(world, "contoso"), world.open_at_the_brokers()["contoso"]) == (before, links)

    play(story)


@pytest.mark.parametrize("first", ["contoso", "contoso-dr"])
def test_when_both_sides_are_lost_both_are_reconnected(first: str) -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon()
        async with world.running(syphon):
            await caught(world, 20)
            world.restored("contoso")
            sides = (first, "contoso" if first == "contoso-dr" else "contoso-dr")
            for side in sides:
                world.cut(side)
                await asyncio.sleep(5.0)
            for side in sides:
                world.restored(side)
            await world.until(lambda: world.active("contoso-dr", BACKLOGS[0]) == 0)
            assert syphon.status.state is SyphonState.RUNNING
        assert world.active("contoso", "orders") == 20

    play(story)


def test_a_repeatedly_lost_primary_is_reconnected_once_a_second() -> None:
    async def story(world: Driven) -> None:
        syphon = world.syphon(retry_backoff_max=timedelta(seconds=1))
        async with world.running(syphon):
            await asyncio.sleep(1.0)
            await world.park(map(parked, range(10)))
            for _ in range(500):
                for pipe in connections(world, "contoso"):
                    pipe.cut()
                await asyncio.sleep(0.02)
            assert len(world.said(SyphonDisconnected)) <= 20
            await world.until(lambda: syphon.counters.completed == 10)

    play(story)


def test_a_drain_continues_after_the_loss_of_a_side() -> None:
    async def story(world: Driven) -> None:
        await world.park(map(parked, range(200)))
        syphon = world.syphon(max_rate=20)
        draining = asyncio.ensure_future(syphon.drain())
        for side in ("contoso", "contoso-dr"):
            await asyncio.sleep(2.0)
            world.cut(side)
            await asyncio.sleep(5.0)
            world.restored(side)
        async with asyncio.timeout(120.0):
            counters = await draining
        assert counters.completed in (199, 200)  # the answer to a completion may be lost with the side
        assert world.active("contoso-dr", BACKLOGS[0]) == 0
        assert world.active("contoso", "orders") >= 200

    play(story)
