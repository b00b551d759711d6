"""The demo's application: it sends, repeats sends that raise, and receives or handles the messages that arrive."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair import PairedServiceBusClient, PairedServiceBusSender, SendReceipt
from sbpair.broker.testing.ledger import Ledger
from sbpair.pair.ground.side import Side
from sbpair.pair.observation.messages import EntityEmptied, messages_received, send_accepted
from sbpair.pair.processor.events import MessagesReceived
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.options import ProcessorOptions

from .plan import Act, DemoPlan, SendCall
from .scoreboard import PRIMARY, Score, Scoreboard
from .stage import PRIMARY_NAME, QUEUE, SECONDARY_NAME

NAMES = {Side.PRIMARY: PRIMARY_NAME, Side.SECONDARY: SECONDARY_NAME}
SENDERS = 4
RETRY_PAUSE = 0.1  # seconds before a send that raised is repeated
MAX_ACT_SECONDS = 60.0  # seconds, in addition to the outage, within which an act must begin
BATCH = 100  # messages per receive call
SESSION_WAIT = 0.5  # seconds for a session to be available, and for its next message
SESSIONS_AT_ONCE = 32


class Application:
    """The demo's application: sends, repeats the sends that raise, and receives, each in any number of threads.

    It has what every application has: a client, the name of its queue, and sends that may raise.
    """

    def __init__(
        self,
        plan: DemoPlan,
        board: Scoreboard,
        ledger: Ledger,
        on_sent: Callable[[object], None],
        on_received: Callable[[object], None],
    ) -> None:
        self._board = board
        self._ledger = ledger
        self._on_sent = on_sent
        self._on_received = on_received
        self._plan = plan
        self._lanes = lanes(plan.calls)
        self._longest_wait = MAX_ACT_SECONDS + plan.outage
        self._has_begun = {act: threading.Event() for act in Act}
        self._began_at = dict.fromkeys(Act, 0.0)
        self._is_over = threading.Event()

    def begin(self, act: Act) -> None:
        """Start the clock of the current act: its calls fall due from now on."""
        self._began_at[act] = time.monotonic()
        self._has_begun[act].set()

    def stop(self) -> None:
        """Make every thread return soon."""
        self._is_over.set()
        for event in self._has_begun.values():
            event.set()

    def send(self, client: PairedServiceBusClient) -> None:
        """Make the calls in the lane of this thread until none is left; each of SENDERS threads takes one lane."""
        lane = self._lanes.popleft()
        with client.get_queue_sender(QUEUE) as sender:
            while call := self._next_call(lane):
                self._wait_until_due(call)
                self._send(sender, call)

    def receive(self, client: PairedServiceBusClient) -> None:
        """Receive and complete until stopped, one session at a time if there are sessions."""
        if not self._plan.sessions:
            with client.get_queue_receiver(QUEUE, prefetch_count=BATCH) as receiver:
                while not self._is_over.is_set():
                    self._receive_some(receiver)
        while not self._is_over.is_set():
            try:
                with client.get_queue_receiver(
                    QUEUE, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=SESSION_WAIT, prefetch_count=BATCH
                ) as receiver:
                    while not self._is_over.is_set() and self._receive_some(receiver):
                        pass
            except OperationTimeoutError:  # no session has a message
                continue

    def _receive_some(self, receiver: ServiceBusReceiver) -> bool:
        """Receive and complete the messages that arrive within SESSION_WAIT; False if there were none."""
        messages = receiver.receive_messages(max_message_count=BATCH, max_wait_time=SESSION_WAIT)
        if messages:
            self._on_received(messages_received(QUEUE, messages))
        for message in messages:
            receiver.complete_message(message)
            self._ledger.received(str(message.message_id))
            self._board.update(_received)
        return bool(messages)

    @contextmanager
    def consumers(self, client: PairedServiceBusClient) -> Iterator[None]:
        """Handle the messages of both namespaces during the block; each id only once, from whichever side."""
        options = ProcessorOptions(
            deduplicate=timedelta(minutes=10),
            missing_entity_interval=timedelta(seconds=1),
            retry_backoff_max=timedelta(seconds=1),
            max_concurrent_sessions=SESSIONS_AT_ONCE if self._plan.sessions else None,
            session_idle_timeout=timedelta(seconds=SESSION_WAIT),
        )
        processor = client.get_queue_processor(QUEUE, self._handle, options=options)
        processor.reports_messages = True
        processor.on_event(self._on_processor_event)
        with processor:
            yield

    def _handle(self, message: ReceivedMessage) -> None:
        self._ledger.received(str(message.message_id))
        self._board.update(_score_arrival(NAMES[message.side], self._board.elapsed_seconds()))

    def _on_processor_event(self, event: object) -> None:
        if isinstance(event, MessagesReceived):
            self._on_received(event)

    def report_empty(self) -> None:
        """Record in the journal that the queue was found empty."""
        self._on_received(EntityEmptied(QUEUE))

    def _send(self, sender: PairedServiceBusSender, call: SendCall) -> None:
        messages = [
            ServiceBusMessage(f"the order {key}", message_id=key, session_id=call.session)
            for key in call.message_ids
        ]
        for key in call.message_ids:
            self._ledger.attempted(key)
        payload = messages[0] if len(messages) == 1 else messages
        while not self._is_over.is_set():
            try:
                receipt = sender.send_messages(payload)
            except ServiceBusError:
                self._board.update(_score_repetition(call))
                self._is_over.wait(RETRY_PAUSE)
            else:
                self._note(call, receipt, messages)
                return

    def _note(self, call: SendCall, receipt: SendReceipt, messages: list[ServiceBusMessage]) -> None:
        for key in call.message_ids:
            self._ledger.acknowledged(key, call.session)
        self._on_sent(send_accepted(QUEUE, receipt, messages))
        self._board.update(_score_landing(call, receipt))

    def _next_call(self, lane: deque[SendCall]) -> SendCall | None:
        try:
            return None if self._is_over.is_set() else lane.popleft()
        except IndexError:
            return None

    def _wait_until_due(self, call: SendCall) -> None:
        self._has_begun[call.act].wait(self._longest_wait)
        self._is_over.wait(max(0.0, self._began_at[call.act] + call.due - time.monotonic()))


def lanes(calls: tuple[SendCall, ...]) -> deque[deque[SendCall]]:
    """Return the calls of each sender thread, in order: a session has one lane, and calls without one share a lane."""
    shared = deque(call for call in calls if call.session is None)
    if shared:
        return deque([shared] * SENDERS)
    found: deque[deque[SendCall]] = deque(deque() for _ in range(SENDERS))
    of_session: dict[str | None, int] = {}
    for call in calls:
        found[of_session.setdefault(call.session, len(of_session) % SENDERS)].append(call)
    return found


def _score_landing(call: SendCall, receipt: SendReceipt) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.acknowledged += len(call.message_ids)
        score.where[PRIMARY if receipt.backlog is None else str(receipt.backlog)] += len(call.message_ids)
        if receipt.ambiguous:
            score.in_doubt |= set(call.message_ids)

    return change


def _score_repetition(call: SendCall) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.retried += 1
        score.in_doubt |= set(call.message_ids)

    return change


def _score_arrival(namespace: str, at: float) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        pause = 0.0 if score.received_last is None else at - score.received_last
        score.longest_pause = max(score.longest_pause or 0.0, pause)
        score.received_last = at
        score.received += 1
        score.received_from[namespace] += 1

    return change


def _received(score: Score) -> None:
    score.received += 1
