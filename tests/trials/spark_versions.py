"""A check of this Spark: tables, sinks and jobs work, and streams are read or refused with the reason.

    PYTHONPATH=. /path/to/another/bin/python -m tests.trials.spark_versions

Run it with the Python of an environment that has another pyspark (4.0 to 4.3) and sbpair's other dependencies. Where
the modules of ``data/spark/auto`` are on the path under their installed names, nothing is registered explicitly.
Prints a line for each check; exit code 1 when one fails.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyspark

from sbpair.broker import Broker
from sbpair.data.spark.versions import HAS_STREAM_SOURCES
from sbpair.spark import build_session
from tests.data.spark.ledger import park, send, string

SENT = 50


class Trial:
    """One session, one broker, one query after the other."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self._broker, self._directory = broker, directory
        self._primary = broker.namespace("contoso")
        for name in ("in", "out", "parked"):
            self._primary.create_queue(name)
        send(broker, "in", [f"m{number}" for number in range(SENT)])
        park(broker, "parked", ["p1", "p2"])
        self.spark = self._session()

    def _session(self) -> Any:
        if find_spec("pyspark_sbpair") is None:
            return build_session("versions", master="local[2]")
        from pyspark.sql import SparkSession

        from sbpair.data.spark.requirements import use_java

        use_java()
        return SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()

    def table(self) -> bool:
        return bool(self._read("in").count() == SENT)

    def sink(self) -> bool:
        rows = self.spark.range(30).selectExpr(
            "cast(id AS string) body",
            "cast(id AS string) message_id",
            "struct(id AS n) application_properties",
        )
        rows.write.format("sbpair").options(**self._pair()).mode("append").save()
        kinds = {row.typed_properties["n"].type for row in self._read("out").collect()}
        return self._primary.counts("out").active == 30 and kinds == {"long"}

    def stream_sink(self) -> bool:
        before, files = self._primary.counts("out").active, str(self._directory / "files")
        self.spark.range(20).selectExpr("cast(id AS string) body").write.parquet(files)
        rows = self.spark.readStream.schema("body string").parquet(files)
        writer = rows.writeStream.format("sbpair").options(**self._pair())
        self._run(writer, "sink")
        return self._primary.counts("out").active == before + 20

    def drain(self) -> bool:
        given = {name: value for name, value in self._pair().items() if name != "entityPath"}
        rows = self.spark.read.format("sbpair-syphon").options(**given).load().collect()
        return sum(row.completed for row in rows) == 2 == self._primary.counts("parked").active

    def stream(self) -> bool:
        given = {"connectionString": string(self._broker, "contoso"), "queueName": "in", "safetyLagMs": "0"}
        try:
            rows = self.spark.readStream.format("sbpair").options(**given, settlement="complete").load()
            self._run(rows.writeStream.format("noop"), "source")
        except Exception as error:
            return not HAS_STREAM_SOURCES and "reading a stream needs Spark 4.2" in str(error)
        return HAS_STREAM_SOURCES and self._primary.counts("in").active == 0

    def _run(self, writer: Any, name: str) -> None:
        there = str(self._directory / f"checkpoint-{name}")
        writer.option("checkpointLocation", there).trigger(availableNow=True).start().awaitTermination()

    def _read(self, queue: str) -> Any:
        given = {"connectionString": string(self._broker, "contoso"), "queueName": queue}
        return self.spark.read.format("sbpair").options(**given).load()

    def _pair(self) -> dict[str, str]:
        return {
            "connectionString": string(self._broker, "contoso"),
            "secondaryConnectionString": string(self._broker, "contoso-dr"),
            "primaryNamespaceName": "contoso",
            "backlogQueueCount": "2",
            "caFile": str(self._broker.ca_file),
            "entityPath": "out",
        }


WORK: dict[str, Callable[[Trial], bool]] = {
    "a table": Trial.table,
    "a sink, with types": Trial.sink,
    "a streaming sink": Trial.stream_sink,
    "a drain": Trial.drain,
    "a stream, or its refusal": Trial.stream,
}


def main() -> int:
    how = "registered by Spark" if find_spec("pyspark_sbpair") else "registered by hand"
    print(f"pyspark {pyspark.__version__}, {how}")
    held = []
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, tempfile.TemporaryDirectory() as directory:
        trial = Trial(broker, Path(directory))
        for what, work in WORK.items():
            held.append(work(trial))
            print(f"{what:<28} {'holds' if held[-1] else 'DOES NOT HOLD'}", flush=True)
        trial.spark.stop()
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
