"""Backlog depths and ages are measured at a bounded cost. (R-62)"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from sbpair.observation import Metrics
from sbpair.pair.observation.syphon_gauges import show_syphon
from sbpair.pair.syphon.watch.monitors import SubQueueCounts
from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, EMPTY, BacklogDepth, BacklogDepths
from sbpair.syphon import SyphonOptions, SyphonState
from tests.pair.syphon.pair import BACKLOGS, Pair, parked, put, take
from tests.pair.syphon.test_sides import running
from tests.waiting import until

SOON = timedelta(seconds=1)


def gauges(metrics: Metrics) -> dict[str, float]:
    text = metrics.exposition().decode()
    lines = [line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, value in lines}


def test_an_age_is_measured_by_one_clock_and_never_negative() -> None:
    assert BacklogDepth(1, 1_000_000).age(1060.0) == 60.0
    assert BacklogDepth(1, 1_000_000).age(900.0) == 0.0
    assert EMPTY.age(900.0) == 0.0


def test_an_unmeasured_level_is_unknown_and_a_backlog_that_cannot_wait_is_empty() -> None:
    levels = BacklogDepths(("a", "b"), 60.0)
    assert levels.current(("a",)) == {"b": EMPTY}
    assert levels.current((), missing=("b",)) == {"a": EMPTY}


@pytest.mark.parametrize("span", [0, 3601])
def test_the_measuring_interval_has_a_range(span: int) -> None:
    with pytest.raises(ValueError, match="measure_every must be from 0:00:01 to 1:00:00"):
        SyphonOptions(measure_every=timedelta(seconds=span))


@pytest.mark.spec("R-62")
async def test_the_gauges_show_waiting_messages_during_the_outage_and_zero_after_it(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.syphon.watch.peeking.MAX_COUNTED", 5)
    await pair.park([parked(n) for n in range(3)])
    await pair.park([parked(n) for n in range(3, 11)], index=1)
    syphon = pair.syphon(measure_every=SOON)
    metrics = Metrics()
    show_syphon(metrics, syphon)
    first, second = (f'{{backlog="{pair.backlog(index)}"}}' for index in range(2))
    before = time.time()
    pair.primary.take_down("refuse")
    async with running(syphon):
        await until(lambda: len(syphon.levels) == 2)
        shown = gauges(metrics)
        assert shown[f"sbpair_syphon_backlog_depth{first}"] == 3
        assert shown[f"sbpair_syphon_backlog_depth{second}"] == 5  # or more
        assert 0 <= shown[f"sbpair_syphon_backlog_oldest_seconds{first}"] < time.time() - before + 60
        pair.primary.bring_up()
        await until(lambda: syphon.counters.completed == 11)
        await until(lambda: set(syphon.levels.values()) == {EMPTY})
        assert gauges(metrics)[f"sbpair_syphon_backlog_depth{second}"] == 0


@pytest.mark.slow
@pytest.mark.spec("R-62")
async def test_no_outdated_number_is_shown_while_the_secondary_is_away(pair: Pair) -> None:
    await pair.park([parked(0)])
    syphon = pair.syphon(measure_every=SOON)
    pair.primary.take_down("refuse")
    async with running(syphon):
        await until(lambda: len(syphon.levels) == 2)
        pair.secondary.take_down("refuse")
        await until(lambda: not syphon.levels)
        pair.secondary.bring_up()
        await until(lambda: len(syphon.levels) == 2)
    pair.primary.bring_up()


@pytest.mark.spec("R-62", "P-41")
async def test_known_empty_backlogs_are_not_queried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    rounds = 0

    async def depth_of(connection: object, backlog: str) -> BacklogDepth:
        asked.append(backlog)
        return BacklogDepth(1, 0)

    def which() -> tuple[str, ...]:
        nonlocal rounds
        rounds += 1
        return ("a",) if rounds == 1 else ()

    async def borrow() -> None:
        return None

    monkeypatch.setattr("sbpair.pair.syphon.watch.peeking.depth_of", depth_of)
    levels = BacklogDepths(("a", "b"), 0.001)
    looking = asyncio.create_task(levels.run(which, borrow))
    await until(lambda: rounds >= 5)
    looking.cancel()
    assert asked == ["a"]


@pytest.mark.spec("R-62", "F-48")
async def test_a_stranded_backlog_has_a_gauge(pair: Pair) -> None:
    extra = pair.backlog(BACKLOGS)
    pair.secondary.create_queue(extra)
    await put(pair.secondary, extra, [parked(0)])
    syphon = pair.syphon()
    metrics = Metrics()
    show_syphon(metrics, syphon)
    async with running(syphon):
        await until(lambda: syphon.stranded == {extra: True})
        assert gauges(metrics)[f'sbpair_syphon_backlog_stranded{{backlog="{extra}"}}'] == 1


@pytest.mark.spec("H-10")
async def test_the_pace_of_a_destination_that_has_just_come_back_has_a_gauge(pair: Pair) -> None:
    syphon = pair.syphon(max_rate=700)
    metrics = Metrics()
    show_syphon(metrics, syphon)
    await pair.park([parked(0)])
    async with running(syphon):
        await until(lambda: syphon.counters.completed == 1)
        (shown,) = [(name, rate) for name, rate in gauges(metrics).items() if "sbpair_syphon_pace" in name]
        assert shown == ('sbpair_syphon_pace{path="orders",side="primary"}', 700.0)


@pytest.mark.spec("R-62")
async def test_a_syphon_without_any_existing_backlog_reports_it_until_one_exists(pair: Pair) -> None:
    for index in range(BACKLOGS):
        pair.secondary.delete_queue(pair.backlog(index))
    syphon = pair.syphon(measure_every=SOON, missing_backlog_interval=SOON)
    metrics = Metrics()
    show_syphon(metrics, syphon)

    def shown(name: str) -> dict[str, float]:
        start = f"sbpair_syphon_backlog_{name}{{"
        return {key.split('"')[1]: value for key, value in gauges(metrics).items() if key.startswith(start)}

    async with running(syphon):
        await until(lambda: syphon.status.state is SyphonState.NO_BACKLOGS)
        assert str(syphon.status.reason).startswith(
            f"no backlog queue exists on the secondary, not even {pair.backlog(0)}"
        )
        assert shown("missing") == {pair.backlog(index): 1 for index in range(BACKLOGS)}
        assert shown("depth") == shown("oldest_seconds") == {}
        pair.secondary.create_queue(pair.backlog(0))
        await until(lambda: syphon.status.state is SyphonState.RUNNING)
        await until(lambda: shown("depth") == {pair.backlog(0): 0})
        assert shown("missing") == {pair.backlog(index): index for index in range(BACKLOGS)}


@pytest.mark.spec("R-62")
async def test_the_dead_letters_of_each_backlog_are_a_gauge_until_resolved(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.syphon.watch.monitors.CHECK_INTERVAL", 0.05)
    await pair.park([parked(0, "nowhere"), parked(1), parked(2, "nowhere")])
    syphon = pair.syphon(measure_every=SOON)
    metrics = Metrics()
    show_syphon(metrics, syphon)
    name = f'sbpair_syphon_backlog_dead_letters{{backlog="{pair.backlog(0)}"}}'
    async with running(syphon):
        await until(lambda: gauges(metrics).get(name) == 2)
        await take(pair.secondary, f"{pair.backlog(0)}/$DeadLetterQueue", 2)
        await until(lambda: gauges(metrics).get(name) == 0)


@pytest.mark.spec("P-41")
async def test_dead_letters_are_counted_once_and_then_only_where_there_are_any() -> None:
    set_aside, counted, asked = 0, 0, []
    counts = SubQueueCounts(("a",), DEAD_LETTERS, lambda: set_aside, lambda backlog, count: None)

    async def depth_of(connection: object, path: str) -> BacklogDepth:
        asked.append(path)
        return BacklogDepth(counted, 0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sbpair.pair.syphon.watch.monitors.depth_of", depth_of)
        assert counts.is_due
        await counts.check(None)  # type: ignore[arg-type]
        assert (counts.is_due, asked) == (False, ["a/$DeadLetterQueue"])
        set_aside, counted = 1, 1
        assert counts.is_due
        await counts.check(None)  # type: ignore[arg-type]
        assert counts.is_due  # until they are resolved
        counted = 0
        await counts.check(None)  # type: ignore[arg-type]
        assert not counts.is_due
