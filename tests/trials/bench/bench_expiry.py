"""The cost of many expired deadlines, and of many more that have not expired.

    python -m tests.trials.bench.bench_expiry [--rounds N]

A queue holds a million messages, a thousand of which have expired. The receives that meet these, a slice each,
are timed, and beside them the same with ten thousand messages. The two figures are equal if the cost depends on the
expired messages alone.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95).
"""

from __future__ import annotations

import gc
import platform
import time

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.queue_context import SLICE
from tests.trials.bench.report import figure, rounds

NOON = 1_800_000_000_000
HOUR = 3_600_000
EXPIRED = 1_000
WAITING = (10_000, 1_000_000)


def seconds_of_a_receive(waiting: int) -> float:
    """How long receives take to dead-letter ``EXPIRED`` messages among ``waiting``, a slice each."""
    namespace = Namespace("contoso")
    asked = QueueDescription(dead_lettering_on_message_expiration=True, max_size_in_megabytes=5120)
    queue = namespace.create_queue("orders", asked, NOON)
    queue.enqueue(StoredMessage(b"x"), NOON)
    for number in range(waiting):
        queue.enqueue(StoredMessage(b"x", time_to_live=HOUR if number < EXPIRED else 9 * HOUR), NOON)
    gc.collect()
    gc.disable()
    begun = time.perf_counter()
    for _ in range(-(-EXPIRED // SLICE)):
        queue.receive(NOON + HOUR)
    spent = time.perf_counter() - begun
    gc.enable()
    if queue.counts(NOON + HOUR).dead_letter != EXPIRED:
        raise RuntimeError("not all that expired was dead-lettered")
    return spent


def main() -> None:
    times = rounds(__doc__, 5)
    print(f"python {platform.python_version()}, {times} rounds, {EXPIRED} messages expire in one receive")
    for waiting in WAITING:
        spent = [seconds_of_a_receive(waiting) for _ in range(times)]
        each = [seconds / EXPIRED * 1e6 for seconds in spent]
        figure("expire", "us a message", each, waiting=waiting, expired=EXPIRED)


if __name__ == "__main__":
    main()
