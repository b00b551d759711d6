"""``format("sbpair")``: the messages of queues, subscriptions, dead letters, or all backlogs of a pairing.

    spark.read.format("sbpair").option("queueName", "orders")...load()          what waits there now
    spark.readStream.format("sbpair").option("settlement", "complete")...       consumed, batch by batch

Messages are read by peeking, in ranges of sequence numbers, and no lock is held while a program works on
them. With ``settlement=complete`` what is up to the ``start`` of a batch is completed by the tasks of that
batch: Spark hands an offset out as ``start`` only when everything up to it is in the sink and committed.

The reader that plans lives in one process of the driver, its copies that read in the executors: they share
nothing, and neither opens anything before it is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from .entities import Entities, cutoff, refuse_partitions
from .message_rows import MESSAGE_COLUMNS, Row, to_row
from .ranges import UNTIL, Piece, Span, advance, allot, before_lane, numbers, path_of, pieces
from .source_options import EARLIEST, SourceOptions

Offset = dict[str, int]


class MessageDataSource(DataSource):
    """Registered by :func:`sbpair.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "sbpair"

    def schema(self) -> str:
        return MESSAGE_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return MessageReader(SourceOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return MessageStreamReader(SourceOptions.of(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .message_sink import MessageWriter

        return MessageWriter.of(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .message_sink import MessageStreamWriter

        return MessageStreamWriter.of(self.options, schema, overwrite)


@dataclass
class MessagePartition(InputPartition):
    """One task's piece."""

    piece: Piece


class _Ranges:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def _spans(self, start: Offset, until: float | None = None) -> list[Span]:
        """What there is behind ``start``, enqueued until then, or but for the safety lag until now."""
        options = self._options
        at = cutoff(options) if until is None else until
        return Entities(options).spans(options.paths, lambda lane: start.get(lane, 0), at)

    def _start(self) -> Offset:
        """The offset that stands before the first message to be read."""
        starting = self._options.starting
        if starting == EARLIEST:
            return {}
        if isinstance(starting, str):
            return advance({}, self._spans({}))
        return {lane: max(number - 1, 0) for lane, number in starting.items()}

    def _tasks(self, start: Offset, end: Offset, *, settles: bool) -> list[InputPartition]:
        planned = pieces(start, end, self._options.min_partitions, settles=settles)
        return [MessagePartition(piece) for piece in planned]

    def _rows(self, partition: InputPartition | None) -> Iterator[Row]:
        piece = getattr(partition, "piece", None)
        if not isinstance(piece, Piece):  # Spark makes one partition without a value of an empty list
            return
        options = self._options
        entities, namespace = Entities(options), options.reach.label
        for message in entities.read(piece):
            yield to_row(namespace, piece.path, message, with_body=options.include_body)
        if piece.settle_upto is not None:
            entities.settle(piece.path, piece.settle_upto, piece.settle_until)


class MessageReader(_Ranges, DataSourceReader):
    """All that is there when the partitions are planned; nothing is ever consumed."""

    def __init__(self, options: SourceOptions) -> None:
        if options.settles:
            raise ValueError("sbpair: settlement=complete is for streams: a batch is read once an action")
        super().__init__(options)

    def partitions(self) -> list[InputPartition]:
        start = self._start()
        spans = self._spans(start)
        ending = self._options.ending
        if not isinstance(ending, str):
            spans = [
                Span(each.lane, each.first, min(each.last, ending.get(each.lane, each.last)))
                for each in spans
            ]
        begin = start | {each.lane: each.first - 1 for each in spans}
        return self._tasks(begin, advance(start, spans), settles=False)

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)


class MessageStreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes; an offset is ``{entity: sequence number}``, and all up to it has been read."""

    _target: Offset | None = None
    _is_checked = False

    def initialOffset(self) -> Offset:
        return self._start()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = advance({}, self._spans({}))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch. All up to ``start`` is committed: idle entities are settled here."""
        self._check()
        options, until = self._options, cutoff(self._options)
        spans = self._reachable(self._spans(start, until))
        if options.settles:
            refuse_partitions(spans)
            self._settle_idle(start, {each.lane for each in spans})
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        spans = allot(spans, most)
        if options.max_bytes is not None:
            spans = Entities(options).within(spans, options.max_bytes)
        return advance(start, spans, int(until * 1000) if options.settles else None)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return self._tasks(start, end, settles=self._options.settles)

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)

    def commit(self, end: Offset) -> None:
        """Comes only when there is a next batch: the ``start`` of that one does what is to be done."""

    def _reachable(self, spans: list[Span]) -> list[Span]:
        """The spans up to where a run that takes what is there now will end."""
        target = self._target
        if target is None:
            return spans
        ends = [Span(each.lane, each.first, min(each.last, target.get(each.lane, 0))) for each in spans]
        return [each for each in ends if each.first <= each.last]

    def _settle_idle(self, start: Offset, moving: set[str]) -> None:
        for lane, upto in sorted(numbers(start).items()):
            if lane not in moving and upto > before_lane(lane):
                Entities(self._options).settle(path_of(lane), upto, start.get(lane + UNTIL))

    def _check(self) -> None:
        if self._options.settles and not self._is_checked and not self._options.may_be_missing:
            for path in self._options.paths:
                Entities(self._options).check_settleable(path)
        self._is_checked = True
