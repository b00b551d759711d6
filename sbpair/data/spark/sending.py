"""Sending the rows of one task: batches that mix sessions, several of them in flight.

    rows -> messages -> lanes, by session -> batches -> the paired sender, one send in flight per lane

A session stays in one lane, so its order is kept. A partitioned entity refuses a batch of several sessions or
partition keys; then, and from then on in this process, batches to it have one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING
from zlib import crc32

from sbpair.pair.observation.journal import Journal
from sbpair.pair.observation.messages import SendAccepted

from . import worker
from .bad_records import BadRecords
from .outage import BUSY, OutageState
from .outgoing import IdOf, OutgoingRow, PropertyTypes, RowMessage, outgoing_message

if TYPE_CHECKING:
    from sbpair import SendReceipt
    from sbpair.pair.pairing.blocking.sender import PairedServiceBusSender

    from .encoded_batch import EncodedBatch

    Sendable = RowMessage | EncodedBatch[RowMessage]

MIXED, BY_KEY, SINGLE = range(3)
"""The content allowed in a batch: any messages, those of one session or partition key, or one message."""

REFUSED_MIX = (
    "Batching brokered messages with distinct"  # from the service's text, since the condition is general
)
logger = logging.getLogger("sbpair.spark")


@dataclass
class Counts:
    """The numbers of messages sent."""

    messages: int = 0
    primary: int = 0
    parked: int = 0
    ambiguous: int = 0
    bad: int = 0
    """Rows written to ``badRecordsPath``."""


@dataclass(frozen=True, slots=True)
class SendTarget:
    """The target of one task's sends."""

    entity_path: str | None
    """For rows without one of their own."""

    sender_to: Callable[[str], PairedServiceBusSender]
    key: Hashable
    """Identifies the client in this process."""

    batch_size: int = 100
    in_flight: int = 1
    patience: float = 0.0
    """Seconds for which a send is retried while neither namespace accepts messages."""


@dataclass(slots=True)
class Sending:
    """Sends the rows of one task; use it as a context manager.

    Successive calls of :meth:`send` continue the numbering of the rows and the counts in ``sent``.
    """

    to: SendTarget
    id_of: IdOf
    property_types: PropertyTypes = field(default_factory=dict)
    journal: Journal | None = None
    bad_records: BadRecords | None = None
    sent: Counts = field(default_factory=Counts)
    _open: ExitStack = field(default_factory=ExitStack)
    _threads: ThreadPoolExecutor | None = None
    _lock: Lock = field(default_factory=Lock)
    _rows: int = 0

    def __enter__(self) -> Sending:
        if self.to.in_flight > 1:
            self._threads = self._open.enter_context(ThreadPoolExecutor(self.to.in_flight, "sbpair-send"))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def send(self, rows: Iterable[OutgoingRow]) -> None:
        """Send ``rows``; return when all are accepted, or recorded as bad.

        Raises ValueError for a row that cannot be sent unless there is a record of bad ones, and the exceptions of
        the paired sender.
        """
        lanes: dict[tuple[str, int], list[RowMessage]] = {}
        count = 0
        for count, row in enumerate(rows, 1):
            place = self._rows + count - 1
            try:
                entity, message = self._message(row, place)
            except (ValueError, TypeError) as error:
                self._reject(row, error)
                continue
            lanes.setdefault((entity, self._lane(row, place)), []).append(message)
        self._rows += count
        tasks = [partial(self._send_lane, entity, messages) for (entity, _), messages in lanes.items()]
        if self._threads is None or len(tasks) == 1:
            for task in tasks:
                task()
            return
        futures = [self._threads.submit(task) for task in tasks]
        wait(futures)
        for future in futures:
            future.result()

    def _message(self, row: OutgoingRow, place: int) -> tuple[str, RowMessage]:
        entity = row.values.get("entity_path") or self.to.entity_path
        if entity is None:
            raise ValueError("sbpair: a row has no entity_path; set it, or give the option entityPath")
        return str(entity), outgoing_message(row, self.id_of(row, place), self.property_types)

    def _lane(self, row: OutgoingRow, place: int) -> int:
        """A session always has the same lane; rows without one fill batches in turn."""
        key = row.session
        if key is None:
            return place // self.to.batch_size % self.to.in_flight
        return crc32(key.encode()) % self.to.in_flight

    def _send_lane(self, entity: str, messages: list[RowMessage]) -> None:
        sender, grouping = self.to.sender_to(entity), _grouping(self.to.key, entity)
        for group in grouping.groups(messages):
            for batch in batches(group, self.to.batch_size):
                self._send_batch(entity, sender, batch)

    def _send_batch(self, entity: str, sender: PairedServiceBusSender, batch: Sendable) -> None:
        from azure.servicebus.exceptions import MessageSizeExceededError

        single = batch if isinstance(batch, RowMessage) else None
        message = batch.original() if isinstance(batch, RowMessage) else batch
        try:
            receipt = send_with_retries(partial(sender.send_messages, message), self.to.patience)
        except MessageSizeExceededError as error:
            if single is None:
                raise
            self._reject(single.row, error)
            return
        except Exception as error:
            if isinstance(batch, RowMessage) or REFUSED_MIX not in str(error) or len(batch) < 2:
                raise
            for part in _grouping(self.to.key, entity).regroup(batch.messages):
                for smaller in batches(part, self.to.batch_size):
                    self._send_batch(entity, sender, smaller)
            return
        self._record(entity, receipt, [batch] if isinstance(batch, RowMessage) else batch.messages)

    def _record(self, entity: str, receipt: SendReceipt, messages: Iterable[RowMessage]) -> None:
        locations = receipt.locations or (receipt,)
        bodies = (crc32(message.row.body) for message in messages)
        with self._lock:
            for place in locations:
                if self.journal is not None:
                    stored_in, ids = str(place.stored_in.value), tuple(place.message_ids)
                    sums = tuple(islice(bodies, len(ids)))
                    told = SendAccepted(entity, stored_in, place.backlog, ids, receipt.ambiguous, sums)
                    self.journal.write(told)
                count = len(place.message_ids)
                self.sent.messages += count
                self.sent.primary += count if place.backlog is None else 0
                self.sent.parked += count if place.backlog is not None else 0
            self.sent.ambiguous += len(receipt.message_ids) if receipt.ambiguous else 0

    def _reject(self, row: OutgoingRow, error: Exception) -> None:
        if self.bad_records is None:
            raise error
        with self._lock:
            self.bad_records.write(row, error)
            self.sent.bad += 1


class _Grouping:
    """The content allowed in a batch to one entity, as far as this process knows."""

    def __init__(self) -> None:
        self.level = MIXED

    def groups(self, messages: list[RowMessage]) -> Iterable[list[RowMessage]]:
        if self.level == MIXED:
            return (messages,)
        return [[each] for each in messages] if self.level == SINGLE else _by_key(messages)

    def regroup(self, messages: list[RowMessage]) -> Iterable[list[RowMessage]]:
        """The messages of a refused batch in groups that may be accepted."""
        groups = _by_key(messages)
        self.level = max(self.level, BY_KEY) if len(groups) > 1 else SINGLE
        return self.groups(messages)


def _by_key(messages: list[RowMessage]) -> list[list[RowMessage]]:
    """The messages in groups of one session or partition key."""
    found: dict[object, list[RowMessage]] = {}
    for each in messages:
        found.setdefault(each.row.session or each.row.values.get("partition_key"), []).append(each)
    return [*found.values()]


def _grouping(client: Hashable, entity: str) -> _Grouping:
    return worker.keep(("grouping", client, entity), _Grouping)


def send_with_retries(send: Callable[[], SendReceipt], patience: float) -> SendReceipt:
    """Call ``send``; while neither namespace accepts the messages, repeat it for up to ``patience`` seconds.

    Re-raises the exception of ``send`` when it is permanent, or the time is up.
    """
    outage = OutageState(patience)
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
    from sbpair.pair.pairing.errors import BacklogUnavailableError, PairingError
    from sbpair.pair.pairing.outcome import Failure
    from sbpair.pair.pairing.request.classify import classify

    if isinstance(error, PairingError) and not isinstance(error, BacklogUnavailableError):
        return False, 0.0
    causes = error.causes if isinstance(error, BacklogUnavailableError) else (error,)
    found = [classify(cause) for cause in causes]
    busy = [each.retry_after or BUSY for each in found if each.failure is Failure.BUSY]
    is_out = any(each.failure is Failure.UNAVAILABLE for each in found)
    return is_out or bool(busy), 0.0 if is_out else max(busy, default=0.0)


def batches(messages: list[RowMessage], most: int) -> Iterator[Sendable]:
    """Group messages into batches of at most ``most``, small enough for the Standard tier.

    A message too large for a batch is yielded on its own.
    """
    from azure.servicebus.exceptions import MessageSizeExceededError

    from sbpair.pair.pairing.request.request import ENVELOPE_ROOM
    from sbpair.pair.pairing.shared.base_sender import STANDARD_BATCH

    from .encoded_batch import EncodedBatch

    def empty() -> EncodedBatch[RowMessage]:
        return EncodedBatch(STANDARD_BATCH - ENVELOPE_ROOM)

    batch = empty()
    for message in messages:
        if len(batch) >= most:
            yield batch
            batch = empty()
        try:
            batch.add(message)
        except MessageSizeExceededError:
            if len(batch):
                yield batch
                batch = empty()
            try:
                batch.add(message)
            except MessageSizeExceededError:
                yield message
    if len(batch):
        yield batch
