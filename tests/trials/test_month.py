"""A month of a syphon, in virtual time: everything that is opened repeatedly is closed again.

The broker detaches a link that was idle for ten minutes and closes a connection that has had no link for
five. Both ends run on a virtual clock, the broker's own protocol included, so a month takes seconds.
"""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.syphon.events import BacklogDetached
from sbpair.pair.syphon.forward import pump
from sbpair.syphon import SyphonState
from tests.pair.syphon.driven import BACKLOGS, Driven, play
from tests.pair.syphon.pair import parked

DAY = 86_400.0


@pytest.fixture(autouse=True)
def _rare_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are most of what happens in a month, and nothing is learnt from them."""
    monkeypatch.setattr("sbpair.pair.client.connection.IDLE_TIME_OUT", 7200.0)
    monkeypatch.setattr("sbpair.broker.frontends.amqp.client_connection.IDLE_TIME_OUT", 7200.0)


@pytest.mark.spec("P-41", "R-20")
def test_an_idle_backlog_costs_96_receives_a_day() -> None:
    async def story(world: Driven) -> None:
        async with world.running(world.syphon()):
            await asyncio.sleep(DAY - 60.0)
            namespace = world.servers["contoso-dr"].frontend.namespace
            assert namespace.operations.polls == 96 * len(BACKLOGS)
        assert not world.said(BacklogDetached)

    play(story)


@pytest.mark.long
@pytest.mark.spec("R-20")
def test_after_a_month_of_detached_links_nothing_has_leaked_and_a_parked_message_comes_home(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pump, "LINK_USED_EVERY", 10 * DAY)  # so that links are idle, and detached

    async def story(month: Driven) -> None:
        syphon, shutdown = month.syphon(), asyncio.Event()
        running = asyncio.ensure_future(syphon.run(shutdown))
        seen: set[tuple[object, ...]] = set()
        for day in range(30):
            await asyncio.sleep(DAY)
            await month.park([parked(day)], BACKLOGS[day % 2])
            await asyncio.sleep(30.0)
            assert month.active("contoso", "orders") == day + 1, f"deaf on day {day}"
            ours, theirs = month.open_by_us(), month.open_at_the_brokers()
            seen.add((ours["contoso"], ours["contoso-dr"], theirs["contoso"], theirs["contoso-dr"]))
        assert syphon.status.state is SyphonState.RUNNING
        assert not [event for event in month.events if isinstance(event, BacklogDetached)]
        assert len(seen) == 1, seen  # flat
        (ours_primary, ours_secondary, *_) = next(iter(seen))
        assert ours_primary[0] == 1, "one session for all that is sent"
        assert ours_secondary[0] == 1 + len(BACKLOGS), "and one for each backlog beside the shared one"
        shutdown.set()
        await running

    play(story)
