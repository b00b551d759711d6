"""``format("sbpair-journal")``: the journals of senders, syphons and receivers as rows.

    spark.read.format("sbpair-journal").load(DIR)                    what is there now
    spark.read.format("sbpair-journal").schema("event string").load(DIR)       of that, some columns: faster
    spark.readStream.format("sbpair-journal").load(DIR)              and what is appended

Spark's own file source takes a file for finished when it has seen it, and lines appended later are lost
to it. This one remembers byte offsets. Lines become Arrow batches without passing through Python objects.

Folders and ``.jsonl.gz`` are read too. What may be a journal and is not read is a row that says so.

Options: ``path`` (the directory), ``partitionBytes`` (about how much one task reads; 32 MiB),
``maxBytesPerTrigger`` (of a stream; none).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .format_options import FormatOptions
from .journal_files import FileRange, Unread, admit, listed, packed, ranges, whole_lines
from .schema import JOURNAL_COLUMNS, TYPES

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_BYTES = 32 * 1024 * 1024
LEAST_BYTES, MOST_BYTES = 1024, 2**40
FORM = "sbpair-journal"
KNOWN = ("path", "partitionBytes", "maxBytesPerTrigger")


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """What was given with the format."""

    directory: str
    partition_bytes: int
    max_bytes_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> JournalOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = FormatOptions(FORM, options, KNOWN)
        directory = given.text("path")
        if directory is None:
            raise given.wrong('the directory is missing: .load("DIR")')
        directory = directory.removeprefix("file://")
        if not os.path.isdir(directory):
            raise given.wrong(f"{directory} is not a directory")
        return cls(
            directory,
            given.whole("partitionBytes", PARTITION_BYTES, LEAST_BYTES, MOST_BYTES),
            given.whole("maxBytesPerTrigger", 0, LEAST_BYTES, MOST_BYTES) or None,
        )


def _known(schema: StructType) -> StructType:
    """What is asked for with ``.schema(...)``. Raises ValueError for a column that is no journal's."""
    for field in schema:
        kind = TYPES.get(field.name)
        if kind is None:
            raise ValueError(f"sbpair-journal: a journal has no column {field.name!r}")
        if field.dataType.simpleString() != kind.replace(", ", ",").replace(": ", ":"):
            raise ValueError(f"sbpair-journal: the column {field.name!r} is {kind}")
    return schema


class JournalDataSource(DataSource):
    """Registered by :func:`sbpair.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "sbpair-journal"

    def schema(self) -> str:
        return JOURNAL_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return JournalReader(JournalOptions.of(self.options), _known(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return JournalStreamReader(JournalOptions.of(self.options), _known(schema))


@dataclass
class JournalPartition(InputPartition):
    """One task's pieces."""

    pieces: tuple[FileRange, ...]


@dataclass
class UnreadPartition(InputPartition):
    """What is told instead of being read."""

    files: tuple[Unread, ...]


class _Pieces:
    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def _cut(self, start: Mapping[str, int], end: Mapping[str, int]) -> list[InputPartition]:
        directory, most = self._options.directory, self._options.partition_bytes
        return [JournalPartition(tuple(each)) for each in packed(ranges(directory, start, end, most), most)]

    def _rows(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        from .journal_lines import batches, told  # late: on the executors only

        if isinstance(partition, UnreadPartition):
            yield told(partition.files, self._schema)
        for piece in getattr(partition, "pieces", ()):  # Spark makes one partition of an empty list
            yield from batches(piece, self._schema)


class JournalReader(_Pieces, DataSourceReader):
    """All that is there when the partitions are planned."""

    def partitions(self) -> list[InputPartition]:
        directory = self._options.directory
        there = whole_lines(directory)
        empty = (Unread(name, "it has no whole line") for name, end in there.items() if not end)
        unread = (*listed(directory).unread, *empty)
        tasks = self._cut({}, there)
        return [*tasks, UnreadPartition(unread)] if unread else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)


class JournalStreamReader(_Pieces, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes; an offset is ``{file name: byte}``, and everything below it has been read."""

    _target: dict[str, int] | None = None

    def initialOffset(self) -> dict[str, int]:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = whole_lines(self._options.directory)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        there = whole_lines(self._options.directory) if self._target is None else self._target
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        return admit(self._options.directory, start, there, most)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        return self._cut(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: a journal is not consumed."""
