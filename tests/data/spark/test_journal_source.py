"""The rows of ``sbpair-journal`` are the journal's records, each once, while files grow and are closed."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from sbpair.data.audit.columns import UNREAD, UNREADABLE
from sbpair.observation import Journal, WriterRole, journal_files, read
from sbpair.pair.observation.journal import MIN_ROLL_BYTES, JournalGap
from tests.data.audit.story import Story


def written(directory: Path) -> Counter[tuple[str, int]]:
    files = journal_files(directory, with_open=True)
    return Counter((record["writer"], record["ordinal"]) for file in files for record in read(file))


def keys(rows) -> Counter[tuple[str, int]]:
    return Counter((row.writer, row.ordinal) for row in rows)


@pytest.mark.spec("G-2")
def test_a_batch_has_every_whole_record_with_its_position(spark, tmp_path: Path) -> None:
    story = Story(tmp_path)
    sender = story.sender()
    for number in range(200):
        sender.sent(f"m{number}", ambiguous=number % 2 == 0)
    story.end()
    still_open = story.sender()
    still_open.sent("last")

    rows = spark.read.format("sbpair-journal").option("partitionBytes", "4096").load(str(tmp_path)).collect()

    assert keys(rows) == written(tmp_path)
    sent = [row for row in rows if row.event == "send_accepted"]
    assert sum(row.ambiguous for row in sent) == 100
    assert sent[0].pair.primary == "contoso"
    for row in sent[:20]:
        with next(tmp_path.glob(f"*{row.journal_file}")).open("rb") as file:
            file.seek(row.journal_offset)
            assert f'"ordinal":{row.ordinal},' in file.readline().decode()


def test_a_stream_reads_appended_and_rolled_records_once_each(spark, tmp_path: Path) -> None:
    journals, out, state = tmp_path / "journals", str(tmp_path / "out"), str(tmp_path / "state")
    story = Story(journals)
    sender, other = story.sender(), story.sender()

    def catch_up() -> None:
        stream = (
            spark.readStream.format("sbpair-journal").option("maxBytesPerTrigger", "2048").load(str(journals))
        )
        query = (
            stream.select("writer", "ordinal", "event")
            .writeStream.format("parquet")
            .option("checkpointLocation", state)
            .trigger(availableNow=True)
            .start(out)
        )
        query.awaitTermination()

    for number in range(20):
        sender.sent(f"a{number}")
    catch_up()
    sender.sent("appended to a file that was seen before")
    sender.journal.roll()
    sender.sent("in the next file")
    other.sent("of another writer")
    catch_up()
    story.end()
    catch_up()

    assert keys(spark.read.parquet(out).collect()) == written(journals)


def test_a_journal_of_many_small_files_is_read_whole(spark, tmp_path: Path) -> None:
    story = Story(tmp_path)
    journal = Journal(tmp_path, role=WriterRole.SENDER, pair=story.pair, roll_bytes=MIN_ROLL_BYTES)
    for number in range(300):
        journal.write(JournalGap(number, "x" * 50))
    journal.close()

    assert len(list(tmp_path.iterdir())) > 5
    assert keys(spark.read.format("sbpair-journal").load(str(tmp_path)).collect()) == written(tmp_path)


REFUSED = {
    "path": ({"path": "/nowhere"}, "/nowhere is not a directory"),
    "option": ({"partitonBytes": "4096"}, "unknown option 'partitonbytes'; did you mean partitionBytes"),
    "number": (
        {"partitionBytes": "lots"},
        "partitionBytes must be a whole number from 1024",
    ),
    "small": (
        {"maxBytesPerTrigger": "10"},
        "maxBytesPerTrigger must be a whole number from 1024 to .*, not '10'",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_an_unusable_option_is_refused_by_name(tmp_path: Path, name: str) -> None:
    from sbpair.data.spark.journal_source import JournalOptions

    given, text = REFUSED[name]
    with pytest.raises(ValueError, match=text):
        JournalOptions.of({"path": str(tmp_path)} | {key.lower(): value for key, value in given.items()})


def test_spark_reports_an_invalid_option(spark) -> None:
    from pyspark.errors import PySparkException

    with pytest.raises(PySparkException, match="sbpair-journal: /nowhere is not a directory"):
        spark.read.format("sbpair-journal").load("/nowhere").collect()


def test_spark_reports_an_unreadable_journal_in_one_line(spark, tmp_path: Path) -> None:
    from sbpair.data.spark.session import reason_of, session_errors

    (tmp_path / "sender-a-000001.jsonl").write_text("{}\n")
    table = spark.read.format("sbpair-journal").load(str(tmp_path))
    (tmp_path / "sender-a-000001.jsonl").unlink()
    tmp_path.rmdir()
    with pytest.raises(session_errors()) as raised:
        table.collect()

    assert reason_of(raised.value) == f"Spark: sbpair-journal: {tmp_path} is not a directory"


def test_only_the_requested_columns_are_read(spark, tmp_path: Path) -> None:
    story = Story(tmp_path)
    story.sender().sent("m")
    story.end()

    rows = spark.read.format("sbpair-journal").schema("ordinal bigint, event string").load(str(tmp_path))

    assert sorted(map(tuple, rows.collect())) == [
        (0, "journal_opened"),
        (1, "send_accepted"),
        (2, "journal_closed"),
    ]


NO_COLUMNS = {"color string": "a journal has no column 'color'", "v string": "the column 'v' is of type int"}


@pytest.mark.parametrize("asked", NO_COLUMNS)
def test_an_unknown_journal_column_is_refused_by_name(tmp_path: Path, asked: str) -> None:
    from pyspark.sql.types import IntegerType, LongType, StringType, StructType

    from sbpair.data.spark.journal_source import JournalDataSource

    source = JournalDataSource({"path": str(tmp_path)})
    name = asked.split()[0]
    with pytest.raises(ValueError, match=NO_COLUMNS[asked]):
        source.reader(StructType().add("ordinal", LongType()).add(name, StringType()))
    source.reader(StructType().add("v", IntegerType()))


@pytest.mark.spec("R-74")
def test_empty_files_are_rows_that_say_so(tmp_path: Path) -> None:
    from pyspark.sql.types import StructType

    from sbpair.data.spark.journal_source import JournalOptions, JournalReader

    (tmp_path / "sender-a-000001.jsonl.gz").write_bytes(gzip.compress(b""))
    (tmp_path / "sender-b-000001.jsonl").write_bytes(b"")
    asked = StructType().add("event", "string").add("journal_file", "string")
    reader = JournalReader(JournalOptions.of({"path": str(tmp_path)}), asked)
    batches = [batch for task in reader.partitions() for batch in reader.read(task)]

    assert {tuple(row.values()) for batch in batches for row in batch.to_pylist()} == {
        (UNREADABLE, "sender-a-000001.jsonl.gz"),
        (UNREAD, "sender-b-000001.jsonl"),
    }
