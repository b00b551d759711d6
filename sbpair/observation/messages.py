"""Events for sent and received messages, which the application writes to the journal itself.

    journal.write(send_accepted("orders", sender.send_messages(message)))
    journal.write(messages_received("orders", receiver.receive_messages(100)))

Healthy sends emit no events, because a line for every message would cost more than the send. The SDK's receivers emit
none either; write their messages to a journal with the role ``receiver``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol


class Receipt(Protocol):
    """The fields read from the receipt that the paired sender's ``send_messages`` returns."""

    @property
    def stored_in(self) -> Enum: ...
    @property
    def backlog(self) -> int | None: ...
    @property
    def message_ids(self) -> Sequence[str]: ...
    @property
    def ambiguous(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SendAccepted:
    """A broker accepted all messages of one send. ``ambiguous``: a copy may be stored elsewhere too."""

    path: str
    stored_in: str
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool


def send_accepted(path: str, receipt: Receipt) -> SendAccepted:
    """Return the event for the receipt of a send to the entity ``path``, including its ambiguity."""
    # G-7
    return SendAccepted(
        path, str(receipt.stored_in.value), receipt.backlog, tuple(receipt.message_ids), receipt.ambiguous
    )


class ReceivedFields(Protocol):
    """The fields read from the SDK's ``ServiceBusReceivedMessage``."""

    @property
    def message_id(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def sequence_number(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """An application received these messages. The tuples are parallel; "" and 0 stand for missing values.

    ``enqueued``: when they became available, by the broker's clock, in milliseconds since the epoch; 0 for one that was
    scheduled.
    """

    path: str
    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]
    enqueued: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityEmptied:
    """The entity and its dead-letter queue were empty, nothing was locked, and all receivers keep journals."""

    path: str


def messages_received(path: str, messages: Iterable[ReceivedFields]) -> MessagesReceived:
    """Return the event for messages received from the entity ``path``."""
    # G-2
    every = list(messages)
    return MessagesReceived(
        path,
        tuple(str(message.message_id or "") for message in every),
        tuple(str(message.session_id or "") for message in every),
        tuple(int(message.sequence_number or 0) for message in every),
        tuple(map(enqueued_of, every)),
    )


def enqueued_of(message: object) -> int:
    """When the broker enqueued a message, in milliseconds since the epoch; 0 if unknown, or if it was scheduled."""
    at = getattr(message, "enqueued_time_utc", None)  # of every message of the SDK and of a processor
    if not isinstance(at, datetime) or getattr(message, "scheduled_enqueue_time_utc", None) is not None:
        return 0
    return round(at.timestamp() * 1000)
