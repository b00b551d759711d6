"""The cost of keeping messages on disk, compared with the disk alone.

    python -m tests.trials.bench.bench_store [--rounds N] [--quick]

Messages of 1 KiB come in groups, as in one turn of the broker's event loop; each group is a commit. Counted
is processor time per message: ``turn`` in the thread of the loop, ``sync`` in the thread in which SQLite writes
and syncs its log. Each commit is timed; the floor, in the same round, is the time to append as many bytes to
a file, with one fdatasync per group. ``settle`` is the commit of a group that was received and completed.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import gc
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.change_log import ChangeLog
from sbpair.broker.entities.queue import Queue
from sbpair.broker.store.disk import Disk
from sbpair.broker.store.sqlite import SqliteStore
from tests.trials.bench.report import figure, ratio, settings

NOON = 1_800_000_000_000
MESSAGES = 20_000
BODY = 1100  # bytes: a kibibyte, its properties and theirs
GROUPS = (1, 16, 256, 1000)
QUICK = 10
Figures = dict[tuple[str, str, int], list[float]]  # by name, unit and size of a group


class Spent:
    """What a phase has used: processor time of the loop's thread and of the others, and time."""

    def __init__(self) -> None:
        self.turn = self.sync = self.wall = 0.0

    def add(self, commit: Callable[[], None]) -> None:
        process, thread, wall = time.process_time(), time.thread_time(), time.perf_counter()
        commit()
        turn = time.thread_time() - thread
        self.turn += turn
        self.sync += time.process_time() - process - turn
        self.wall += time.perf_counter() - wall


def committed(store: SqliteStore) -> None:
    store.begin_commit()
    store.end_commit()


def enqueue(store: SqliteStore, queue: Queue, group: int, count: int) -> Spent:
    spent = Spent()
    for first in range(0, count, group):
        ids = range(first, first + group)
        messages = [
            StoredMessage(bare=bytes(BODY), message_id=f"message {each}", overhead=64) for each in ids
        ]
        queue.enqueue_all(messages, NOON + first)
        spent.add(lambda: committed(store))
    return spent


def settle(store: SqliteStore, queue: Queue, group: int, count: int) -> Spent:
    spent = Spent()
    for _ in range(0, count, group):
        for _ in range(group):
            message = queue.receive(NOON)
            assert message is not None
            assert message.lock_token is not None
            queue.complete(message.lock_token, NOON)
        spent.add(lambda: committed(store))
    return spent


def floor(path: Path, group: int, count: int) -> float:
    """Seconds until the disk alone has the same bytes, synced after each group."""
    data, begun = bytes(BODY * group), time.perf_counter()
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(0, count, group):
            os.write(file, data)
            os.fdatasync(file)
    finally:
        os.close(file)
    return time.perf_counter() - begun


def one_round(group: int, count: int, found: Figures) -> None:
    count -= count % group
    with tempfile.TemporaryDirectory(prefix="sbpair-bench-store-") as directory:
        disk = Disk(Path(directory) / "data")
        namespace = Namespace("contoso", created_at=NOON, change_log=ChangeLog())
        store = disk.attach(namespace, NOON)
        queue = namespace.create_queue("orders", QueueDescription(), NOON)
        committed(store)
        sent, settled = enqueue(store, queue, group, count), settle(store, queue, group, count)
        disk.close()
        alone = floor(Path(directory) / "alone", group, count)
    for name, spent in (("enqueue", sent), ("settle", settled)):
        found[f"{name}_turn_cpu", "us/message", group].append(spent.turn / count * 1e6)
        found[f"{name}_sync_cpu", "us/message", group].append(spent.sync / count * 1e6)
        found[f"{name}_commit", "us", group].append(spent.wall / (count // group) * 1e6)
    found["enqueue", "1/s", group].append(count / sent.wall)
    found["floor_sync", "us", group].append(alone / (count // group) * 1e6)
    found["floor", "1/s", group].append(count / alone)


def main() -> None:
    asked = settings(__doc__, 5)
    count = MESSAGES // (QUICK if asked.quick else 1)
    print(f"# python {platform.python_version()}, {asked.rounds} rounds of {count} messages of {BODY} bytes")
    found: Figures = defaultdict(list)
    gc.freeze()
    for _ in range(asked.rounds):
        for group in GROUPS:
            one_round(group, min(count, group * 1000), found)
    for (name, unit, group), values in found.items():
        figure(f"store.{name}", unit, values, digits=1, group=group)
    for group in GROUPS:
        ratio(
            "store.enqueue.ratio", found["enqueue", "1/s", group], found["floor", "1/s", group], group=group
        )


if __name__ == "__main__":
    main()
