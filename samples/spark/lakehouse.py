"""Messages into a Delta table, each exactly once: `lakehouse.py TABLE CHECKPOINT`, run again after any crash.

Spark gives a batch that runs again the same number and the same rows. `append_once` records the number in the commit
that adds the rows, with the query's id, which belongs to its checkpoint, and skips a batch that the table has.
`merge` recognises each message, so it also withstands a checkpoint that was lost, and has to search the table.
"""

import sys

from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import DataFrame

from sbpair.spark import build_session

COLUMNS = ("namespace", "queue", "sequence_number", "enqueued_time", "message_id", "body")
KEY = (
    "namespace",
    "queue",
    "sequence_number",
    "enqueued_time",
)  # a queue that is recreated numbers from 1 again


def append_once(table: str, rows: DataFrame, batch: int) -> None:
    """Add the rows of a batch, unless they are there."""
    query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
    is_there = DeltaTable.is_deltatable(table)
    done = DeltaTable(table).transaction_version(query) if is_there else None
    if done is None or done < batch:
        commit = CommitProperties(app_transactions=[Transaction(query, batch)])
        write_deltalake(table, rows.select(*COLUMNS).toArrow(), mode="append", commit_properties=commit)


def merge(table: str, rows: DataFrame, batch: int) -> None:
    """Add the rows that are not there."""
    found = rows.select(*COLUMNS).toArrow()
    same = " AND ".join(f"old.{name} = new.{name}" for name in KEY)
    known = DeltaTable.create(table, found.schema, mode="ignore")
    known.merge(found, same, source_alias="new", target_alias="old").when_not_matched_insert_all().execute()


def main(table: str, checkpoint: str) -> None:
    orders = (
        build_session("lakehouse")
        .readStream.format("sbpair")
        .options(
            connectionString="env:SBPAIR_PRIMARY",
            queueName="orders",
            settlement="complete",
            maxMessagesPerTrigger="1000",
        )
    )
    appended = orders.load().writeStream.foreachBatch(lambda rows, batch: append_once(table, rows, batch))
    appended.options(checkpointLocation=checkpoint).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
