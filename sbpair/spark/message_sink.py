"""Writing with ``format("sbpair")``: rows are sent to the primary, or parked on the secondary.

    rows.writeStream.format("sbpair").option("entityPath", "orders")...start()
    rows.write.format("sbpair")...mode("append").save()

At least once. Tasks send while they run, and what was sent cannot be taken back by an abort. A task or batch
that runs again sends its rows again: with the same message ids where they are of a column or a hash, so that
duplicate detection on the entity leaves one of each, else with fresh ones. An id never depends on how a batch
is partitioned, unless that is asked for: a batch may run again in other partitions.
Each worker process has one paired client, kept between tasks: it discovers an outage for itself.
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
from .format_options import PAIR, WIRE, FormatOptions, PairReference, ambient, pair_reference
from .outage import BATCH_PATIENCE, BUSY, Outage
from .outgoing import BATCH as POSITIONAL
from .outgoing import HASH, STRATEGIES, IdOf, Outgoing, checked, id_maker, outgoing, to_message
from .worker import directory_of, keep

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from sbpair import PairedServiceBusClient, SendReceipt
    from sbpair.pairing.request import PairedMessageBatch
    from sbpair.pairing.sender import PairedServiceBusSender

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # local properties of a streaming task
AT_ONCE = 1000  # rows in the memory of a task
logger = logging.getLogger("sbpair.spark")
FORM = "sbpair"
SHORT = 20.0  # seconds a send may take: a task that waits holds a slot
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
    """The number of messages that one task sent, by location."""

    messages: int = 0
    primary: int = 0
    parked: int = 0
    ambiguous: int = 0


class _Writer:
    _patience = 0.0  # seconds, unless the option outageTimeout says more

    def __init__(self, options: SinkOptions, columns: tuple[str, ...], strategy: str) -> None:
        self._options = options
        self._columns = columns
        self._strategy = strategy
        self._write_id = str(uuid4())  # of a batch; a stream has its query's id, which outlives a restart

    @classmethod
    def of(cls, options: Mapping[str, str], schema: StructType, overwrite: bool) -> Self:
        """Raises ValueError for options, columns and modes that cannot be used."""
        if overwrite:
            raise ValueError('sbpair: messages cannot be overwritten; use mode("append")')
        read = SinkOptions.of(options)
        kinds = {each.name: each.dataType.simpleString() for each in schema.fields}
        return cls(read, tuple(kinds), checked(kinds, read.strategy, read.entity_path, read.id_columns))

    def _send(self, rows: Iterator[Row], prefix: str) -> Sent:
        options = self._options
        messages = (outgoing(self._columns, row) for row in rows)
        with ExitStack() as stack:
            journal: Journal | None = None
            if options.journal is not None:
                journal = keep(stack, options.journal, Role.SENDER, options.pair, client_of(options))
            sending = Sending(options, id_maker(self._strategy, prefix, options.id_columns), journal)
            sending.patience = options.patience(self._patience)
            while chunk := list(islice(messages, AT_ONCE)):
                sending.send(chunk)
            return sending.sent


class MessageWriter(_Writer, DataSourceWriter):
    """Of ``df.write``."""

    _patience = BATCH_PATIENCE

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._send(iterator, f"{self._write_id}:{context().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        log_sent("a write that failed", messages)


class MessageStreamWriter(_Writer, DataSourceStreamWriter):
    """Of ``df.writeStream``."""

    _patience = math.inf

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        task = context()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        is_told = query is not None and batch is not None
        if not is_told and self._strategy == POSITIONAL:
            raise RuntimeError("sbpair: this Spark does not tell the query's id; use a message_id column")
        work = f"{query}:{batch}" if is_told else self._write_id
        return self._send(iterator, f"{work}:{task.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_sent(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        log_sent(f"batch {batchId}, which failed,", messages)


def context() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("sbpair: a writer runs in a task of Spark")
    return task


def log_sent(what: str, messages: list[WriterCommitMessage | None]) -> None:
    """Log what was sent; sends cannot be undone, even if the batch fails."""
    sent = [each for each in messages if isinstance(each, Sent)]
    counts = [sum(getattr(each, name) for each in sent) for name in ("messages", "primary", "parked")]
    logger.info("%s sent %d messages: %d to the primary, %d parked", what, *counts)


@dataclass(slots=True)
class Sending:
    """The messages of one task, on their way: by entity and session, in the order of the rows."""

    options: SinkOptions
    id_of: IdOf
    journal: Journal | None = None
    patience: float = 0.0
    sent: Sent = field(default_factory=Sent)

    def send(self, rows: list[Outgoing]) -> None:
        """Returns once a broker has accepted them all. Raises what the paired sender raises."""
        groups: dict[tuple[str, str | None], list[ServiceBusMessage]] = {}
        for place, row in enumerate(rows, self.sent.messages):
            entity = row.values.get("entity_path") or self.options.entity_path
            if entity is None:
                raise ValueError("sbpair: a row without entity_path, and the option entityPath is not given")
            message = to_message(row, self.id_of(row, place))
            groups.setdefault((str(entity), row.session), []).append(message)
        self.sent.messages += len(rows)
        for (entity, _), messages in groups.items():
            sender = sender_to(self.options, entity)
            for batch in batches(messages, self.options.batch_size):
                self._note(entity, patiently(partial(sender.send_messages, batch), self.patience))

    def _note(self, entity: str, receipt: SendReceipt) -> None:
        locations = receipt.locations or (receipt,)
        for place in locations:
            if self.journal is not None:
                stored_in, ids = str(place.stored_in.value), tuple(place.message_ids)
                self.journal.write(SendAccepted(entity, stored_in, place.backlog, ids, receipt.ambiguous))
            count = len(place.message_ids)
            self.sent.primary += count if place.backlog is None else 0
            self.sent.parked += count if place.backlog is not None else 0
        self.sent.ambiguous += len(receipt.message_ids) if receipt.ambiguous else 0


def patiently(send: Callable[[], SendReceipt], patience: float) -> SendReceipt:
    """Send, and again while neither namespace takes it, for so many seconds: the same message ids each time.

    Raises what the paired sender raises when that is nothing that may pass, or the time is up.
    """
    outage = Outage(patience)
    while True:
        try:
            return send()
        except Exception as error:
            may_pass, wait = passing(error)
            pause = outage.failed(time.monotonic(), wait) if may_pass else None
            if pause is None:
                raise
            logger.warning(
                "a batch was not sent: %s; sent again in %.1f s", " ".join(str(error).split()), pause
            )
            sleep(pause)


def passing(error: Exception) -> tuple[bool, float]:
    """Whether waiting may cure what a send raised, and how many seconds a throttle asks for."""
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
    """The same messages in batches of at most ``most`` that any namespace takes; a large one goes alone."""
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


# --- one client for each process


def sender_to(options: SinkOptions, entity: str) -> PairedServiceBusSender:
    """The sender of this process to an entity; a topic's is the same as a queue's."""
    client = client_of(options)
    return worker.kept((options, entity), lambda: client.get_queue_sender(entity))


def client_of(options: SinkOptions) -> PairedServiceBusClient:
    """The paired client of this process."""
    return worker.kept(options, lambda: paired_client(options))


def paired_client(options: SinkOptions) -> PairedServiceBusClient:
    """Raises ValueError for two namespaces that are no pair, or are opened in different ways."""
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
    primary, secondary = options.pair.primary, options.pair.secondary
    strings = primary.connection_string(), secondary.connection_string()
    transport = TransportType.AmqpOverWebsocket if options.pair.wire.over_websocket else TransportType.Amqp
    if strings[0] is not None and strings[1] is not None:
        client = PairedServiceBusClient.from_connection_strings(
            strings[0],
            strings[1],
            options=pairing,
            connection_verify=options.pair.wire.ca_file,
            transport_type=transport,
            custom_endpoint_address=primary.address,
            secondary_custom_endpoint_address=secondary.address,
        )
    elif strings == (None, None):
        client = PairedServiceBusClient(
            primary.name,
            secondary.name,
            ambient(),
            options=pairing,
            connection_verify=options.pair.wire.ca_file,
            transport_type=transport,
            custom_endpoint_address=primary.address,
            secondary_custom_endpoint_address=secondary.address,
        )
    else:
        raise ValueError("sbpair: give both namespaces by connection string, or both by their names")
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
    """How message ids are made; None for a column of ids where there is one, else fresh ones."""

    id_columns: tuple[str, ...]
    """The columns whose hash is the id; empty for all."""

    batch_size: int
    journal: str | None
    outage_timeout: float | None = None
    """Seconds for which a task sends again while neither namespace takes a message; None for the default."""

    def patience(self, default: float) -> float:
        return default if self.outage_timeout is None else self.outage_timeout

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises ValueError, which names the option, for what cannot be used."""
        given = FormatOptions(FORM, options, KNOWN)
        id_columns = given.several("messageIdColumns")
        strategy = given.text("messageIdStrategy") or (HASH if id_columns else None)
        if strategy is not None:
            strategy = given.choice("messageIdStrategy", strategy, STRATEGIES)
        if id_columns and strategy != HASH:
            raise given.wrong(f"messageIdColumns goes with messageIdStrategy={HASH}, not {strategy}")
        return cls(
            pair_reference(given, SHORT),
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
