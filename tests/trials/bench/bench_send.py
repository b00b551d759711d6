"""CPU cost of the paired sender, on the healthy path (P-2) and of a parked send, compared with the bare SDK.

The bare sender of a parked send sends the same messages to a queue of the secondary.

Both are measured in turn, ten milliseconds each, in one process. The figure is the median of the ratios of CPU time in
two neighbouring measurements, which a busy machine affects little.
The broker runs in its own process, so its work is not counted.

    python -m tests.trials.bench.bench_send [--rounds N]
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import statistics
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from sbpair.pair.envelope.copies import snapshot
from sbpair.pair.envelope.names import backlog_queue_name
from tests.trials.bench.report import figure, rounds

Measured = Callable[[], float]
SENDS = 50  # in a measurement: the weather hardly changes in ten milliseconds
PAIRS = 20  # of measurements, in a round
OPTIONS = PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True)


def serve(pipe: Connection) -> None:
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        for name in ("contoso", "contoso-dr"):
            broker.namespace(name).create_queue("orders")
        for index in range(OPTIONS.backlog_queue_count):
            broker.namespace("contoso-dr").create_queue(backlog_queue_name("contoso", index))
        pipe.send([broker.namespace(name).connection_string for name in ("contoso", "contoso-dr")])
        pipe.recv()


def message() -> ServiceBusMessage:
    return ServiceBusMessage(
        b"x" * 1024, message_id="m-1", application_properties={"a": "one", "b": 2, "c": True}
    )


def cpu_of(send: Callable[[Any], object]) -> float:
    """Microseconds of CPU for one send. The messages are made outside the measurement."""
    messages = [message() for _ in range(SENDS)]
    start = time.process_time()
    for each in messages:
        send(each)
    return (time.process_time() - start) / SENDS * 1e6


async def cpu_of_awaited(send: Callable[[Any], Awaitable[object]]) -> float:
    """The same in asyncio."""
    messages = [message() for _ in range(SENDS)]
    start = time.process_time()
    for each in messages:
        await send(each)
    return (time.process_time() - start) / SENDS * 1e6


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


def compared(name: str, bare: Measured, paired: Measured, times: int) -> None:
    """Tell the ratio of the two, each measured next to the other, in turn the first."""
    for _ in range(PAIRS):
        bare(), paired()  # to warm up
    pairs = []
    with no_collections():
        for number in range(times * PAIRS):
            if number % 2:
                alone, wrapped = bare(), paired()
            else:
                wrapped, alone = paired(), bare()
            pairs.append((alone, wrapped))
    ratios = [wrapped / alone for alone, wrapped in pairs]
    bare_cpu, paired_cpu = (statistics.median(column) for column in zip(*pairs, strict=True))
    quarters = statistics.quantiles(ratios, n=4)
    print(
        f"# bare {bare_cpu:.1f} us, paired {paired_cpu:.1f} us; "
        f"half of the ratios {quarters[0]:.3f} to {quarters[2]:.3f}"
    )
    figure(name, "ratio to the bare SDK", ratios, digits=4)
    figure(f"{name}.bare", "us", [alone for alone, _ in pairs], 1)
    figure(f"{name}.paired", "us", [wrapped for _, wrapped in pairs], 1)


def copying(times: int) -> None:
    """The copy of a message that each paired send makes, alone."""
    with no_collections():
        figure("send.copy_cpu", "us", [cpu_of(snapshot) for _ in range(times * PAIRS)], 1)


def blocking(primary: str, secondary: str, times: int) -> None:
    for name, bare_end in (("healthy_path", primary), ("parked", secondary)):
        with (
            ServiceBusClient.from_connection_string(bare_end) as client,
            client.get_queue_sender("orders") as bare,
            PairedServiceBusClient.from_connection_strings(primary, secondary, options=OPTIONS) as pair,
            pair.get_queue_sender("orders") as paired,
        ):
            if name == "parked":
                pair.hold("orders")
            compared(
                f"send.{name}_cpu",
                lambda bare=bare: cpu_of(bare.send_messages),  # type: ignore[misc]
                lambda paired=paired: cpu_of(paired.send_messages),  # type: ignore[misc]
                times,
            )


async def held(pair: Any) -> None:
    pair.hold("orders")


def in_asyncio(primary: str, secondary: str, times: int) -> None:
    for name, bare_end in (("healthy_path", primary), ("parked", secondary)):
        with asyncio.Runner() as runner:
            stack = AsyncExitStack()

            async def opened(client: Any, stack: AsyncExitStack = stack) -> tuple[Any, Any]:
                entered = await stack.enter_async_context(client)
                return entered, await stack.enter_async_context(entered.get_queue_sender("orders"))

            _, bare = runner.run(opened(AsyncServiceBusClient.from_connection_string(bare_end)))
            paired = AsyncPairedServiceBusClient.from_connection_strings(primary, secondary, options=OPTIONS)
            pair, sender = runner.run(opened(paired))
            if name == "parked":
                runner.run(held(pair))
            compared(
                f"send.{name}_cpu_asyncio",
                lambda runner=runner, bare=bare: runner.run(cpu_of_awaited(bare.send_messages)),  # type: ignore[misc]
                lambda runner=runner, sender=sender: runner.run(cpu_of_awaited(sender.send_messages)),  # type: ignore[misc]
                times,
            )
            runner.run(stack.aclose())


def main(times: int) -> None:
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    there.close()  # so that a server that dies is noticed
    primary, secondary = here.recv()
    version = sys.version.split()[0]
    print(f"settings: rounds={times} pairs={PAIRS} sends={SENDS} body=1024 properties=3 python={version}")
    blocking(primary, secondary, times)
    in_asyncio(primary, secondary, times)
    copying(times)
    here.send("stop")
    server.join(10)


if __name__ == "__main__":
    main(rounds(__doc__, 15))
