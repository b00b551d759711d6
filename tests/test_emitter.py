"""Events of a syphon and of a processor: to the log, and to each callback."""

from __future__ import annotations

import asyncio
import logging

import pytest

from sbpair.pair.ground.emitter import FORGOTTEN, MAX_SUBJECTS, Emitter, LogLine
from sbpair.pair.processor.events import EntityMissing, ProcessorEvent

logger = logging.getLogger("sbpair.tests.emitter")
LINES = {EntityMissing: LogLine(logging.INFO, "{path} is missing")}
MISSING = EntityMissing(1.0, "orders", "secondary")


@pytest.mark.spec("R-105")
@pytest.mark.parametrize(
    "kind", [ValueError, asyncio.CancelledError]
)  # the result of a future that was cancelled
def test_a_callback_that_fails_is_logged_and_affects_no_other(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[ProcessorEvent] = []

    def fail(event: ProcessorEvent) -> None:
        raise kind("a bug of the application")

    emitter = Emitter[ProcessorEvent](logger, LINES)
    emitter.subscribe(fail)
    emitter.subscribe(seen.append)
    emitter.emit(MISSING)
    assert seen == [MISSING]
    assert "a callback failed on EntityMissing" in caplog.text
    assert "a bug of the application" in caplog.text


def test_a_removed_callback_is_not_called_and_may_be_removed_again() -> None:
    seen: list[ProcessorEvent] = []
    emitter = Emitter[ProcessorEvent](logger, LINES)
    remove = emitter.subscribe(seen.append)
    remove()
    remove()
    emitter.emit(MISSING)
    assert seen == []


def test_an_event_is_logged_at_its_level_with_its_fields(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger.name)
    Emitter[ProcessorEvent](logger, {EntityMissing: LogLine(logging.DEBUG, "{path} is missing")}).emit(
        MISSING
    )
    (record,) = caplog.records
    assert record.levelno == logging.DEBUG
    assert vars(record)["event"] == "EntityMissing"
    assert vars(record)["fields"] == {"path": "orders", "side": "secondary"}


def levels_of(caplog: pytest.LogCaptureFixture, *events: EntityMissing) -> list[int]:
    caplog.set_level(logging.DEBUG, logger.name)
    caplog.clear()
    lines = {EntityMissing: LogLine(logging.WARNING, "{path} is missing on the {side}", repeats="path side")}
    emitter = Emitter[ProcessorEvent](logger, lines)
    for event in events:
        emitter.emit(event)
    return [record.levelno for record in caplog.records]


WARNING, DEBUG = logging.WARNING, logging.DEBUG


@pytest.mark.spec("R-126")
def test_a_warning_repeated_by_retries_is_logged_once_and_then_at_growing_intervals(
    caplog: pytest.LogCaptureFixture,
) -> None:
    every_half_minute = [EntityMissing(30.0 * number, "orders", "primary") for number in range(61)]
    levels = levels_of(caplog, *every_half_minute)
    assert [index for index, level in enumerate(levels) if level == WARNING] == [0, 2, 6, 14, 30]
    others = [EntityMissing(0.0, path, "primary") for path in ("orders", "invoices", "orders")]
    assert levels_of(caplog, *others) == [WARNING, WARNING, DEBUG]


@pytest.mark.spec("R-126")
def test_a_changed_or_late_repetition_is_a_warning_again(caplog: pytest.LogCaptureFixture) -> None:
    changed = [EntityMissing(at, "orders", side) for at, side in ((0.0, "primary"), (1.0, "secondary"))]
    assert levels_of(caplog, *changed) == [WARNING, WARNING]
    tracked = [EntityMissing(at, "orders", f"primary TrackingId:{at}, Timestamp:1") for at in (0.0, 1.0)]
    assert levels_of(caplog, *tracked) == [WARNING, DEBUG]
    paused = [EntityMissing(at, "orders", "primary") for at in (0.0, 50.0, 50.0 + FORGOTTEN)]
    assert levels_of(caplog, *paused) == [WARNING, DEBUG, WARNING]
    set_back = [EntityMissing(at, "orders", "primary") for at in (1e6, 0.0)]
    assert levels_of(caplog, *set_back) == [WARNING, WARNING]


@pytest.mark.spec("R-126")
def test_the_number_of_remembered_subjects_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    many = [EntityMissing(0.0, f"q{number}", "primary") for number in range(MAX_SUBJECTS + 1)]
    assert levels_of(caplog, *many, many[-1], many[0])[-2:] == [DEBUG, WARNING]
