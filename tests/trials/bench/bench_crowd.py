"""Many concurrent sends in asyncio over a slow line (R-5), and at the moment of a failover.

The SDK's sender and the paired one send the same number of messages at the same time, each over an open link.
The SDK cannot open a link under many concurrent sends; the paired sender can, which is measured too. Then
as many tasks send while the primary refuses connections: the figure is the time until all messages are parked.

    python -m tests.trials.bench.bench_crowd [--rounds N]
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import timedelta
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient, PairingEvent
from tests.trials.bench.delay_line import by_way_of, delay_lines
from tests.trials.bench.report import figure, rounds

Crowd = tuple[float, int, float]
Send = Callable[[ServiceBusMessage], Awaitable[object]]
CROWDS = ((0.0, 1), (0.0, 100), (0.05, 400), (0.1, 400), (0.1, 800))  # seconds of round trip, sends at once
PARKED = (200, 400)
NAMES = ("contoso", "contoso-dr")


def serve(pipe: Connection) -> None:
    from sbpair.broker import Broker

    with Broker(dict.fromkeys(NAMES, 0)) as broker:
        for name in NAMES:
            broker.namespace(name).create_queue("orders")
        for number in range(10):
            broker.namespace("contoso-dr").create_queue(f"contoso/x-servicebus-transfer/{number}")
        pipe.send([(broker.namespace(name).connection_string, broker.namespace(name).port) for name in NAMES])
        pipe.recv()


def options(interval: float = 60.0, timeout: float = 60.0) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=interval),
        operation_timeout=timedelta(seconds=timeout),
        assume_backlogs_exist=True,
    )


async def crowd(send: Send, count: int) -> Crowd:
    """How long they took together, how many were acknowledged, and how long the slowest of 99 % took."""
    took: list[float] = []

    async def one(number: int) -> None:
        began = time.perf_counter()
        await send(ServiceBusMessage(b"x" * 100, message_id=str(number)))
        took.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(one(number) for number in range(count)), return_exceptions=True)
    last = sorted(took)[int(len(took) * 0.99) - 1 if len(took) > 1 else 0] if took else float("nan")
    return time.perf_counter() - began, len(took), last


async def sdk(primary: str, count: int) -> Crowd:
    async with (
        ServiceBusClient.from_connection_string(primary) as client,
        client.get_queue_sender("orders") as sender,
    ):
        return await crowd(lambda message: sender.send_messages(message, timeout=5), count)


async def paired(primary: str, secondary: str, count: int, *, is_cold: bool) -> Crowd:
    told: list[PairingEvent] = []
    async with PairedServiceBusClient.from_connection_strings(
        primary, secondary, options=options()
    ) as client:
        client.on_event(told.append)
        sender = client.get_queue_sender("orders")
        if not is_cold:
            await sender.__aenter__()
        measured = await crowd(lambda message: sender.send_messages(message, timeout=5), count)
        wrong = [event for event in told if type(event).__name__ in ("EntitySuspected", "EntityFailedOver")]
        if wrong:
            print(f"# {wrong}")
        return measured


async def parked(refusing: str, secondary: str, count: int) -> Crowd:
    async with PairedServiceBusClient.from_connection_strings(
        refusing, secondary, options=options(interval=0.0, timeout=12.0)
    ) as client:
        return await crowd(client.get_queue_sender("orders").send_messages, count)


def tell(name: str, times: int, measured: Callable[[], Coroutine[Any, Any, Crowd]], count: int) -> None:
    runs = [asyncio.run(measured()) for _ in range(times)]
    accepted = [run[1] for run in runs]
    print(f"# {name}: acknowledged {min(accepted)} to {max(accepted)} of {count}")
    figure(f"{name}.all", "s", [run[0] for run in runs], digits=3)
    figure(f"{name}.p99", "s", [run[2] for run in runs], digits=3)


def main(times: int) -> None:
    logging.disable(logging.CRITICAL)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,), daemon=True)
    server.start()
    there.close()
    (primary, primary_port), (secondary, _) = here.recv()
    print(f"settings: rounds={times} body=100")
    for rtt, count in CROWDS:
        with delay_lines(rtt, [primary_port]) as (port,):
            far = by_way_of(primary, port)
            name = f"crowd.{count}.rtt_{round(rtt * 1000)}ms"
            tell(f"{name}.sdk", times, partial(sdk, far, count), count)
            for kind in ("open", "cold"):
                measured = partial(paired, far, secondary, count, is_cold=kind == "cold")
                tell(f"{name}.paired.{kind}", times, measured, count)
    refusing = by_way_of(primary, 1)
    for count in PARKED:
        tell(f"crowd.parked.{count}", times, partial(parked, refusing, secondary, count), count)
    here.send("stop")
    server.join(10)


if __name__ == "__main__":
    main(rounds(__doc__, 3))
