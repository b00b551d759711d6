"""The parts of the demo around its application: paired client, syphon and backlog monitor."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.pair.envelope.names import index_of, is_ordered_backlog
from sbpair.pair.syphon.daemon import Syphon
from sbpair.pair.syphon.events import LandingBegan, LandingEnded, SyphonEvent
from sbpair.pair.syphon.options import SyphonOptions

from .plan import PING_INTERVAL, DemoPlan
from .scoreboard import Score, Scoreboard

if TYPE_CHECKING:
    from sbpair.broker import Broker, NamespaceControl

PRIMARY_NAME, SECONDARY_NAME = "contoso", "contoso-dr"
BACKLOGS = 4
POLL_INTERVAL = 0.2  # seconds between two readings of the backlogs' depth
JOIN_TIMEOUT = 15.0  # seconds for a thread to end
Work = Callable[[], None]
QUEUE = "orders"


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
            ordering=self._plan.ordering,
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
            ordering=self._plan.ordering,
        )
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string, options=options
        )
        syphon.on_event(write)
        syphon.on_event(self._on_syphon_event)
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

    def _on_syphon_event(self, event: SyphonEvent) -> None:
        match event:
            case LandingBegan(path=path):
                self._board.note(f"the syphon lands messages parked for {path} on {SECONDARY_NAME}")
            case LandingEnded(path=path):
                self._board.note(f"the syphon brings messages parked for {path} home again")

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
                self._board.update(_depths(self.depths(), self._board.elapsed_seconds()))

        with self.threads("monitor", 1, watch, is_done.set):
            yield

    def depths(self) -> dict[str, int]:
        """Return the current number of messages in each backlog, by the backlog's number, as in receipts."""
        control = self.secondary
        backlogs = [name for name in control.queue_names() if name != QUEUE]
        return {str(_number(name)): control.counts(name).total for name in backlogs}

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


def billed_operations(
    primary: NamespaceControl, secondary: NamespaceControl, *, lands: bool
) -> dict[str, int]:
    """Return the billed operations of both namespaces by kind: two per direct message, four per parked one."""
    here, there = primary.operations, secondary.operations
    return {
        "send_to_primary": here.sends,
        "receive_from_primary": here.receives,
        "send_to_secondary" if lands else "send_to_backlog": there.sends,
        "receive_from_secondary" if lands else "receive_from_backlog": there.receives,
        "pings": here.pings,
    }


def _number(backlog: str) -> int:
    """Return the number of a backlog queue in receipts: ordered ones follow the others."""
    return index_of(backlog) + (BACKLOGS if is_ordered_backlog(backlog) else 0)


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
