"""Writing with ``format("sbpair")``: rows are sent to the primary, or parked on the secondary.

    rows.writeStream.format("sbpair").option("entityPath", "orders")...start()
    rows.write.format("sbpair")...mode("append").save()

Delivery is at least once. Tasks send while they run, and an abort cannot undo a send. A task or batch that runs
again sends its rows again: with the same message ids if these come from a column or a hash, so that duplicate
detection on the entity drops the copies, else with fresh ids. Ids do not depend on how a batch is partitioned,
except with ``messageIdStrategy=batch``, since a batch may run again with other partitions.
Each worker process keeps one paired client between tasks and detects outages independently.
"""

from __future__ import annotations

import atexit
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from itertools import islice
from time import sleep
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sbpair.observation import Journal, Role, SendAccepted

from . import worker
from .format_options import PAIR, WIRE, FormatOptions, PairReference, pair_reference
from .outage import BATCH_PATIENCE, BUSY, Outage, limit_or
from .outgoing import BATCH as POSITIONAL
from .outgoing import HASH, STRATEGIES, IdOf, Outgoing, id_maker, id_strategy, outgoing, to_message
from .worker import directory_of, open_journal

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from sbpair import PairedServiceBusClient, SendReceipt
    from sbpair.pairing.request import PairedMessageBatch
    from sbpair.pairing.sender import PairedServiceBusSender

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
    "journal",
    "outageTimeout",
    *WIRE,
)


@dataclass
class Sent(WriterCommitMessage):
    """The numbers of messages that one task sent."""

    messages: int = 0
    primary: int = 0
    parked: int = 0
    ambiguous: int = 0


class _Writer:
    _patience = 0.0  # the default of the option outageTimeout, in seconds

    def __init__(self, options: SinkOptions, columns: tuple[str, ...], strategy: str) -> None:
        self._options = options
        self._columns = columns
        self._strategy = strategy
        self._write_id = str(
            uuid4()
        )  # identifies a batch write; a stream uses its query's id, which is stable

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> Self:
        """Raises ValueError for invalid options, columns or modes."""
        if overwrite:
            raise ValueError('sbpair: messages cannot be overwritten; use mode("append")')
        read = SinkOptions.of(options)
        kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
        strategy = id_strategy(kinds, read.strategy, read.entity_path, read.id_columns)
        return cls(read, tuple(kinds), strategy)

    def _send(self, rows: Iterator[Row], prefix: str) -> Sent:
        options = self._options
        messages = (outgoing(self._columns, row) for row in rows)
        with ExitStack() as stack:
            journal: Journal | None = None
            if options.journal is not None:
                journal = open_journal(stack, options.journal, Role.SENDER, options.pair, client_of(options))
            sending = Sending(options, id_maker(self._strategy, prefix, options.id_columns), journal)
            sending.patience = limit_or(options.outage_timeout, self._patience)
            while chunk := list(islice(messages, CHUNK)):
                sending.send(chunk)
            return sending.sent


class MessageWriter(_Writer, DataSourceWriter):
    """The writer of ``df.write``."""

    _patience = BATCH_PATIENCE

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._send(iterator, f"{self._write_id}:{context().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write that failed", messages)


class MessageStreamWriter(_Writer, DataSourceStreamWriter):
    """The writer of ``df.writeStream``."""

    _patience = math.inf

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        task = context()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        is_known = query is not None and batch is not None
        if not is_known and self._strategy == POSITIONAL:
            raise RuntimeError(
                "sbpair: messageIdStrategy=batch needs the query's id, which this Spark does not pass to tasks; "
                "use a message_id column"
            )
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
    """Log what was sent; sends cannot be undone, even if the batch fails."""
    sent = [each for each in messages if isinstance(each, Sent)]
    counts = [sum(getattr(each, name) for each in sent) for name in ("messages", "primary", "parked")]
    logger.info("%s sent %d messages: %d to the primary, %d parked", what, *counts)


@dataclass(slots=True)
class Sending:
    """Sends the rows of one task, grouped by entity and session, in the order of the rows.

    Successive calls of :meth:`send` continue the numbering of the rows and the counts in ``sent``.
    """

    options: SinkOptions
    id_of: IdOf
    journal: Journal | None = None
    patience: float = 0.0
    sent: Sent = field(default_factory=Sent)

    def send(self, rows: list[Outgoing]) -> None:
        """Send ``rows``; return when all are accepted.

        Raises ValueError for a row without an entity, and the exceptions of the paired sender.
        """
        groups: dict[tuple[str, str | None], list[ServiceBusMessage]] = {}
        for place, row in enumerate(rows, self.sent.messages):
            entity = row.values.get("entity_path") or self.options.entity_path
            if entity is None:
                raise ValueError("sbpair: a row has no entity_path; set it, or give the option entityPath")
            message = to_message(row, self.id_of(row, place))
            groups.setdefault((str(entity), row.session), []).append(message)
        self.sent.messages += len(rows)
        for (entity, _), messages in groups.items():
            sender = sender_to(self.options, entity)
            for batch in batches(messages, self.options.batch_size):
                self._record(entity, send_with_retries(partial(sender.send_messages, batch), self.patience))

    def _record(self, entity: str, receipt: SendReceipt) -> None:
        locations = receipt.locations or (receipt,)
        for place in locations:
            if self.journal is not None:
                stored_in, ids = str(place.stored_in.value), tuple(place.message_ids)
                self.journal.write(SendAccepted(entity, stored_in, place.backlog, ids, receipt.ambiguous))
            count = len(place.message_ids)
            self.sent.primary += count if place.backlog is None else 0
            self.sent.parked += count if place.backlog is not None else 0
        self.sent.ambiguous += len(receipt.message_ids) if receipt.ambiguous else 0


def send_with_retries(send: Callable[[], SendReceipt], patience: float) -> SendReceipt:
    """Call ``send``; while neither namespace accepts the messages, repeat it for up to ``patience`` seconds.

    Re-raises the exception of ``send`` when it is permanent, or the time is up.
    """
    outage = Outage(patience)
    while True:
        try:
            return send()
        except Exception as error:
            is_transient, delay = retry_of(error)
            pause = outage.failed(time.monotonic(), delay) if is_transient else None
            if pause is None:
                raise
            reason = " ".join(str(error).split())
            logger.warning("sending a batch failed: %s; retrying in %.1f s", reason, pause)
            sleep(pause)


def retry_of(error: Exception) -> tuple[bool, float]:
    """Whether a send that raised ``error`` may be retried, and after how many seconds at least."""
    from sbpair.pairing.errors import BacklogUnavailableError, PairingError

    from ..pairing.classify import classify
    from ..pairing.outcome import Failure

    if isinstance(error, PairingError) and not isinstance(error, BacklogUnavailableError):
        return False, 0.0
    causes = error.causes if isinstance(error, BacklogUnavailableError) else (error,)
    found = [classify(cause) for cause in causes]
    busy = [each.retry_after or BUSY for each in found if each.failure is Failure.BUSY]
    is_out = any(each.failure is Failure.UNAVAILABLE for each in found)
    return is_out or bool(busy), 0.0 if is_out else max(busy, default=0.0)


def batches(messages: list[ServiceBusMessage], most: int) -> Iterator[ServiceBusMessage | PairedMessageBatch]:
    """Group messages into batches of at most ``most``, small enough for the Standard tier.

    A message too large for a batch is yielded on its own.
    """
    from azure.servicebus.exceptions import MessageSizeExceededError

    from sbpair.pairing.request import ENVELOPE_ROOM, PairedMessageBatch

    from ..pairing.base_sender import STANDARD_BATCH

    def empty() -> PairedMessageBatch:
        return PairedMessageBatch(STANDARD_BATCH - ENVELOPE_ROOM)

    batch = empty()
    for message in messages:
        if len(batch.originals) >= most:
            yield batch
            batch = empty()
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            if batch.originals:
                yield batch
                batch = empty()
            try:
                batch.add_message(message)
            except MessageSizeExceededError:
                yield message
    if batch.originals:
        yield batch


def sender_to(options: SinkOptions, entity: str) -> PairedServiceBusSender:
    """This process's sender for ``entity``, a queue or a topic."""
    client = client_of(options)
    return worker.kept((options, entity), lambda: client.get_queue_sender(entity))


def client_of(options: SinkOptions) -> PairedServiceBusClient:
    """This process's paired client."""
    return worker.kept(options, lambda: paired_client(options))


def paired_client(options: SinkOptions) -> PairedServiceBusClient:
    """Create a paired client, closed at interpreter exit.

    Raises ValueError when the namespaces cannot form a pair, or only one of them is given by a connection string.
    """
    from azure.servicebus import TransportType

    from sbpair import PairedNamespaceOptions, PairedServiceBusClient

    pairing = PairedNamespaceOptions(
        backlog_queue_count=options.pair.backlog_queue_count,
        failover_interval=timedelta(seconds=options.failover_interval),
        ping_primary_interval=timedelta(seconds=options.ping_interval),
        operation_timeout=timedelta(seconds=options.pair.wire.timeout),
        assume_backlogs_exist=options.assume_backlogs_exist,
        primary_namespace_name=options.pair.primary_namespace_name,
    )
    primary, secondary, wire = options.pair.primary, options.pair.secondary, options.pair.wire
    first, second, credential = options.pair.ends(FORM)
    make = (
        partial(PairedServiceBusClient.from_connection_strings, first, second)
        if credential is None
        else partial(PairedServiceBusClient, first, second, credential)
    )
    client = make(
        options=pairing,
        connection_verify=wire.ca_file,
        transport_type=TransportType.AmqpOverWebsocket if wire.over_websocket else TransportType.Amqp,
        custom_endpoint_address=primary.address,
        secondary_custom_endpoint_address=secondary.address,
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

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ValueError naming the option when an option is invalid."""
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
        )
