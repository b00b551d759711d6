"""Many concurrent sends in asyncio by round trip, compared with the SDK, and at the moment of a failover (R-5).

    python -m tests.trials.bench.bench_crowd [--rounds N] [--quick]

1, 10, 100 and 1,000 tasks send one message each, at the same time and through one sender, several times, with round
trips of 0, 50 and 100 ms (``delay_line``). The links are open, the two senders are measured in turn, and ratios are
taken within a round. All tasks wait for each other before the next time: otherwise sends of the SDK hang.
``crowd.rate`` is acknowledged sends per second, ``crowd.p99`` the 99th percentile of their duration, and
``crowd.failed``, printed if any, the number of sends that raised. ``least`` and ``greatest`` are the worst ratios of a
round trip.

``crowd.parked`` is the moment of a failover: tasks send through a new client while the primary refuses connections.
The figure is the time until all messages are parked on the secondary.
Prints its settings, then one JSON line per figure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
from tests.trials.bench.delay_line import by_way_of
from tests.trials.bench.report import figure, percentile, settings
from tests.trials.bench.site import Site, sites_of

Send = Callable[..., Awaitable[object]]
NETWORKS = {"loopback": 0.0, "50 ms": 0.05, "100 ms": 0.1}
TASKS = {
    1: (200, 10),
    10: (40, 6),
    100: (6, 4),
    1000: (2, 2),
}  # how often all of them send: near, at a distance
PARKED = (200, 400)
QUICK_NETWORKS, QUICK_TASKS, QUICK_PARKED = ("loopback", "50 ms"), {10: (10, 2), 100: (2, 2)}, (50,)
PATIENCE = 5.0  # seconds that a send may take
NAMES = ("contoso", "contoso-dr")
NOBODY = 1  # a port at which nobody listens


def broker_process(pipe: Connection) -> None:
    """Serve two namespaces until stopped."""
    from sbpair.broker import Broker

    with Broker(dict.fromkeys(NAMES, 0)) as broker:
        primary, secondary = (broker.namespace(name) for name in NAMES)
        for namespace in (primary, secondary):
            namespace.create_queue("orders", max_size_in_megabytes=5120)
        for number in range(10):
            secondary.create_queue(f"contoso/x-servicebus-transfer/{number}")
        pipe.send(Site(primary.connection_string, secondary.connection_string, str(broker.ca_file)))
        pipe.recv()


def options(interval: float) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=interval),
        assume_backlogs_exist=True,
    )


@dataclass
class Crowd:
    """What the sends of one crowd took, in seconds, and how many raised."""

    spans: list[float] = field(default_factory=list)
    failed: int = 0
    seconds: float = 0.0

    async def run(self, send: Send, tasks: int, times: int) -> Crowd:
        """Let several tasks send a message each, at the same time; ``times`` times."""
        began = time.perf_counter()
        for _ in range(times):
            await asyncio.gather(*(self._one(send, number) for number in range(tasks)))
        self.seconds = time.perf_counter() - began
        return self

    async def _one(self, send: Send, number: int) -> None:
        message = ServiceBusMessage(b"x" * 100, message_id=str(number))
        began = time.perf_counter()
        try:
            await send(message, timeout=PATIENCE)
        except Exception:  # the SDK's errors under a crowd are of many classes: they are counted
            self.failed += 1
        else:
            self.spans.append(time.perf_counter() - began)

    @property
    def rate(self) -> float:
        """Acknowledged sends a second."""
        return len(self.spans) / self.seconds

    @property
    def p99(self) -> float:
        """Milliseconds that 99 of 100 took at most; all of the time when none succeeded."""
        return (percentile(self.spans, 0.99) if self.spans else self.seconds) * 1000


class Table:
    """The crowds of every distance and size, by client."""

    def __init__(self) -> None:
        self._crowds: dict[tuple[str, int, str], list[Crowd]] = defaultdict(list)

    async def measure(self, network: str, site: Site, sizes: dict[int, tuple[int, int]], rounds: int) -> None:
        async with AsyncExitStack() as stack:
            sdk = await stack.enter_async_context(ServiceBusClient.from_connection_string(site.primary))
            pair = await stack.enter_async_context(
                PairedServiceBusClient.from_connection_strings(
                    site.primary, site.secondary, options=options(60.0)
                )
            )
            senders = {
                "sdk": await stack.enter_async_context(sdk.get_queue_sender("orders")),
                "paired": await stack.enter_async_context(pair.get_queue_sender("orders")),
            }
            for sender in senders.values():
                await sender.send_messages(ServiceBusMessage(b"warm"))
            for number in range(rounds):
                for tasks, counts in sizes.items():
                    for name in list(senders)[:: -1 if number % 2 else 1]:
                        times = counts[1 if NETWORKS[network] else 0]
                        crowd = await Crowd().run(senders[name].send_messages, tasks, times)
                        self._crowds[network, tasks, name].append(crowd)

    def tell(self) -> None:
        over: dict[tuple[str, str], list[float]] = defaultdict(list)
        for network, tasks in dict.fromkeys((network, tasks) for network, tasks, _ in self._crowds):
            cell = {"network": network, "tasks": tasks}
            for client in ("sdk", "paired"):
                crowds = self._crowds[network, tasks, client]
                figure("crowd.rate", "1/s", [crowd.rate for crowd in crowds], 1, client=client, **cell)
                figure("crowd.p99", "ms", [crowd.p99 for crowd in crowds], 1, client=client, **cell)
                if failed := sum(crowd.failed for crowd in crowds):
                    figure("crowd.failed", "sends", [failed], 0, client=client, **cell)
            ours, theirs = (self._crowds[network, tasks, client] for client in ("paired", "sdk"))
            pairs = list(zip(ours, theirs, strict=True))
            for what, ratios in (
                ("rate", [our.rate / max(their.rate, 0.1) for our, their in pairs]),
                ("p99", [our.p99 / their.p99 for our, their in pairs]),
            ):
                figure(f"crowd.{what}_over_sdk", "ratio", ratios, **cell)
                over[what, network].append(round(statistics.median(ratios), 2))
        most = max(tasks for _, tasks, _ in self._crowds)
        for (what, network), medians in over.items():
            worst, name = (min(medians), "least") if what == "rate" else (max(medians), "greatest")
            figure(f"crowd.{name}_{what}_over_sdk", "ratio", [worst], network=network, up_to=most)


async def parked(site: Site, tasks: int) -> float:
    """Seconds until the last of several concurrent sends is parked, the first failure of the primary included."""
    async with PairedServiceBusClient.from_connection_strings(
        by_way_of(site.primary, NOBODY), site.secondary, options=options(0.0)
    ) as client:
        crowd = await Crowd().run(client.get_queue_sender("orders").send_messages, tasks, 1)
    if crowd.failed:
        raise RuntimeError(f"{crowd.failed} of {tasks} sends raised at the failover")
    return crowd.seconds


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = settings(__doc__, 3)
    networks = {name: NETWORKS[name] for name in (QUICK_NETWORKS if asked.quick else NETWORKS)}
    load = os.getloadavg()[0]
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, body 100 bytes, load {load:.1f}")
    table = Table()
    with sites_of(broker_process, networks) as (broker, sites):
        for network, site in sites.items():
            sizes = QUICK_TASKS if asked.quick else TASKS
            asyncio.run(table.measure(network, site, sizes, asked.rounds))
        table.tell()
        for tasks in QUICK_PARKED if asked.quick else PARKED:
            spans = [asyncio.run(parked(broker.site, tasks)) for _ in range(asked.rounds)]
            figure("crowd.parked", "s", spans, 3, tasks=tasks)


if __name__ == "__main__":
    main()
