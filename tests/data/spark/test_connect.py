"""Spark Connect: a client without a JVM that knows only the address of its server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from sbpair.broker import Broker
from tests.data.audit.story import Story
from tests.data.spark.ledger import BACKLOGS, ids_in, string
from tests.data.spark.packed import packed

PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
from sbpair.spark import register

server, package, journals, pair = sys.argv[1:]
spark = SparkSession.builder.remote(server).getOrCreate()
spark.addArtifacts(package, pyfile=True)
register(spark)

events = spark.read.format("sbpair-journal").load(journals)
counted = {row["event"]: row["count"] for row in events.groupBy("event").count().collect()}
sent = events.where("event = 'send_accepted'").selectExpr("explode(message_ids) AS message_id")
rows = sent.selectExpr("message_id", "concat('body of ', message_id) AS body")
rows.write.format("sbpair").options(**json.loads(pair)).mode("append").save()
print(json.dumps({"counted": counted, "session": type(spark).__module__}))
"""


def address_of(spark) -> str:
    """Of the server in the JVM that all tests of this folder share."""
    service = "org.apache.spark.sql.connect.service.SparkConnectService$"
    module = spark._jvm.java.lang.Class.forName(service).getField("MODULE$").get(None)
    return f"sc://127.0.0.1:{module.localPort()}"


@pytest.mark.long
@pytest.mark.spec("G-1")
def test_a_spark_connect_client_reads_journals_and_sends_their_messages(spark, tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    sender = story.sender()
    sender.sent("a", "b")
    sender.sent("c")
    story.end()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        pair = {
            "connectionString": string(broker, "contoso"),
            "secondaryConnectionString": string(broker, "contoso-dr"),
            "primaryNamespaceName": "contoso",
            "backlogQueueCount": str(BACKLOGS),
            "caFile": str(broker.ca_file),
            "entityPath": "orders",
        }
        arguments = [address_of(spark), str(packed(tmp_path)), str(tmp_path / "journals"), json.dumps(pair)]
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *arguments],
            capture_output=True, text=True, timeout=120, check=False, cwd=tmp_path, env=os.environ,
        )  # fmt: skip

        assert done.returncode == 0, done.stderr[-3000:]
        told = json.loads(done.stdout.splitlines()[-1])
        assert Counter(told["counted"]) == {"journal_opened": 1, "send_accepted": 2, "journal_closed": 1}
        assert told["session"].startswith("pyspark.sql.connect"), "no JVM of its own"
        assert sorted(ids_in(broker, "orders")) == ["a", "b", "c"]
