"""The journal of a sink is complete and says where its messages are stored, without a JVM."""

from __future__ import annotations

from pathlib import Path
from zlib import crc32

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sbpair.broker import Broker
from sbpair.data.spark import worker
from sbpair.data.spark.message_sink import MessageWriter, SinkOptions, client_of
from sbpair.observation import journal_files, read
from tests.data.spark.ledger import ids_in, string

SCHEMA = StructType([StructField("body", StringType()), StructField("message_id", StringType())])


@pytest.mark.spec("G-7")
def test_each_task_leaves_a_complete_journal_of_accepted_messages(tmp_path: Path) -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        given = {
            "connectionString": string(broker, "contoso"),
            "secondaryConnectionString": string(broker, "contoso-dr"),
            "primaryNamespaceName": "contoso",
            "backlogQueueCount": "1",
            "caFile": str(broker.ca_file),
            "entityPath": "orders",
            "journal": str(tmp_path),
        }
        writer = MessageWriter.of(given, SCHEMA, overwrite=False)
        client = client_of(SinkOptions.of(given))
        try:
            for task in range(2):
                rows = iter([(f"body {key}", f"{task}{key}") for key in "abc"])
                assert writer._send(rows, f"w:{task}").messages == 3
            client.hold("orders")
            assert writer._send(iter([("body", "parked")]), "w:2").parked == 1
        finally:
            client.close()
            worker.forget(SinkOptions.of(given))
            worker.forget((SinkOptions.of(given), "orders"))
        assert len(ids_in(broker, "orders")) == 6
    files = [list(read(file)) for file in journal_files(tmp_path)]
    assert len(files) == 3
    assert all(file[-1]["is_last"] and file[0]["role"] == "sender" for file in files)
    told = [record for file in files for record in file if record["event"] == "send_accepted"]
    by_place = {place: sum(len(each["message_ids"]) for each in told if each["stored_in"] == place)
                for place in ("primary", "backlog")}  # fmt: skip
    assert by_place == {"primary": 6, "backlog": 1}
    checksums = {
        key: each for one in told for key, each in zip(one["message_ids"], one["checksums"], strict=True)
    }
    bodies = {f"{task}{key}": f"body {key}" for task in range(2) for key in "abc"} | {"parked": "body"}
    assert checksums == {key: crc32(body.encode()) for key, body in bodies.items()}


def test_the_journal_of_a_sink_is_an_absolute_path() -> None:
    with pytest.raises(ValueError, match="journal must be an absolute path"):
        SinkOptions.of(
            {"connectionString": "env:A", "secondaryConnectionString": "env:B", "journal": "journals"}
        )
