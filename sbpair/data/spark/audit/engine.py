"""The work of an audit on Spark's executors.

A packet is a row: its part, and its bytes. Rows are therefore few and large, and Spark only moves them: Arrow and numpy
read and write their content in the Python workers. Results are rows of the part :data:`ANSWER`, pickled.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic

import pyarrow as pa

from sbpair.data.audit.engine import Packet, Packets, Task, TaskResult, Work, WorkOnPart

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ANSWER = -1
ROW = "part int, content binary"
_ROW = pa.schema([("part", pa.int32()), ("content", pa.binary())])


class SparkEngine:
    """An engine for ``sbpair.audit.audit``.

    ``spark`` is any session, of Spark Connect too; executors need sbpair and pyarrow, and must see the journals and
    the output directory under the same paths.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def scatter(self, tasks: Sequence[Task], work: Work[Task], parts: int) -> Packets:
        numbers = self._spark.range(0, len(tasks), 1, max(1, len(tasks)))
        rows = numbers.mapInArrow(_OnTasks(list(tasks), work), ROW)
        return SparkPackets(rows, parts)


class SparkPackets:
    """Rows that are computed once, by the first use, and kept until ``close``."""

    def __init__(self, rows: DataFrame, parts: int) -> None:
        self._rows = rows.persist()
        self._parts = parts

    def answers(self) -> Iterator[Any]:
        for row in self._rows.where(f"part = {ANSWER}").select("content").collect():
            yield pickle.loads(row.content)  # noqa: S301  (pickled by our own executors)

    def regroup(self, work: WorkOnPart) -> Packets:
        packets = self._rows.where(f"part <> {ANSWER}").repartition(self._parts, "part")
        return SparkPackets(packets.mapInArrow(_OnParts(work), ROW), self._parts)

    def close(self) -> None:
        self._rows.unpersist()


@dataclass(frozen=True)
class _OnTasks(Generic[Task]):
    """Does the work on the tasks whose numbers arrive as rows."""

    tasks: list[Task]
    work: Work[Task]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from map(_row, self.work(self.tasks[number]))


@dataclass(frozen=True)
class _OnParts:
    """Does the work on the parts whose packets arrive as rows; a Spark partition contains whole parts."""

    work: WorkOnPart

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        parts: dict[int, list[bytes]] = {}
        for batch in batches:
            for part, content in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                parts.setdefault(part, []).append(content)
        while parts:
            part, packets = parts.popitem()
            yield from map(_row, self.work(part, iter(packets)))


def _row(found: TaskResult | Packet) -> pa.RecordBatch:
    if isinstance(found, Packet):
        part, content = found.part, found.content
    else:
        part, content = ANSWER, pickle.dumps(found.content)
    return pa.record_batch([pa.array([part], pa.int32()), pa.array([content], pa.binary())], schema=_ROW)
