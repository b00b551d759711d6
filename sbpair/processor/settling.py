"""Settlements of one link: pipelined, in runs of consecutive deliveries, each confirmed by the broker (C-13).

settle() --> collected in this turn of the loop --> one disposition for each run --> the broker's answer
                                                        '-- the link ends first: a stray (strays.py)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from sbpair.amqp.events import DispositionReceived
from sbpair.amqp.performatives import ACCEPTED, RELEASED, DeliveryState, Rejected
from sbpair.client.errors import said
from sbpair.client.link import SERIAL, Receiver, runs

from .delivery import Delivery
from .settlement import Answer, Verb, answer_to


@dataclass(frozen=True, slots=True)
class SettlementCallbacks:
    """Callbacks for the outcome of settlements."""

    before: Callable[[list[Delivery]], None]
    """Called with messages that are about to be completed or dead-lettered."""
    answered: Callable[[Delivery, Answer, str], None]
    """Called with the broker's answer to a settlement, and the cause if it was refused."""
    stray: Callable[[Delivery, bool], None]
    """Called with each settlement that the link did not confirm, and whether it was sent."""


class Settlements:
    """The settlements of one link that are due, or sent but not confirmed."""

    def __init__(self, receiver: Receiver, report: SettlementCallbacks) -> None:
        self._receiver = receiver
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._due: list[Delivery] = []
        self._sent: dict[int, Delivery] = {}
        self.is_empty = asyncio.Event()
        """Set while nothing is due or unconfirmed."""
        self.is_empty.set()

    def __len__(self) -> int:
        return len(self._due) + len(self._sent)

    def add(self, delivery: Delivery) -> None:
        """Settle a delivery with its state, at the end of this turn of the loop."""
        if not self._due:
            self._loop.call_soon(self._flush)
            self.is_empty.clear()
        self._due.append(delivery)

    def oldest(self) -> float | None:
        """Return when the oldest unconfirmed settlement was sent, in monotonic seconds, or None."""
        return next((each.settled_at for each in self._sent.values()), None)

    def _flush(self) -> None:
        if self._receiver.detached.done():
            return  # end() reports them
        due, self._due = self._due, []
        self._report.before(due)
        now, sent, completed = self._loop.time(), self._sent, []
        for delivery in due:
            delivery.settled_at = now
            sent[delivery.delivery_id] = delivery
            if delivery.state is ACCEPTED:
                completed.append(delivery.delivery_id)
            else:
                self._receiver.settle(delivery.delivery_id, delivery.delivery_id, delivery.state)
        for first, last in runs(completed):
            self._receiver.settle(first, last, ACCEPTED)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Match the broker's answer for a range of deliveries."""
        sent = self._sent
        for offset in range((event.last - event.first) % SERIAL + 1):
            delivery = sent.pop((event.first + offset) % SERIAL, None)
            if delivery is not None:
                self._answered(delivery, event.state)
        if not sent and not self._due:
            self.is_empty.set()

    def _answered(self, delivery: Delivery, state: DeliveryState | None) -> None:
        answer = answer_to(delivery.state, state)
        error = state.error if isinstance(state, Rejected) else None
        self._report.answered(delivery, answer, "" if answer is Answer.CONFIRMED else said(error))

    def end(self) -> None:
        """Report unconfirmed settlements: the link has ended."""
        sent, self._sent = list(self._sent.values()), {}
        due, self._due = self._due, []
        self._report.before(due)
        for delivery in sent:
            self._report.stray(delivery, True)
        for delivery in due:
            self._report.stray(delivery, False)
        self.is_empty.set()


def release(receiver: Receiver, delivery_ids: list[int]) -> None:
    """Release deliveries without waiting for confirmation: if that fails, they are delivered when their locks end."""
    for first, last in runs(delivery_ids):
        receiver.give_back(first, last, RELEASED)


def deliveries_received(deliveries: list[Delivery]) -> Iterator[Delivery]:
    """Iterate over the deliveries that an audit counts as received: completed or dead-lettered by their handlers."""
    return (each for each in deliveries if each.is_handled or each.verb is Verb.DEAD_LETTER)
