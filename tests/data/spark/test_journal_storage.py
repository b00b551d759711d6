"""Journals in object storage, over the S3 API served by moto."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyarrow import fs
from pyspark.sql.types import StructType

from sbpair.data.audit.columns import UNREAD
from sbpair.data.spark.journal_source import JournalOptions, JournalReader, JournalStreamReader

SCHEMA = StructType().add("event", "string").add("journal_file", "string")


class Bucket:
    """A bucket, and the URI of a directory in it."""

    def __init__(self, port: int) -> None:
        at = f"127.0.0.1:{port}"
        self._system = fs.S3FileSystem(
            endpoint_override=at, scheme="http", region="us-east-1", allow_bucket_creation=True
        )
        self._system.create_dir("audit")
        self.uri = f"s3://audit/journals?endpoint_override={at}&scheme=http&region=us-east-1"

    def write(self, name: str, *events: str) -> None:
        content = "".join(f'{{"event": "{event}"}}\n' for event in events).encode()
        with self._system.open_output_stream(f"audit/journals/{name}", compression=None) as file:
            file.write(gzip.compress(content) if name.endswith(".gz") else content)


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bucket]:
    from moto.server import ThreadedMotoServer

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        yield Bucket(server.get_host_and_port()[1])
    finally:
        server.stop()


def rows(reader: JournalReader | JournalStreamReader, tasks: list) -> list[tuple[str, str]]:
    batches: list[pa.RecordBatch] = [batch for task in tasks for batch in reader.read(task)]
    return sorted((row["event"], row["journal_file"]) for batch in batches for row in batch.to_pylist())


def test_journals_in_a_bucket_are_read_and_followed(bucket: Bucket) -> None:
    bucket.write("sender-a-000001.jsonl", "sent", "closed")
    bucket.write("hosts/7/syphon-b-000001.jsonl.gz", "forwarded")
    bucket.write("hosts/7/syphon-b-000002.jsonl.zst", "compressed by another program")
    options = JournalOptions.of({"path": bucket.uri})
    batch, stream = JournalReader(options, SCHEMA), JournalStreamReader(options, SCHEMA)
    known = [
        ("closed", "sender-a-000001.jsonl"),
        ("forwarded", "hosts/7/syphon-b-000001.jsonl.gz"),
        ("sent", "sender-a-000001.jsonl"),
    ]

    first = stream.latestOffset({}, stream.getDefaultReadLimit())
    assert rows(stream, stream.partitions({}, first)) == known
    assert rows(batch, batch.partitions()) == [*known, (UNREAD, "hosts/7/syphon-b-000002.jsonl.zst")]

    bucket.write("sender-a-000002.jsonl", "sent")
    again = JournalStreamReader(options, SCHEMA)
    second = again.latestOffset(first, again.getDefaultReadLimit())
    assert rows(again, again.partitions(first, second)) == [("sent", "sender-a-000002.jsonl")]


REFUSED = {
    "wasbs://journals@account.blob.core.windows.net/x": "cannot be opened: .*abfss.*; mount any other storage",
    "s3://name:secret-key@bucket/x?colour=red": r"s3://name:\*\*\*@bucket/x\?colour=red cannot",
    "dbfs:/journals": "dbfs:/journals is not a directory",
}


@pytest.mark.parametrize("uri", REFUSED)
def test_an_unopenable_uri_is_refused_with_the_next_step_and_without_its_secret(uri: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[uri]) as raised:
        JournalOptions.of({"path": uri})
    assert "secret-key" not in str(raised.value)
