"""A Spark job in a process of its own, killed with its JVM at a named point: see tests/trials/spark_crash.py.

The point is reached once, in whichever process of Spark it lies: the driver, a planner, a task.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

PATIENCE = 120.0  # seconds
MARK = "SBPAIR_TEST_CRASH"  # point:file; the file is made when the point was reached


def crash_at(point: str) -> None:
    """Kill everything, JVM and workers and all, if this is the point, and it was not reached before."""
    wanted, _, file = os.environ.get(MARK, ":").partition(":")
    if wanted != point:
        return
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    os.killpg(int(os.environ["SBPAIR_TEST_GROUP"]), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)  # the workers of Spark are a group of their own


def plant() -> None:
    """Wrap the places where a crash may strike; called in every Python process of the job (sitecustomize)."""
    from sbpair.data.spark import entities, message_sink, message_source, settling
    from sbpair.data.spark.ranges import Piece
    from sbpair.pair.syphon.forward import pump

    def before(owner: type, name: str, point: str, when: Callable[..., bool] = lambda *args: True) -> None:
        inner = getattr(owner, name)

        def wrapped(*args: object, **more: object) -> object:
            if when(*args):
                crash_at(point)
            return inner(*args, **more)

        setattr(owner, name, wrapped)

    before(message_source.MessageStreamReader, "partitions", "after planning", lambda self, start, end: start)
    before(
        message_sink.MessageStreamWriter,
        "commit",
        "between sink and commit log",
        lambda self, messages, batch: batch == 1,
    )
    write = message_sink.MessageStreamWriter.write

    def write_one_of_two(self: message_sink.MessageStreamWriter, rows: Iterator[object]) -> object:
        """The second partition of a batch is sent, and of the first nothing."""
        task = message_sink.context()
        point, _, file = os.environ.get(MARK, ":").partition(":")
        if (
            point == "mid-sink"
            and not os.path.exists(file)
            and task.getLocalProperty(message_sink.BATCH) == "1"
        ):
            if task.partitionId() == 0:
                time.sleep(PATIENCE)  # until the other one is through, which kills both
            told = write(self, rows)  # type: ignore[arg-type]
            crash_at("mid-sink")
            return told
        return write(self, rows)  # type: ignore[arg-type]

    message_sink.MessageStreamWriter.write = write_one_of_two  # type: ignore[assignment, method-assign]
    read = entities.Entities.read

    def read_half(self: entities.Entities, piece: Piece) -> Iterator[object]:
        for place, message in enumerate(read(self, piece)):
            if place == 5 and piece.first > 1:
                crash_at("mid-read")
            yield message

    entities.Entities.read = read_half  # type: ignore[assignment]
    rounds = settling.Receiving._round

    async def one_round(self: settling.Receiving, credit: int) -> None:
        await rounds(self, min(credit, 7))
        if credit > 1:
            await self.confirmed()
            crash_at("mid-settle")

    settling.Receiving._round = one_round  # type: ignore[method-assign]
    before(pump.Pump, "_settle", "mid-drain", lambda self: len(self._to_complete) > 0)


def main(job: str, state: str) -> None:
    from sbpair.data.spark.session import SHORT_JOB
    from sbpair.spark import build_session

    chosen = Path(state) / "master"
    master = chosen.read_text() if chosen.exists() else "local[2,2]"
    settings = SHORT_JOB | {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    if master.startswith("local-cluster"):
        java = SHORT_JOB["spark.driver.extraJavaOptions"]
        settings |= {"spark.executor.extraJavaOptions": java, "spark.executor.memory": "1g"}
        settings["spark.executorEnv.PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    spark = build_session("crash", master=master, settings=settings)
    JOBS[job](spark, Path(state))
    spark.stop()


def stream(spark, state: Path) -> None:
    """A queue to files, which take each batch once."""
    query = (
        source(spark, state)
        .writeStream.format("parquet")
        .option("checkpointLocation", str(state / "checkpoint"))
        .option("path", str(state / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    (state / "ids").write_text(
        "\n".join(row.message_id for row in spark.read.parquet(str(state / "out")).collect())
    )


def copy(spark, state: Path) -> None:
    """A queue to another one that drops duplicates, with ids as they are made where no column has one."""
    query = (
        source(spark, state)
        .selectExpr("message_id as body")
        .writeStream.format("sbpair")
        .options(**pair(state), entityPath="copies")
        .option("checkpointLocation", str(state / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def publish(spark, state: Path) -> None:
    """Parquet files to a queue that drops duplicates, with ids of a column or as they are made."""
    columns = ["body", "body AS message_id"] if (state / "ids-of-a-column").exists() else ["body"]
    query = (
        spark.readStream.schema("body string")
        .option("maxFilesPerTrigger", 2)
        .parquet(str(state / "files"))
        .repartition(int((state / "partitions").read_text()))
        .selectExpr(*columns)
        .writeStream.format("sbpair")
        .options(**pair(state), entityPath="copies")
        .option("checkpointLocation", str(state / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def drain(spark, state: Path) -> None:
    """All backlogs home."""
    rows = (
        spark.read.format("sbpair-syphon")
        .options(**pair(state), journal=str(state / "journal"))
        .load()
        .collect()
    )
    (state / "rows").write_text("\n".join(map(str, rows)))


def source(spark, state: Path):
    partitions = state / "partitions"
    return (
        spark.readStream.format("sbpair")
        .options(connectionString=f"file:{state / 'fabrikam'}", queueName="in", settlement="complete")
        .options(maxMessagesPerTrigger="40", safetyLagMs="0")
        .options(minPartitions=partitions.read_text() if partitions.exists() else "2")
        .load()
    )


def pair(state: Path) -> dict[str, str]:
    return {
        "connectionString": f"file:{state / 'contoso'}",
        "secondaryConnectionString": f"file:{state / 'contoso-dr'}",
        "primaryNamespaceName": "contoso",
        "backlogQueueCount": "2",
        "caFile": (state / "ca").read_text(),
    }


JOBS = {"stream": stream, "copy": copy, "publish": publish, "drain": drain}

if __name__ == "__main__":
    main(*sys.argv[1:3])
