"""When a syphon lands messages on the secondary, on a driven clock."""

from __future__ import annotations

import asyncio
import errno
from datetime import timedelta

import pytest

from sbpair.pair.client.errors import ConnectionLostError, NamespaceUnusableError
from sbpair.pair.syphon.daemon import FIRST_ATTEMPT, LANDING_CHECK_INTERVAL
from sbpair.pair.syphon.events import SyphonConnected, SyphonDisconnected
from sbpair.syphon import SyphonState
from tests.pair.syphon.played_daemon import NO_ROUTE, World, Worlds, running, worlds
from tests.pair.syphon.scripted import driven

__all__ = ["worlds"]

pytestmark = pytest.mark.spec("R-66")


def landing(worlds: Worlds, after: float = 20.0) -> World:
    return worlds(land="either", land_after=timedelta(seconds=after))


@pytest.mark.spec("C-1")
@driven
async def test_nothing_lands_while_both_sides_are_reachable(worlds: Worlds) -> None:
    world = landing(worlds)
    async with running(world):
        await asyncio.sleep(1.1)
        assert world.session.has_primary
        assert world.syphon.status.state is SyphonState.RUNNING
        assert len(world.dialled) == 2


@pytest.mark.spec("C-1")
@driven
async def test_a_session_lands_once_the_primary_was_unreachable_long_enough(worlds: Worlds) -> None:
    world = landing(worlds)
    world.dials["primary"].extend([NO_ROUTE] * 6)
    async with running(world):
        await asyncio.sleep(19.9)
        assert world.sessions == []
        await asyncio.sleep(LANDING_CHECK_INTERVAL + 0.2)
        assert len(world.sessions) == 1
        assert not world.session.has_primary
        assert world.session.began == 20.0
        assert world.syphon.status.state is SyphonState.LANDING
        assert world.said(SyphonConnected) == []
        await asyncio.sleep(60.0)
        assert world.syphon.status.state is SyphonState.RUNNING
        assert len(world.said(SyphonConnected)) == 1


@pytest.mark.spec("C-1", "C-4", "G-4")
@driven
async def test_a_landing_session_uses_the_primary_once_it_is_back(worlds: Worlds) -> None:
    world = landing(worlds, 0.0)
    world.dials["primary"].extend([NO_ROUTE] * 3)
    async with running(world):
        await asyncio.sleep(60.0)
        (session,) = world.sessions
        primary, secondary = world.connections[-2:]
        assert (session.primary, session.stopped_at) == (primary, None)
        assert (secondary.side, secondary.is_open, session.secondary.is_open) == ("secondary", False, True)
        assert len(world.said(SyphonDisconnected)) == 3
        session.broken.set_result("the connection to the primary was lost")
        await asyncio.sleep(2.0)
        assert (session.stopped_at, len(world.sessions)) == (60.0, 2)


@pytest.mark.spec("C-1")
@driven
async def test_a_landing_drain_continues_with_the_primary(worlds: Worlds) -> None:
    world = landing(worlds, 0.0)
    world.dials["primary"].extend([NO_ROUTE] * 3)
    draining = asyncio.ensure_future(world.syphon.drain())
    await asyncio.sleep(60.0)
    assert world.session.has_primary
    assert world.syphon.status.state is SyphonState.DRAINING
    world.session.drained.set_result(None)
    await draining
    assert len(world.sessions) == 1


def without_descriptor() -> ConnectionLostError:
    lost = ConnectionLostError("contoso.example cannot be reached: Too many open files")
    lost.__cause__ = OSError(errno.EMFILE, "Too many open files")
    return lost


@pytest.mark.spec("R-108", "C-1")
@driven
async def test_a_lack_of_descriptors_does_not_start_a_landing(worlds: Worlds) -> None:
    world = landing(worlds)
    world.dials["primary"].extend([without_descriptor() for _ in range(20)])
    async with running(world):
        await asyncio.sleep(60.0)
        assert len(world.to("primary")) >= 4
        assert (world.sessions, world.syphon.paces) == ([], {})
        world.dials["primary"].clear()
        await asyncio.sleep(60.0)
        assert world.session.has_primary


@pytest.mark.spec("C-1")
@driven
async def test_a_hanging_first_attempt_delays_a_landing_by_five_seconds(worlds: Worlds) -> None:
    world = landing(worlds, 0.0)
    world.dials["primary"].append(40.0)
    async with running(world):
        await asyncio.sleep(FIRST_ATTEMPT - 0.1)
        assert world.sessions == []
        await asyncio.sleep(LANDING_CHECK_INTERVAL)
        assert world.session.began == FIRST_ATTEMPT
        await asyncio.sleep(40.0)
        assert world.session.has_primary
    failing = landing(worlds, 0.0)
    failing.dials["primary"].extend([NO_ROUTE] * 9)
    async with running(failing):
        await asyncio.sleep(LANDING_CHECK_INTERVAL + 0.1)
        assert not failing.session.has_primary


@pytest.mark.spec("C-1")
@driven
async def test_a_refusing_primary_is_reachable(worlds: Worlds) -> None:
    world = landing(worlds, 2.0)
    world.dials["primary"].extend([NamespaceUnusableError("a certificate of another")] * 9)
    async with running(world):
        await asyncio.sleep(30.0)
        assert world.sessions == []


@pytest.mark.spec("C-1")
@driven
async def test_a_broken_landing_session_is_restarted_while_the_primary_is_tried(
    worlds: Worlds,
) -> None:
    world = landing(worlds, 0.0)
    world.dials["primary"].extend([NO_ROUTE] * 30)
    async with running(world):
        await asyncio.sleep(5.0)
        world.session.broken.set_result("the connection to the secondary was lost")
        await asyncio.sleep(2.0)
        assert len(world.sessions) == 2
        assert not world.session.has_primary


@pytest.mark.spec("C-1")
@driven
async def test_a_drain_can_land(worlds: Worlds) -> None:
    world = landing(worlds, 0.0)
    world.dials["primary"].extend([NO_ROUTE] * 30)
    draining = asyncio.ensure_future(world.syphon.drain())
    await asyncio.sleep(2.0)
    assert world.syphon.status.state is SyphonState.LANDING
    world.session.drained.set_result(None)
    await draining
    tried = len(world.dialled)
    await asyncio.sleep(60.0)
    assert len(world.dialled) == tried
