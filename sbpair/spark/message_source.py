"""``format("sbpair")``: the messages of queues, subscriptions, dead letters, or all backlogs of a pairing.

    spark.read.format("sbpair").option("queueName", "orders")...load()          the messages that wait now
    spark.readStream.format("sbpair").option("settlement", "complete")...       consumed batch by batch

Messages are read by peeking, in ranges of sequence numbers; no lock is held while a program processes them. With
``settlement=complete`` the tasks of a batch complete the messages up to the ``start`` of the batch: Spark passes an
offset as ``start`` only when everything up to it is in the sink and committed.

The reader that plans runs in a process of the driver, pickled copies of it in the executors. They share no state
and connect on first use.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from time import sleep

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

from sbpair.envelope.names import namespace_label

from .checkpoint import Offset, check_origin, positions_in, with_origin
from .entities import Entities, NoAnswer, cutoff, refuse_partitions
from .message_rows import MESSAGE_COLUMNS, Row, to_row
from .outage import BATCH_PATIENCE, Outage
from .ranges import UNTIL, Piece, Span, advance, allot, before_lane, numbers, path_of, pieces
from .source_options import EARLIEST, SourceOptions

POLL = 1.0  # seconds that latestOffset blocks at most during an outage
OUTAGE = "@outage"  # key beside the offset in the progress of a query

logger = logging.getLogger("sbpair.spark")


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
    """The piece that one task reads, and the namespace it belongs to; None for a batch read, which allows any."""

    piece: Piece
    origin: str | None = None


class _Ranges:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    _patience = 0.0  # the default of the option outageTimeout, in seconds

    def _entities(self, origin: str | None = None) -> Entities:
        return Entities(self._options, origin, self._options.patience(self._patience))

    def _start(self, entities: Entities) -> dict[str, int]:
        """The offset before the first message to read."""
        starting = self._options.starting
        if starting == EARLIEST:
            return {}
        if isinstance(starting, str):
            return advance({}, entities.spans(self._options.paths, {}, cutoff(self._options)))
        return {lane: max(number - 1, 0) for lane, number in starting.items()}

    def _tasks(
        self, start: Mapping[str, int], end: Mapping[str, int], origin: str | None = None
    ) -> list[InputPartition]:
        options = self._options
        planned = pieces(start, end, options.min_partitions, settles=options.settles)
        return [MessagePartition(piece, origin) for piece in planned]

    def _rows(self, partition: InputPartition | None) -> Iterator[Row]:
        if not isinstance(partition, MessagePartition):  # for an empty list Spark passes a single None
            return
        options, piece, entities = self._options, partition.piece, self._entities(partition.origin)
        namespace = namespace_label(partition.origin or options.namespace.origin)
        for message in entities.read(piece):
            yield to_row(namespace, piece.path, message, with_body=options.include_body)
        if piece.settle_upto is not None:
            entities.settle(piece.path, piece.settle_upto, piece.settle_until)


class MessageReader(_Ranges, DataSourceReader):
    """The batch reader: the messages present when the partitions are planned. It consumes nothing."""

    _patience = BATCH_PATIENCE

    def __init__(self, options: SourceOptions) -> None:
        if options.settles:
            raise ValueError("sbpair: settlement=complete is for streams only; use readStream")
        super().__init__(options)

    def partitions(self) -> list[InputPartition]:
        entities = self._entities()
        start = self._start(entities)
        spans = entities.spans(self._options.paths, start, cutoff(self._options))
        ending = self._options.ending
        if not isinstance(ending, str):
            spans = [
                Span(each.lane, each.first, min(each.last, ending.get(each.lane, each.last)))
                for each in spans
            ]
        begin = start | {each.lane: each.first - 1 for each in spans}
        return self._tasks(begin, advance(start, spans))

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)


class MessageStreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. An offset is ``{lane: sequence number}``: each lane was read up to that number.

    Offsets name their namespace (:mod:`.checkpoint`): on any other the query fails before it completes anything.
    """

    _patience = math.inf
    _target: dict[str, int] | None = None
    _is_checked = False
    _end: Offset | None = None
    _problem: NoAnswer | None = None
    """The last failure of the current outage; None while the namespace responds."""

    _since = ""

    def __init__(self, options: SourceOptions) -> None:
        super().__init__(options)
        self._outage = Outage(options.patience(self._patience))

    def initialOffset(self) -> Offset:
        origin = self._options.namespace.origin
        return with_origin(self._start(self._entities(origin)), origin)

    def prepareForTriggerAvailableNow(self) -> None:
        entities = self._entities(self._options.namespace.origin)
        self._target = advance({}, entities.spans(self._options.paths, {}, cutoff(self._options)))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch; ``start``, meaning no new data, during an outage.

        A run with availableNow would end then, so it blocks instead. Raises NoAnswer when the outage exceeds
        ``outageTimeout``, ForeignCheckpoint for another namespace's offset, and SourceError.
        """
        origin = self._origin_of(start)
        if self._target is not None:
            self._end = self._next(start, limit, self._entities(origin), origin)
            return self._end
        left = self._outage.wait(time.monotonic())
        sleep(min(left, POLL))
        if left > POLL:
            return start
        try:
            self._end = self._next(start, limit, Entities(self._options, origin), origin)
        except NoAnswer as problem:
            self._record_outage(problem)
            return start
        self._outage.answered()
        self._problem = None
        return self._end

    def reportLatestOffset(self) -> Offset | None:
        """The offset in the query's progress; during an outage with its start time and reason."""
        if self._problem is None:
            return self._end
        return {**(self._end or {}), OUTAGE: f"since {self._since}: {self._problem}"}

    def _record_outage(self, problem: NoAnswer) -> None:
        is_new = self._outage.began is None
        if self._outage.failed(time.monotonic(), problem.pause) is None:
            raise problem
        self._problem = problem
        if is_new:
            self._since = datetime.now(UTC).isoformat(timespec="seconds")
            logger.warning("%s; the query waits", problem)

    def _next(self, start: Offset, limit: ReadLimit, entities: Entities, origin: str) -> Offset:
        """The end of the next batch.

        Everything up to ``start`` is committed, so entities without a task in this batch are settled here.
        """
        options, until, positions = self._options, cutoff(self._options), positions_in(start)
        self._check(entities)
        spans = self._reachable(entities.spans(options.paths, positions, until))
        if options.settles:
            refuse_partitions(spans)
            self._settle_idle(entities, positions, {each.lane for each in spans})
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        spans = allot(spans, most)
        if options.max_bytes is not None:
            spans = entities.within(spans, options.max_bytes)
        end = advance(positions, spans, int(until * 1000) if options.settles else None)
        return with_origin(end, origin)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        return self._tasks(positions_in(start), positions_in(end), self._origin_of(start, end))

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark calls this only when it plans the next batch, whose tasks settle up to its ``start``."""

    def _origin_of(self, *offsets: Offset) -> str:
        """The namespace of the query. Raises ForeignCheckpoint when an offset belongs to another."""
        origin = self._options.namespace.origin
        for each in offsets:
            check_origin(each, origin, settles=self._options.settles)
        return origin

    def _reachable(self, spans: list[Span]) -> list[Span]:
        """The spans, cut at the target of a run with availableNow."""
        target = self._target
        if target is None:
            return spans
        ends = [Span(each.lane, each.first, min(each.last, target.get(each.lane, 0))) for each in spans]
        return [each for each in ends if each.first <= each.last]

    def _settle_idle(self, entities: Entities, start: Mapping[str, int], moving: set[str]) -> None:
        for lane, upto in sorted(numbers(start).items()):
            if lane not in moving and upto > before_lane(lane):
                entities.settle(path_of(lane), upto, start.get(lane + UNTIL))

    def _check(self, entities: Entities) -> None:
        if self._options.settles and not self._is_checked and not self._options.may_be_missing:
            for path in self._options.paths:
                entities.check_settleable(path)
        self._is_checked = True
