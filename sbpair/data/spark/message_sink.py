"""Writing with ``format("sbpair")``: rows are sent to the primary, or parked on the secondary.

    rows.writeStream.format("sbpair").option("entityPath", "orders")...start()
    rows.write.format("sbpair")...mode("append").save()

Delivery is at least once. Tasks send while they run, and an abort cannot undo a send. A task or batch that runs
again sends its rows again: with the same message ids if these come from a column or a hash, so that duplicate
detection on the entity drops the copies, else with fresh ids. Ids do not depend on how a batch is partitioned,
since a batch may run again with other partitions.
Each worker process keeps one paired client between tasks and detects outages independently.
"""

from __future__ import annotations

import atexit
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Self, cast
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import MapType, StringType, StructType

from sbpair.pair.observation.journal import Journal
from sbpair.pair.observation.record import WriterRole

from . import worker
from .bad_records import BadRecords, bad_records_path
from .format_options import PAIR, WIRE, FormatOptions, PairReference, pair_reference
from .outage import BATCH_PATIENCE, limit_or
from .outgoing import (
    EVERY,
    HASH,
    STRATEGIES,
    PropertyTypes,
    id_maker,
    id_strategy,
    known_names,
    outgoing_rows,
    property_types,
)
from .sending import Counts, Sending, SendTarget
from .versions import ArrowStreamWriter, ArrowWriter
from .worker import directory_of, open_journal

if TYPE_CHECKING:
    import pyarrow as pa

    from sbpair import PairedServiceBusClient
    from sbpair.pair.pairing.blocking.sender import PairedServiceBusSender

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of a streaming task
CHUNK = 1000  # rows that a task holds in memory
logger = logging.getLogger("sbpair.spark")
FORM = "sbpair"
OPERATION_TIMEOUT = 20.0  # seconds per send; short, since a waiting task occupies a slot
KNOWN = (
    *PAIR,
    "assumeBacklogsExist",
    "failoverIntervalSeconds",
    "pingPrimaryIntervalSeconds",
    "entityPath",
    "messageIdStrategy",
    "messageIdColumns",
    "batchSize",
    "sendsInFlight",
    "badRecordsPath",
    "journal",
    "outageTimeout",
    *WIRE,
)


@dataclass
class Sent(Counts, WriterCommitMessage):
    """The numbers of messages that one task sent."""


class _SinkWriter:
    _patience = 0.0  # the default of the option outageTimeout, in seconds

    def __init__(
        self, options: SinkOptions, columns: tuple[str, ...], strategy: str, types: PropertyTypes
    ) -> None:
        self._options = options
        self._columns = columns
        self._strategy = strategy
        self._types = types
        # identifies a batch write; a stream uses its query's id, which is stable
        self._write_id = str(uuid4())

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> Self:
        """Make a sink. Raises ValueError for invalid options, columns or modes."""
        if overwrite:
            raise ValueError('sbpair: messages cannot be overwritten; use mode("append")')
        read = SinkOptions.of(options)
        names = known_names(schema.names)
        kinds = {name: each.dataType.simpleString() for name, each in zip(names, schema.fields, strict=True)}
        strategy = id_strategy(kinds, read.strategy, read.entity_path, read.id_columns)
        return cls(read, tuple(kinds), strategy, _property_types(names, schema))

    def _send(self, rows: Iterator[Row | pa.RecordBatch], prefix: str) -> Sent:
        options = self._options
        messages = outgoing_rows(self._columns, rows)
        with ExitStack() as stack:
            journal: Journal | None = None
            if options.journal is not None:
                journal = open_journal(
                    stack, options.journal, WriterRole.SENDER, options.pair, client_of(options)
                )
            bad: BadRecords | None = None
            if options.bad_records_path is not None:
                bad = BadRecords(options.bad_records_path, prefix)
                stack.callback(bad.close)
            id_of = id_maker(self._strategy, prefix, options.id_columns)
            to = destination(options, limit_or(options.outage_timeout, self._patience))
            sending = stack.enter_context(Sending(to, id_of, self._types, journal, bad, Sent()))
            while chunk := list(islice(messages, CHUNK)):
                sending.send(chunk)
            return cast(Sent, sending.sent)


def _property_types(names: Sequence[str], schema: StructType) -> PropertyTypes:
    """The types of the column ``application_properties``. Raises ValueError when they cannot be sent."""
    for name, each in zip(names, schema.fields, strict=True):
        kind = each.dataType
        if name != "application_properties":
            continue
        fields: dict[str, str] = {}
        if isinstance(kind, MapType) and isinstance(kind.keyType, StringType):
            fields = {EVERY: kind.valueType.simpleString()}
        elif isinstance(kind, StructType):
            fields = {inner.name: inner.dataType.simpleString() for inner in kind.fields}
        return property_types(kind.simpleString(), fields)
    return {}


def destination(options: SinkOptions, patience: float = 0.0) -> SendTarget:
    """The target of a task with ``options``; ``patience`` in seconds."""
    return SendTarget(
        options.entity_path,
        partial(sender_to, options),
        options,
        options.batch_size,
        options.sends_in_flight,
        patience,
    )


class MessageWriter(_SinkWriter, ArrowWriter):
    """The writer of ``df.write``."""

    _patience = BATCH_PATIENCE

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return self._send(iterator, f"{self._write_id}:{context().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write that failed", messages)


class MessageStreamWriter(_SinkWriter, ArrowStreamWriter):
    """The writer of ``df.writeStream``."""

    _patience = math.inf

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        task = context()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        is_known = query is not None and batch is not None
        work = f"{query}:{batch}" if is_known else self._write_id
        return self._send(iterator, f"{work}:{task.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_sent(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_sent(f"batch {batchId}, which failed,", messages)


def context() -> TaskContext:
    """The current task. Raises RuntimeError outside of one."""
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("sbpair: a writer runs in a Spark task only")
    return task


def log_sent(what: str, messages: list[WriterCommitMessage | None]) -> None:
    """Log the numbers of sent messages; sends cannot be undone, even if the batch fails."""
    sent = [each for each in messages if isinstance(each, Sent)]
    names = ("messages", "primary", "parked", "ambiguous", "bad")
    counts = [sum(getattr(each, name) for each in sent) for name in names]
    logger.info(
        "%s sent %d messages: %d to the primary, %d parked, %d in doubt; %d rows are bad", what, *counts
    )


def sender_to(options: SinkOptions, entity: str) -> PairedServiceBusSender:
    """This process's sender for ``entity``, a queue or a topic."""
    client = client_of(options)
    return worker.keep((options, entity), lambda: client.get_queue_sender(entity))


def client_of(options: SinkOptions) -> PairedServiceBusClient:
    """This process's paired client."""
    return worker.keep(options, lambda: paired_client(options))


def paired_client(options: SinkOptions) -> PairedServiceBusClient:
    """Create a paired client, closed at interpreter exit.

    Raises ValueError when the namespaces cannot form a pair.
    """
    from azure.servicebus import TransportType

    from sbpair import PairedNamespaceOptions, PairedServiceBusClient
    from sbpair.pair.pairing.shared.address import SdkSettings

    pairing = PairedNamespaceOptions(
        backlog_queue_count=options.pair.backlog_queue_count,
        failover_interval=timedelta(seconds=options.failover_interval),
        ping_primary_interval=timedelta(seconds=options.ping_interval),
        operation_timeout=timedelta(seconds=options.pair.wire.timeout),
        assume_backlogs_exist=options.assume_backlogs_exist,
        primary_namespace_name=options.pair.primary_namespace_name,
    )
    primary, secondary, wire = options.pair.primary, options.pair.secondary, options.pair.wire
    settings = SdkSettings(
        transport_type=TransportType.AmqpOverWebsocket if wire.over_websocket else TransportType.Amqp,
        connection_verify=wire.ca_file,
    )
    client = PairedServiceBusClient.between(
        primary.of_the_sdk("primary", settings), secondary.of_the_sdk("secondary", settings), options=pairing
    )
    atexit.register(client.close)
    return client


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The validated options of a sink."""

    pair: PairReference
    assume_backlogs_exist: bool
    failover_interval: float
    """Seconds; 0 by default, so that a task does not fail before its messages are parked."""

    ping_interval: float
    entity_path: str | None
    strategy: str | None
    """The message id strategy; None for ``column`` if there is a column of ids, else ``unique``."""

    id_columns: tuple[str, ...]
    """The columns that the strategy ``hash`` covers; empty for all."""

    batch_size: int
    journal: str | None
    outage_timeout: float | None = None
    """Seconds for which a task retries while neither namespace accepts a message; None for the default."""

    sends_in_flight: int = 4
    """Batches that a task sends at a time."""

    bad_records_path: str | None = None
    """The directory for rows that cannot be sent; without one they fail the task."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Parse the options. Raises ValueError that names an invalid one."""
        given = FormatOptions(FORM, options, KNOWN)
        id_columns = given.several("messageIdColumns")
        strategy = given.text("messageIdStrategy") or (HASH if id_columns else None)
        if strategy is not None:
            strategy = given.choice("messageIdStrategy", strategy, STRATEGIES)
        if id_columns and strategy != HASH:
            raise given.wrong(f"messageIdColumns needs messageIdStrategy={HASH}, not {strategy}")
        return cls(
            pair_reference(given, OPERATION_TIMEOUT),
            given.flag("assumeBacklogsExist", default=False),
            given.seconds("failoverIntervalSeconds", 0, 0, 3600),
            given.seconds("pingPrimaryIntervalSeconds", 60, 1, 1800),
            given.text("entityPath"),
            strategy,
            id_columns,
            given.whole("batchSize", 100, 1, 4500),
            directory_of(given),
            given.patience("outageTimeout"),
            given.whole("sendsInFlight", 4, 1, 64),
            bad_records_path(given),
        )
