"""The parts of the demo: paired client, syphon, backlog monitor, and the sending and receiving application."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, PairedServiceBusSender, SendReceipt
from sbpair.observation import EntityEmptied, messages_received, send_accepted
from sbpair.pairing.pair_state import Role
from sbpair.processor import MessagesReceived, ProcessorOptions, ReceivedMessage
from sbpair.syphon import Syphon, SyphonOptions
from sbpair.syphon.events import LandingBegan, LandingEnded, SyphonEvent
from sbpair.testing import Ledger

from .plan import PING_INTERVAL, Act, DemoPlan, SendCall
from .scoreboard import PRIMARY, Score, Scoreboard

if TYPE_CHECKING:
    from sbpair.broker import Broker, NamespaceControl

PRIMARY_NAME, SECONDARY_NAME = "contoso", "contoso-dr"
NAMES = {Role.PRIMARY: PRIMARY_NAME, Role.SECONDARY: SECONDARY_NAME}
BACKLOGS = 4
POLL_INTERVAL = 0.2  # seconds between two readings of the backlogs' depth
JOIN_TIMEOUT = 15.0  # seconds for a thread to end
Work = Callable[[], None]
QUEUE = "orders"
RETRY_PAUSE = 0.1  # seconds before a send that raised is repeated
LONGEST_ACT = 60.0  # seconds, in addition to the outage, within which an act must begin
BATCH = 100  # messages per receive call


class Stage:
    """Creates the client, the syphon and the threads for one broker.

    ``failure`` is the first exception of any thread; the story checks it while it waits.
    """

    def __init__(self, plan: DemoPlan, board: Scoreboard, broker: Broker, *, lands: bool) -> None:
        self._plan = plan
        self._board = board
        self._lands = lands
        self._ca_file = str(broker.ca_file)
        self.primary = broker.namespace(PRIMARY_NAME)
        self.secondary = broker.namespace(SECONDARY_NAME)
        self.failure: Exception | None = None

    def client(self) -> PairedServiceBusClient:
        """Create the paired client, with short intervals so that the demo is brief."""
        options = PairedNamespaceOptions(
            backlog_queue_count=BACKLOGS,
            failover_interval=self._plan.failover_interval,
            ping_primary_interval=PING_INTERVAL,
            operation_timeout=timedelta(seconds=20),
            primary_namespace_name=PRIMARY_NAME,  # both hosts are localhost
        )
        return PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=options,
            connection_verify=self._ca_file,
            retry_total=0,  # the SDK's retries would outlast the shortest outages
        )

    @contextmanager
    def threads(self, name: str, count: int, work: Work, stop: Work) -> Iterator[None]:
        """Run ``work`` in ``count`` threads; ``stop`` is called when the block ends, also by an exception."""
        threads = [self._thread(f"{name} {number}", work) for number in range(count)]
        try:
            yield
        finally:
            stop()
            for thread in threads:
                thread.join(JOIN_TIMEOUT)

    @contextmanager
    def syphon(self, write: Callable[[object], None], *, report_forwards: bool) -> Iterator[None]:
        """Run a syphon for the whole block, as in production; ``write`` receives its events."""
        options = SyphonOptions(
            backlog_queue_count=BACKLOGS,
            primary_namespace_name=PRIMARY_NAME,
            report_forwards=report_forwards,
            missing_backlog_interval=timedelta(seconds=1),
            retry_backoff_max=timedelta(seconds=1),
            land="either" if self._lands else "primary",
            land_after=self._plan.failover_interval,
        )
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string, options=options
        )
        syphon.on_event(write)
        syphon.on_event(self._syphon_said)
        loop, shutdown = asyncio.new_event_loop(), asyncio.Event()

        async def run() -> None:
            watch = asyncio.ensure_future(self._watch(syphon))
            await syphon.run(shutdown)
            watch.cancel()
            write(syphon.counters.snapshot())

        def stop() -> None:
            loop.call_soon_threadsafe(shutdown.set)

        with self.threads("syphon", 1, lambda: loop.run_until_complete(run()), stop):
            yield
        loop.close()

    def _syphon_said(self, event: SyphonEvent) -> None:
        match event:
            case LandingBegan(path=path):
                self._board.note(f"the syphon lands what is parked for {path} on {SECONDARY_NAME}")
            case LandingEnded(path=path):
                self._board.note(f"the syphon brings what is parked for {path} home again")

    async def _watch(self, syphon: Syphon) -> None:
        while True:
            self._board.update(_home(syphon.counters.completed))
            await asyncio.sleep(POLL_INTERVAL)

    @contextmanager
    def monitor_backlogs(self) -> Iterator[None]:
        """Keep the depth of every backlog on the scoreboard up to date."""
        is_done = threading.Event()

        def watch() -> None:
            while not is_done.wait(POLL_INTERVAL):
                self._board.update(_depths(self.depths(), self._board.elapsed()))

        with self.threads("monitor", 1, watch, is_done.set):
            yield

    def depths(self) -> dict[str, int]:
        """The current number of messages in each backlog, by the backlog's number."""
        control = self.secondary
        backlogs = [name for name in control.queue_names() if name != QUEUE]
        return {name.rpartition("/")[2]: control.counts(name).total for name in backlogs}

    def is_empty(self) -> bool:
        """Whether the queue is empty, on both namespaces if there is a twin."""
        sides = (self.primary, self.secondary) if self._lands else (self.primary,)
        return not any(side.counts(QUEUE).total for side in sides)

    def _thread(self, name: str, work: Work) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.failure = self.failure or error  # raised by the story
                self._board.update(lambda score: None)

        thread = threading.Thread(target=guarded, name=f"demo {name}", daemon=True)
        thread.start()
        return thread


def billed(primary: NamespaceControl, secondary: NamespaceControl, *, lands: bool) -> dict[str, int]:
    """The billed operations of both namespaces by kind: two per direct message, four per parked one (P-43)."""
    here, there = primary.operations, secondary.operations
    return {
        "send_to_primary": here.sends,
        "receive_from_primary": here.receives,
        "send_to_secondary" if lands else "send_to_backlog": there.sends,
        "receive_from_secondary" if lands else "receive_from_backlog": there.receives,
        "pings": here.pings,  # P-34
    }


def _home(count: int) -> Callable[[Score], None]:
    return lambda score: setattr(score, "brought_home", count)


def _depths(depths: dict[str, int], at: float) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        if any(score.depth.values()) and not any(depths.values()):
            score.emptied_at = at
        most = Counter(score.deepest)
        score.depth = depths
        score.deepest = {name: max(depth, most[name]) for name, depth in depths.items()}

    return change


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
        self._waiting = deque(plan.calls)
        self._longest_wait = LONGEST_ACT + plan.outage
        self._has_begun = {act: threading.Event() for act in Act}
        self._began_at = dict.fromkeys(Act, 0.0)
        self._is_over = threading.Event()

    def begin(self, act: Act) -> None:
        """Start the clock of this act: its calls fall due from now on."""
        self._began_at[act] = time.monotonic()
        self._has_begun[act].set()

    def stop(self) -> None:
        """Make every thread return soon."""
        self._is_over.set()
        for event in self._has_begun.values():
            event.set()

    def send(self, client: PairedServiceBusClient) -> None:
        """Send until no call of the plan is left."""
        with client.get_queue_sender(QUEUE) as sender:
            while call := self._next_call():
                self._wait_until_due(call)
                self._send(sender, call)

    def receive(self, client: PairedServiceBusClient) -> None:
        """Receive and complete until stopped."""
        with client.get_queue_receiver(QUEUE, prefetch_count=BATCH) as receiver:
            while not self._is_over.is_set():
                messages = receiver.receive_messages(max_message_count=BATCH, max_wait_time=0.5)
                if messages:
                    self._on_received(messages_received(QUEUE, messages))
                for message in messages:
                    receiver.complete_message(message)
                    self._ledger.received(str(message.message_id))
                    self._board.update(_received)

    @contextmanager
    def consumers(self, client: PairedServiceBusClient) -> Iterator[None]:
        """Handle the messages of both namespaces for the whole block; an id once, whichever side it comes from."""
        options = ProcessorOptions(
            deduplicate=timedelta(minutes=10),
            missing_entity_interval=timedelta(seconds=1),
            retry_backoff_max=timedelta(seconds=1),
        )
        processor = client.get_queue_processor(QUEUE, self._handle, options=options)
        processor.reports_messages = True
        processor.on_event(self._processor_said)
        with processor:
            yield

    def _handle(self, message: ReceivedMessage) -> None:
        self._ledger.received(str(message.message_id))
        self._board.update(_consumed(NAMES[message.side], self._board.elapsed()))

    def _processor_said(self, event: object) -> None:
        if isinstance(event, MessagesReceived):
            self._on_received(event)

    def report_empty(self) -> None:
        """Record in the journal that the queue was found empty."""
        self._on_received(EntityEmptied(QUEUE))

    def _send(self, sender: PairedServiceBusSender, call: SendCall) -> None:
        messages = [ServiceBusMessage(f"the order {key}", message_id=key) for key in call.message_ids]
        for key in call.message_ids:
            self._ledger.attempted(key)
        payload = messages[0] if len(messages) == 1 else messages
        while not self._is_over.is_set():
            try:
                receipt = sender.send_messages(payload)
            except ServiceBusError:
                self._board.update(_repeated(call))
                self._is_over.wait(RETRY_PAUSE)
            else:
                self._note(call, receipt)
                return

    def _note(self, call: SendCall, receipt: SendReceipt) -> None:
        for key in call.message_ids:
            self._ledger.acknowledged(key)
        self._on_sent(send_accepted(QUEUE, receipt))
        self._board.update(_landed(call, receipt))

    def _next_call(self) -> SendCall | None:
        try:
            return None if self._is_over.is_set() else self._waiting.popleft()
        except IndexError:
            return None

    def _wait_until_due(self, call: SendCall) -> None:
        self._has_begun[call.act].wait(self._longest_wait)
        self._is_over.wait(max(0.0, self._began_at[call.act] + call.due - time.monotonic()))


def _landed(call: SendCall, receipt: SendReceipt) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.acknowledged += len(call.message_ids)
        score.where[PRIMARY if receipt.backlog is None else str(receipt.backlog)] += len(call.message_ids)

    return change


def _repeated(call: SendCall) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        score.retried += 1
        score.retried_messages |= set(call.message_ids)

    return change


def _consumed(namespace: str, at: float) -> Callable[[Score], None]:
    def change(score: Score) -> None:
        pause = 0.0 if score.received_last is None else at - score.received_last
        score.longest_pause = max(score.longest_pause or 0.0, pause)
        score.received_last = at
        score.received += 1
        score.received_from[namespace] += 1

    return change


def _received(score: Score) -> None:
    score.received += 1
