"""Overdue and stranded backlogs are reported, without a receive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.broker.faults import RejectWith
from sbpair.pair.syphon.events import BacklogCaughtUp, BacklogOverdue, BacklogStranded, SyphonEvent
from sbpair.pair.syphon.watch.peeking import OverdueBacklogs
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.syphon.pair import BACKLOGS, Pair, parked, put
from tests.waiting import PATIENCE, until


@asynccontextmanager
async def running(syphon: Syphon) -> AsyncIterator[None]:
    shutdown = asyncio.Event()
    task = asyncio.create_task(syphon.run(shutdown))
    yield
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await task


def test_an_age_above_the_threshold_is_reported_once_and_so_is_its_end() -> None:
    emitted: list[SyphonEvent] = []
    ages = OverdueBacklogs(timedelta(minutes=10), emitted.append)

    for now in (500.0, 600.0, 601.0, 700.0, 5000.0):
        ages.measured("a", 0, now)
    ages.measured("a", None, 5001.0)
    ages.measured("a", None, 5002.0)
    ages.measured("a", 5_000_000, 5700.0)

    assert [replace(event, at=0.0) for event in emitted] == [
        BacklogOverdue(0.0, "a", 601.0, 600.0),
        BacklogCaughtUp(0.0, "a"),
        BacklogOverdue(0.0, "a", 700.0, 600.0),
    ]


@pytest.mark.parametrize(("threshold", "interval"), [(1, 0.25), (60, 15), (600, 150), (86_400, 300)])
def test_ages_are_measured_four_times_per_threshold(threshold: int, interval: float) -> None:
    assert OverdueBacklogs(timedelta(seconds=threshold), print).interval == interval


def overdue(pair: Pair) -> Syphon:
    return pair.syphon(overdue_after=timedelta(seconds=1))


@pytest.mark.spec("P-41")
async def test_a_message_waiting_during_the_outage_is_reported_and_so_is_its_end(pair: Pair) -> None:
    await pair.park([parked(1)])
    pair.primary.take_down("refuse")
    syphon = overdue(pair)
    async with running(syphon):
        await until(lambda: bool(pair.said(BacklogOverdue)))
        assert syphon.counters.receives == 0
        [event] = pair.said(BacklogOverdue)
        assert (event.backlog, event.threshold) == (pair.backlog(0), 1.0)
        assert event.age > 1.0
        pair.primary.bring_up()
        await until(lambda: bool(pair.said(BacklogCaughtUp)))
    assert syphon.counters.completed == 1
    assert len(pair.said(BacklogOverdue)) == len(pair.said(BacklogCaughtUp)) == 1


async def test_a_held_message_is_reported(pair: Pair) -> None:
    await pair.park([parked(1)])
    with pair.primary.fault("orders", RejectWith("com.microsoft:server-busy", "busy")):
        async with running(overdue(pair)):
            await until(lambda: bool(pair.said(BacklogOverdue)))


@pytest.mark.spec("P-41")
async def test_an_idle_syphon_makes_no_queries_and_is_billed_only_for_receives(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def noting(connection: object, backlog: str) -> None:
        asked.append(backlog)

    looks: list[Syphon] = []
    busy = Syphon._busy_backlogs

    def looking(syphon: Syphon) -> tuple[str, ...]:
        looks.append(syphon)
        return busy(syphon)

    async def more_looks(count: int) -> None:
        enough = len(looks) + count
        await until(lambda: len(looks) >= enough)

    monkeypatch.setattr(Syphon, "_busy_backlogs", looking)
    monkeypatch.setattr("sbpair.pair.syphon.watch.peeking.oldest", noting)
    monkeypatch.setattr("sbpair.pair.syphon.watch.peeking.MIN_AGE_INTERVAL", 0.01)
    monkeypatch.setattr("sbpair.pair.syphon.watch.peeking.OverdueBacklogs.interval", 0.01)
    syphon = overdue(pair)
    async with running(syphon):
        await until(lambda: syphon.counters.receives == BACKLOGS)
        await until(lambda: syphon._session is not None and not syphon._session.busy_backlogs())
        await more_looks(3)  # what began earlier has ended
        asked.clear()
        await more_looks(10)
        assert asked == []
        assert syphon.counters.receives == BACKLOGS


@pytest.mark.spec("F-48", "F-49")
@pytest.mark.parametrize("messages", [0, 1])
async def test_a_backlog_beyond_the_count_is_reported_and_not_touched(pair: Pair, messages: int) -> None:
    extra = pair.backlog(BACKLOGS)
    pair.secondary.create_queue(extra)
    if messages:
        await put(pair.secondary, extra, [parked(1)])
    async with running(pair.syphon()):
        await until(lambda: bool(pair.said(BacklogStranded)))
    [event] = pair.said(BacklogStranded)
    assert (event.backlog, event.holds_messages) == (extra, bool(messages))
    assert pair.secondary.counts(extra).active == messages


@pytest.mark.spec("F-48")
async def test_a_drain_checks_backlogs_beyond_the_count_before_it_reports_success(pair: Pair) -> None:
    for index in range(BACKLOGS, BACKLOGS + 3):
        pair.secondary.create_queue(pair.backlog(index))
    await put(pair.secondary, pair.backlog(BACKLOGS + 2), [parked(1)])

    async with asyncio.timeout(PATIENCE):
        await pair.syphon().drain()

    told = [(event.backlog, event.holds_messages) for event in pair.said(BacklogStranded)]
    assert told == [(pair.backlog(BACKLOGS + n), n == 2) for n in range(3)]
    assert type(pair.events[-1]).__name__ == "BacklogsDrained"


async def test_the_expected_number_of_backlogs_is_not_reported(pair: Pair) -> None:
    async with asyncio.timeout(PATIENCE):
        await pair.syphon().drain()
    assert pair.said(BacklogStranded) == []


@pytest.mark.parametrize("span", [timedelta(0), timedelta(days=8)])
def test_a_threshold_out_of_range_is_refused_with_the_range(span: timedelta) -> None:
    with pytest.raises(ValueError, match="overdue_after must be from 0:00:01 to 7 days"):
        SyphonOptions(overdue_after=span)
