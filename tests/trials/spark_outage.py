"""A stream during an outage, with the connection string switched to the other namespace half-way: nothing may be lost.

    python -m tests.trials.spark_outage                 ten minutes
    python -m tests.trials.spark_outage --seconds 60

A query consumes a queue of one namespace into Parquet and reads its connection string from a file. The namespace goes
down. Half-way the string in the file becomes that of the other namespace, which has a queue of the same name: the query
must end with the reason, and complete nothing there. With the first string it is started again, during the rest of the
outage. DuckDB counts the rows. Prints what happened; exit code 1 when it differs from this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from sbpair.broker import Broker
from sbpair.data.spark.session import SHORT_JOB, reason_of
from sbpair.spark import build_session
from tests.data.spark.ledger import ids_in, send, string
from tests.trials.spark_kills import in_parquet

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

BUSY = "Python worker failed to connect back"
PATIENCE = 240.0  # seconds for each step
QUIET = {"spark.sql.streaming.noDataProgressEventInterval": "1000"}


class Trial:
    """One broker, one session, one checkpoint."""

    def __init__(self, broker: Broker, spark: SparkSession, directory: Path) -> None:
        self._broker, self._spark, self._directory = broker, spark, directory
        self._reference = directory / "connection"
        self.problems: list[str] = []

    def run(self, seconds: float) -> None:
        """The whole course, with an outage of ``seconds``."""
        primary = self._broker.namespace("contoso")
        before, during, after, others = (
            [f"{name}{number}" for number in range(60)] for name in ("before", "during", "after", "other")
        )
        for name in ("contoso", "contoso-dr"):
            self._broker.namespace(name).create_queue("in")
        send(self._broker, "in", before)
        send(self._broker, "in", others, "contoso-dr")
        self._connect_to("contoso")
        query = self._start()
        self._until("the first messages are read", lambda: len(self._read()) == len(before), query)
        send(self._broker, "in", during)
        primary.take_down("silent")
        self._stay(query, seconds / 2)
        self._connect_to("contoso-dr")
        self._until("the query ends with the reason", lambda: not query.isActive)
        ended = query.exception()
        self._check("belongs to the namespace" in str(ended), "it ended for another reason")
        print(f"switched: {'' if ended is None else reason_of(ended)}")
        self._check(ids_in(self._broker, "in", "contoso-dr") == others, "the other namespace was touched")
        self._connect_to("contoso")
        query = self._start()
        self._stay(query, seconds / 2)
        primary.bring_up()
        send(self._broker, "in", after)
        sent = {*before, *during, *after}
        self._until("all is read", lambda: set(self._read()) >= sent, query)
        self._until("all is completed", lambda: primary.counts("in").active == 0, query)
        query.stop()
        read = self._read()
        self._check(set(read) == sent, "a row is lost or strange")
        self._check(ids_in(self._broker, "in", "contoso-dr") == others, "the other namespace was touched")
        print(f"rows: {read.total()}, lost: {len(sent - set(read))}, copies: {read.total() - len(read)}")

    def _start(self) -> StreamingQuery:
        """Start the query; again if this machine was too busy for Spark to start its Python within ten seconds."""
        while True:
            query = self._started()
            self._until("the query runs", lambda one=query: one.lastProgress is not None or not one.isActive)
            if query.isActive or BUSY not in str(query.exception()):
                return query

    def _started(self) -> StreamingQuery:
        rows = (
            self._spark.readStream.format("sbpair")
            .options(connectionString=f"file:{self._reference}", queueName="in", settlement="complete")
            .options(safetyLagMs="0", operationTimeoutSeconds="5", maxMessagesPerTrigger="25")
            .options(maxPollIntervalSeconds="2")
            .load()
        )
        there = str(self._directory / "checkpoint")
        return rows.writeStream.format("parquet").option("checkpointLocation", there).start(self._out)

    @property
    def _out(self) -> str:
        return str(self._directory / "out")

    def _connect_to(self, name: str) -> None:
        self._reference.write_text(string(self._broker, name))

    def _read(self) -> Counter[str]:
        return Counter(message_id for _, message_id in in_parquet(self._directory))

    def _stay(self, query: StreamingQuery, seconds: float) -> None:
        """The query is alive for so long, reads nothing, and its progress gives the reason."""
        until, told, read = time.monotonic() + seconds, False, self._read()
        while time.monotonic() < until:
            self._check(query.isActive, f"the query ended: {query.exception()}")
            told |= any(
                "@outage" in str(each.latestOffset) for one in query.recentProgress for each in one.sources
            )
            time.sleep(1)
        self._check(told, "the progress does not mention the outage")
        self._check(self._read() == read, "something was read in the outage")
        print(f"alive through {seconds:g} s of outage")

    def _until(self, what: str, condition: Callable[[], bool], query: StreamingQuery | None = None) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline or (query is not None and not query.isActive):
                raise RuntimeError(f"not reached: {what}; {None if query is None else query.exception()}")
            time.sleep(0.2)
        print(f"reached: {what}", flush=True)

    def _check(self, holds: bool, problem: str) -> None:
        if not holds and problem not in self.problems:
            self.problems.append(problem)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=600.0, help="the length of the outage (default: 600)"
    )
    asked = parser.parse_args()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, tempfile.TemporaryDirectory() as directory:
        spark = build_session("outage", master="local[2,2]", settings=SHORT_JOB | QUIET)
        trial = Trial(broker, spark, Path(directory))
        trial.run(asked.seconds)
        spark.stop()
    for problem in trial.problems:
        print(f"DOES NOT HOLD: {problem}")
    return 1 if trial.problems else 0


if __name__ == "__main__":
    sys.exit(main())
