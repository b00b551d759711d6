"""Time of the first send of a new client at a distance, compared with the SDK.

    python -m tests.trials.bench.bench_first_send [--rounds N] [--quick]

From the construction of the client to the first acknowledged message, with a round trip of 100 ms (``delay_line``):
connection, token and link included. Blocking and asyncio, each client measured in turn with the SDK's.
Prints its settings, then one JSON line per figure.
"""

from __future__ import annotations

import asyncio
import logging
import os
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from tests.trials.bench.bench_crowd import broker_process
from tests.trials.bench.report import figure, ratio, settings
from tests.trials.bench.site import Site, sites_of

NETWORK, RTT = "100 ms", 0.1
OPTIONS = PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True)


def blocking(client: Callable[[], ServiceBusClient | PairedServiceBusClient]) -> float:
    """Seconds until the first message is acknowledged."""
    began = time.perf_counter()
    with client() as made, made.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"first"))
        return time.perf_counter() - began


def in_asyncio(client: Callable[[], AsyncServiceBusClient | AsyncPairedServiceBusClient]) -> float:
    """The same in asyncio."""

    async def send() -> float:
        began = time.perf_counter()
        async with client() as made, made.get_queue_sender("orders") as sender:
            await sender.send_messages(ServiceBusMessage(b"first"))
            return time.perf_counter() - began

    return asyncio.run(send())


def first_sends(site: Site) -> dict[tuple[str, str], Callable[[], float]]:
    """What is timed, by interface and client."""
    strings = site.primary, site.secondary
    sdk, async_sdk = (
        partial(each.from_connection_string, site.primary)
        for each in (ServiceBusClient, AsyncServiceBusClient)
    )
    pair, async_pair = (
        partial(each.from_connection_strings, *strings, options=OPTIONS)
        for each in (PairedServiceBusClient, AsyncPairedServiceBusClient)
    )
    return {
        ("blocking", "sdk"): partial(blocking, sdk),
        ("blocking", "paired"): partial(blocking, pair),
        ("asyncio", "sdk"): partial(in_asyncio, async_sdk),
        ("asyncio", "paired"): partial(in_asyncio, async_pair),
    }


def main() -> None:
    logging.disable(logging.CRITICAL)
    asked = settings(__doc__, 5)
    load = os.getloadavg()[0]
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, load {load:.1f}")
    spans: dict[tuple[str, str], list[float]] = defaultdict(list)
    with sites_of(broker_process, {NETWORK: RTT}) as (_, sites):
        timed = first_sends(sites[NETWORK])
        for number in range(asked.rounds):
            for key in list(timed)[:: -1 if number % 2 else 1]:
                spans[key].append(timed[key]())
    for (interface, client), values in spans.items():
        figure("first_send", "s", values, 3, interface=interface, client=client, network=NETWORK)
    for interface in ("blocking", "asyncio"):
        ours, theirs = spans[interface, "paired"], spans[interface, "sdk"]
        ratio("first_send.over_sdk", ours, theirs, interface=interface, network=NETWORK)


if __name__ == "__main__":
    main()
