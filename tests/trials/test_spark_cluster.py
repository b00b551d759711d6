"""The pipeline as a cluster runs it: ``spark-submit`` with the package as a zip, executors of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest

from sbpair.data.spark.requirements import use_java
from sbpair.data.spark.session import DEFAULTS, SHORT_JOB
from tests.data.audit.story import Story
from tests.data.spark.conftest import INTERPRETED
from tests.data.spark.packed import packed

PROGRAM = """
import json, os, sys
from pyspark.sql import SparkSession

import sbpair
from sbpair.spark import register

spark = SparkSession.builder.getOrCreate()
register(spark)
events = spark.read.format("sbpair-journal").load(sys.argv[1])
counted = {row["event"]: row["count"] for row in events.groupBy("event").count().collect()}

def place(batches):
    import os, sbpair, pyarrow
    for batch in batches:
        at = sbpair.__file__, os.getcwd()
        yield pyarrow.RecordBatch.from_pydict({"package": at[:1], "directory": at[1:]})

places = spark.range(0, 4, 1, 4).mapInArrow(place, "package string, directory string").collect()
print("SAID", json.dumps({"counted": counted, "driver": sbpair.__file__, "executors": places}))
spark.stop()
"""
SMALL = {
    "spark.executor.extraJavaOptions": SHORT_JOB["spark.driver.extraJavaOptions"],
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are there before the first task
}


def submit(program: Path, package: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As the how-to does it, to two executors of one core each."""
    home = Path(pyspark.__file__).parent
    command = [str(home / "bin" / "spark-submit"), "--master", "local-cluster[2,1,1024]"]
    command += ["--py-files", str(package)]
    for setting in (DEFAULTS | SHORT_JOB | INTERPRETED | SMALL).items():
        command += ["--conf", "=".join(setting)]
    environment = os.environ | {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(use_java()),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(program.parent / "work"),
    }
    environment.pop("PYTHONPATH", None)
    return subprocess.run(
        [*command, str(program), *arguments],
        capture_output=True, text=True, timeout=280, check=False, env=environment, cwd=program.parent,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.spec("G-1")
def test_two_executors_read_journals_with_the_package_from_a_zip(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    story.sender().sent("a", "b")
    story.receiver().received("a", "b", numbers=(1, 2))
    story.end()
    program = tmp_path / "count.py"
    program.write_text(PROGRAM)

    done = submit(program, packed(tmp_path), str(tmp_path / "journals"))

    said = [line for line in done.stdout.splitlines() if line.startswith("SAID ")]
    assert said, done.stderr[-3000:]
    told = json.loads(said[0].removeprefix("SAID "))
    assert told["counted"] == {
        "journal_opened": 2, "send_accepted": 1, "messages_received": 1, "journal_closed": 2,
    }  # fmt: skip
    files = [told["driver"], *(package for package, _ in told["executors"])]
    assert all("sbpair.zip/sbpair/" in file for file in files), files
    assert {Path(directory).name for _, directory in told["executors"]} == {"0", "1"}, "each had its share"
