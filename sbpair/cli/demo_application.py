"""The demo's application: it sends, repeats what raised, and receives.

It knows what any application knows: a client, its queue, and that a send may raise.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedServiceBusClient, PairedServiceBusSender, SendReceipt
from sbpair.cli.demo_plan import Act, Parcel, Plan
from sbpair.cli.demo_score import PRIMARY, Score, Scoreboard
from sbpair.observation import EntityEmptied, messages_received, send_accepted
from sbpair.testing import Ledger

QUEUE = "orders"
RETRY_PAUSE = 0.1  # seconds before a send that raised is repeated
LONGEST_ACT = 60.0  # seconds, beside the outage, until an act must have begun
AT_ONCE = 100  # messages the receiver asks for


class Application:
    """Sends the parcels of a plan from any number of threads, and receives in any number."""

    def __init__(
        self,
        plan: Plan,
        board: Scoreboard,
        ledger: Ledger,
        tell_sent: Callable[[object], None],
        tell_received: Callable[[object], None],
    ) -> None:
        self._board = board
        self._ledger = ledger
        self._tell_sent = tell_sent
        self._tell_received = tell_received
        self._waiting = deque(plan.parcels)
        self._longest_wait = LONGEST_ACT + plan.outage
        self._has_begun = {act: threading.Event() for act in Act}
        self._began_at = dict.fromkeys(Act, 0.0)
        self._is_over = threading.Event()

    def begin(self, act: Act) -> None:
        """From now on the parcels of this act fall due."""
        self._began_at[act] = time.monotonic()
        self._has_begun[act].set()

    def stop(self) -> None:
        """Every thread of it returns soon."""
        self._is_over.set()
        for event in self._has_begun.values():
            event.set()

    def send(self, client: PairedServiceBusClient) -> None:
        """Send until no parcel is left."""
        with client.get_queue_sender(QUEUE) as sender:
            while parcel := self._next_parcel():
                self._wait_until_due(parcel)
                self._send_parcel(sender, parcel)

    def receive(self, client: PairedServiceBusClient) -> None:
        """Receive and complete until stopped."""
        with client.get_queue_receiver(QUEUE, prefetch_count=AT_ONCE) as receiver:
            while not self._is_over.is_set():
                messages = receiver.receive_messages(max_message_count=AT_ONCE, max_wait_time=0.5)
                if messages:
                    self._tell_received(messages_received(QUEUE, messages))
                for message in messages:
                    receiver.complete_message(message)
                    self._ledger.received(str(message.message_id))
                    self._board.update(_received)

    def found_empty(self) -> None:
        """Somebody looked: nothing is left in the queue."""
        self._tell_received(EntityEmptied(QUEUE))

    def _send_parcel(self, sender: PairedServiceBusSender, parcel: Parcel) -> None:
        messages = [ServiceBusMessage(f"the order {key}", message_id=key) for key in parcel.message_ids]
        for key in parcel.message_ids:
            self._ledger.attempted(key)
        cargo = messages[0] if len(messages) == 1 else messages
        while not self._is_over.is_set():
            try:
                receipt = sender.send_messages(cargo)
            except ServiceBusError:
                self._board.update(_repeated(parcel))
                self._is_over.wait(RETRY_PAUSE)
            else:
                self._note(parcel, receipt)
                return

    def _note(self, parcel: Parcel, receipt: SendReceipt) -> None:
        for key in parcel.message_ids:
            self._ledger.acknowledged(key)
        self._tell_sent(send_accepted(QUEUE, receipt))
        self._board.update(_landed(parcel, receipt))

    def _next_parcel(self) -> Parcel | None:
        try:
            return None if self._is_over.is_set() else self._waiting.popleft()
        except IndexError:
            return None

    def _wait_until_due(self, parcel: Parcel) -> None:
        self._has_begun[parcel.act].wait(self._longest_wait)
        self._is_over.wait(max(0.0, self._began_at[parcel.act] + parcel.due - time.monotonic()))


def _landed(parcel: Parcel, receipt: SendReceipt) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.acknowledged += len(parcel.message_ids)
        score.where[PRIMARY if receipt.backlog is None else str(receipt.backlog)] += len(parcel.message_ids)

    return change


def _repeated(parcel: Parcel) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.retried += 1
        score.retried_messages |= set(parcel.message_ids)

    return change


def _received(score: Score) -> None:
    score.received += 1
