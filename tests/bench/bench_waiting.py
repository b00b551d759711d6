"""Does a message cost the same whatever waits behind it? Send, receive and complete, plain and partitioned.

    python -m tests.bench.bench_waiting [--rounds N]

Entities alone, in one process and in virtual time: no wire. CPU time, so that a busy machine shows less.
So many messages wait, then BATCH are sent, received and completed, and the waiting ones stay as many. Of a
million deadlines a few pass at a time: what passes is what is paid for. One JSON line a figure, in
microseconds a message.
"""

from __future__ import annotations

import gc
import platform
import statistics
import time

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.entity import Entity
from tests.bench.report import figure, rounds

NOON = 1_800_000_000_000
BATCH = 10_000
WAITING = (1_000, 100_000, 1_000_000)
EXPIRE = 1_000


def filled(waiting: int, *, is_partitioned: bool, time_to_live: int | None = None) -> Entity:
    queue = Namespace("contoso").create_queue(
        "orders", QueueDescription(enable_partitioning=is_partitioned, max_size_in_megabytes=5120), NOON
    )
    for n in range(waiting):
        queue.enqueue(StoredMessage(bare=b"x" * 64, time_to_live=time_to_live and time_to_live + n), NOON)
    return queue


def cost(queue: Entity) -> tuple[float, float]:
    """Microseconds to send one, and to receive and complete one."""
    fresh = [StoredMessage(bare=b"x" * 64) for _ in range(BATCH)]
    begun = time.process_time()
    for message in fresh:
        queue.enqueue(message, NOON)
    sent = time.process_time()
    for _ in range(BATCH):
        message = queue.receive(NOON)
        assert message is not None
        assert message.lock_token is not None
        queue.complete(message.lock_token, NOON)
    done = time.process_time()
    return (sent - begun) / BATCH * 1e6, (done - sent) / BATCH * 1e6


def main() -> None:
    n = rounds(__doc__, 7)
    print(f"python {platform.python_version()}, batches of {BATCH}, {n} rounds")
    for kind in ("plain", "partitioned"):
        medians = {}
        for waiting in WAITING:
            queue = filled(waiting, is_partitioned=kind == "partitioned")
            gc.freeze()
            costs = [cost(queue) for _ in range(n)]
            gc.unfreeze()
            figure(f"{kind}, {waiting} waiting, send", "us/message", [each[0] for each in costs])
            settled = [each[1] for each in costs]
            medians[waiting] = statistics.median(settled)
            figure(
                f"{kind}, {waiting} waiting, receive and complete",
                "us/message",
                settled,
                over_1000=round(medians[waiting] / medians[WAITING[0]], 2),
            )
            del queue
            gc.collect()
    for waiting in (10_000, 1_000_000):
        queue = filled(waiting, is_partitioned=True, time_to_live=1_000)
        spent = []
        for step in range(1, n + 1):
            begun = time.process_time()
            queue.look(NOON + 1_000 + step * EXPIRE)
            spent.append((time.process_time() - begun) / EXPIRE * 1e6)
        figure(f"partitioned, {waiting} deadlines, {EXPIRE} of them pass", "us/passed", spent)


if __name__ == "__main__":
    main()
