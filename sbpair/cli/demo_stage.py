"""What stands around the demo's application: the paired client, the syphon, and an eye on the backlogs."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.cli.demo_plan import PING_INTERVAL, Plan
from sbpair.cli.demo_score import Score, Scoreboard
from sbpair.syphon import Syphon, SyphonOptions

if TYPE_CHECKING:
    from sbpair.broker import Broker, NamespaceControl

PRIMARY_NAME, SECONDARY_NAME = "contoso", "contoso-dr"
BACKLOGS = 4
LOOK_EVERY = 0.2  # seconds between two looks at the depth of the backlogs
ENDS_WITHIN = 15.0  # seconds a thread gets to end

Work = Callable[[], None]


class Stage:
    """Makes the pieces for one broker; what fails in a thread of theirs is kept in ``failure``."""

    def __init__(self, plan: Plan, board: Scoreboard, broker: Broker) -> None:
        self._plan = plan
        self._board = board
        self._ca_file = str(broker.ca_file)
        self.primary = broker.namespace(PRIMARY_NAME)
        self.secondary = broker.namespace(SECONDARY_NAME)
        self.failure: Exception | None = None

    def client(self) -> PairedServiceBusClient:
        """The paired client, with intervals for an impatient audience."""
        options = PairedNamespaceOptions(
            backlog_queue_count=BACKLOGS,
            failover_interval=self._plan.failover_interval,
            ping_primary_interval=PING_INTERVAL,
            operation_timeout=timedelta(seconds=20),
            primary_namespace_name=PRIMARY_NAME,  # both are on localhost, so the host does not say it
        )
        return PairedServiceBusClient.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=options,
            connection_verify=self._ca_file,
        )

    @contextmanager
    def threads(self, name: str, count: int, work: Work, stop: Work) -> Iterator[None]:
        """``work`` in so many threads; ``stop`` is called when the block ends, however it ends."""
        threads = [self._thread(f"{name} {number}", work) for number in range(count)]
        try:
            yield
        finally:
            stop()
            for thread in threads:
                thread.join(ENDS_WITHIN)

    @contextmanager
    def syphon(self, write: Callable[[object], None], *, tell_forwards: bool) -> Iterator[None]:
        """A syphon at work all the time, as in production; ``write`` is told its events."""
        options = SyphonOptions(
            backlog_queue_count=BACKLOGS,
            primary_namespace_name=PRIMARY_NAME,
            tell_forwards=tell_forwards,
            missing_backlog_interval=timedelta(seconds=1),
            retry_backoff_max=timedelta(seconds=1),
        )
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string, self.secondary.connection_string, options=options
        )
        syphon.on_event(write)
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

    async def _watch(self, syphon: Syphon) -> None:
        while True:
            self._board.update(_home(syphon.counters.completed))
            await asyncio.sleep(LOOK_EVERY)

    @contextmanager
    def eye_on_backlogs(self) -> Iterator[None]:
        """Keep the depth of every backlog on the scoreboard."""
        is_done = threading.Event()

        def watch() -> None:
            while not is_done.wait(LOOK_EVERY):
                self._board.update(_depths(self.depths(), self._board.elapsed()))

        with self.threads("eye", 1, watch, is_done.set):
            yield

    def depths(self) -> dict[str, int]:
        """The backlogs' numbers, and how many messages wait in each now."""
        control = self.secondary
        return {name.rpartition("/")[2]: control.counts(name).total for name in control.queue_names()}

    def _thread(self, name: str, work: Work) -> threading.Thread:
        def guarded() -> None:
            try:
                work()
            except Exception as error:
                self.failure = self.failure or error  # told by whoever waits for something
                self._board.update(lambda score: None)

        thread = threading.Thread(target=guarded, name=f"demo {name}", daemon=True)
        thread.start()
        return thread


def billed(primary: NamespaceControl, secondary: NamespaceControl) -> dict[str, int]:
    """The operations of both namespaces by kind: two for a direct message, four for a parked one (P-43)."""
    here, there = primary.operations, secondary.operations
    return {
        "send_to_primary": here.sends,
        "receive_from_primary": here.receives,
        "send_to_backlog": there.sends,
        "receive_from_backlog": there.receives,
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
