"""Live figures while journals grow: two streaming queries, each run until it has caught up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import pytest

from sbpair.data.spark.audit.live import Until, counters, find_unmatched
from tests.data.audit.story import Story

COUNTERS = "counters"
QUERIES = {
    COUNTERS: counters,
    Until.HOME: lambda events: find_unmatched(events),
    Until.RECEIVED: lambda events: find_unmatched(events, until=Until.RECEIVED),
}


@dataclass(frozen=True, slots=True)
class Found:
    """The output of a query that has caught up, and the number of groups in its state."""

    rows: list
    kept: int


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    """Write two minutes of messages and, an hour later, a record that advances the watermark."""
    directory = tmp_path_factory.mktemp("live")
    story = Story(directory)
    sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
    sender.sent("a", "b")
    sender.sent("c", path="Invoices")
    sender.parked("home", "late", "never", "poison")
    story.now = 70.0
    syphon.forwarded("home")
    syphon.set_aside("poison")
    receiver.received("a", "home")
    story.now = 1500.0
    syphon.forwarded("late")
    story.now = 3600.0
    sender.parked("just-now")
    sender.sent("sign-of-life")
    story.end()
    return spark.readStream.format("sbpair-journal").load(str(directory))


@pytest.fixture(scope="module")
def found(spark, events, tmp_path_factory) -> Callable[[object], Found]:
    """Run a query once for all tests and return its result."""

    @cache
    def run(name: object) -> Found:
        table = f"live_{getattr(name, 'value', name)}"
        query = (
            QUERIES[name](events)
            .writeStream.format("memory")
            .queryName(table)
            .outputMode("append")
            .option("checkpointLocation", str(tmp_path_factory.mktemp(table)))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        (operator,) = query.lastProgress["stateOperators"]
        return Found(spark.table(table).collect(), operator["numRowsTotal"])

    return run


def test_messages_are_counted_by_minute_and_entity(found: Callable[[object], Found]) -> None:
    told = {(row["from"].minute, row.path): row for row in found(COUNTERS).rows}

    first, second = told[0, "orders"], told[1, "orders"]
    assert (first.accepted, first.parked, first.received) == (2, 4, 0)
    assert (second.forwarded, second.set_aside, second.received) == (1, 1, 2)
    assert told[0, "invoices"].accepted == 1


WATCHED = {
    Until.HOME: {"late", "never"},
    Until.RECEIVED: {"b", "c", "late", "never"},
}


@pytest.mark.parametrize("until", WATCHED)
def test_a_message_without_further_records_in_time_raises_an_alarm(
    found: Callable[[object], Found], until: Until
) -> None:
    rows = found(until).rows

    assert {row.message_id for row in rows} == WATCHED[until]
    assert {row.primary for row in rows} == {"contoso"}


# Of an hour: the last minute; what was parked in it; and that with what was sent beside it.
KEPT = {COUNTERS: 1, Until.HOME: 1, Until.RECEIVED: 2}


@pytest.mark.parametrize("query", KEPT)
def test_a_live_query_keeps_only_recent_messages(found: Callable[[object], Found], query: object) -> None:
    assert found(query).kept == KEPT[query]
