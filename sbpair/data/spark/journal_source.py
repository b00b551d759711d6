"""``format("sbpair-journal")``: the journals of senders, syphons, receivers and brokers as rows.

    spark.read.format("sbpair-journal").load(DIR)                              the current content
    spark.read.format("sbpair-journal").schema("event string").load(DIR)       selected columns, which is faster
    spark.readStream.format("sbpair-journal").load(DIR)                        and appended lines

Spark's own file source reads each file once and misses lines that are appended later; this source tracks byte
offsets. Lines become Arrow batches without passing through Python objects.

Subfolders and ``.jsonl.gz`` files are read too. A batch read has a row for each file that may be a journal but is
not read.

Options: ``path`` (a directory, or the URI of a file system that Arrow knows), ``partitionBytes`` (bytes per task,
approximate; 32 MiB by default), ``maxBytesPerTrigger`` (streams only; unlimited by default).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.types import StructType

from sbpair.data.audit.columns import JOURNAL_COLUMNS, TYPES
from sbpair.data.audit.read.journal_files import (
    FileRange,
    LineEnds,
    Reached,
    admit,
    nothing,
    pack,
    ranges,
    whole_lines,
)
from sbpair.data.audit.read.journal_listing import Unread, list_files
from sbpair.data.audit.read.object_storage import is_uri, resolve, without_secret

from .format_options import FormatOptions
from .journal_positions import Offset, Positions
from .packaged import PackagedDataSource
from .polling import Polling
from .versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
    require_stream_sources,
)

if TYPE_CHECKING:
    import pyarrow as pa

PARTITION_BYTES = 32 * 1024 * 1024
MIN_BYTES, MAX_BYTES = 1024, 2**40
FORM = "sbpair-journal"
POLL = 1.0  # seconds between two checks for new lines while there are none
KNOWN = ("path", "partitionBytes", "maxBytesPerTrigger")


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """The validated options."""

    directory: str
    partition_bytes: int
    max_bytes_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> JournalOptions:
        """Parse the options. Raises ValueError that names an invalid one."""
        given = FormatOptions(FORM, options, KNOWN)
        directory = given.text("path")
        if directory is None:
            raise given.wrong('the directory is missing: give it to .load("DIR")')
        directory = directory.removeprefix("file://")
        if is_uri(directory):
            _check_uri(given, directory)
        elif not os.path.isdir(directory):
            raise given.wrong(f"{directory} is not a directory")
        return cls(
            directory,
            given.whole("partitionBytes", PARTITION_BYTES, MIN_BYTES, MAX_BYTES),
            given.whole("maxBytesPerTrigger", 0, MIN_BYTES, MAX_BYTES) or None,
        )


def _check_uri(given: FormatOptions, uri: str) -> None:
    """Raise ValueError with the next step if Arrow cannot open ``uri``."""
    try:
        resolve(uri)
    except (ValueError, OSError, NotImplementedError) as error:
        why = " ".join(str(error).replace(uri, "it").split())
        raise given.wrong(
            f"{without_secret(uri)} cannot be opened: {why}. Arrow opens s3, gs, abfss and hdfs URIs, with its own "
            "credentials; mount any other storage on all executors, and give the directory"
        ) from None


def _check_schema(schema: StructType) -> StructType:
    """Validate the argument of ``.schema(...)``. Raises ValueError for unknown columns and wrong types."""
    for field in schema:
        kind = TYPES.get(field.name)
        if kind is None:
            raise ValueError(f"sbpair-journal: a journal has no column {field.name!r}")
        if field.dataType.simpleString() != kind.replace(", ", ",").replace(": ", ":"):
            raise ValueError(f"sbpair-journal: the column {field.name!r} is of type {kind}")
    return schema


class JournalDataSource(PackagedDataSource):
    """Registered by :func:`sbpair.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "sbpair-journal"

    def schema(self) -> str:
        return JOURNAL_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return JournalReader(JournalOptions.of(self.options), _check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        require_stream_sources(FORM)
        return JournalStreamReader(JournalOptions.of(self.options), _check_schema(schema))


@dataclass
class JournalPartition(InputPartition):
    """The file ranges that one task reads."""

    pieces: tuple[FileRange, ...]


@dataclass
class UnreadPartition(InputPartition):
    """The files that are reported instead of read."""

    files: tuple[Unread, ...]


class _Pieces:
    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def _cut(self, reached: Reached, end: Mapping[str, int]) -> list[InputPartition]:
        directory, most = self._options.directory, self._options.partition_bytes
        return [JournalPartition(tuple(each)) for each in pack(ranges(directory, reached, end, most), most)]

    def _rows(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        from pyspark.sql.pandas.types import to_arrow_schema

        from sbpair.data.audit.read.journal_lines import batches, unread_rows

        schema = to_arrow_schema(self._schema, timezone="UTC")
        if isinstance(partition, UnreadPartition):
            yield unread_rows(partition.files, schema)
        for piece in getattr(partition, "pieces", ()):  # for an empty list Spark passes a single None
            yield from batches(piece, schema)


class JournalReader(_Pieces, DataSourceReader):
    """The batch reader: the content of the journals when the partitions are planned."""

    def partitions(self) -> list[InputPartition]:
        directory = self._options.directory
        available = whole_lines(directory)
        empty = (Unread(name, "it has no complete line") for name, end in available.items() if not end)
        unread = (*list_files(directory).unread, *empty)
        tasks = self._cut(nothing, available)
        return [*tasks, UnreadPartition(unread)] if unread else tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)


class JournalStreamReader(_Pieces, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Its offsets are those of :class:`Positions`: each file was read up to a byte."""

    _target: dict[str, int] | None = None

    def __init__(self, options: JournalOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._ends = LineEnds(options.directory)
        self._polling = Polling(POLL, POLL)
        self._last: tuple[Offset, Positions] = ({}, Positions({}, {}))

    def initialOffset(self) -> Offset:
        return {}

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends.poll()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch; ``start`` when there is nothing new.

        Without ``availableNow`` it waits up to POLL seconds for its turn to list the directory.
        """
        available = self._target
        if available is None:
            sleep(self._polling.wait(time.monotonic()))
            available = self._ends.poll()
        most = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        positions = self._positions(start)
        ends = admit(self._options.directory, positions.position_in, available, most)
        self._polling.polled(time.monotonic(), has_found=bool(ends), has_more=bool(ends))
        if not ends:
            return start
        after = positions.advance(ends)
        self._last = after.offset(), after
        return self._last[0]

    def _positions(self, offset: Offset) -> Positions:
        return self._last[1] if offset == self._last[0] else Positions.of(offset)

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_bytes_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxBytes(most)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return self._cut(self._positions(start).position_in, self._positions(end).named)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: journals are not consumed."""
