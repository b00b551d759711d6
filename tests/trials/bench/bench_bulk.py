"""How long another client waits while the broker does bulk work.

    python -m tests.trials.bench.bench_bulk [--rounds N] [--quick]

A separate process sends to a queue through the SDK, one message after the other, while in the same namespace
a million others fall due at once or are forwarded. One JSON line per figure: the slowest of these sends and their
99th percentile, in milliseconds, beside the same without bulk work; and the longest garbage collection of the broker's
process meanwhile.
"""

from __future__ import annotations

import gc
import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.connection import Connection

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair.broker import Broker
from sbpair.broker.cli.broker.long_lived import short_collections
from sbpair.broker.entities import StoredMessage
from tests.trials.bench.report import figure, percentile, settings

MANY, QUICK_MANY = 1_000_000, 5_000
FILLING = (
    15_000  # ms that filling a queue may take; below the 28 s after which the SDK reads for 0.2 s on its own
)
LEAST = 3.0  # seconds that the sends are watched
PROCESSES = multiprocessing.get_context("spawn")


def probe(connection_string: str, says: Connection, until: Connection) -> None:
    """Send until stopped, then return how long each send took (seconds)."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("other") as sender,
    ):
        sender.send_messages(ServiceBusMessage("warm"))
        says.send("ready")
        spans = []
        while not until.poll():
            began = time.perf_counter()
            sender.send_messages(ServiceBusMessage("x"))
            spans.append(time.perf_counter() - began)
        says.send(spans)


def due_at_once(broker: Broker, many: int) -> Callable[[], bool]:
    """Messages that are all scheduled for the same moment; whether all are there."""
    contoso, namespace = broker.namespace("contoso"), broker.namespace("contoso").server.frontend.namespace
    queue, now = namespace.queue("orders"), time.time_ns() // 1_000_000
    due = now + (FILLING if many == MANY else 3_000)
    broker._in_loop(
        lambda: queue.enqueue_all([StoredMessage(bare=b"x", scheduled_for=due) for _ in range(many)], now)
    )
    return lambda: contoso.counts("orders").active == many


def forwarded(broker: Broker, many: int) -> Callable[[], bool]:
    """Messages of a queue that is given a destination while they wait."""
    contoso = broker.namespace("contoso")
    queue, now = contoso.server.frontend.namespace.queue("orders"), time.time_ns() // 1_000_000
    broker._in_loop(lambda: queue.enqueue_all([StoredMessage(bare=b"x") for _ in range(many)], now))
    contoso.create_queue("archive", max_size_in_megabytes=5120)

    def begin() -> bool:
        if contoso.description("orders").forward_to is None:
            contoso.update_queue("orders", replace(contoso.description("orders"), forward_to="archive"))
        return contoso.counts("archive").active == many

    return begin


KINDS = {"nothing": None, "due at once": due_at_once, "forwarded": forwarded}


@contextmanager
def collections() -> Iterator[list[float]]:
    """The milliseconds of processor time of each garbage collection of this process while in the block."""
    spans, began = [0.0], 0.0

    def record(phase: str, info: dict[str, int]) -> None:
        nonlocal began
        if phase == "start":
            began = time.thread_time()
        else:
            spans.append((time.thread_time() - began) * 1000)

    gc.callbacks.append(record)
    try:
        yield spans
    finally:
        gc.callbacks.remove(record)


def measured(kind: str, many: int) -> tuple[list[float], float]:
    """The milliseconds that each send took while work of this kind was done, and the longest collection."""
    with Broker({"contoso": 0}) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("other")
        contoso.create_queue("orders", max_size_in_megabytes=5120)
        prepare = KINDS[kind]
        is_done = (lambda: True) if prepare is None else prepare(broker, many)
        gc.collect()  # of the filling, which no client waits for here
        hears, says = PROCESSES.Pipe(duplex=False)
        until, asks = PROCESSES.Pipe(duplex=False)
        process = PROCESSES.Process(target=probe, args=(contoso.connection_string, says, until))
        process.start()
        assert hears.recv() == "ready"
        began = time.monotonic()
        with collections() as collected:
            while not is_done() or time.monotonic() < began + LEAST:
                time.sleep(0.1)
        asks.send("stop")
        spans = hears.recv()
        process.join()
    return [span * 1000 for span in spans], max(collected)


def main() -> None:
    asked = settings(__doc__, 2)
    many = QUICK_MANY if asked.quick else MANY
    for kind in KINDS:
        with short_collections():  # as `sbpair broker` does
            runs = [measured(kind, many) for _ in range(asked.rounds)]
        figure("bulk.slowest", "ms", [max(sends) for sends, _ in runs], kind=kind, messages=many)
        figure("bulk.p99", "ms", [percentile(sends, 0.99) for sends, _ in runs], kind=kind, messages=many)
        figure("bulk.collection", "ms", [collection for _, collection in runs], kind=kind, messages=many)


if __name__ == "__main__":
    main()
