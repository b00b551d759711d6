"""The brokers that are measured: ours as a user runs it, and its peers where they are installed.

Each is a separate process on loopback with its own directory, and both are removed afterwards. ``install_peers``
installs the peers in ``SBPAIR_PEERS``, or ``~/.cache/sbpair-peers``. One that is missing or does not start is skipped
with a notice; no benchmark requires it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from tests.trials.bench.peers.artemis import Artemis
from tests.trials.bench.peers.broker_j import BrokerJ
from tests.trials.bench.peers.our_broker import OurBroker
from tests.trials.bench.peers.peer import DURABLE_QUEUE, QUEUE, Peer
from tests.trials.bench.peers.rabbitmq import RELEASE_3, RELEASE_4, RabbitMq

__all__ = [
    "BEST_OF",
    "DURABLE_QUEUE",
    "OTHERS",
    "PEERS",
    "QUEUE",
    "OurBroker",
    "Peer",
    "directory",
    "others",
    "started",
]

PEERS = "SBPAIR_PEERS"  # the environment variable
OTHERS: Mapping[str, Callable[[Path], Peer]] = {
    "rabbitmq3": partial(RabbitMq, RELEASE_3),
    "rabbitmq4": partial(RabbitMq, RELEASE_4),
    "artemis": Artemis,
    "broker-j": BrokerJ,
}
BEST_OF = ("rabbitmq4", "artemis", "broker-j")  # the targets are ratios to the best of these


def directory() -> Path:
    """Where the peers are installed, each in a directory of its name."""
    return Path(os.environ.get(PEERS) or Path.home() / ".cache" / "sbpair-peers")


@contextmanager
def started(name: str) -> Iterator[Peer | None]:
    """A running peer; None, with a notice that says why, if it is not installed or does not start."""
    home = directory() / name
    if not home.exists():
        print(f"# without {name}: python -m tests.trials.bench.install_peers {name}", flush=True)
        yield None
        return
    try:
        peer = OTHERS[name](home)
    except OSError as error:
        print(f"# without {name}: {error}", flush=True)
        yield None
        return
    with peer:
        yield peer


@contextmanager
def others(names: Iterable[str] = OTHERS) -> Iterator[list[Peer]]:
    """Those of these peers that are installed, running."""
    with ExitStack() as stack:
        peers = [stack.enter_context(started(name)) for name in names]
        yield [peer for peer in peers if peer is not None]
