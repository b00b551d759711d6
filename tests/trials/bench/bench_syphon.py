"""Rate at which the syphon moves parked messages, compared with relays written with the SDK.

    python -m tests.trials.bench.bench_syphon [--rounds N] [--quick]

All relay between two namespaces of one broker process: on loopback, and with round trips of 5 and 20 ms to both
(``delay_line`` delays raw bytes). Each round fills the backlogs, times every relay in turn, and checks that
everything arrived. Ratios are taken within a round. The syphon's and the broker's processor time per
message are printed too: on two cores the greater of them is the limit.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from tests.trials.bench import sdk_relays
from tests.trials.bench.report import figure, ratio, settings
from tests.trials.bench.site import BrokerProcess, Site, sites_of

BODY = b"x" * 1024
BACKLOGS = [f"contoso/x-servicebus-transfer/{index}" for index in range(4)]
NETWORKS = {"loopback": 0.0, "5 ms": 0.005, "20 ms": 0.020}
QUICK = 20  # times fewer messages in a quick round


Relay = Callable[[Site, dict[str, int]], float]


def broker_process(pipe: Connection) -> None:
    """Serve two namespaces until stopped; count and empty queues on request."""
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for path in BACKLOGS:
            secondary.create_queue(path)
        pipe.send(Site(primary.connection_string, secondary.connection_string, str(broker.ca_file)))
        while (request := pipe.recv()) is not None:
            if request == "arrived":
                pipe.send(primary.counts("orders").active)
            else:
                if "orders" in primary.queue_names():
                    primary.delete_queue("orders")
                primary.create_queue("orders", max_size_in_megabytes=5120)
                pipe.send(True)


def parked(path: str, count: int) -> Iterator[bytes]:
    """Encoded messages as a sender parks them: 1 KiB, a message id, three application properties."""
    from sbpair.pair.amqp.message import DataBody, Message, Properties

    for number in range(count):
        yield Message(
            properties=Properties(message_id=f"{path[-1]}-{number}"),
            application_properties={
                "tenant": "t1",
                "kind": "order",
                "attempt": 1,
                "x-ms-path": "orders",
                "x-ms-timetolive": "P1D",
                "x-sbpair-version": "1",
            },
            body=DataBody((BODY,)),
        ).encode()


async def fill(connection_string: str, backlogs: dict[str, int]) -> None:
    """Park messages on these backlog queues."""
    from sbpair.pair.auth.connection_string import parse
    from sbpair.pair.client.connection import connect

    connection = await connect(parse(connection_string))
    for path, count in backlogs.items():
        sender = await connection.open_sender(path)
        await asyncio.gather(*(sender.send(message) for message in parked(path, count)))
    await connection.close()


def by_syphon(site: Site, backlogs: dict[str, int], *, tls: bool = False) -> float:
    """Seconds until the syphon has drained the backlogs, its opening included."""
    from sbpair.pair.auth.connection_string import parse
    from sbpair.syphon import Syphon, SyphonOptions

    more: dict[str, str] = {}
    primary, secondary = site.primary, site.secondary
    if tls:
        ports = [parse(each).port for each in (primary, secondary)]
        more = {
            "connection_verify": site.ca_file,
            "primary_endpoint_address": f"localhost:{ports[0]}",
            "secondary_endpoint_address": f"localhost:{ports[1]}",
        }
        primary, secondary = (
            each.replace(";UseDevelopmentEmulator=true", "") for each in (primary, secondary)
        )
    options = SyphonOptions(
        backlog_queue_count=len(BACKLOGS),
        primary_namespace_name="contoso",
        **more,  # type: ignore[arg-type]
    )
    syphon = Syphon.from_connection_strings(primary, secondary, options=options)
    began = time.perf_counter()
    counters = asyncio.run(syphon.drain())
    took = time.perf_counter() - began
    if counters.completed != sum(backlogs.values()):
        raise RuntimeError(f"the syphon did not bring all home: {counters}")
    return took


def by_syphon_over_tls(site: Site, backlogs: dict[str, int]) -> float:
    """As :func:`by_syphon`, both sides over TLS."""
    return by_syphon(site, backlogs, tls=True)


def _sdk(relay: Callable[[str, str, dict[str, int]], float]) -> Relay:
    return lambda site, backlogs: relay(site.primary, site.secondary, backlogs)


RELAYS: dict[str, Relay] = {
    "syphon": by_syphon,
    "syphon over TLS": by_syphon_over_tls,
    "SDK, one by one": _sdk(sdk_relays.one_by_one),
    "SDK, batches": _sdk(sdk_relays.in_batches),
    "SDK, 8 workers": _sdk(sdk_relays.by_workers),
}
NAIVE, SDK = "SDK, one by one", ("SDK, one by one", "SDK, batches", "SDK, 8 workers")
# How many messages a relay gets in a round, so that none takes seconds: by relay and network.
MESSAGES = {
    "syphon": {"loopback": 20_000, "5 ms": 20_000, "20 ms": 20_000},
    "syphon over TLS": {"loopback": 20_000, "5 ms": 20_000, "20 ms": 20_000},
    "SDK, one by one": {"loopback": 2_000, "5 ms": 120, "20 ms": 40},
    "SDK, batches": {"loopback": 2_000, "5 ms": 200, "20 ms": 80},
    "SDK, 8 workers": {"loopback": 2_000, "5 ms": 1_000, "20 ms": 400},
}
Key = tuple[str, str]  # relay and network


class Bench:
    """What was measured."""

    def __init__(self, broker: BrokerProcess, sites: dict[str, Site], part: int) -> None:
        self._broker, self._sites, self._part = broker, sites, part
        self.rates: dict[Key, list[float]] = defaultdict(list)
        self.cpu: dict[tuple[str, Key], list[float]] = defaultdict(list)

    def measure(self, key: Key) -> None:
        relay, network = key
        each = max(1, MESSAGES[relay][network] // self._part // len(BACKLOGS))
        backlogs, count = dict.fromkeys(BACKLOGS, each), each * len(BACKLOGS)
        self._broker.ask("fresh")
        asyncio.run(fill(self._broker.site.secondary, backlogs))
        before, ours = self._broker.cpu_seconds, time.process_time()
        took = RELAYS[relay](self._sites[network], backlogs)
        self.cpu["relay", key].append((time.process_time() - ours) / count * 1e6)
        self.cpu["broker", key].append((self._broker.cpu_seconds - before) / count * 1e6)
        if (arrived := self._broker.ask("arrived")) != count:
            raise RuntimeError(f"{relay}, {network}: {arrived} of {count} messages arrived")
        self.rates[key].append(count / took)

    def tell(self) -> None:
        for (relay, network), values in self.rates.items():
            figure("syphon.relay", "1/s", values, 0, relay=relay, network=network)
        for (process, (relay, network)), values in self.cpu.items():
            if network == "loopback":
                figure(f"syphon.{process}_cpu", "us/message", values, 1, relay=relay, network=network)
        for network in NETWORKS:
            syphon = self.rates["syphon", network]
            ratio("syphon.over_naive", syphon, self.rates[NAIVE, network], network=network)
            rounds = zip(*(self.rates[relay, network] for relay in SDK), strict=True)
            ratio("syphon.over_best_sdk", syphon, [max(each) for each in rounds], network=network)


def main() -> None:
    asked = settings(__doc__, 5)
    part = QUICK if asked.quick else 1
    print(
        f"# python {platform.python_version()}, {asked.rounds} rounds, {len(BACKLOGS)} backlogs, body 1 KiB, "
        f"{MESSAGES['syphon']['loopback'] // part} messages for the syphon"
    )
    with sites_of(broker_process, NETWORKS) as (broker, sites):
        bench = Bench(broker, sites, part)
        keys = [(relay, network) for network in NETWORKS for relay in RELAYS]
        for number in range(asked.rounds):
            for key in keys[:: -1 if number % 2 else 1]:
                bench.measure(key)
    bench.tell()


if __name__ == "__main__":
    main()
