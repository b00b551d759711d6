"""How does a healthy send get into the journal?

Not by itself: there is no event for it, since a line for every message would cost more than the send. Who
wants the line asks for it:

    journal.write(send_accepted("orders", sender.send_messages(message)))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol


class Receipt(Protocol):
    """What the paired sender's ``send_messages`` returns."""

    @property
    def rests(self) -> Enum: ...
    @property
    def backlog(self) -> int | None: ...
    @property
    def message_ids(self) -> Sequence[str]: ...
    @property
    def ambiguous(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class SendAccepted:
    """A broker accepted all messages of one send; where they rest, and whether a copy may rest elsewhere."""

    path: str
    rests: str
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool


def send_accepted(path: str, receipt: Receipt) -> SendAccepted:
    """The event for the receipt of a send to the entity ``path`` (G-7: it tells what is ambiguous)."""
    return SendAccepted(
        path, str(receipt.rests.value), receipt.backlog, tuple(receipt.message_ids), receipt.ambiguous
    )
