"""Each message is in a table of the lakehouse once, however often the job is killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from deltalake import DeltaTable

from sbpair.broker import Broker
from tests.data.spark.conftest import LIMIT
from tests.data.spark.ledger import send, string

SAMPLE = Path(__file__).resolve().parents[3] / "samples" / "spark" / "lakehouse.py"
SENT = [f"m{number}" for number in range(30)]
A_BATCH = "10"
KILLED_IN_A_BATCH = """
import os, signal, sys
from sbpair.spark import build_session
from sbpair.data.spark.session import SHORT_JOB
from tests.data.spark.conftest import INTERPRETED
from tests.data.spark.test_lakehouse import consume, lakehouse

way, point, table, checkpoint = sys.argv[1:]

def write(rows, batch):
    for when in ("before", "after"):
        if point == f"{when} {batch}":
            os.killpg(0, signal.SIGKILL)
        if when == "before":
            getattr(lakehouse(), way)(table, rows, batch)

spark = build_session("killed", master="local[1,2]", settings=SHORT_JOB | INTERPRETED)
consume(spark, os.environ["SBPAIR_PRIMARY"], write, checkpoint)
"""


def lakehouse() -> ModuleType:
    spec = spec_from_file_location("lakehouse", SAMPLE)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def consume(spark, connection: str, write: Callable[[object, int], None], checkpoint: str) -> None:
    """As the sample does, in batches of ten."""
    (
        spark.readStream.format("sbpair")
        .options(connectionString=connection, queueName="orders", settlement="complete")
        .options(maxMessagesPerTrigger=A_BATCH, safetyLagMs="0")
        .load()
        .writeStream.foreachBatch(write)
        .options(checkpointLocation=checkpoint)
        .trigger(availableNow=True)
        .start()
        .awaitTermination()
    )


@pytest.fixture
def broker() -> Iterator[Broker]:
    """A queue with thirty messages."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        send(running, "orders", SENT)
        yield running


def waiting(broker: Broker) -> int:
    return broker.namespace("contoso").counts("orders").active


@pytest.mark.long
@pytest.mark.spec("R-148")
def test_a_job_killed_before_or_after_its_commit_has_each_message_once(
    broker: Broker, tmp_path: Path
) -> None:
    table, checkpoint = str(tmp_path / "table"), tmp_path / "state"

    def run(*program: str) -> int:
        return subprocess.run(
            [sys.executable, *program, table, str(checkpoint)],
            env=os.environ | {"SBPAIR_PRIMARY": string(broker, "contoso")},
            timeout=LIMIT, check=False, start_new_session=True, capture_output=True,
        ).returncode  # fmt: skip

    def ids() -> list[str]:
        return DeltaTable(table).to_pyarrow_table().column("message_id").to_pylist()

    assert run("-c", KILLED_IN_A_BATCH, "append_once", "before 1") == -signal.SIGKILL
    assert len(ids()) == 10
    assert run("-c", KILLED_IN_A_BATCH, "append_once", "after 1") == -signal.SIGKILL
    assert len(ids()) == 20, "it is in the table,"
    assert not (checkpoint / "commits" / "1").exists(), "and Spark does not know"
    assert run(str(SAMPLE)) == 0
    assert sorted(ids()) == sorted(SENT)
    assert waiting(broker) == 0


@pytest.mark.spec("R-148")
def test_the_how_to_shows_the_tested_recipe() -> None:
    page = SAMPLE.parents[2] / "docs" / "how-to" / "spark.md"
    blocks = re.findall(
        r"^```python\n(def append_once.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(blocks) == 1
    assert blocks[0] in SAMPLE.read_text("utf-8")


class CrashError(Exception):
    """In place of a kill: the query ends in the middle of a batch."""


def crashing_after(write: Callable[[object, int], None], batch: int) -> Callable[[object, int], None]:
    def write_and_crash(rows: object, number: int) -> None:
        write(rows, number)
        if number == batch:
            raise CrashError

    return write_and_crash


@pytest.mark.spec("R-148")
@pytest.mark.parametrize("way", ["append_once", "merge"])
def test_a_repeated_batch_is_in_the_table_once(spark, broker: Broker, tmp_path: Path, way: str) -> None:
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "state")

    def write(rows: object, batch: int) -> None:
        getattr(lakehouse(), way)(table, rows, batch)

    connection = string(broker, "contoso")
    with pytest.raises(Exception, match="Crash"):
        consume(spark, connection, crashing_after(write, 1), checkpoint)
    assert DeltaTable(table).to_pyarrow_table().num_rows == 20
    consume(spark, connection, write, checkpoint)

    assert sorted(DeltaTable(table).to_pyarrow_table().column("message_id").to_pylist()) == sorted(SENT)
    assert waiting(broker) == 0


@contextmanager
def property_of_a_query(spark) -> Iterator[None]:
    """As in a stream, that of the query whose checkpoint is lost."""
    spark.sparkContext.setLocalProperty("sql.streaming.queryId", "the first query")
    try:
        yield
    finally:
        spark.sparkContext.setLocalProperty("sql.streaming.queryId", None)


@pytest.mark.spec("R-148")
@pytest.mark.parametrize(("way", "rows"), [("merge", 30), ("append_once", 50)])
def test_a_merge_from_a_new_checkpoint_has_each_message_once(
    spark, broker: Broker, tmp_path: Path, way: str, rows: int
) -> None:
    """The first checkpoint is lost before anything of batches 0 and 1 is completed."""
    table = str(tmp_path / "table")

    def write(rows: object, batch: int) -> None:
        getattr(lakehouse(), way)(table, rows, batch)

    browsing = {
        "connectionString": string(broker, "contoso"),
        "queueName": "orders",
        "endingSequenceNumbers": "latest",
    }
    for batch in range(2):
        part = spark.read.format("sbpair").options(**browsing).load()
        part = part.where(f"sequence_number > {batch * 10} AND sequence_number <= {batch * 10 + 10}")
        with property_of_a_query(spark):
            write(part, batch)
    consume(spark, string(broker, "contoso"), write, str(tmp_path / "new"))

    found = Counter(DeltaTable(table).to_pyarrow_table().column("message_id").to_pylist())
    assert set(found) == set(SENT), "never fewer"
    assert found.total() == rows


@pytest.mark.spec("R-148")
def test_files_by_batch_have_each_message_once(spark, broker: Broker, tmp_path: Path) -> None:
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "state")

    def write(rows, batch: int) -> None:
        to = rows.selectExpr("*", f"{batch} AS batch").write.mode("overwrite").partitionBy("batch")
        to.option("partitionOverwriteMode", "dynamic").parquet(table)

    with pytest.raises(Exception, match="Crash"):
        consume(spark, string(broker, "contoso"), crashing_after(write, 1), checkpoint)
    consume(spark, string(broker, "contoso"), write, checkpoint)

    assert sorted(
        row.message_id for row in spark.read.parquet(table).select("message_id").collect()
    ) == sorted(SENT)
    assert waiting(broker) == 0
