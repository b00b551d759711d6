"""Are the numbers right while journals grow? Two queries over the stream, each run until it has caught up."""

from __future__ import annotations

from pathlib import Path

import pytest

from sbpair.spark.audit.live import Until, counters, unmatched
from tests.spark.story import Story


def caught_up(spark, table, name: str, state: Path) -> list:
    query = (
        table.writeStream.format("memory")
        .queryName(name)
        .outputMode("append")
        .option("checkpointLocation", str(state / name))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return spark.table(name).collect()


@pytest.fixture(scope="module")
def events(spark, tmp_path_factory):
    """Two minutes of messages, and an hour later a sign of life, which moves the time on."""
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


def test_messages_are_counted_by_minute_and_entity(spark, events, tmp_path: Path) -> None:
    rows = caught_up(spark, counters(events), "counters", tmp_path)
    told = {(row["from"].minute, row.path): row for row in rows}

    first, second = told[0, "orders"], told[1, "orders"]
    assert (first.accepted, first.parked, first.received) == (2, 4, 0)
    assert (second.forwarded, second.set_aside, second.received) == (1, 1, 2)
    assert told[0, "invoices"].accepted == 1


WATCHED = {
    Until.HOME: {"late", "never"},
    Until.RECEIVED: {"b", "c", "late", "never"},
}


@pytest.mark.parametrize("until", WATCHED)
def test_a_message_of_which_nothing_more_is_told_in_time_is_an_alarm(
    spark, events, tmp_path: Path, until: Until
) -> None:
    rows = caught_up(spark, unmatched(events, until=until), f"unmatched_{until.value}", tmp_path)

    assert {row.message_id for row in rows} == WATCHED[until]
    assert {row.primary for row in rows} == {"contoso"}
