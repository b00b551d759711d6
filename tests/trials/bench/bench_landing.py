"""Rate at which parked messages land on the secondary, compared with forwarding to the primary.

    python -m tests.trials.bench.bench_landing [--rounds N] [--quick]

Two namespaces in one broker process, a syphon in this one, four backlogs; on loopback, and with a round trip of 20 ms
(``delay_line``). Each round fills the backlogs and drains them to the primary, then again while the primary does not
answer: with ``land="either"`` the messages land, a hundred in each transaction. Every round checks that all arrived,
each once. Ratios are taken within a round. The syphon's processor time per message is printed too.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import defaultdict
from datetime import timedelta
from multiprocessing.connection import Connection

from tests.trials.bench.bench_syphon import BACKLOGS, fill
from tests.trials.bench.delay_line import by_way_of
from tests.trials.bench.report import figure, ratio, settings
from tests.trials.bench.site import Site, sites_of

NETWORKS = {"loopback": 0.0, "20 ms": 0.020}
WAYS = ("home", "landing")
MESSAGES = 20_000
QUICK = 20  # times fewer messages in a quick round
NOBODY = 1  # a port at which nobody listens


def broker_process(pipe: Connection) -> None:
    """Serve two namespaces until stopped; recreate the queue of both and count on request."""
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for path in BACKLOGS:
            secondary.create_queue(path, max_delivery_count=2**31 - 1)
        pipe.send(Site(primary.connection_string, secondary.connection_string, str(broker.ca_file)))
        while (request := pipe.recv()) is not None:
            if request == "arrived":
                pipe.send(tuple(side.counts("orders").active for side in sides))
                continue
            for side in sides:
                if "orders" in side.queue_names():
                    side.delete_queue("orders")
                side.create_queue("orders", max_size_in_megabytes=5120)
            pipe.send(True)


def drain(site: Site, way: str, messages: int) -> float:
    """Seconds until the syphon has drained the backlogs, its opening included."""
    from sbpair.syphon import Syphon, SyphonOptions

    primary = site.primary
    options = SyphonOptions(
        backlog_queue_count=len(BACKLOGS), primary_namespace_name="contoso", land="either",
        land_after=timedelta(0),
    )  # fmt: skip
    if way == "landing":
        primary = by_way_of(primary, NOBODY)
    syphon = Syphon.from_connection_strings(primary, site.secondary, options=options)
    began = time.perf_counter()
    counters = asyncio.run(syphon.drain())
    took = time.perf_counter() - began
    if (counters.completed, counters.landed) != (messages, messages if way == "landing" else 0):
        raise RuntimeError(f"{way}: {counters}")
    return took


def main() -> None:
    asked = settings(__doc__, 3)
    each = MESSAGES // (QUICK if asked.quick else 1) // len(BACKLOGS)
    messages = each * len(BACKLOGS)
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, {messages} messages, body 1 KiB")
    rates: dict[tuple[str, str], list[float]] = defaultdict(list)
    cpu: dict[tuple[str, str], list[float]] = defaultdict(list)
    with sites_of(broker_process, NETWORKS) as (broker, sites):
        cases = [(way, network) for network in NETWORKS for way in WAYS]
        for number in range(asked.rounds):
            for way, network in cases[:: -1 if number % 2 else 1]:
                broker.ask("fresh")
                asyncio.run(fill(broker.site.secondary, dict.fromkeys(BACKLOGS, each)))
                before = time.process_time()
                took = drain(sites[network], way, messages)
                cpu[way, network].append((time.process_time() - before) / messages * 1e6)
                rates[way, network].append(messages / took)
                if (arrived := broker.ask("arrived")) != ((messages, 0) if way == "home" else (0, messages)):
                    raise RuntimeError(f"{way}, {network}: {arrived} of {messages} messages arrived")
    for way, network in cases:
        figure("landing.drain", "1/s", rates[way, network], 0, way=way, network=network)
        figure("landing.cpu", "us/message", cpu[way, network], 1, way=way, network=network)
    for network in NETWORKS:
        ratio("landing.over_home", rates["landing", network], rates["home", network], network=network)


if __name__ == "__main__":
    main()
