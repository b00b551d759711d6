"""Settlements of one link: pipelined, in runs of consecutive deliveries, each confirmed by the broker.

add() --> due --flush()--> one disposition for each run --> the broker's answer
                                   '-- the link ends first: end()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Generic, TypeVar

from sbpair.pair.amqp import errors
from sbpair.pair.amqp.events import DispositionReceived
from sbpair.pair.amqp.performatives import ACCEPTED, RELEASED, DeliveryState
from sbpair.pair.amqp.types import Symbol

from .link import SERIAL, Receiver, runs

T = TypeVar("T")

DEAD_LETTER = Symbol(errors.DEAD_LETTER)  # the condition of a rejection, and the keys of its information
REASON, DESCRIPTION = Symbol("DeadLetterReason"), Symbol("DeadLetterErrorDescription")


class Settlements(Generic[T]):
    """The settlements that are due, and those that are sent but not confirmed; each carries an item of the owner."""

    def __init__(self, answered: Callable[[T, DeliveryState | None], None]) -> None:
        """``answered`` is called with each item and the broker's answer."""
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, T] = {}
        self._refusals: dict[int, DeliveryState] = {}  # of those due that are not to be accepted
        self._sent: dict[int, tuple[float, dict[int, T]]] = {}  # when, and the items of all sent then
        self.is_empty = asyncio.Event()
        """Set while nothing is due or unconfirmed."""
        self.is_empty.set()

    def __len__(self) -> int:
        return len(self._due) + len(self._sent)

    @property
    def due(self) -> Collection[T]:
        """The items of the settlements that are not sent yet."""
        return self._due.values()

    def add(self, delivery_id: int, item: T, state: DeliveryState = ACCEPTED) -> None:
        """Settle a delivery with ``state`` at the next :meth:`flush`."""
        if not self._due:
            self.is_empty.clear()
        self._due[delivery_id] = item
        if state is not ACCEPTED:
            self._refusals[delivery_id] = state

    def flush(self, receiver: Receiver) -> None:
        """Send the settlements that are due."""
        if not self._due:
            return
        (due, self._due), (refusals, self._refusals) = (self._due, {}), (self._refusals, {})
        self._sent.update(dict.fromkeys(due, (self._loop.time(), due)))
        for delivery_id, state in refusals.items():
            receiver.settle(delivery_id, delivery_id, state)
        for first, last in runs(due.keys() - refusals.keys() if refusals else due):
            receiver.settle(first, last, ACCEPTED)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Match the broker's answer for a range of deliveries."""
        sent, state = self._sent, event.state
        for offset in range((event.last - event.first) % SERIAL + 1):
            delivery_id = (event.first + offset) % SERIAL
            found = sent.pop(delivery_id, None)
            if found is not None:
                self._answered(found[1].pop(delivery_id), state)
        self._note_empty()

    def is_overdue(self, within: float) -> bool:
        """Whether a settlement was sent more than ``within`` seconds ago and is not confirmed."""
        sent_at = next((at for at, _ in self._sent.values()), None)
        return sent_at is not None and self._loop.time() - sent_at > within

    def end(self) -> tuple[list[T], list[T]]:
        """Forget all settlements, because the link has ended. Return the items of those sent, and of those not sent."""
        sent, self._sent = self._sent, {}
        due, self._due = self._due, {}
        self._refusals.clear()
        self._note_empty()
        return [items[delivery_id] for delivery_id, (_, items) in sent.items()], list(due.values())

    def _note_empty(self) -> None:
        if not (self._sent or self._due):
            self.is_empty.set()


def release(receiver: Receiver, delivery_ids: Iterable[int]) -> None:
    """Release deliveries without confirmation; if that fails, they are redelivered when their locks expire."""
    for first, last in runs(delivery_ids):
        receiver.give_back(first, last, RELEASED)
