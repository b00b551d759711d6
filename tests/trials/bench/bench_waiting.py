"""The cost of a message as a function of the number of waiting messages.

    python -m tests.trials.bench.bench_waiting [--rounds N] [--quick]

Entities alone, in one process and in virtual time, without a wire. CPU time, which a busy machine affects little.
A number of messages wait; then a batch is put through the queue, and the number of waiting messages stays the same:

    plain, partitioned    sent, received, completed
    session               sent to sessions of ten, each of which is accepted, received, completed, released
    scheduled             the waiting ones are due later; sent for later, cancelled
    with a time to live   sent with one, received, completed
    deferred              received by number, as the waiting ones are; deferred again

Of a million deadlines a few expire at a time: the cost should depend on these alone. One JSON line per figure, in
microseconds per message; ``over_1000`` is the ratio to the cost with a thousand waiting messages, and
``growth`` the worst ratio of a kind.
"""

from __future__ import annotations

import gc
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.queue import Queue
from tests.trials.bench.report import figure, settings

NOON, HOUR, DAY = 1_800_000_000_000, 3_600_000, 86_400_000  # ms
BATCH = 5_000
WAITING, QUICK_WAITING = (1_000, 10_000, 100_000, 1_000_000), (1_000, 10_000)
IN_A_SESSION = 10
EXPIRE = 1_000


def fresh(number: int, **more: object) -> StoredMessage:
    return StoredMessage(bare=b"x" * 64, message_id=number, **more)  # type: ignore[arg-type]


def send_receive_complete(queue: Queue, **more: object) -> None:
    messages = [fresh(number, **more) for number in range(BATCH)]
    for message in messages:
        queue.enqueue(message, NOON)
    for _ in messages:
        complete_next(queue)


def complete_next(queue: Queue) -> None:
    message = queue.receive(NOON)
    assert message is not None
    assert message.lock_token is not None
    queue.complete(message.lock_token, NOON)


def through_sessions(queue: Queue) -> None:
    assert queue.sessions is not None
    for session in range(BATCH // IN_A_SESSION):
        name = f"mine-{session}"
        for number in range(IN_A_SESSION):
            queue.enqueue(fresh(number, session_id=name), NOON)
        lock = queue.sessions.accept(name, NOON)
        assert lock is not None
        while (message := queue.receive(NOON, lock)) is not None:
            assert message.lock_token is not None
            queue.complete(message.lock_token, NOON)
        queue.sessions.release(lock, NOON)


def schedule_and_cancel(queue: Queue) -> None:
    for number in range(BATCH):
        queue.cancel_scheduled([queue.enqueue(fresh(number, scheduled_for=NOON + HOUR), NOON)], NOON)


def receive_deferred(queue: Queue) -> None:
    for number in range(1, BATCH + 1):
        (message,) = queue.receive_deferred([number % 1_000 + 1], NOON)
        assert message.lock_token is not None
        queue.defer(message.lock_token, NOON)


def defer_all(queue: Queue) -> None:
    while (message := queue.receive(NOON)) is not None:
        assert message.lock_token is not None
        queue.defer(message.lock_token, NOON)


@dataclass(frozen=True, slots=True)
class Kind:
    """What waits, and what a batch goes through."""

    batch: Callable[[Queue], None]
    message: Callable[[int], StoredMessage] = fresh
    prepare: Callable[[Queue], None] = lambda queue: None
    is_partitioned: bool = False
    has_sessions: bool = False


KINDS = {
    "plain": Kind(send_receive_complete),
    "partitioned": Kind(send_receive_complete, is_partitioned=True),
    "session": Kind(
        through_sessions, lambda n: fresh(n, session_id=f"s-{n // IN_A_SESSION}"), has_sessions=True
    ),
    "scheduled": Kind(schedule_and_cancel, lambda n: fresh(n, scheduled_for=NOON + DAY + n)),
    "with a time to live": Kind(
        lambda queue: send_receive_complete(queue, time_to_live=DAY),
        lambda n: fresh(n, time_to_live=DAY + n),
    ),
    "deferred": Kind(receive_deferred, prepare=defer_all),
}


def filled(kind: Kind, waiting: int) -> Queue:
    asked = QueueDescription(
        enable_partitioning=kind.is_partitioned,
        requires_session=kind.has_sessions,
        max_size_in_megabytes=5120,
        max_delivery_count=2_000,  # to defer counts a delivery, and each batch defers the same thousand
    )
    queue = Namespace("contoso").create_queue("orders", asked, NOON)
    for number in range(waiting):
        queue.enqueue(kind.message(number), NOON)
    kind.prepare(queue)
    return queue


def costs(kind: Kind, waiting: int, times: int) -> list[float]:
    """Microseconds for one message of a batch, the first batch not counted."""
    queue = filled(kind, waiting)
    gc.collect()
    gc.freeze()
    kind.batch(queue)
    spent = []
    for _ in range(times):
        begun = time.process_time()
        kind.batch(queue)
        spent.append((time.process_time() - begun) / BATCH * 1e6)
    gc.unfreeze()
    return spent


def passed(waiting: int, times: int) -> list[float]:
    """Microseconds for one of the deadlines that pass."""
    queue = filled(Kind(send_receive_complete, lambda n: fresh(n, time_to_live=1_000 + n)), waiting)
    spent = []
    for step in range(1, times + 1):
        begun = time.process_time()
        queue.prepare_receive(NOON + 1_000 + step * EXPIRE)
        spent.append((time.process_time() - begun) / EXPIRE * 1e6)
    return spent


def main() -> None:
    asked = settings(__doc__, 5)
    sizes = QUICK_WAITING if asked.quick else WAITING
    print(f"# python {platform.python_version()}, batches of {BATCH}, {asked.rounds} rounds")
    for name, kind in KINDS.items():
        medians: dict[int, float] = {}
        for waiting in sizes:
            spent = costs(kind, waiting, asked.rounds)
            medians[waiting] = statistics.median(spent)
            over = round(medians[waiting] / medians[sizes[0]], 2)
            figure("waiting.message", "us/message", spent, kind=name, waiting=waiting, over_1000=over)
            gc.collect()
        growths = [medians[waiting] / medians[sizes[0]] for waiting in sizes[1:]]
        figure("waiting.growth", "ratio", [max(growths)], kind=name, up_to=sizes[-1])
    for waiting in (sizes[1], sizes[-1]):
        figure("waiting.deadline", "us/passed", passed(waiting, asked.rounds), waiting=waiting)


if __name__ == "__main__":
    main()
