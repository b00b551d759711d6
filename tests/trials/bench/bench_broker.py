"""Throughput and latency of the broker, compared with other brokers.

    python -m tests.trials.bench.bench_broker [--rounds N] [--quick]

Messages of 1 KiB, up to 1000 without an outcome, one connection, the same client for all (``raw_client``).
``sbpair`` announces the service's numbers over AMQP, as the brokers of the other benchmarks do; ``sbpair --fast``
larger ones. Each round measures each broker in turn, and ratios are taken within a round; ``over_best`` is the ratio to
the best of ``BEST_OF`` in that round. ``each`` settles message by message, ``ranged`` a chunk at a time. On disk:
durable messages in a durable queue. Latency: one message at a time, compared with a server that only answers
(``echo``). A peer that is not installed is skipped with a notice, and a quick round has no peers.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import gc
import platform
from collections import defaultdict

from tests.trials.bench.echo import EchoServer
from tests.trials.bench.peers import BEST_OF, DURABLE_QUEUE, OTHERS, QUEUE, OurBroker, Peer, others
from tests.trials.bench.raw_client import WINDOW, RawClient, payload
from tests.trials.bench.report import figure, percentile, ratio, settings

MESSAGES, DURABLE_MESSAGES, SINGLES = 20_000, 10_000, 1_000
QUICK = 10  # times fewer in a quick round
Figures = dict[tuple[str, str], list[float]]  # by name and unit, one value a round


def throughput(peer: Peer, client: RawClient, count: int, found: Figures) -> None:
    """Enqueue, then receive and settle, twice: one by one and in ranges."""
    body = payload()
    for each in (True, False):
        with client.sender(QUEUE) as sender:
            before = peer.cpu_seconds
            took = client.send(sender, body, count)
            spent = peer.cpu_seconds - before
        if each:
            found["enqueue", "1/s"].append(count / took)
            found["enqueue_cpu", "us/message"].append(spent / count * 1e6)
        how = "each" if each else "ranged"
        with client.receiver(QUEUE) as receiver:
            before = peer.cpu_seconds
            took = client.receive(receiver, count, each=each)
            spent = peer.cpu_seconds - before
        found[f"receive_{how}", "1/s"].append(count / took)
        found[f"receive_{how}_cpu", "us/message"].append(spent / count * 1e6)


def latency(client: RawClient, count: int, found: Figures) -> None:
    """One message at a time: until it is accepted, and until it is received."""
    body = payload()
    with client.sender(QUEUE) as sender:
        acks = client.acks(sender, body, count)
    with client.receiver(QUEUE) as receiver:
        client.receive(receiver, count, each=False)
    with client.sender(QUEUE) as sender, client.receiver(QUEUE) as receiver:
        trips = client.round_trips(sender, receiver, body, count)
    spread("ack", acks, found)
    spread("end_to_end", trips, found)


def spread(name: str, spans: list[float], found: Figures) -> None:
    for share in (50, 99):
        found[f"{name}_p{share}", "us"].append(percentile(spans, share / 100) * 1e6)


def durable(client: RawClient, count: int, found: Figures) -> None:
    """As throughput, with everything on disk before it is answered."""
    with client.sender(DURABLE_QUEUE) as sender:
        found["durable_enqueue", "1/s"].append(count / client.send(sender, payload(durable=True), count))
    with client.receiver(DURABLE_QUEUE) as receiver:
        found["durable_receive_each", "1/s"].append(count / client.receive(receiver, count, each=True))


def one_round(in_memory: list[Peer], on_disk: list[Peer], part: int, figures: dict[str, Figures]) -> None:
    for peer in in_memory:
        with RawClient(peer.endpoint) as client:
            throughput(peer, client, MESSAGES // part, figures[peer.name])
            latency(client, SINGLES // part, figures[peer.name])
    for peer in on_disk:
        with RawClient(peer.endpoint) as client:
            durable(
                client, DURABLE_MESSAGES // part // peer.part, figures[peer.name.removesuffix(" on disk")]
            )


def tell(figures: dict[str, Figures], versions: dict[str, str]) -> None:
    for name, found in figures.items():
        for (what, unit), values in found.items():
            figure(f"broker.{what}", unit, values, digits=1, peer=name, version=versions[name])
    ours = figures["sbpair"]
    for name, found in figures.items():
        if name != "sbpair":
            for what, values in found.items():
                ratio(f"broker.{what[0]}.ratio", ours[what], values, over=name)
    best_of = [name for name in BEST_OF if name in figures]
    for what, values in ours.items():
        if best_of and not what[0].endswith("_cpu"):
            pick = max if what[1] == "1/s" else min
            best = [pick(each) for each in zip(*(figures[name][what] for name in best_of), strict=True)]
            ratio(f"broker.{what[0]}.over_best", values, best, brokers=len(best_of))


def main() -> None:
    asked = settings(__doc__, 5)
    part = QUICK if asked.quick else 1
    print(
        f"# python {platform.python_version()}, {asked.rounds} rounds of {MESSAGES // part} messages "
        f"({DURABLE_MESSAGES // part} on disk, {SINGLES // part} one at a time), window {WINDOW}"
    )
    figures: dict[str, Figures] = defaultdict(lambda: defaultdict(list))
    gc.freeze()
    floor: Figures = defaultdict(list)
    peers = () if asked.quick else OTHERS  # they take longer to start than a quick round
    with (
        OurBroker() as ours,
        OurBroker(fast=True) as fast,
        OurBroker(on_disk=True) as kept,
        others(peers) as theirs,
        EchoServer() as echo,
    ):
        in_memory = [ours, fast, *theirs]
        warm: dict[str, Figures] = defaultdict(lambda: defaultdict(list))
        one_round(in_memory, [kept, *theirs], QUICK if asked.quick else 1, warm)
        for number in range(asked.rounds):
            turn = -1 if number % 2 else 1
            one_round(in_memory[::turn], [kept, *theirs][::turn], part, figures)
            spread("echo", echo.answers(payload(), SINGLES // part), floor)
        for (what, unit), values in floor.items():
            figure(f"broker.{what}", unit, values, digits=1)
        tell(figures, {peer.name: peer.version for peer in in_memory})


if __name__ == "__main__":
    main()
