"""What does the paired sender cost on the healthy path, over the bare SDK? (P-2)

Rounds of both are interleaved in one process; the yardstick is the ratio of the process's CPU time.
The broker runs in a process of its own, so that its work is not counted.

    python -m tests.bench.bench_send [--rounds N]
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from tests.bench.report import figure, rounds


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


def main(times: int, count: int = 400) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    there.close()  # so that a server that dies is noticed
    primary, secondary = here.recv()
    print(f"settings: rounds={times} sends={count} body=1024 properties=3 python={sys.version.split()[0]}")
    options = PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True)
    with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_sender("orders") as bare,
        PairedServiceBusClient.from_connection_strings(primary, secondary, options=options) as pair,
        pair.get_queue_sender("orders") as paired,
    ):
        for send in (bare.send_messages, paired.send_messages):
            cpu_of(send, count)  # warm
        pairs = []
        for number in range(times):
            order = [bare.send_messages, paired.send_messages]
            figures = [cpu_of(send, count) for send in (order if number % 2 else order[::-1])]
            pairs.append(tuple(figures if number % 2 else figures[::-1]))
    here.send("stop")
    server.join(10)
    ratios = sorted(wrapped / alone for alone, wrapped in pairs)
    bare_cpu, paired_cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    print(f"bare: {bare_cpu:.1f} us, paired: {paired_cpu:.1f} us")
    figure("send.healthy_path_cpu", "ratio to the bare SDK", ratios, digits=4)


if __name__ == "__main__":
    main(rounds(__doc__, 15))
