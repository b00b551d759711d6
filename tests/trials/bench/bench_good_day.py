"""The bare SDK and the paired client on a healthy primary, where applications use one sender in common.

Three habits: eight threads that share a blocking sender, fifty sends at once on an asyncio sender that has
no link yet, and the first send after the connection was idle for longer than the broker keeps idle
connections. The broker runs in a process of its own. Each habit runs in a process of its own too, because a
thread of the bare SDK that hangs cannot be ended otherwise.

    python -m tests.trials.bench.bench_good_day [--rounds N] [--quick]
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import platform
import threading
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from tests.trials.bench.report import settings

THREADS, SENDS_EACH, CROWD = 8, 20, 50
HANGING_AFTER, QUICK_HANGING_AFTER = 45.0, 5.0  # seconds
IDLE = 700.0  # seconds of connection time: the broker detaches idle links after ten minutes
NAMES = ("contoso", "contoso-dr")
OPTIONS = PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True)

Strings = tuple[str, str]


def serve(pipe: Connection) -> None:
    """The broker: it sends its connection strings, then ages connections on request."""
    from sbpair.broker import Broker, ShiftedClock

    with Broker(dict.fromkeys(NAMES, 0), clock=ShiftedClock()) as broker:
        for name in NAMES:
            broker.namespace(name).create_queue("orders")
        for number in range(10):
            broker.namespace("contoso-dr").create_queue(f"contoso/x-servicebus-transfer/{number}")
        pipe.send(tuple(broker.namespace(name).connection_string for name in NAMES))
        while seconds := pipe.recv():
            from datetime import timedelta

            broker.advance_connections(timedelta(seconds=seconds))
            pipe.send("aged")


def blocking(kind: str, strings: Strings) -> Any:
    if kind == "sdk":
        return ServiceBusClient.from_connection_string(strings[0])
    return PairedServiceBusClient.from_connection_strings(*strings, options=OPTIONS)


def concurrent(kind: str, strings: Strings) -> Any:
    if kind == "sdk":
        return AsyncServiceBusClient.from_connection_string(strings[0])
    return AsyncPairedServiceBusClient.from_connection_strings(*strings, options=OPTIONS)


def threads(kind: str, strings: Strings, age: Callable[[], None], patience: float) -> str:
    """Eight threads send twenty messages each through one sender."""
    seen: Counter[str] = Counter()
    sender = blocking(kind, strings).get_queue_sender("orders")

    def work() -> None:
        for _ in range(SENDS_EACH):
            try:
                sender.send_messages(ServiceBusMessage("x"))
                seen["sent"] += 1
            except Exception as error:  # what a user sees, whatever it is
                seen[type(error).__name__] += 1

    workers = [threading.Thread(target=work, daemon=True) for _ in range(THREADS)]
    began = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(max(0.0, began + patience - time.perf_counter()))
    hanging = sum(worker.is_alive() for worker in workers)
    return described(seen, time.perf_counter() - began, hanging)


def crowd(kind: str, strings: Strings, age: Callable[[], None], patience: float) -> str:
    """Fifty sends at once, on a sender without a link."""

    async def run() -> str:
        seen: Counter[str] = Counter()
        async with concurrent(kind, strings) as client:
            sender = client.get_queue_sender("orders")
            began = time.perf_counter()
            sends = (sender.send_messages(ServiceBusMessage("x")) for _ in range(CROWD))
            for outcome in await asyncio.gather(*sends, return_exceptions=True):
                failed = isinstance(outcome, BaseException)
                seen[type(outcome).__name__ if failed else "sent"] += 1
            return described(seen, time.perf_counter() - began, 0)

    return asyncio.run(run())


def idle(kind: str, strings: Strings, age: Callable[[], None], patience: float) -> str:
    """The first send after the broker detached the idle link."""
    with blocking(kind, strings) as client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        age()
        began = time.perf_counter()
        sender.send_messages(ServiceBusMessage("after"))
        return f"{time.perf_counter() - began:.2f} s"


def described(seen: Counter[str], took: float, hanging: int) -> str:
    words = [f"{count} {what}" for what, count in seen.most_common()]
    words += [f"{hanging} threads still hanging"] if hanging else []
    return f"{', '.join(words) or 'nothing sent'} after {took:.2f} s"


HABITS: dict[str, Callable[[str, Strings, Callable[[], None], float], str]] = {
    f"{THREADS} threads x {SENDS_EACH} sends": threads,
    f"{CROWD} sends at once, cold asyncio sender": crowd,
    "first send after idling": idle,
}


def measure(habit: str, kind: str, result: Connection, patience: float) -> None:
    """One habit against a broker of its own."""
    logging.disable(logging.CRITICAL)
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(there,))
    server.start()
    strings = here.recv()

    def age() -> None:
        here.send(IDLE)
        here.recv()
        time.sleep(1)  # the client's socket has the detach before it sends

    try:
        result.send(HABITS[habit](kind, strings, age, patience))
    finally:
        here.send(0)
        os._exit(0)  # hanging threads do not keep the process


def main(times: int, patience: float) -> None:
    print(f"settings: rounds={times} Python {platform.python_version()}, {os.cpu_count()} cores")
    for habit in HABITS:
        for kind in ("sdk", "paired"):
            for _ in range(times):
                here, there = multiprocessing.Pipe()
                process = multiprocessing.get_context("spawn").Process(
                    target=measure, args=(habit, kind, there, patience)
                )
                process.start()
                print(f"{habit} | {kind} | {here.recv()}", flush=True)
                process.join(10)


if __name__ == "__main__":
    asked = settings(__doc__, 1)
    main(asked.rounds, QUICK_HANGING_AFTER if asked.quick else HANGING_AFTER)
