"""Any number of destinations is served over a connection that allows a thousand links. In driven time."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.broker.faults import Full, NoCredit, Operation, Withhold
from sbpair.pair.syphon.events import MessageSetAside, SyphonDisconnected
from sbpair.pair.syphon.forward import forwarding
from tests.pair.syphon.driven import Driven, play
from tests.pair.syphon.pair import parked

MANY = 2000  # twice what a connection allows


def links_to_the_primary(world: Driven) -> int:
    return world.open_at_the_brokers()["contoso"][1]


@pytest.mark.slow
@pytest.mark.spec("R-23")
def test_two_thousand_destinations_drain_over_a_few_links() -> None:
    async def story(world: Driven) -> None:
        paths = [f"q-{number}" for number in range(MANY)]
        for path in paths:
            world.make(path)
        await world.park(parked(number, path) for number, path in enumerate(paths))
        syphon, most = world.syphon(), 0
        async with world.running(syphon):
            while syphon.counters.completed < MANY:
                await asyncio.sleep(0.05)
                most = max(most, links_to_the_primary(world))
                assert world.loop.time() < 600, syphon.counters
            assert most <= forwarding.MAX_LINKS + 32  # including the links of $cbs and those being detached
            assert syphon.counters.received == MANY
            await asyncio.sleep(660.0)  # the idle links are detached
            assert not syphon._session._destinations, "what is not used is forgotten"
            assert len(syphon._session._primary._tokens._puts) <= 1
        assert not world.said(SyphonDisconnected)
        assert all(world.active("contoso", path) == 1 for path in paths)

    play(story)


@pytest.mark.slow
@pytest.mark.spec("R-23", "R-22")
@pytest.mark.parametrize(
    ("effect", "operation"),
    [(NoCredit(), Operation.ATTACH), (Full(), Operation.SEND), (Withhold(), Operation.ATTACH)],
)
def test_stuck_destinations_do_not_block_the_links_of_others(
    monkeypatch: pytest.MonkeyPatch, effect: object, operation: Operation
) -> None:
    monkeypatch.setattr(forwarding, "MAX_LINKS", 8)

    async def story(world: Driven) -> None:
        stuck, others = [f"stuck-{n}" for n in range(20)], [f"other-{n}" for n in range(20)]
        for path in stuck + others:
            world.make(path)
        await world.park(parked(number, path) for path in stuck for number in range(10))
        await world.park(parked(number, path) for path in others for number in range(10))
        syphon = world.syphon()
        async with world.running(syphon):
            with world.fault("contoso", "stuck-*", effect, operation):
                await world.until(lambda: all(world.active("contoso", path) == 10 for path in others))
                assert syphon.counters.received == 400
            await world.until(lambda: syphon.counters.completed == 400, within=900.0)
        assert all(world.active("contoso", path) == 10 for path in stuck)

    play(story)


@pytest.mark.spec("R-20")
def test_missing_destinations_leave_no_state() -> None:
    async def story(world: Driven) -> None:
        await world.park(parked(number, f"nowhere-{number}") for number in range(500))
        syphon = world.syphon()
        async with world.running(syphon):
            await world.until(lambda: syphon.counters.dead_lettered == 500)
            assert not syphon._session._destinations
            assert not syphon._session._primary._tokens._puts.keys() - {""}
            assert links_to_the_primary(world) <= 2
        assert len(world.said(MessageSetAside)) == 500

    play(story)


@pytest.mark.spec("R-23", "R-22")
@pytest.mark.parametrize(("effect", "operation"), [(NoCredit(), Operation.ATTACH), (Full(), Operation.SEND)])
def test_a_destination_waiting_for_a_link_gets_that_of_the_first_held_one(
    monkeypatch: pytest.MonkeyPatch, effect: object, operation: Operation
) -> None:
    monkeypatch.setattr(forwarding, "MAX_LINKS", 4)

    async def story(world: Driven) -> None:
        stuck = [f"stuck-{n}" for n in range(4)]
        for path in [*stuck, "other"]:
            world.make(path)
        await world.park(parked(number, path) for path in [*stuck, "other"] for number in range(3))
        syphon = world.syphon()
        async with world.running(syphon):
            with world.fault("contoso", "stuck-*", effect, operation):
                await world.until(lambda: world.active("contoso", "other") == 3)
            await world.until(lambda: syphon.counters.completed == 15, within=900.0)

    play(story)
