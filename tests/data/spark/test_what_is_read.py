"""What the message source reads by time, by number of messages and by the filters of a query."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    Not,
    StringStartsWith,
)

from sbpair.broker import Broker
from sbpair.broker.clock import ShiftedClock
from sbpair.data.spark.message_source import FilteredMessageReader, MessageReader
from sbpair.data.spark.source_options import SourceOptions
from tests.data.spark import ledger
from tests.data.spark.message_rows import schema
from tests.data.spark.test_message_source import Engine, options, queue, rows_of, send

__all__ = ["queue"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Two hours behind, so that messages of later hours are not of the future."""
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock(timedelta(hours=-2))) as running:
        yield running


@pytest.fixture
def two_hours(broker: Broker, queue: str) -> list[datetime]:
    """Three messages, an hour, three messages; returns the enqueued times."""
    send(broker, queue, *"abc")
    broker.advance(timedelta(hours=1))
    send(broker, queue, *"def")
    rows = rows_of(reader := MessageReader(options(broker, queue), schema()), reader.partitions())
    return [row["enqueued_time"] for row in rows]


def bodies_of(reader: MessageReader) -> str:
    return "".join(row["body"].decode() for row in rows_of(reader, reader.partitions()))


@pytest.mark.spec("R-232")
def test_a_read_starts_and_ends_at_given_times(broker: Broker, queue: str, two_hours: list[datetime]) -> None:
    first, later = two_hours[0], two_hours[3]

    def read(**given: str) -> str:
        return bodies_of(MessageReader(options(broker, queue, **given), schema()))

    assert read(startingTimestamp=later.isoformat()) == "def"
    assert read(startingTimestamp=str(round(later.timestamp() * 1000) + 60_000)) == ""
    assert read(startingTimestamp=first.isoformat()) == "abcdef"
    assert read(endingTimestamp=later.isoformat()) == "abc"  # of messages before that
    assert read(startingTimestamp=first.isoformat(), endingTimestamp=later.isoformat()) == "abc"


@pytest.mark.spec("R-232")
def test_a_stream_starts_at_a_given_time(broker: Broker, queue: str, two_hours: list[datetime]) -> None:
    engine = Engine(options(broker, queue, startingTimestamp=two_hours[3].isoformat()))

    assert engine.available_now() == list("def")


@pytest.mark.spec("R-233")
def test_a_batch_waits_for_the_minimum_of_messages_or_the_maximum_delay(
    broker: Broker, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("sbpair.data.spark.message_source.time.monotonic", lambda: now[0])
    send(broker, queue, "a")
    engine = Engine(
        options(broker, queue, minMessagesPerTrigger="3", maxTriggerDelay="10m", minPollIntervalSeconds="0")
    )
    assert engine.plan()  # the first does not wait
    engine.work()
    send(broker, queue, *"bc")
    now[0] += 500.0
    assert not engine.plan()
    send(broker, queue, "d")
    now[0] += 60.0
    assert engine.plan()
    engine.work()
    send(broker, queue, "e")
    now[0] += 599.0
    assert not engine.plan()
    now[0] += 60.0
    assert engine.plan()
    engine.work()

    assert engine.sink == list("abcde")


@pytest.mark.spec("R-233")
def test_an_available_now_run_ignores_the_minimum_of_messages(broker: Broker, queue: str) -> None:
    send(broker, queue, "a")

    assert Engine(options(broker, queue, minMessagesPerTrigger="3")).available_now() == ["a"]


@pytest.mark.spec("R-234")
@pytest.mark.parametrize(
    ("filters", "read"),
    [
        ([GreaterThan(("sequence_number",), 4)], "def"),
        ([GreaterThanOrEqual(("sequence_number",), 4), LessThan(("sequence_number",), 5)], "de"),
        ([In(("sequence_number",), (2, 3))], "bc"),
        ([EqualTo(("sequence_number",), 99)], ""),
        ([EqualTo(("queue",), "another")], ""),
        ([Not(EqualTo(("queue",), "another")), IsNotNull(("sequence_number",))], "abcdef"),
        ([EqualNullSafe(("sequence_number",), None), StringStartsWith(("queue",), "x")], "abcdef"),
    ],
    ids=str,
)
def test_filtered_messages_are_not_read(
    broker: Broker, queue: str, two_hours: list[datetime], filters: list[Filter], read: str
) -> None:
    """``d`` is the fourth; a bound may be one message too wide, since Spark filters the rows too."""
    reader = FilteredMessageReader(options(broker, queue), schema())

    assert list(reader.pushFilters(filters)) == filters
    assert bodies_of(reader) == read


@pytest.mark.spec("R-234")
def test_messages_outside_the_time_range_are_not_read(
    broker: Broker, queue: str, two_hours: list[datetime]
) -> None:
    reader = FilteredMessageReader(options(broker, queue), schema())
    reader.pushFilters([GreaterThanOrEqual(("enqueued_time",), two_hours[3])])
    assert bodies_of(reader) == "def"
    reader.pushFilters([LessThan(("enqueued_time",), two_hours[3] - timedelta(minutes=30))])
    assert bodies_of(reader) == "abc"


@pytest.mark.spec("R-232", "R-233")
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            {"startingTimestamp": "02:00"},
            "startingTimestamp must be milliseconds since the epoch, or as 2026-",
        ),
        ({"startingTimestamp": "2026-11-21T02:00:00"}, "startingTimestamp must be milliseconds"),
        ({"endingTimestamp": "9" * 30}, "endingTimestamp must be milliseconds"),
        (
            {"endingTimestamp": "1", "endingSequenceNumbers": "latest"},
            "give endingTimestamp or endingSequenceNumbers",
        ),
        ({"startingTimestamp": "1", "settlement": "complete"}, "settlement=complete needs"),
        (
            {"minMessagesPerTrigger": "9", "maxMessagesPerTrigger": "3"},
            "9. is more than maxMessagesPerTrigger .3",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay must be a time such as 30s"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(given: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SourceOptions.of({"connectionString": "env:NOWHERE", "queueName": "a"} | given)


@pytest.mark.spec("R-234")
@pytest.mark.parametrize("offers", [True, False])
def test_spark_reads_the_filtered_rows_with_and_without_pushdown(spark, broker: Broker, offers: bool) -> None:
    broker.namespace("contoso").create_queue("orders")
    ledger.send(broker, "orders", [f"m{number}" for number in range(300)])
    spark.conf.set("spark.sql.python.filterPushdown.enabled", str(offers).lower())
    try:
        rows = (
            spark.read.format("sbpair")
            .options(connectionString=ledger.string(broker, "contoso"), queueName="orders")
            .load()
            .where("sequence_number > 290")
        )
        assert sorted(row.message_id for row in rows.collect()) == [
            f"m{number}" for number in range(290, 300)
        ]
        tasks = rows.rdd.getNumPartitions()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert tasks == 1
