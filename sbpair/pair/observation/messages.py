"""Events for sent and received messages, which the application writes to the journal itself.

    journal.write(send_accepted("orders", sender.send_messages(message), [message]))
    journal.write(messages_received("orders", receiver.receive_messages(100)))

Healthy sends emit no events, because a line for every message would cost more than the send. The SDK's receivers emit
none either; write their messages to a journal with the role ``receiver``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from sbpair.pair.ground.recorded import checksum_of, enqueued_of


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
    """A broker accepted all messages of one send. ``ambiguous``: a copy may be stored elsewhere too.

    ``checksums``: the CRC-32 of each body, -1 for one that is not of data; empty if unknown.
    """

    path: str
    stored_in: str
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool
    checksums: tuple[int, ...] = ()


def send_accepted(path: str, receipt: Receipt, messages: Iterable[object] = ()) -> SendAccepted:
    """Return the event for the receipt of a send to the entity ``path``, including its ambiguity.

    With the ``messages`` that were sent, an audit sees whether their bodies changed on the way.
    """
    where, ids = str(receipt.stored_in.value), tuple(receipt.message_ids)
    checksums = tuple(map(checksum_of, messages))
    return SendAccepted(
        path, where, receipt.backlog, ids, receipt.ambiguous, checksums if len(checksums) == len(ids) else ()
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
    scheduled. ``checksums``: the CRC-32 of each body, -1 for one that is not of data.
    """

    path: str
    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]
    enqueued: tuple[int, ...] = ()
    checksums: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class EntityEmptied:
    """The entity and its dead-letter queue were empty, nothing was locked, and all receivers keep journals."""

    path: str


def messages_received(path: str, messages: Iterable[ReceivedFields]) -> MessagesReceived:
    """Return the event for messages received from the entity ``path``."""
    every = list(messages)
    return MessagesReceived(
        path,
        tuple(str(message.message_id or "") for message in every),
        tuple(str(message.session_id or "") for message in every),
        tuple(int(message.sequence_number or 0) for message in every),
        tuple(map(enqueued_of, every)),
        tuple(map(checksum_of, every)),
    )
