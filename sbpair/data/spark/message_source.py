"""``format("sbpair")``: the messages of queues, subscriptions, dead letters, or all backlogs of a pairing.

    spark.read.format("sbpair").option("queueName", "orders")...load()          the messages that wait now
    spark.readStream.format("sbpair").option("settlement", "complete")...       consumed batch by batch

``.schema("message_id string, body binary")`` before ``.load()`` decodes only what these columns need.

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
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from time import sleep
from types import MappingProxyType
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from sbpair.pair.envelope.names import namespace_label

from . import worker
from .checkpoint import Offset, check_origin, positions_in, with_origin
from .entities import Entities, cutoff
from .message_columns import batch_of
from .message_rows import MESSAGE_COLUMNS, TYPES
from .outage import BATCH_PATIENCE, OutageState, limit_or
from .packaged import PackagedDataSource
from .polling import Gathering, Polling
from .pushed_filters import Bounds, are_offered, bounds_of
from .ranges import PEEKED, UNTIL, Mark, Piece, Span, advance, allot, marks, numbers, path_of, pieces
from .source_errors import NoAnswerError, SourceError
from .source_options import EARLIEST, SourceOptions
from .versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    require_stream_sources,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.datasource import Filter

POLL = 1.0  # seconds that latestOffset blocks at most before it polls
STREAM_LAG = 1.0  # default safety lag of a stream in seconds
ENDING = 5.0  # seconds that the process of a stopped query may take to end
OUTAGE = "@outage"  # key beside the offset in the progress of a query
TWICE = (
    "sbpair: {what} is consumed by this Spark already, by another query or another branch of this one: each would "
    "complete what only the other has read. Read it once, and branch in foreachBatch"
)

logger = logging.getLogger("sbpair.spark")


class MessageDataSource(PackagedDataSource):
    """Registered by :func:`sbpair.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "sbpair"

    def schema(self) -> str:
        return MESSAGE_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        kind = FilteredMessageReader if are_offered() else MessageReader
        return kind(SourceOptions.of(self.options), _check_schema(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        require_stream_sources(self.name())
        return MessageStreamReader(SourceOptions.of(self.options), _check_schema(schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from .message_sink import MessageWriter

        return MessageWriter.of(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from .message_sink import MessageStreamWriter

        return MessageStreamWriter.of(self.options, schema, overwrite)


def _check_schema(schema: StructType) -> StructType:
    """Validate the argument of ``.schema(...)``. Raises ValueError for unknown columns and wrong types."""
    for field in schema:
        kind = TYPES.get(field.name)
        if kind is None:
            raise ValueError(
                f"sbpair: a message has no column {field.name!r}; the columns are {', '.join(TYPES)}"
            )
        if field.dataType.simpleString() != kind:
            raise ValueError(f"sbpair: the column {field.name!r} is of type {kind}")
    return schema


@dataclass
class MessagePartition(InputPartition):
    """The piece that one task reads, and the namespace it belongs to; None for a batch read, which allows any."""

    piece: Piece
    origin: str | None = None


class _Ranges:
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    _patience = 0.0  # the default of the option outageTimeout, in seconds
    _lag: float | None = None  # the default of the option safetyLagMs, in seconds

    def _cutoff(self) -> float:
        given = self._options.safety_lag
        return cutoff(self._lag if given is None else given)

    def _entities(self, origin: str | None = None) -> Entities:
        return Entities(self._options, origin, limit_or(self._options.outage_timeout, self._patience))

    def _start(self, entities: Entities) -> dict[str, int]:
        """The offset before the first message to read."""
        starting = self._options.starting
        if isinstance(starting, datetime):
            return self._before(entities, _millis(starting), self._options.paths)
        if starting == EARLIEST:
            return {}
        if isinstance(starting, str):
            return advance({}, entities.spans(self._options.paths, {}, self._cutoff()))
        return {lane: max(number - 1, 0) for lane, number in starting.items()}

    def _before(self, entities: Entities, millis: int, paths: tuple[str, ...]) -> dict[str, int]:
        """The offset before the first message that was enqueued at ``millis`` since the epoch, or later."""
        return advance({}, entities.spans(paths, {}, (millis - 0.5) / 1000))

    def _tasks(
        self, start: Mapping[str, int], end: Mapping[str, int], origin: str | None = None
    ) -> list[InputPartition]:
        options = self._options
        planned = pieces(start, end, options.min_partitions, settles=options.settles)
        return [MessagePartition(piece, origin) for piece in planned]

    def _rows(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, MessagePartition):  # for an empty list Spark passes a single None
            return
        from pyspark.sql.pandas.types import to_arrow_schema

        options, piece, entities = self._options, partition.piece, self._entities(partition.origin)
        namespace = namespace_label(partition.origin or options.namespace.origin)
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for messages in entities.read(piece):
            yield batch_of(namespace, piece.path, messages, schema, with_body=options.include_body)
        if piece.marks:
            entities.settle(piece.path, piece.marks)


class MessageReader(_Ranges, DataSourceReader):
    """The batch reader: the messages present when the partitions are planned. It consumes nothing."""

    _patience = BATCH_PATIENCE
    _bounds = Bounds()

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.settles:
            raise ValueError("sbpair: settlement=complete is for streams only; use readStream")
        super().__init__(options, schema)

    def partitions(self) -> list[InputPartition]:
        entities, bounds, ending = self._entities(), self._bounds, self._options.ending
        paths = bounds.paths(self._options.paths)
        start = self._start(entities)
        if bounds.since:
            since = self._before(entities, bounds.since, paths)
            start = {lane: max(start.get(lane, 0), since.get(lane, 0)) for lane in start | since}
        cutoff = self._cutoff()
        if isinstance(ending, datetime):
            cutoff = min(cutoff, (_millis(ending) - 0.5) / 1000)
        if bounds.until is not None:
            cutoff = min(cutoff, bounds.until / 1000)
        spans = entities.spans(paths, start, cutoff)
        if isinstance(ending, Mapping):
            spans = [replace(each, last=min(each.last, ending.get(each.lane, each.last))) for each in spans]
        spans = bounds.clip(spans)
        begin = start | {each.lane: each.first - 1 for each in spans}
        return self._tasks(begin, advance(begin, spans))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)


class FilteredMessageReader(MessageReader):
    """Reads no messages that the filters of a query leave out by number, queue or enqueued time."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Note the bounds that ``filters`` set; Spark still applies all of them to the rows."""
        self._bounds = bounds_of(filters)
        return filters


def _millis(at: datetime) -> int:
    return round(at.timestamp() * 1000)


class MessageStreamReader(_Ranges, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. An offset is ``{lane: sequence number}``: each lane was read up to that number.

    Offsets name their namespace (:mod:`.checkpoint`): on any other the query fails before it completes anything.
    """

    _patience = math.inf
    _lag = STREAM_LAG
    _target: dict[str, int] | None = None
    _is_checked = False
    _hints: Mapping[str, int] = MappingProxyType({})
    """The last message of each lane at the last poll, where the search for more begins."""

    _latest: Offset | None = None
    """The last message of each entity when the broker was last asked."""

    _problem: NoAnswerError | None = None
    """The last failure of the current outage; None while the namespace responds."""

    _since = ""
    _planned: tuple[Offset, Offset] | None = None
    """The batch that was planned last, from and to these offsets."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._outage = OutageState(limit_or(options.outage_timeout, self._patience))
        self._polling = Polling(options.min_poll_interval, options.max_poll_interval)
        self._gathering = Gathering(options.min_messages, options.max_trigger_delay)
        self._found = 0  # numbers after the last batch, at the last poll
        self._settled: dict[str, tuple[Mark, ...]] = {}
        """The marks up to which nothing remains to be completed, by entity."""

    def initialOffset(self) -> Offset:
        origin = self._options.namespace.origin
        return with_origin(self._start(self._entities(origin)), origin)

    def prepareForTriggerAvailableNow(self) -> None:
        entities = self._entities(self._options.namespace.origin)
        self._target = self._hints = advance({}, entities.spans(self._options.paths, {}, self._cutoff()))

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        """The end of the next batch; ``start``, meaning no new data, during an outage and between two polls.

        A run with availableNow would end then, so it blocks instead. Raises NoAnswerError when the outage exceeds
        ``outageTimeout``, ForeignCheckpointError for another namespace's offset, and SourceError.
        """
        origin = self._origin_of(start)
        if self._target is not None:
            return self._next(start, limit, self._entities(origin), origin)
        now = time.monotonic()
        left = max(self._outage.wait(now), min(self._polling.wait(now), self._gathering.wait(now)))
        sleep(min(left, POLL))
        if left > POLL:
            return start
        try:
            end = self._next(start, limit, Entities(self._options, origin), origin)
        except NoAnswerError as problem:
            self._record_outage(problem)
            return start
        self._outage.answered()
        self._problem = None
        now = time.monotonic()
        if end != start and not self._gathering.is_enough(now, self._found):
            self._polling.polled(now, has_found=True, has_more=False)
            return start
        latest = numbers(positions_in(self._latest or end))
        self._polling.polled(
            time.monotonic(), has_found=end != start, has_more=numbers(positions_in(end)) != latest
        )
        return end

    def reportLatestOffset(self) -> Offset | None:
        """The last message of each entity at the last poll, for the query's progress.

        Its distance from the end offset of the batch is the lag. During an outage also the outage's start time and
        reason.
        """
        if self._problem is None:
            return self._latest
        return {**(self._latest or {}), OUTAGE: f"since {self._since}: {self._problem}"}

    def _record_outage(self, problem: NoAnswerError) -> None:
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
        options, until, positions = self._options, self._cutoff(), positions_in(start)
        self._check(entities)
        spans = entities.spans(options.paths, positions, until, self._hints)
        self._found = sum(each.last - each.first + 1 for each in spans)
        self._hints = numbers(advance(positions, spans))
        self._latest = with_origin(self._hints, origin)
        spans = self._reachable(spans)
        if options.settles:
            self._settle_idle(entities, positions, {path_of(each.lane) for each in spans})
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        spans = allot(spans, most)
        if options.max_bytes is not None:
            spans = entities.within(spans, options.max_bytes)
        end = advance(positions, spans, int(until * 1000), UNTIL if options.settles else PEEKED)
        return with_origin(end, origin)

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Plan a batch. Raises SourceError with ``settles`` when a second branch of the query reads the same one."""
        if self._options.settles:
            if (start, end) == self._planned:  # Spark plans a batch once for each place that reads the stream
                raise SourceError(TWICE.format(what=", ".join(self._options.paths)))
            self._planned = (start, end)
        return self._tasks(positions_in(start), positions_in(end), self._origin_of(start, end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: Spark calls this only when it plans the next batch, whose tasks settle up to its ``start``."""

    def _origin_of(self, *offsets: Offset) -> str:
        """The namespace of the query. Raises ForeignCheckpointError when an offset belongs to another."""
        origin = self._options.namespace.origin
        for each in offsets:
            check_origin(each, origin, settles=self._options.settles)
        return origin

    def _reachable(self, spans: list[Span]) -> list[Span]:
        """The spans, cut at the target of a run with availableNow."""
        target = self._target
        if target is None:
            return spans
        ends = [replace(each, last=min(each.last, target.get(each.lane, 0))) for each in spans]
        return [each for each in ends if each.first <= each.last]

    def _settle_idle(self, entities: Entities, start: Mapping[str, int], moving: set[str]) -> None:
        for path, due in marks(start).items():
            if (
                path not in moving
                and self._settled.get(path) != due
                and not entities.settle(path, due).remain
            ):
                self._settled[path] = due

    def _check(self, entities: Entities) -> None:
        options = self._options
        if options.settles and not self._is_checked:
            for path in options.paths:
                if not worker.consumes_alone(f"{options.namespace.origin} {path.lower()}", ENDING):
                    raise SourceError(TWICE.format(what=path))
                if not options.may_be_missing:
                    entities.check_settleable(path)
        self._is_checked = True
