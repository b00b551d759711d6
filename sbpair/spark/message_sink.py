"""Writing with ``format("sbpair")``: rows are sent to the primary, or parked on the secondary.

    rows.writeStream.format("sbpair").option("entityPath", "orders")...start()
    rows.write.format("sbpair")...mode("append").save()

At least once. Tasks send while they run, and what was sent cannot be taken back by an abort. A task or batch
that runs again sends the same message ids again, so duplicate detection on the entity leaves one of each.
Each worker process has one paired client, kept between tasks: it discovers an outage for itself.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING, Self
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from sbpair.observation import Journal, Role, SendAccepted

from . import worker
from .outgoing import IdOf, Outgoing, checked, id_maker, outgoing, to_message
from .reach import ambient
from .sink_options import SinkOptions
from .task_journal import keep

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusMessage

    from sbpair import PairedServiceBusClient, SendReceipt
    from sbpair.pairing.batch import PairedMessageBatch
    from sbpair.pairing.sender import PairedServiceBusSender

QUERY, BATCH = "sql.streaming.queryId", "streaming.sql.batchId"  # what Spark tells a task of a stream
AT_ONCE = 1000  # rows in the memory of a task

logger = logging.getLogger("sbpair.spark")


@dataclass
class Sent(WriterCommitMessage):
    """What one task sent, and where it rests."""

    messages: int = 0
    primary: int = 0
    parked: int = 0
    ambiguous: int = 0


class _Writer:
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
        return cls(read, tuple(kinds), checked(kinds, read.strategy, read.entity_path))

    def _send(self, rows: Iterator[Row], prefix: str) -> Sent:
        options = self._options
        messages = (outgoing(self._columns, row) for row in rows)
        with ExitStack() as stack:
            journal: Journal | None = None
            if options.journal is not None:
                journal = keep(stack, options.journal, Role.SENDER, options.pair, client_of(options))
            sending = Sending(options, id_maker(self._strategy, prefix), journal)
            while chunk := list(islice(messages, AT_ONCE)):
                sending.send(chunk)
            return sending.sent


class MessageWriter(_Writer, DataSourceWriter):
    """Of ``df.write``."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        return self._send(iterator, f"{self._write_id}:{context().partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        tell("a write", messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        tell("a write that failed", messages)


class MessageStreamWriter(_Writer, DataSourceStreamWriter):
    """Of ``df.writeStream``."""

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        task = context()
        query, batch = task.getLocalProperty(QUERY), task.getLocalProperty(BATCH)
        if query is None or batch is None:
            raise RuntimeError("sbpair: this Spark does not tell the query's id; use a message_id column")
        return self._send(iterator, f"{query}:{batch}:{task.partitionId()}")

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tell(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        tell(f"batch {batchId}, which failed,", messages)


def context() -> TaskContext:
    task = TaskContext.get()
    if task is None:
        raise RuntimeError("sbpair: a writer runs in a task of Spark")
    return task


def tell(what: str, messages: list[WriterCommitMessage | None]) -> None:
    """What was sent cannot be undone, whatever becomes of the batch: it can be told."""
    sent = [each for each in messages if isinstance(each, Sent)]
    counts = [sum(getattr(each, name) for each in sent) for name in ("messages", "primary", "parked")]
    logger.info("%s sent %d messages: %d to the primary, %d parked", what, *counts)


@dataclass(slots=True)
class Sending:
    """The messages of one task, on their way: by entity and session, in the order of the rows."""

    options: SinkOptions
    id_of: IdOf
    journal: Journal | None = None
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
                self._note(entity, sender.send_messages(batch))

    def _note(self, entity: str, receipt: SendReceipt) -> None:
        places = receipt.places or (receipt,)
        for place in places:
            if self.journal is not None:
                rests, ids = str(place.rests.value), tuple(place.message_ids)
                self.journal.write(SendAccepted(entity, rests, place.backlog, ids, receipt.ambiguous))
            count = len(place.message_ids)
            self.sent.primary += count if place.backlog is None else 0
            self.sent.parked += count if place.backlog is not None else 0
        self.sent.ambiguous += len(receipt.message_ids) if receipt.ambiguous else 0


def batches(messages: list[ServiceBusMessage], most: int) -> Iterator[ServiceBusMessage | PairedMessageBatch]:
    """The same messages in batches of at most ``most`` that any namespace takes; a large one goes alone."""
    from azure.servicebus.exceptions import MessageSizeExceededError

    from sbpair.pairing.batch import ENVELOPE_ROOM, PairedMessageBatch
    from sbpair.pairing.sender_surface import STANDARD_BATCH

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
