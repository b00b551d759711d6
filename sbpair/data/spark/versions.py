"""The differences between Spark 4.0 and 4.3, in one place.

    4.0    tables, sinks in rows, jobs
    4.1    streaming sinks in Arrow batches
    4.2    streaming sources: Spark passes the committed offset and a limit when it plans a batch

A streaming source needs the committed offset to complete messages, and the limit for ``availableNow`` to end;
before 4.2 it is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pyspark import __version__
from pyspark.sql import datasource

HAS_STREAM_SOURCES = find_spec("pyspark.sql.streaming.datasource") is not None

if TYPE_CHECKING or HAS_STREAM_SOURCES:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        SupportsTriggerAvailableNow,
    )
else:  # so that the classes of a source can be defined, and its tables read

    class ReadLimit: ...

    class ReadAllAvailable(ReadLimit): ...

    @dataclass
    class ReadMaxRows(ReadLimit):
        max_rows: int

    @dataclass
    class ReadMaxBytes(ReadLimit):
        max_bytes: int

    class SupportsTriggerAvailableNow: ...


if TYPE_CHECKING or hasattr(datasource, "DataSourceArrowWriter"):
    from pyspark.sql.datasource import DataSourceArrowWriter as ArrowWriter
else:
    from pyspark.sql.datasource import DataSourceWriter as ArrowWriter

if TYPE_CHECKING or hasattr(datasource, "DataSourceStreamArrowWriter"):
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as ArrowStreamWriter
else:
    from pyspark.sql.datasource import DataSourceStreamWriter as ArrowStreamWriter


class VersionTooOldError(NotImplementedError):
    """The installed Spark lacks a feature that a read or write needs; the message names feature and version."""


def require_stream_sources(form: str) -> None:
    """Raise VersionTooOldError before Spark 4.2."""
    if not HAS_STREAM_SOURCES:
        raise VersionTooOldError(
            f"{form}: reading a stream needs Spark 4.2, this is {__version__}: earlier versions do not pass to a "
            "source the committed offset. Read a table (spark.read), or upgrade; writing works"
        )


__all__ = [
    "HAS_STREAM_SOURCES",
    "ArrowStreamWriter",
    "ArrowWriter",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "VersionTooOldError",
    "require_stream_sources",
]
