"""How does what a program received get into the journal, so that an audit can say "delivered"?

Receivers are the SDK's own and tell no events. Who wants the line writes it, in a journal of its own role:

    journal.write(messages_received("orders", receiver.receive_messages(100)))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


class Received(Protocol):
    """What is read of an SDK's ``ServiceBusReceivedMessage``."""

    @property
    def message_id(self) -> str | None: ...
    @property
    def session_id(self) -> str | None: ...
    @property
    def sequence_number(self) -> int | None: ...


@dataclass(frozen=True, slots=True)
class MessagesReceived:
    """A program received these messages; the lists go together, "" and 0 where a message has none."""

    path: str
    message_ids: tuple[str, ...]
    session_ids: tuple[str, ...]
    sequence_numbers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class EntityEmptied:
    """Nothing waited in the entity or its dead-letter queue, or was locked; all receivers keep journals."""

    path: str


def messages_received(path: str, messages: Iterable[Received]) -> MessagesReceived:
    """The event for messages received from the entity ``path`` (G-2)."""
    every = list(messages)
    return MessagesReceived(
        path,
        tuple(str(message.message_id or "") for message in every),
        tuple(str(message.session_id or "") for message in every),
        tuple(int(message.sequence_number or 0) for message in every),
    )
