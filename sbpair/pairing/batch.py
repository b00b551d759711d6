"""What exactly is in one call of send_messages, and what of it still has to be parked?

The caller's input is frozen before the first attempt: a generator would be empty at the second, an
iterable could change. A batch made by a paired sender keeps a copy of what was added to it, so that it
can be taken apart and parked. No I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError

from . import envelope, sdk
from .envelope import Message
from .receipt import Place, Rest


class PairedMessageBatch(ServiceBusMessageBatch):
    """A batch that remembers its messages as they were when they were added.

    ``add_message`` raises ReservedPropertyError besides what the SDK's own batch raises.
    """

    def __init__(self, max_size_in_bytes: int | None = None) -> None:
        super().__init__(max_size_in_bytes)
        self.originals: list[AmqpAnnotatedMessage] = []

    def add_message(self, message: ServiceBusMessage | AmqpAnnotatedMessage | Mapping[str, Any]) -> None:
        prepared = envelope.prepare(message)
        super().add_message(prepared)
        self.originals.append(envelope.snapshot(prepared))

    def _from_list(self, messages: Iterable[ServiceBusMessage]) -> None:
        """As the SDK fills a batch; left to its own, nothing would be known of them here, nor sent."""
        for message in messages:
            self.add_message(message)


ENVELOPE_ROOM = 1024
"""Bytes kept free in a batch: the SDK does not count what it writes on a batch's envelope itself."""


class BatchMaker(Protocol):
    """Whatever makes empty batches, by default of the size its link allows: an SDK sender."""

    def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch: ...


class PrimarySender(Protocol):
    """What a cargo needs of an SDK sender, blocking or not."""

    # The SDK's type wants lists of one kind; it takes mixed ones.
    def send_messages(self, message: Any, *, timeout: float | None = None) -> object: ...  # noqa: ANN401

    def create_message_batch(self) -> object: ...

    def schedule_messages(
        self,
        messages: Any,  # noqa: ANN401
        schedule_time_utc: datetime,
        *,
        timeout: float | None = None,
    ) -> object: ...

    def cancel_scheduled_messages(
        self, sequence_numbers: list[int], *, timeout: float | None = None
    ) -> object: ...


class Cargo:
    """The messages of one call, frozen; and how many of them are parked already.

    ``outgoing`` is what goes to the primary: the message, a list of them, or the batch.
    """

    __slots__ = ("_parked", "_rests", "answer", "deadlines", "messages", "outgoing", "rewritten")

    is_for_primary_only = False
    is_promised = False
    """Whether it was acknowledged before: then nothing of ours refuses it any more."""

    def __init__(
        self, outgoing: Message | list[Message] | ServiceBusMessageBatch, messages: Sequence[Message]
    ) -> None:
        self.outgoing = outgoing
        self.messages = messages
        self.rewritten: list[AmqpAnnotatedMessage] | None = None
        self.deadlines: Sequence[int | None] | None = None
        self.answer: object = None  # what the primary said to it
        self._parked = 0
        self._rests: list[tuple[int, int]] = []  # backlog, and up to which message

    def hand_over(self, sender: PrimarySender, timeout: float) -> object:
        """Let an SDK sender send this to the primary; its answer, or an awaitable of it."""
        return sender.send_messages(self.outgoing, timeout=timeout)

    def __len__(self) -> int:
        return len(self.messages)

    @property
    def parked(self) -> int:
        """How many of the first messages a backlog queue has accepted."""
        return self._parked

    def unparked_until(self) -> list[tuple[Message, int | None]]:
        """The messages that no broker has accepted, as far as is known, each with its deadline."""
        deadlines = self.deadlines or [None] * len(self.messages)
        return list(zip(self.messages, deadlines, strict=True))[self._parked :]

    def message_ids(self) -> tuple[str, ...]:
        return tuple([envelope.message_id_of(message) for message in self.messages])

    def fix_deadlines(self, first_attempt: int) -> None:
        """Say, once, until when each message is of use (G-15): its time to live runs from this instant."""
        if self.deadlines is None:
            self.deadlines = [envelope.deadline_of(message, first_attempt) for message in self.messages]

    def rewrite(self, path: str) -> None:
        """Make the parked copies, once. Raises ValueError when a message holds no valid time."""
        if self.rewritten is None:
            self.rewritten = [
                envelope.park(message, path, deadline) for message, deadline in self.unparked_until()
            ]

    def rests(self) -> tuple[tuple[int, int], ...]:
        """The backlog queues that have accepted messages so far, and each up to which message."""
        return tuple(self._rests)

    def places(self) -> tuple[Place, ...]:
        """Which messages backlog queues have accepted so far, in order."""
        ids, start, found = self.message_ids(), 0, []
        for backlog, end in self._rests:
            found.append(Place(Rest.BACKLOG, backlog, ids[start:end]))
            start = end
        return tuple(found)

    def chunks(
        self, maker: BatchMaker, backlog: int
    ) -> Iterator[AmqpAnnotatedMessage | ServiceBusMessageBatch]:
        """What is still to be parked, in order, in pieces that fit one link (P-22).

        Taking the next piece says that the one before was accepted.
        """
        rewritten = self.rewritten or []
        while self._parked < len(rewritten):
            rest = rewritten[self._parked :]
            if len(rest) == 1:
                piece, size = rest[0], 1
                yield piece
            else:
                limit = maker.create_message_batch().max_size_in_bytes
                batch = maker.create_message_batch(max(limit - ENVELOPE_ROOM, limit // 2))
                size = _fill(batch, rest)
                yield batch if size else rest[0]  # too large for a batch: alone it may still do
            self._accepted(backlog, max(size, 1))

    def _accepted(self, backlog: int, count: int) -> None:
        self._parked += count
        if self._rests and self._rests[-1][0] == backlog:
            self._rests.pop()
        self._rests.append((backlog, self._parked))


class SpooledCargo(Cargo):
    """Messages from the spool."""

    __slots__ = ()

    is_promised = True


def freeze(given: object) -> Cargo:
    """The input of send_messages, as it will be sent whatever the caller does meanwhile.

    Raises TypeError for what is no message, ReservedPropertyError.
    """
    if isinstance(given, ServiceBusMessage):
        message = envelope.prepare(given)
        return Cargo(message, (message,))
    if isinstance(given, ServiceBusMessageBatch):
        return Cargo(given, _contents(given))
    if isinstance(given, Iterable) and not isinstance(given, (Mapping, str, bytes)):
        messages = [envelope.prepare(message) for message in given]
        return Cargo(messages, messages)
    message = envelope.prepare(given)
    return Cargo(message, (message,))


def _contents(batch: ServiceBusMessageBatch) -> Sequence[Message]:
    if isinstance(batch, PairedMessageBatch):
        return batch.originals
    kept = sdk.messages_of(batch)
    if kept is None:
        raise TypeError(
            "this azure-servicebus keeps no messages in a batch; make it with create_message_batch() "
            "of the paired sender"
        )
    return [envelope.prepare(message) for message in kept]


def _fill(batch: ServiceBusMessageBatch, messages: Sequence[AmqpAnnotatedMessage]) -> int:
    for count, message in enumerate(messages):
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            return count
    return len(messages)
