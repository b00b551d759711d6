"""Thousands of entities of one client, few descriptors, and a primary that is silent: every send is parked in time.

    python -m tests.trials.many_entities [--entities 5000] [--descriptors 256] [--seconds 60] [--rate 60]

A worker with a queue for each of its tenants sends to one after the other, blocking and asyncio; none of them has
failed over when the primary falls silent. Prints a line of JSON for each; exit code 1 when a send raised, or took
longer than it was given, or the memory grows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.aio import PairedServiceBusClient as AsyncPairedServiceBusClient
from sbpair.broker import Broker
from sbpair.broker.faults import Down
from sbpair.pair.envelope.names import backlog_queue_name
from tests.trials.bench.process import resident_bytes

TIMEOUT = 20.0  # seconds given to each send
BACKLOGS = 2
AT_ONCE = 400  # blocking sends
SKINS = ("blocking", "asyncio")


@dataclass
class Seen:
    """What became of the sends."""

    parked: int = 0
    raised: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0
    descriptors: int = 0
    memory: list[int] = field(default_factory=list)  # bytes, at each tenth of the time

    def took(self, seconds: float, error: Exception | None) -> None:
        self.slowest = max(self.slowest, seconds)
        if error is None:
            self.parked += 1
        else:
            self.raised[type(error).__name__] += 1


def options() -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        backlog_queue_count=BACKLOGS, assume_backlogs_exist=True, primary_namespace_name="contoso"
    )


def watch(seen: Seen, seconds: float) -> threading.Thread:
    """Note descriptors and memory until the time is over."""

    def look() -> None:
        for tenth in range(100):
            time.sleep(seconds / 100)
            seen.descriptors = max(seen.descriptors, len(os.listdir("/proc/self/fd")))
            if tenth % 10 == 9:
                seen.memory.append(resident_bytes(os.getpid()))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    return thread


def blocking(ends: tuple[str, str], entities: int, seconds: float, rate: float) -> Seen:
    seen = Seen()
    with (
        PairedServiceBusClient.from_connection_strings(*ends, options=options()) as client,
        ThreadPoolExecutor(AT_ONCE) as pool,
    ):
        senders = [client.get_queue_sender(f"tenant-{number}") for number in range(entities)]

        def send(number: int) -> None:
            began, failed = time.monotonic(), None
            try:
                senders[number % entities].send_messages(ServiceBusMessage(b"x"), timeout=TIMEOUT)
            except Exception as error:
                failed = error
            seen.took(time.monotonic() - began, failed)

        watching, began = watch(seen, seconds), time.monotonic()
        for number in range(int(seconds * rate)):
            time.sleep(max(0.0, began + number / rate - time.monotonic()))
            pool.submit(send, number)
        watching.join()
        pool.shutdown()
    return seen


async def in_loop(ends: tuple[str, str], entities: int, seconds: float, rate: float) -> Seen:
    seen = Seen()
    async with (
        AsyncPairedServiceBusClient.from_connection_strings(*ends, options=options()) as client,
        asyncio.TaskGroup() as group,
    ):
        senders = [client.get_queue_sender(f"tenant-{number}") for number in range(entities)]

        async def send(number: int) -> None:
            began, failed = time.monotonic(), None
            try:
                await senders[number % entities].send_messages(ServiceBusMessage(b"x"), timeout=TIMEOUT)
            except Exception as error:
                failed = error
            seen.took(time.monotonic() - began, failed)

        watching, began = watch(seen, seconds), time.monotonic()
        for number in range(int(seconds * rate)):
            await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
            group.create_task(send(number))
        await asyncio.to_thread(watching.join)
    return seen


def send(
    skin: str, ends: tuple[str, str], entities: int, descriptors: int, seconds: float, rate: float
) -> None:
    """The program of the process with few descriptors."""
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    began = time.process_time()
    if skin == "asyncio":
        seen = asyncio.run(in_loop(ends, entities, seconds, rate))
    else:
        seen = blocking(ends, entities, seconds, rate)
    told = {
        "skin": skin,
        "parked": seen.parked,
        "raised": dict(seen.raised),
        "slowest": round(seen.slowest, 2),
        "descriptors": seen.descriptors,
        "processor": round((time.process_time() - began) / seconds, 3),
        "grown": seen.memory[-1] - seen.memory[4],
    }
    print(json.dumps(told), flush=True)


def trial(entities: int, descriptors: int, seconds: float, rate: float) -> list[dict[str, object]]:
    """What came of the sends of both skins, one after the other."""
    found = []
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for index in range(BACKLOGS):
            secondary.create_queue(backlog_queue_name("contoso", index))
        with primary.fault(None, Down("silent")):
            for skin in SKINS:
                asked = [skin, primary.connection_string, secondary.connection_string]
                numbers = map(str, (entities, descriptors, seconds, rate))
                command = [sys.executable, "-m", __spec__.name, "--child", *asked, *numbers]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise RuntimeError(done.stderr[-2000:])
                found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def is_right(report: dict[str, object], sends: int, descriptors: int) -> bool:
    """Whether every send was parked in its time, with room left."""
    numbers = [report[name] for name in ("parked", "slowest", "descriptors", "grown")]
    parked, slowest, used, grown = (float(each) for each in numbers)  # type: ignore[arg-type]
    return parked == sends and slowest < TIMEOUT and used < 0.75 * descriptors and grown < 32 * 2**20


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        skin, primary, secondary, entities, descriptors, seconds, rate = sys.argv[2:]
        send(skin, (primary, secondary), int(entities), int(descriptors), float(seconds), float(rate))
        return 0
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--entities", type=int, default=5000)
    parser.add_argument("--descriptors", type=int, default=256)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rate", type=float, default=60.0)
    asked = parser.parse_args()
    reports = trial(asked.entities, asked.descriptors, asked.seconds, asked.rate)
    for report in reports:
        print(json.dumps(report))
    sends = int(asked.seconds * asked.rate)
    return 0 if all(is_right(each, sends, asked.descriptors) for each in reports) else 1


if __name__ == "__main__":
    sys.exit(main())
