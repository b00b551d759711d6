"""Memory of an idle broker, and of each waiting message.

    python -m tests.trials.bench.bench_memory [--rounds N] [--quick]

Resident memory, as Linux counts it, of the broker's process and its children: once it answers, and with a number of
messages of 1 KiB in one queue. Each peer is measured once, or skipped with a notice;
a quick round has no peers.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import platform
from collections import defaultdict

from tests.trials.bench.peers import OTHERS, QUEUE, OurBroker, Peer, started
from tests.trials.bench.raw_client import RawClient, payload
from tests.trials.bench.report import figure, settings

MESSAGES, QUICK_MESSAGES = 100_000, 10_000
MEGA, KIBI = 1_000_000, 1024


def hold(peer: Peer, count: int) -> tuple[float, float]:
    """Megabytes when idle, and kibibytes for each of ``count`` messages."""
    idle = peer.resident_bytes
    with RawClient(peer.endpoint) as client, client.sender(QUEUE) as sender:
        client.send(sender, payload(), count)
        return idle / MEGA, (peer.resident_bytes - idle) / count / KIBI


def main() -> None:
    asked = settings(__doc__, 5)
    count = QUICK_MESSAGES if asked.quick else MESSAGES
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, {count} messages of 1 KiB")
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for _ in range(asked.rounds):
        with OurBroker() as ours:
            found[ours.name].append(hold(ours, count))
    for name in () if asked.quick else OTHERS:
        with started(name) as peer:
            if peer is not None:
                found[name].append(hold(peer, count))
    for name, held in found.items():
        idle, each = zip(*held, strict=True)
        figure("memory.idle", "MB", idle, 1, peer=name)
        figure("memory.message", "KiB/message", each, 3, peer=name, waiting=count)


if __name__ == "__main__":
    main()
