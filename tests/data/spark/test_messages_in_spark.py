"""Messages read, written and moved by Spark itself, against the broker, without loss."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from sbpair.broker import Broker
from sbpair.broker.clock import ShiftedClock
from sbpair.data.spark.checkpoint import committed_offset
from sbpair.data.spark.ranges import numbers
from tests.data.spark import ledger
from tests.data.spark.ledger import BACKLOGS, ids_in, park, parked, send, string

LOCK = timedelta(seconds=60)


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A broker for each test: the first advances its clock far, and messages from the future are not read."""
    with Broker({"contoso": 0, "contoso-dr": 0, "fabrikam": 0}, clock=ShiftedClock()) as running:
        yield running


def pair(broker: Broker) -> dict[str, str]:
    return {
        "connectionString": string(broker, "contoso"),
        "secondaryConnectionString": string(broker, "contoso-dr"),
        "primaryNamespaceName": "contoso",
        "backlogQueueCount": str(BACKLOGS),
        "caFile": str(broker.ca_file),
    }


@pytest.mark.long
@pytest.mark.spec("G-1", "P-44")
def test_a_slow_program_that_reads_twice_beside_a_syphon_loses_nothing(
    spark, broker: Broker, tmp_path: Path
) -> None:
    """The batch is evaluated twice, takes longer than a lock, and a syphon empties the same backlogs."""
    broker.namespace("contoso").create_queue("busy")
    sent = [f"m{number}" for number in range(120)]
    park(broker, "busy", sent)
    seen: set[str] = set()
    batches = 0

    def slow_and_twice(rows, number: int) -> None:
        nonlocal batches
        batches += 1
        first = {row.message_id for row in rows.select("message_id").collect()}
        broker.advance(LOCK * 2)
        if batches == 2:
            with ledger.syphon(broker):
                deadline = time.monotonic() + 60
                while not broker.namespace("contoso").counts("busy").active and time.monotonic() < deadline:
                    time.sleep(0.01)
                seen.update(row.message_id for row in rows.select("message_id").collect())
        seen.update(first)

    query = (
        spark.readStream.format("sbpair")
        .options(
            connectionString=string(broker, "contoso-dr"),
            backlogs="true",
            primaryNamespaceName="contoso",
            backlogQueueCount=str(BACKLOGS),
            settlement="complete",
            maxMessagesPerTrigger="40",
            safetyLagMs="0",
        )
        .load()
        .writeStream.foreachBatch(slow_and_twice)
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    forwarded = set(ids_in(broker, "busy"))
    assert set(sent) - seen - forwarded == set()
    assert forwarded, "the syphon had its share"
    assert numbers(committed_offset(tmp_path / "state"))  # as Spark itself writes it
    assert parked(broker) == 0


@pytest.mark.long
@pytest.mark.spec("G-1", "P-3", "P-21")
def test_a_stream_survives_a_primary_outage_and_a_syphon_job_brings_the_rest_home(
    spark, broker: Broker, tmp_path: Path
) -> None:
    primary = broker.namespace("contoso")
    primary.create_queue("orders")
    broker.namespace("fabrikam").create_queue("in")
    sent = [f"o{number}" for number in range(120)]
    send(broker, "in", sent, "fabrikam")

    query = (
        spark.readStream.format("sbpair")
        .options(connectionString=string(broker, "fabrikam"), queueName="in", settlement="complete")
        .options(maxMessagesPerTrigger="30", safetyLagMs="0")
        .load()
        .selectExpr("body", "message_id")
        .writeStream.format("sbpair")
        .options(**pair(broker), entityPath="orders", operationTimeoutSeconds="16")
        .option("checkpointLocation", str(tmp_path / "state"))
        .trigger(availableNow=True)
        .start()
    )
    deadline = time.monotonic() + 120
    while not primary.counts("orders").active and query.isActive and time.monotonic() < deadline:
        time.sleep(0.01)
    primary.take_down("reset")
    query.awaitTermination()
    assert query.exception() is None
    assert broker.namespace("fabrikam").counts("in").active == 0
    waiting = parked(broker)
    assert waiting, "the outage came in the middle"

    primary.bring_up()
    journal = tmp_path / "journal"
    rows = (
        spark.read.format("sbpair-syphon")
        .options(**pair(broker), journal=str(journal), maxDurationSeconds="60")
        .load()
        .collect()
    )

    assert {row.backlog for row in rows} == set(ledger.backlogs())
    assert all(row.is_empty for row in rows), rows
    assert sum(row.completed for row in rows) == waiting
    assert set(ids_in(broker, "orders")) == set(sent)
    events = spark.read.format("sbpair-journal").load(str(journal))
    told = events.where("event = 'messages_forwarded'").select("message_ids").collect()
    assert len({each for row in told for each in row.message_ids}) == waiting
    assert not events.where("event = 'backlogs_drained'").count(), "one of many cannot say it of all"


@pytest.mark.spec("R-240")
@pytest.mark.parametrize("loads", [1, 2], ids=["of one load", "of two loads"])
def test_a_stream_unioned_with_itself_is_refused_before_it_completes_anything(
    spark, broker: Broker, tmp_path: Path, loads: int
) -> None:
    """Each branch would be a reader of its own, and complete what only the other has read."""
    fabrikam = broker.namespace("fabrikam")
    fabrikam.create_queue("in")
    send(broker, "in", [f"m{number}" for number in range(20)], "fabrikam")

    def consume(union: bool, state: str) -> list[str]:
        stream = (
            spark.readStream.format("sbpair")
            .options(connectionString=string(broker, "fabrikam"), queueName="in", settlement="complete")
            .option("safetyLagMs", "0")
        )
        rows = stream.load()
        other = rows if loads == 1 else stream.load()
        both = rows.where("message_id < 'm2'").union(other.where("message_id >= 'm2'")) if union else rows
        seen: list[str] = []
        query = (
            both.writeStream.foreachBatch(
                lambda batch, number: seen.extend(row.message_id for row in batch.collect())
            )
            .option("checkpointLocation", str(tmp_path / state))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return seen

    with pytest.raises(StreamingQueryException, match="in is consumed by this Spark already"):
        consume(True, "united")
    assert fabrikam.counts("in").active == 20
    assert len(consume(False, "once")) == 20
    assert consume(False, "again") == []  # a stopped query has left it free
    assert fabrikam.counts("in").active == 0


@pytest.mark.spec("R-72")
def test_a_query_survives_an_outage_and_its_progress_names_the_reason(
    spark, broker: Broker, tmp_path: Path
) -> None:
    fabrikam = broker.namespace("fabrikam")
    fabrikam.create_queue("in")
    send(broker, "in", ["before"], "fabrikam")
    seen: set[str] = set()
    told: list[str] = []
    spark.conf.set("spark.sql.streaming.noDataProgressEventInterval", "500")
    query = (
        spark.readStream.format("sbpair")
        .options(connectionString=string(broker, "fabrikam"), queueName="in", settlement="complete")
        .options(safetyLagMs="0", operationTimeoutSeconds="5")
        .load()
        .writeStream.foreachBatch(lambda rows, number: seen.update(row.message_id for row in rows.collect()))
        .option("checkpointLocation", str(tmp_path / "state"))
        .start()
    )

    def until(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert query.isActive, query.exception()
            assert time.monotonic() < deadline
            time.sleep(0.05)

    def is_told() -> bool:
        told.extend(str(source.latestOffset) for each in query.recentProgress for source in each.sources)
        return any("@outage" in each and "since 20" in each for each in told)

    try:
        until(lambda: "before" in seen)
        fabrikam.take_down("reset")
        until(is_told)
        fabrikam.bring_up()
        send(broker, "in", ["after"], "fabrikam")
        until(lambda: "after" in seen)
    finally:
        spark.conf.unset("spark.sql.streaming.noDataProgressEventInterval")
        query.stop()


def test_a_table_is_written_in_batches_and_gets_an_id_for_each_row(spark, broker: Broker) -> None:
    broker.namespace("contoso").create_queue("table")
    rows = spark.range(250).selectExpr("cast(id as string) as body", "'s' as subject")

    rows.write.format("sbpair").options(**pair(broker), entityPath="table").mode("append").save()

    ids = ids_in(broker, "table")
    assert len(set(ids)) == len(ids) == 250
    with pytest.raises(Exception, match="messages cannot be overwritten"):
        rows.write.format("sbpair").options(**pair(broker), entityPath="table").mode("overwrite").save()
    with pytest.raises(Exception, match="unknown column 'subjekt'; did you mean subject"):
        rows.withColumnRenamed("subject", "subjekt").write.format("sbpair").options(
            **pair(broker), entityPath="table"
        ).mode("append").save()


@pytest.mark.spec("R-235")
def test_a_table_is_read_with_the_options_of_the_query(spark, broker: Broker) -> None:
    broker.namespace("contoso").create_queue("orders")
    send(broker, "orders", ["o1"])
    given = {"connectionString": string(broker, "contoso"), "queueName": "orders"}
    options = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    spark.sql("CREATE TABLE messages USING sbpair")
    try:
        (row,) = spark.sql(f"SELECT message_id FROM messages WITH ({options})").collect()
    finally:
        spark.sql("DROP TABLE messages")

    assert row.message_id == "o1"


def test_messages_an_audit_misses_are_resent_from_an_archive(spark, broker: Broker, tmp_path: Path) -> None:
    from sbpair.data.spark.replay import Replayed, replay

    broker.namespace("contoso").create_queue("again")
    lost = [("again", "a"), ("again", "b"), ("again", "never archived"), ("again", "a")]
    spark.createDataFrame(lost, "path string, message_id string").write.parquet(str(tmp_path / "missing"))
    kept = [("a", "A", 1), ("b", "B", 2), ("c", "C", 3), ("a", "A", 1)]
    archive = str(tmp_path / "archive")
    spark.createDataFrame(kept, "message_id string, body string, line int").write.parquet(archive)

    assert replay(spark, str(tmp_path), archive, pair(broker), dry_run=True) == Replayed(3, 2, False)
    assert ids_in(broker, "again") == []
    assert replay(spark, str(tmp_path), archive, pair(broker), dry_run=False) == Replayed(3, 2, True)
    assert sorted(ids_in(broker, "again")) == ["a", "b"]
