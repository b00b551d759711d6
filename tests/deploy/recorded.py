"""Outages in virtual time: a client's pair and a syphon, watched as the product watches them and scraped by nobody.

The programs are those of tests/trials/simulation, over two complete namespaces in memory. What a scrape would see is
recorded every :data:`EVERY` seconds, so that an hour takes seconds, and gauges and alert rules are judged by it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from unittest.mock import patch

from sbpair.observation import Metrics, attach
from sbpair.pair.client.backoff import RANDOM
from sbpair.pair.observation.metrics import show_conditions, show_room
from sbpair.pair.observation.syphon_gauges import show_syphon
from sbpair.pair.pairing import events
from sbpair.pair.pairing.shared.dispatcher import EventDispatcher
from sbpair.syphon import Syphon, SyphonOptions
from tests.trials.simulation.client import Client
from tests.trials.simulation.grey import token_service
from tests.trials.simulation.history import History
from tests.trials.simulation.instruments import watching
from tests.trials.simulation.network import HOST
from tests.trials.simulation.payloads import ServiceBusMessage
from tests.trials.simulation.plan import PRIMARY, SECONDARY, Fault, Shape
from tests.trials.simulation.run import CONNECTION_STRING
from tests.trials.simulation.virtual_loop import VirtualLoop, one_time
from tests.trials.simulation.world import World, arm

EVERY = 15.0  # seconds between two scrapes
PARTITIONED = ("parts",)  # their messages have partition keys
SENDER, SYPHON = "orders-1", "syphon-1"
Series = tuple[str, tuple[tuple[str, str], ...]]
"""The name of a metric, and its labels."""


@dataclass
class Recorded:
    """What was scraped: by series, the values by the number of the scrape."""

    series: dict[Series, dict[int, float]] = field(default_factory=dict)
    scrapes: int = 0
    lines: list[str] = field(default_factory=list)
    """What was logged as a warning or an error."""

    def scrape(self, watched: dict[str, Metrics]) -> None:
        for instance, metrics in watched.items():
            for family in metrics.registry.collect():
                for sample in family.samples:
                    if not sample.name.endswith("_created"):
                        labels = tuple(sorted({**sample.labels, "instance": instance}.items()))
                        self.series.setdefault((sample.name, labels), {})[self.scrapes] = sample.value
        self.scrapes += 1

    def values(self, name: str) -> dict[Series, list[float]]:
        """The values of all series of a metric, 0 where one was not there."""
        return {
            series: [values.get(number, 0.0) for number in range(self.scrapes)]
            for series, values in self.series.items()
            if series[0] == name
        }


class _Lines(logging.Handler):
    """Keeps what needs or gets attention."""

    def __init__(self, found: Recorded) -> None:
        super().__init__(logging.WARNING)
        self._found = found

    def emit(self, record: logging.LogRecord) -> None:
        self._found.lines.append(record.getMessage())


@contextmanager
def _listening(found: Recorded) -> Iterator[None]:
    logger, lines = logging.getLogger("sbpair"), _Lines(found)
    level, propagates = logger.level, logger.propagate
    logger.addHandler(lines)
    logger.setLevel(logging.WARNING)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(lines)
        logger.setLevel(level)
        logger.propagate = propagates


class WatchedClient(Client):
    """A sender whose pair is observed."""

    def __init__(self, world: World, metrics: Metrics) -> None:
        self.metrics = metrics
        self._dispatcher = EventDispatcher()  # logs what it is given
        super().__init__(world, SENDER, random.Random(3))
        show_room(metrics, self.pair.room.levels)
        show_conditions(
            metrics,
            lambda: self.pair.conditions(world.now),
            lambda: self.pair.is_secondary_silent(world.now),
        )

    def _told(self, event: events.PairingEvent) -> None:
        super()._told(event)
        self._dispatcher.emit([event])
        self.metrics.write(event)


def recorded(
    plan: list[Fault],
    *,
    sends: float,
    lasts: float,
    lands: bool = False,
    prepare: Callable[[World], None] = lambda world: None,
    paths: tuple[str, ...] = ("orders",),
) -> Recorded:
    """Send one message a second for ``sends`` seconds, let the plan happen, and scrape for ``lasts`` seconds."""
    loop, found, unheard = VirtualLoop(most_turns=10_000_000), Recorded(), list[object]()
    loop.set_exception_handler(lambda _, said: unheard.append(said.get("exception", said)))
    asyncio.set_event_loop(loop)
    with one_time(loop), patch.object(RANDOM, "random", lambda: 1.0), _listening(found):
        try:
            loop.run_until_complete(_play(loop, plan, found, sends, lasts, lands, prepare, paths))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(30.0))
            asyncio.set_event_loop(None)
            loop.close()
    assert not unheard
    return found


async def _play(
    loop: VirtualLoop,
    plan: list[Fault],
    found: Recorded,
    sends: float,
    lasts: float,
    lands: bool,
    prepare: Callable[[World], None],
    paths: tuple[str, ...],
) -> None:
    shape = Shape(
        backlogs=2, clients=1, syphons=1, messages=0, failover_interval=60.0, ping_interval=30.0,
        redirects_suspects=True, spills_on_quota=False, busy_limit=None, backlogs_are_partitioned=False, poison=0,
        has_deadlines=False, hot="orders", slow_after=10.0, twins=("orders",) if lands else (),
    )  # fmt: skip
    world = World(loop, random.Random(20), shape, plan, History())
    world.crash, world.is_busy = lambda fault: None, lambda host: False
    world.is_duplicate = lambda host, *copy: False
    watched = {SENDER: Metrics(), SYPHON: Metrics()}
    with closing(world), watching(world), token_service(world):
        prepare(world)
        arm(world, plan)
        client = WatchedClient(world, watched[SENDER])
        running = asyncio.ensure_future(_watched_syphon(watched[SYPHON], lands).run(asyncio.Event()))
        for second in range(int(sends)):
            for path in paths:
                key = f"k{second % 16}" if path in PARTITIONED else None
                message = ServiceBusMessage(b"x", message_id=f"{path}-{second}", partition_key=key)
                loop.call_at(second, _spawn, client, client.send(path, message, 0))
        while world.now < lasts:
            found.scrape(watched)
            await asyncio.sleep(EVERY)
        client.crash()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


def _spawn(client: Client, sending: Coroutine[object, object, None]) -> None:
    client.spawn(sending)


def _watched_syphon(metrics: Metrics, lands: bool) -> Syphon:
    options = SyphonOptions(
        backlog_queue_count=2,
        land="either" if lands else "primary",
        land_after=timedelta(minutes=5),
        measure_every=timedelta(minutes=1),
    )
    ends = (CONNECTION_STRING.format(side) for side in (PRIMARY, SECONDARY))
    HOST.set(SYPHON)
    syphon = Syphon.from_connection_strings(*ends, options=options)
    attach(syphon, metrics)
    metrics.read_counters("sbpair_syphon", lambda: syphon.counters)
    metrics.read_state("sbpair_syphon_state", lambda: syphon.status.state)
    show_syphon(metrics, syphon)
    return syphon
