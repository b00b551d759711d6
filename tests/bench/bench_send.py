"""What does the paired sender cost on the healthy path, over the bare SDK? (P-2)

Both are measured in turn, ten milliseconds each, in one process; the yardstick is the ratio of its CPU time
in two neighbouring measurements, and of all these ratios the median, which a busy machine moves little.
The broker runs in a process of its own, so that its work is not counted.

    python -m tests.bench.bench_send [--rounds N]
"""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from tests.bench.report import figure, rounds

Send = Callable[[Any], object]
SENDS = 50  # in a measurement: the weather hardly changes in ten milliseconds
PAIRS = 20  # of measurements, in a round


def serve(pipe: Connection) -> None:
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for name in ("contoso", "contoso-dr"):
            broker.namespace(name).create_queue("orders")
        pipe.send([broker.namespace(name).connection_string for name in ("contoso", "contoso-dr")])
        pipe.recv()


def message() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"x" * 1024, message_id="m-1", application_properties={"a": "one", "b": 2, "c": True}
    )


def cpu_of(send: Callable[[Any], object], count: int) -> float:
    """Microseconds of CPU for one send. The messages are made outside the measurement."""
    messages = [message() for _ in range(count)]
    start = time.process_time()
    for each in messages:
        send(each)
    return (time.process_time() - start) / count * 1e6


@contextmanager
def no_collections() -> Iterator[None]:
    """The collector's runs fall on whoever comes just then: none while anything is measured."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def compared(bare: Send, paired: Send) -> list[tuple[float, float]]:
    """Microseconds of both, measured next to each other, in turn the first."""
    pairs = []
    for number in range(PAIRS):
        if number % 2:
            alone, wrapped = cpu_of(bare, SENDS), cpu_of(paired, SENDS)
        else:
            wrapped, alone = cpu_of(paired, SENDS), cpu_of(bare, SENDS)
        pairs.append((alone, wrapped))
    return pairs


def main(times: int) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    there.close()  # so that a server that dies is noticed
    primary, secondary = here.recv()
    version = sys.version.split()[0]
    print(f"settings: rounds={times} pairs={PAIRS} sends={SENDS} body=1024 properties=3 python={version}")
    options = PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True)
    with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_sender("orders") as bare,
        PairedServiceBusClient.from_connection_strings(primary, secondary, options=options) as pair,
        pair.get_queue_sender("orders") as paired,
    ):
        compared(bare.send_messages, paired.send_messages)  # to warm up
        with no_collections():
            pairs = [
                each for _ in range(times) for each in compared(bare.send_messages, paired.send_messages)
            ]
    here.send("stop")
    server.join(10)
    ratios = [wrapped / alone for alone, wrapped in pairs]
    bare_cpu, paired_cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    quarters = statistics.quantiles(ratios, n=4)
    print(f"bare: {bare_cpu:.1f} us, paired: {paired_cpu:.1f} us; half of the ratios: ", end="")
    print(f"{quarters[0]:.3f} to {quarters[2]:.3f}")
    figure("send.healthy_path_cpu", "ratio to the bare SDK", ratios, digits=4)


if __name__ == "__main__":
    main(rounds(__doc__, 15))
