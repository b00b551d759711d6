"""The syphon's connections and sessions on a driven clock: when it retries, and what it reports."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.errors import (
    ConnectionLostError,
    OutOfReachError,
    TokenRefusedError,
)
from sbpair.pair.syphon.daemon import ASKED_EVERY, MIN_SESSION_SECONDS
from sbpair.pair.syphon.events import (
    BacklogsDrained,
    ClockDiffers,
    MessagesForwarded,
    SideRefused,
    SyphonDisconnected,
)
from sbpair.pair.syphon.watch.claims import NAMESPACE
from sbpair.syphon import SyphonState
from tests.pair.syphon.played_daemon import NO_ROUTE, Worlds, running, worlds
from tests.pair.syphon.scripted import driven, now, turns

__all__ = ["worlds"]

pytestmark = pytest.mark.spec("R-66")

REFUSED = TokenRefusedError("a bad key", Condition("amqp:unauthorized-access"))


# --- connecting


@driven
async def test_a_side_that_refuses_connections_is_tried_every_few_seconds(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].extend([OutOfReachError("connection refused")] * 100)
    async with running(world):
        await asyncio.sleep(60.0)
        asked = world.to("primary")
        assert asked[:4] == [0.0, 0.5, 1.5, 3.5]
        assert {round(later - each, 6) for each, later in pairwise(asked[3:])} == {ASKED_EVERY}
        assert ASKED_EVERY <= 5.0


@driven
async def test_waking_a_syphon_tries_a_side_at_once(worlds: Worlds) -> None:
    world = worlds()
    world.syphon.wake()  # nothing waits
    world.dials["primary"].extend([NO_ROUTE] * 6)
    async with running(world):
        await asyncio.sleep(20.0)
        assert world.to("primary")[-1] == 15.5  # and the next would be at 31.5
        world.syphon.wake()
        await turns(20)
        assert world.to("primary")[-1] == 20.0
        assert world.syphon.status.state is SyphonState.RUNNING
        world.syphon.wake()
        assert world.session.wakes == 1


@pytest.mark.spec("G-4", "C-2")
@driven
async def test_a_broken_session_waits_for_its_answers_unless_the_syphon_is_stopped(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        for _ in range(2):
            world.session.finishes_in = 40.0
            broken_at = now()
            world.session.broken.set_result("the connection to the primary was lost")
            await asyncio.sleep(39.0)
            last = world.session
            assert last.stopped_at is None
            if len(world.sessions) == 1:
                await asyncio.sleep(1.5)
                assert last.stopped_at == broken_at + 40.0
                assert len(world.sessions) == 2
        assert len(world.sessions) == 2
    assert last.stopped_at == now() == broken_at + 39.0


@driven
@pytest.mark.spec("R-119")
async def test_the_search_continues_on_further_connections_and_its_result_is_tried_first(
    worlds: Worlds,
) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED] * 121
    world.parked = [f"invented-{number}" for number in range(120)] + ["orders"]
    async with running(world):
        assert len(world.to("primary")) == 3  # a connection takes few claims that are refused
        assert world.syphon.status.state is SyphonState.RUNNING
        del world.claimed[:]
        world.refuses["primary"] = [REFUSED]
        world.session.broken.set_result("cut")
        await asyncio.sleep(MIN_SESSION_SECONDS + 0.1)
        assert [paths for side, paths in world.claimed if side == "primary"] == [(NAMESPACE,), ("orders",)]
    assert not world.said(SideRefused)


@driven
async def test_a_stop_during_a_connect_ends_at_once(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].extend([NO_ROUTE] * 9)
    async with running(world):
        await asyncio.sleep(0.2)
    assert now() == 0.2
    assert world.syphon.status == world.syphon.status.__class__(SyphonState.IDLE)


@pytest.mark.spec("R-166")
@pytest.mark.parametrize("how", ["stop", "request_stop"])
@driven
async def test_a_syphon_stops_by_the_method_names_of_a_processor(worlds: Worlds, how: str) -> None:
    world = worlds()
    running = asyncio.ensure_future(world.syphon.run())
    await asyncio.sleep(1.0)
    if how == "stop":
        await world.syphon.stop()
        assert world.session.stopped_at == now()
    else:
        world.syphon.request_stop()
    await running
    assert world.session.stopped_at == 1.0
    assert world.syphon.status.state is SyphonState.IDLE
    again = asyncio.ensure_future(world.syphon.run())
    await asyncio.sleep(1.0)
    assert world.syphon.status.state is SyphonState.RUNNING
    await world.syphon.stop()
    await again


# --- draining


@pytest.mark.spec("R-25")
@driven
async def test_a_drain_whose_connection_is_lost_at_its_last_check_restarts(worlds: Worlds) -> None:
    world = worlds()
    world.stranded.fails = ConnectionLostError("reset while peeking")
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    world.session.drained.set_result(None)
    await turns(20)
    (lost,) = world.said(SyphonDisconnected)
    assert (lost.reason, world.said(BacklogsDrained)) == ("reset while peeking", [])
    world.stranded.fails = None
    await asyncio.sleep(lost.retry_in + 0.1)
    await turns(20)
    assert len(world.sessions) == 2
    world.session.drained.set_result(None)
    await draining
    assert len(world.said(BacklogsDrained)) == 1


# --- monitoring


@driven
async def test_a_callback_is_called_until_removed_and_a_failing_one_stops_nothing(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = worlds()
    heard: list[object] = []

    def fails(event: object) -> None:
        raise RuntimeError("of the application")

    remove_failing = world.syphon.on_event(fails)
    remove = world.syphon.on_event(heard.append)
    with caplog.at_level(logging.DEBUG, "sbpair.syphon"):
        world.syphon._emit(ClockDiffers(1.0, 2.0))
        world.syphon._emit(MessagesForwarded(1.0, "b0", "orders", ("m",), "primary"))
    assert len(heard) == 2
    levels = [record.levelno for record in caplog.records if hasattr(record, "event")]
    assert levels == [logging.WARNING, logging.DEBUG]
    (first, *_) = (record for record in caplog.records if hasattr(record, "event"))
    assert (first.event, first.fields) == ("ClockDiffers", {"ahead": 2.0})
    failed = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.rpartition(" ")[2] for text in failed] == ["ClockDiffers", "MessagesForwarded"]
    remove()
    remove()
    remove_failing()
    world.syphon._emit(ClockDiffers(1.0, 2.0))
    assert len(heard) == 2


@pytest.mark.spec("R-96")
@driven
async def test_a_run_cancelled_while_it_connects_ends_its_session(
    worlds: Worlds,
) -> None:
    for count in range(1, 40):
        world = worlds()
        task = asyncio.ensure_future(world.syphon.run(asyncio.Event()))
        await turns(count)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await turns(20)
        assert world.syphon.status.state is SyphonState.IDLE
        assert all(each.stopped_at is not None for each in world.sessions), count
