"""A link that lives and delivers nothing although messages wait is replaced."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sbpair.broker.faults import Operation, SilenceLink
from sbpair.pair.client.watchdog import INTERVAL, PATIENCE, Watchdog
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.syphon.events import BacklogDetached
from sbpair.pair.syphon.order.session_relay import SILENT_AFTER
from sbpair.pair.syphon.watch.peeking import LONGEST_IDLE
from tests.pair.syphon.driven import BACKLOGS, ROOMY, Driven, play
from tests.pair.syphon.pair import parked
from tests.pair.syphon.test_ordered_backlogs import in_session

pytestmark = pytest.mark.spec("R-106")


def test_a_silent_link_of_a_backlog_is_replaced_after_a_minute() -> None:
    async def story(world: Driven) -> None:
        await world.park([parked(1)])
        async with world.running(world.syphon()):
            await world.until(lambda: world.active("contoso", "orders") == 1)
            with world.fault("contoso-dr", BACKLOGS[0], SilenceLink(), Operation.RECEIVE):
                await world.park([parked(2)])
                await asyncio.sleep(1.0)
            await world.park([parked(3)])
            took = await world.until(lambda: world.active("contoso", "orders") == 3)
            assert INTERVAL < took + 2.0 < INTERVAL + PATIENCE + 5.0
        assert "messages wait" in world.said(BacklogDetached)[0].reason

    play(story)


def test_a_silent_session_link_is_released_and_the_session_accepted_again() -> None:
    async def story(world: Driven) -> None:
        name = ordered_backlog_name("contoso", 0)
        world.make(name, "contoso-dr", replace(ROOMY, requires_session=True))
        syphon = world.syphon(ordering="session")
        async with world.running(syphon):
            with world.fault("contoso-dr", name, SilenceLink(), Operation.RECEIVE):
                await world.park([in_session(number, "s", "orders") for number in range(5)], name)
                await asyncio.sleep(5.0)
                assert world.active("contoso", "orders") < 5
            took = await world.until(lambda: world.active("contoso", "orders") == 5)
            assert took < SILENT_AFTER + 5.0

    play(story)


def test_an_idle_backlog_is_peeked_ever_more_rarely() -> None:
    watchdog = Watchdog(0.0, LONGEST_IDLE)
    spans, now = [], 0.0
    for _ in range(7):
        due = watchdog.next_check()
        spans.append(due - now)
        now = due
        assert watchdog.is_due(now)
        watchdog.peeked(now, waits=False)
    assert spans == [60.0, 120.0, 240.0, 480.0, 960.0, 960.0, 960.0]
