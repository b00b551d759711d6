"""A batch that runs again in other partitions, on an entity with duplicate detection, without a JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sbpair.broker import Broker
from sbpair.data.spark import message_sink, worker
from sbpair.data.spark.message_sink import MessageStreamWriter, SinkOptions, client_of
from tests.data.spark.ledger import bodies_in, ids_in, string

SCHEMA = StructType([StructField("body", StringType()), StructField("subject", StringType())])
ROWS = [(f"m{number}", "s") for number in range(40)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders", requires_duplicate_detection=True)
        yield running


def run(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, partitions: int, only: int | None = None, **more: str
) -> None:
    """Run batch 7 of a query in so many partitions, or one of them."""
    given = {
        "connectionString": string(broker, "contoso"),
        "secondaryConnectionString": string(broker, "contoso-dr"),
        "backlogQueueCount": "1",
        "caFile": str(broker.ca_file),
        "primaryNamespaceName": "contoso",
        "entityPath": "orders",
    } | more
    writer = MessageStreamWriter.of(given, SCHEMA, overwrite=False)
    told = {message_sink.QUERY: "0dcd6d7c", message_sink.BATCH: "7"}
    try:
        for index in range(partitions):
            if only in (None, index):
                task = SimpleNamespace(partitionId=lambda at=index: at, getLocalProperty=told.get)
                monkeypatch.setattr(message_sink, "context", lambda at=task: at)
                size = len(ROWS) // partitions
                writer.write(iter(ROWS[index * size : (index + 1) * size]))  # type: ignore[arg-type]
    finally:
        client_of(SinkOptions.of(given)).close()
        worker.forget(SinkOptions.of(given))
        worker.forget((SinkOptions.of(given), "orders"))


@pytest.mark.spec("R-70")
@pytest.mark.parametrize(
    ("more", "copies"),
    [({}, 20), ({"messageIdStrategy": "hash"}, 0), ({"messageIdColumns": "body,subject"}, 0)],
    ids=["fresh ids", "a hash of all", "a hash of two"],
)
def test_a_batch_rerun_in_other_partitions_loses_no_row(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, more: dict[str, str], copies: int
) -> None:
    run(broker, monkeypatch, 2, only=1, **more)  # and then the driver was killed
    run(broker, monkeypatch, 4, **more)

    arrived = Counter(bodies_in(broker, "orders"))
    assert set(arrived) == {body for body, _ in ROWS}
    assert arrived.total() - len(arrived) == copies


@pytest.mark.spec("R-70")
def test_ids_name_their_batch_so_that_copies_are_recognisable(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(broker, monkeypatch, 2, only=1)
    run(broker, monkeypatch, 4)

    ids = [each.split(":") for each in ids_in(broker, "orders")]
    assert {(query, batch) for query, batch, *_ in ids} == {("0dcd6d7c", "7")}
    assert len({run for *_, run, _ in ids}) == 5, "a name for each run of a task"
