"""Units: the batches of a replay; the next is read while one is being sent.

    rows of the spool --> Unit: one message as it is, several as one batch of the SDK, encoded already

When a unit is refused, half of it is tried, and so on, until the message that causes the refusal is alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from sbpair.pair.envelope import aliases, park
from sbpair.pair.tracing import current

from ..request import sdk
from ..request.request import SpooledRequest
from ..shared.threads import Job, Workers
from ..shared.waiting import StillWaitingError
from .codec import from_bytes
from .store import Spool, Spooled

MAX_UNIT_MESSAGES = 512
MAX_UNIT_BYTES = 256 * 1024  # accepted by every tier as one batch
GROWTH = 8  # of the size of the next unit, once a broker accepted one


class UnitSizes:
    """How many messages of one entity are sent at a time. Pure."""

    def __init__(self) -> None:
        self._most = MAX_UNIT_MESSAGES
        self._suspects = 0  # messages at the head of the line, one of which was refused

    def next(self) -> int:
        """Return the largest number of messages for the next unit."""
        return max(self._suspects // 2, 1) if self._suspects else self._most

    def accepted(self, count: int) -> None:
        """Record that a broker accepted a unit of ``count`` messages."""
        if self._suspects:
            self._suspects = max(self._suspects - count, 0)
        else:
            self._most = min(self._most * GROWTH, MAX_UNIT_MESSAGES)

    def refused(self, count: int) -> None:
        """Record that a unit was refused: one of its messages is the cause."""
        self._suspects = count

    def found(self) -> None:
        """Record that the refused message was found and has left the queue."""
        self._suspects = 0

    def stopped(self) -> None:
        """Record that no broker accepted the unit: the next try is a small one."""
        self._most, self._suspects = 1, 0


@dataclass(frozen=True, slots=True)
class Unit:
    """Messages to send together. If there are none, ``broken`` says why the first spooled message cannot be sent."""

    stored: Sequence[Spooled]
    messages: Sequence[AmqpAnnotatedMessage] = ()
    deadlines: Sequence[int | None] = ()
    batch: ServiceBusMessageBatch | None = None
    broken: str = ""

    @property
    def is_mixed(self) -> bool:
        """Whether the messages have several session ids or partition keys."""
        return len({_placement(message) for message in self.messages}) > 1

    def request(self, kind: type[SpooledRequest]) -> SpooledRequest:
        """Return the request that sends the unit."""
        outgoing = self.messages[0] if self.batch is None else self.batch
        request = kind(outgoing, self.messages, sum(len(each.message) for each in self.stored))
        request.deadlines = self.deadlines
        return request


def unit_of(stored: Sequence[Spooled], now: int, *, is_mixed: bool) -> Unit:
    """Return the leading messages that fit into one batch, ``now`` in milliseconds since the epoch.

    ``is_mixed``: they may have several session ids and partition keys.
    """
    messages: list[AmqpAnnotatedMessage] = []
    deadlines: list[int | None] = []
    batch, broken = ServiceBusMessageBatch(MAX_UNIT_BYTES) if len(stored) > 1 else None, ""
    for each in stored:
        try:
            message, deadline = _readable(each, now)
            if messages and not is_mixed and _placement(message) != _placement(messages[0]):
                break
            if batch is not None:
                _add(batch, message)
        except MessageSizeExceededError:
            if messages:
                break
            batch = None  # alone, as it is
        except Exception as error:  # of any type: the SDK cannot encode it, or the disk damaged it
            broken = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
            break
        messages.append(message)
        deadlines.append(deadline)
        if batch is None:
            break
    taken = tuple(stored[: max(len(messages), 1)])
    return Unit(taken, messages, deadlines, batch if len(messages) > 1 else None, "" if messages else broken)


def _readable(stored: Spooled, now: int) -> tuple[AmqpAnnotatedMessage, int | None]:
    """Return a message and its deadline. Raises ValueError with the reason for which it cannot be sent."""
    if not stored.is_intact:
        raise ValueError("damaged on disk: its checksum is wrong")
    message = from_bytes(stored.message)
    deadline = park.take_deadline(message, now)
    if deadline is not None and deadline <= now:  # neither delivered late nor dropped
        raise ValueError("TTLExpiredException: its time to live ended while it waited")
    return message, deadline


def _add(batch: ServiceBusMessageBatch, message: AmqpAnnotatedMessage) -> None:
    if current.active is None:
        sdk.add(batch, message)
    else:
        with current.only(current.SdkSpans.ATTEMPTS):
            sdk.add(batch, message)


class UnitReader:
    """Reads the units of one entity, each while the previous one is being sent."""

    def __init__(self, spool: Spool, path: str, workers: Workers, is_mixed: Callable[[], bool]) -> None:
        self._spool = spool
        self._path = path
        self._workers = workers
        self._is_mixed = is_mixed
        self._ahead: tuple[Job, list[Unit | None]] | None = None

    def next(self, most: int) -> Unit | None:
        """Return the next unit, of at most ``most`` messages; None when no message waits."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            job, found = ahead
            job.wait(READ_SECONDS)
            if found and found[0] is not None and len(found[0].stored) <= most:
                return found[0]
        return self._read(most, 0)

    def read_ahead(self, unit: Unit, most: int) -> None:
        """Begin to read the messages after this unit, if there is a thread for it."""
        if len(unit.stored) == 1:
            return
        found: list[Unit | None] = []
        try:
            job = self._workers.start(
                "sbpair-spool-read", lambda: found.append(self._read(most, unit.stored[-1].number))
            )
        except StillWaitingError:
            return
        self._ahead = job, found

    def drop(self) -> None:
        """Forget what was read ahead, because earlier messages have not left the queue as expected."""
        self._ahead = None

    def _read(self, most: int, after: int) -> Unit | None:
        stored = self._spool.oldest(self._path, most, most_bytes=2 * MAX_UNIT_BYTES, after=after)
        return unit_of(stored, time.time_ns() // 1_000_000, is_mixed=self._is_mixed()) if stored else None


READ_SECONDS = 60.0  # a disk that takes longer fails the next read


def _placement(message: AmqpAnnotatedMessage) -> tuple[object, object]:
    """Return session and partition key: a partitioned entity accepts one of each in a batch."""
    annotations = message.annotations or {}
    name = aliases.ANNOTATION_PARTITION_KEY
    session = None if message.properties is None else message.properties.group_id
    return session, annotations.get(name, annotations.get(name.encode()))
