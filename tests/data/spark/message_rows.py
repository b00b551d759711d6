"""The rows that readers of messages yield, without Spark."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from sbpair.data.spark.message_rows import TYPES

TEXT = StringType()
KINDS: dict[str, DataType] = {
    "string": TEXT,
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "binary": BinaryType(),
    "map<string,string>": MapType(TEXT, TEXT),
    "map<string,struct<type:string,value:string>>": MapType(
        TEXT, StructType().add("type", TEXT).add("value", TEXT)
    ),
}


def schema(*names: str) -> StructType:
    """The columns of these names; all without names."""
    made = StructType()
    for name in names or TYPES:
        made.add(name, KINDS[TYPES[name]])
    return made


def rows(batches: Iterable[pa.RecordBatch]) -> list[dict[str, object]]:
    return [row for batch in batches for row in batch.to_pylist(maps_as_pydicts="strict")]
