"""``format("sbpair-syphon")``: the syphon as a Spark job, one task per backlog queue.

    spark.read.format("sbpair-syphon").option("primaryNamespaceName", "contoso")...load().show()

A task drains its backlog queue with the code of the daemon: receive, send, await the outcome, complete. Safety does not
depend on Spark: a task that is killed, runs twice, or runs beside a daemon is just another syphon. Each row reports one
drain. With the option ``journal``, a task records each message before it completes the message. With
``ordering=session``, a task also drains the ordered backlog queue of the same number; the order of a session is kept
for any number of syphons, since each sends one of its messages at a time.

    spark.readStream.format("sbpair-syphon")....trigger(processingTime="1 minute")      drains at each trigger

A stream's offset is the number of a tick, unrelated to messages: a tick that runs again drains again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Literal

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from sbpair.pair.client.errors import NamespaceUnusableError
from sbpair.pair.observation.record import WriterRole
from sbpair.pair.syphon.events import BacklogDetached, DestinationHeld, SyphonDisconnected, SyphonEvent
from sbpair.pair.syphon.options import LAND, SyphonOptions

from . import worker
from .format_options import PAIR, WIRE, FormatOptions, PairReference, pair_reference
from .packaged import PackagedDataSource
from .versions import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow, require_stream_sources
from .worker import directory_of, open_journal

if TYPE_CHECKING:
    from sbpair.pair.syphon.daemon import Syphon

WINDOW = 500  # messages in flight of one task: the tasks of an executor share its memory
STOPPING = 30.0  # extra seconds to finish the messages in flight after maxDurationSeconds
COUNTERS = (
    "received",
    "forwarded",
    "landed",
    "completed",
    "dead_lettered",
    "released",
    "lock_lost",
    "receives",
)
BEFORE_COUNTERS = (
    ("backlog", "string", "full name of the backlog queue"),
    ("is_empty", "boolean", "whether it was found empty"),
)
AFTER_COUNTERS = (
    ("seconds", "double", "duration of the drain"),
    ("trouble", "string", "why it was not found empty; null if it was"),
)
"""The columns beside the counters: name, Spark type, description."""
DRAIN_COLUMNS = ", ".join(
    f"{name} {kind}"
    for name, kind, _ in (*BEFORE_COUNTERS, *((name, "bigint", "") for name in COUNTERS), *AFTER_COUNTERS)
)
Row = tuple[object, ...]
Tick = dict[str, int]
TICK = "tick"
FORM = "sbpair-syphon"
KNOWN = (
    *PAIR,
    "allowedDestinations",
    "maxDurationSeconds",
    "emptyWaitSeconds",
    "receiversPerBacklog",
    "window",
    "ordering",
    "land",
    "landAfterSeconds",
    "journal",
    *WIRE,
)


class SyphonDataSource(PackagedDataSource):
    """Registered by :func:`sbpair.spark.register`."""

    @classmethod
    def name(cls) -> str:
        return "sbpair-syphon"

    def schema(self) -> str:
        return DRAIN_COLUMNS

    def reader(self, schema: StructType) -> DataSourceReader:
        return DrainReader(DrainOptions.of(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        require_stream_sources(FORM)
        return DrainStreamReader(DrainOptions.of(self.options))


@dataclass
class BacklogPartition(InputPartition):
    """The backlog queue that one task drains."""

    number: int


class _Drains:
    def __init__(self, options: DrainOptions) -> None:
        self._options = options

    def _tasks(self) -> list[InputPartition]:
        options = self._options
        numbers = range(options.pair.backlog_queue_count)
        return [BacklogPartition(number) for _ in range(options.receivers) for number in numbers]

    def _rows(self, partition: InputPartition) -> Iterator[Row]:
        number = getattr(partition, "number", None)
        if isinstance(number, int):
            most = self._options.max_duration + STOPPING
            yield worker.call(drain(self._options, number), most)


class DrainReader(_Drains, DataSourceReader):
    """The batch reader. Each action on the DataFrame drains again; an empty backlog costs a receive and a peek."""

    def partitions(self) -> list[InputPartition]:
        return self._tasks()

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)


class DrainStreamReader(_Drains, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader. Each trigger is a tick, and each tick a drain; ``availableNow`` is one tick."""

    _last: int | None = None  # the last tick of a run with availableNow; -1 before it is known

    def initialOffset(self) -> Tick:
        return {TICK: 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = -1

    def latestOffset(self, start: Tick, limit: ReadLimit) -> Tick:
        if self._last is None:
            return {TICK: start[TICK] + 1}
        if self._last < 0:
            self._last = start[TICK] + 1
        return {TICK: self._last}

    def partitions(self, start: Tick, end: Tick) -> list[InputPartition]:
        return self._tasks() if end[TICK] > start[TICK] else []

    def read(self, partition: InputPartition) -> Iterator[Row]:
        return self._rows(partition)

    def commit(self, end: Tick) -> None:
        """Do nothing: each message is completed as soon as the primary has accepted it."""


async def drain(options: DrainOptions, number: int) -> Row:
    """Drain backlog queue ``number`` for at most ``max_duration`` and return its row.

    Raises RuntimeError when the syphon fails permanently, such as when a side refuses the credential.
    """
    syphon = syphon_between(options, number)
    began = time.monotonic()
    trouble: str | None = None
    reasons: list[str] = []
    syphon.on_event(lambda event: reasons.extend(reason_of(event)))
    with ExitStack() as stack:
        if options.journal is not None:
            journal = open_journal(stack, options.journal, WriterRole.SYPHON, options.pair, syphon)
            stack.callback(lambda: journal.write(syphon.counters.snapshot()))
        try:
            async with asyncio.timeout(options.max_duration):
                await emptied(syphon, options.empty_wait)
        except TimeoutError:
            trouble = f"time is up; {reasons[-1] if reasons else 'the next run continues'}"
        except NamespaceUnusableError as error:
            raise RuntimeError(f"sbpair-syphon: {' '.join(str(error).split())}") from None
    counts = syphon.counters.snapshot()
    counted = (getattr(counts, name) for name in COUNTERS)
    return (syphon.backlogs[0], trouble is None, *counted, time.monotonic() - began, trouble)


async def emptied(syphon: Syphon, wait: float) -> None:
    """Drain until no message has arrived for ``wait`` seconds; with 0, until the backlog is found empty."""
    await syphon.drain()
    while wait:
        before = syphon.counters.received
        await asyncio.sleep(wait)
        await syphon.drain()
        if syphon.counters.received == before:
            return


def reason_of(event: SyphonEvent) -> tuple[str, ...]:
    """The reason for which a syphon waits, if the event has one."""
    if isinstance(event, SyphonDisconnected | BacklogDetached | DestinationHeld):
        return (event.reason,)
    return ()


def syphon_between(options: DrainOptions, number: int) -> Syphon:
    """A syphon for one backlog queue, and the ordered one of its number.

    Raises ValueError when the namespaces cannot form a pair.
    """
    from sbpair.pair.syphon.daemon import Syphon

    return Syphon.between(*options.pair.namespaces(), options=options.of_backlog(number))


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """The validated options of a drain."""

    pair: PairReference
    allowed_destinations: tuple[str, ...] | None
    max_duration: float
    """Seconds after which a task ends, even if messages remain."""

    empty_wait: float
    """Seconds that a backlog must stay empty before a task ends."""

    receivers: int
    """Tasks per backlog queue; with more than one, only ordered sessions keep their order."""

    window: int
    ordering: Literal["none", "session"]
    land: Literal["primary", "either"]
    land_after: float
    """Seconds from the start of a task after which messages land on the secondary."""

    journal: str | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> DrainOptions:
        """Parse the options. Raises ValueError that names an invalid one."""
        given = FormatOptions(FORM, options, KNOWN)
        return cls(
            pair_reference(given, 60.0),
            given.several("allowedDestinations") or None,
            given.seconds("maxDurationSeconds", 300, 1, 86_400),
            given.seconds("emptyWaitSeconds", 0, 0, 3600),
            given.whole("receiversPerBacklog", 1, 1, 64),
            given.whole("window", WINDOW, 1, 5000),
            "session" if given.choice("ordering", "none", ("none", "session")) == "session" else "none",
            _land(given),
            given.seconds("landAfterSeconds", 60, 0, 86_400),
            directory_of(given),
        )

    def __post_init__(self) -> None:
        if self.land == "either" and self.land_after >= self.max_duration:
            raise ValueError(
                f"{FORM}: landAfterSeconds must be less than maxDurationSeconds ({self.max_duration:g}): "
                "each task counts from its own start"
            )
        self.of_backlog(0)  # raises the errors that each task would raise

    def of_backlog(self, number: int) -> SyphonOptions:
        """Return the options of a syphon for backlog queue ``number``.

        With ``ordering=session``, also for the ordered one.
        """
        pair = self.pair
        return SyphonOptions(
            backlog_queue_count=pair.backlog_queue_count,
            primary_namespace_name=pair.primary_namespace_name,
            allowed_destinations=self.allowed_destinations,
            window=self.window,
            ordering=self.ordering,
            land=self.land,
            land_after=timedelta(seconds=self.land_after),
            operation_timeout=timedelta(seconds=pair.wire.timeout),
            report_forwards=self.journal is not None,
            only_backlogs=(number,),
        )


def _land(given: FormatOptions) -> Literal["primary", "either"]:
    return "either" if given.choice("land", "primary", LAND) == "either" else "primary"
