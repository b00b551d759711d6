"""Two namespaces and a syphon on a virtual clock and an in-memory network: a month passes in seconds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

from sbpair.broker.access import OpenAccess
from sbpair.broker.clock import SystemClock
from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.faults import Effect, FaultRule, Operation
from sbpair.broker.server.namespace_server import NamespaceServer
from sbpair.broker.server.wire import AmqpWire
from sbpair.pair.amqp.connection import Connection
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.syphon.events import SyphonEvent
from sbpair.syphon import Syphon, SyphonOptions
from tests.trials.simulation.network import Network
from tests.trials.simulation.virtual_loop import VirtualLoop, one_time

BACKLOGS = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
STRING = "Endpoint=sb://{};SharedAccessKeyName=Root;SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true"
CLOCK = SystemClock()
ROOMY = QueueDescription(
    max_delivery_count=2**31 - 1, max_size_in_megabytes=5120, max_message_size_in_kilobytes=102_400
)


@dataclass
class Driven:
    """Two namespaces and their connections on a virtual clock."""

    loop: VirtualLoop
    servers: dict[str, NamespaceServer] = field(default_factory=dict)
    events: list[SyphonEvent] = field(default_factory=list)
    down: set[str] = field(default_factory=set)  # sides that refuse connections

    def __post_init__(self) -> None:
        for name, queues in (("contoso", ["orders"]), ("contoso-dr", BACKLOGS)):
            namespace = Namespace(name, created_at=CLOCK.now(), tier=Tier.PREMIUM)
            for path in queues:
                namespace.create_queue(path, ROOMY, CLOCK.now())
            self.servers[name] = NamespaceServer(namespace, OpenAccess(), CLOCK, name, 0, _no_tls)
        self.loop.network = self.network = Network(
            self.loop,
            Random(20),
            lambda side: AmqpWire(self.servers[side]),
            lambda side: side in self.down,
            lambda host, side: 0.0,
            lambda host: None,
        )

    def queue(self, side: str, path: str) -> Queue:
        return self.servers[side].frontend.namespace.queue(path)

    def active(self, side: str, path: str) -> int:
        return self.queue(side, path).counts(CLOCK.now()).active

    def said(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def open_by_us(self) -> dict[str, tuple[int, int, int]]:
        """Count sessions, engine links and client links for each live connection of the clients."""
        return {
            pipe.side: (*_engine_counts(pipe.client.protocol._engine), len(pipe.client.protocol._links))
            for pipe in self.live()
        }

    def open_at_the_brokers(self) -> dict[str, tuple[int, int, int, int]]:
        """Count sessions, engine links and broker links, and the connections, for each namespace."""
        return {
            name: (
                sum(len(wire.client._engine.sessions) for wire in server.wires.values()),
                sum(_engine_counts(wire.client._engine)[1] for wire in server.wires.values()),
                sum(len(wire.client.links) for wire in server.wires.values()),
                len(server.wires),
            )
            for name, server in self.servers.items()
        }

    def live(self) -> list:
        return [pipe for pipe in self.network.pipes() if not pipe.client.is_over]

    @contextmanager
    def fault(
        self,
        side: str,
        entity: str | None,
        effect: Effect,
        operation: Operation | None = None,
        **more: Any,
    ) -> Iterator[None]:
        """Apply a fault for the duration of the block; ``more`` of its rule: ``probability`` and ``seed``."""
        server = self.servers[side]
        rule = FaultRule(effect, entity, operation, **more)
        active = server.frontend.set_fault(rule, server.read_clocks().idle)
        try:
            yield
        finally:
            server.frontend.faults.remove(active)

    @asynccontextmanager
    async def running(self, syphon: Syphon) -> AsyncIterator[None]:
        shutdown = asyncio.Event()
        task = asyncio.ensure_future(syphon.run(shutdown))
        try:
            yield
        finally:
            shutdown.set()
            await task

    async def until(self, holds: Callable[[], bool], within: float = 300.0) -> float:
        """Wait for a condition for at most ``within`` virtual seconds; return how many it took."""
        began = self.loop.time()
        async with asyncio.timeout(within):
            while not holds():
                await asyncio.sleep(0.02)
        return self.loop.time() - began

    def make(self, path: str, side: str = "contoso", description: QueueDescription = ROOMY) -> None:
        """Create a queue, by default on the primary."""
        self.servers[side].frontend.namespace.create_queue(path, description, CLOCK.now())

    def at_distance(self, seconds: float, *, late: float = 0.0) -> None:
        """From now on a round trip to either side takes ``seconds``, and each way up to ``late`` seconds longer."""
        self.network.latency = (seconds / 2, seconds / 2 + late)

    def cut(self, side: str) -> None:
        """Cut the connections to a side and refuse new ones until :meth:`restored`."""
        self.down.add(side)
        for pipe in self.network.pipes(side=side):
            pipe.cut()

    def restored(self, side: str) -> None:
        """Accept connections again."""
        self.down.discard(side)

    def syphon(self, **options: Any) -> Syphon:
        syphon = Syphon.from_connection_strings(
            STRING.format("contoso"),
            STRING.format("contoso-dr"),
            options=SyphonOptions(**{"backlog_queue_count": len(BACKLOGS)} | options),
        )
        syphon.on_event(self.events.append)
        return syphon

    async def park(self, payloads: Iterable[bytes], path: str = BACKLOGS[0]) -> None:
        connection = await connect(parse(STRING.format("contoso-dr")))
        sender = await connection.open_sender(path)
        outcomes = await asyncio.gather(*map(sender.send, payloads))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes)
        await connection.close()


def _engine_counts(engine: Connection) -> tuple[int, int]:
    return len(engine.sessions), engine._links


def _no_tls() -> None:
    raise RuntimeError("the in-memory network has no TLS")


def play(story: Callable[[Driven], Coroutine[object, object, None]]) -> None:
    """Run ``story`` on a virtual clock."""
    loop = VirtualLoop(most_turns=10_000_000)
    asyncio.set_event_loop(loop)
    with one_time(loop), _quiet():
        try:
            loop.run_until_complete(story(Driven(loop)))
        finally:
            for task in asyncio.all_tasks(loop):
                task.cancel()
            loop.run_until_complete(asyncio.sleep(1.0))
            asyncio.set_event_loop(None)
            loop.close()


@contextmanager
def _quiet() -> Iterator[None]:
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
