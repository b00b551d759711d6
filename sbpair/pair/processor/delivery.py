"""A delivery: one message in flight, from its arrival to the confirmation of its settlement."""

from __future__ import annotations

import asyncio
from enum import Enum
from typing import Protocol

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.performatives import ACCEPTED, DeliveryState
from sbpair.pair.client.link import Receiver

from .message import ReceivedMessage
from .settlement import Answer, Verb


class DeliveryPhase(Enum):
    """The phase of a delivery."""

    WAITING = "waiting"  # for a handler
    RUNNING = "running"  # its handler runs, or returned without settling it (autosettle=False)
    SETTLING = "settling"  # its settlement is sent, or about to be
    GONE = "gone"  # confirmed, given back, or lost


class SettlingLink(Protocol):
    """The link that settles a delivery."""

    def settle(self, delivery: Delivery, verb: Verb, state: DeliveryState) -> None:
        """Settle a delivery that is waiting or running; does nothing in any other phase."""

    def give_back(self, delivery: Delivery) -> None:
        """Release a delivery that is waiting or running; does nothing in any other phase."""

    def returned(self, delivery: Delivery) -> None:
        """Record that the handler of a delivery has ended, after its message was settled with the outcome."""


class Delivery:
    """A message in flight; times are monotonic seconds."""

    __slots__ = (
        "answered",
        "arrived",
        "delivery_id",
        "is_handled",
        "is_reported",
        "is_returned",
        "link",
        "lock_ends",
        "message",
        "name",
        "phase",
        "receiver",
        "seconds",
        "started",
        "state",
        "tag",
        "task",
        "verb",
    )

    def __init__(
        self,
        link: SettlingLink,
        receiver: Receiver,
        delivery_id: int,
        tag: bytes,
        message: ReceivedMessage,
        now: float,
        lock_ends: float,
    ) -> None:
        self.link = link
        self.receiver = receiver
        """The receiver that it arrived on; delivery ids are per receiver."""
        self.delivery_id = delivery_id
        self.tag = tag
        self.message = message
        self.arrived = now
        self.lock_ends = lock_ends
        self.phase = DeliveryPhase.WAITING
        self.started = 0.0
        self.seconds = 0.0
        """How long the handler took, in seconds."""
        self.is_returned = False
        """Whether the handler has ended."""
        self.is_handled = False
        """Whether the message was processed: its handler returned, or completed or dead-lettered it by hand."""
        self.is_reported = False
        """Whether it was reported as received."""
        self.name: str | None = None
        """The message id under which it was registered for deduplication."""
        self.task: asyncio.Task[None] | None = None
        """The task of the handler, in asyncio."""
        self.verb = Verb.COMPLETE
        self.state: DeliveryState = ACCEPTED
        self.answered: asyncio.Future[Answer | None] | None = None
        """Resolves with the broker's answer to a settlement by hand; None when the link was lost first."""

    @property
    def is_open(self) -> bool:
        """Whether it can still be settled."""
        return self.phase is DeliveryPhase.WAITING or self.phase is DeliveryPhase.RUNNING

    async def settle_by_hand(self, verb: Verb, state: DeliveryState) -> Answer | None:
        """Settle the message and return the broker's answer, or None if the link ended first."""
        self.answered = asyncio.get_running_loop().create_future()
        self.is_handled = verb in (Verb.COMPLETE, Verb.DEAD_LETTER)
        self.link.settle(self, verb, state)
        return await self.answered

    def end(self, answer: Answer | None) -> None:
        """Record the broker's answer to the settlement; None if the link ended first."""
        self.phase = DeliveryPhase.GONE
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(answer)


def message_id_of(message: ReceivedMessage) -> str:
    """Return the id of a message as a string; "" if it is missing or unreadable."""
    try:
        found = message.message_id
    except (DecodeError, IndexError):
        return ""
    return "" if found is None else str(found)
