"""Cuts the connection after every byte of a send, a redirected send, and a hop of the syphon (G-7, F-24).

    python -m tests.trials.sweep [--hop send] [--step 7] [--jobs 6]

First each hop is run uncut, to count its bytes in each direction; then once for each offset. At every
offset the message must be acknowledged and stored once or twice, or raised and stored at most once. A run waits
more than it computes, so several processes share the offsets, each with its own brokers. Prints one line
of JSON for each hop; exit code 1 when any offset broke the promise.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions
from sbpair.testing import ChaosProxy
from sbpair.testing.pair import QUICK

OPTIONS = replace(
    QUICK,
    primary_namespace_name="contoso",
    operation_timeout=timedelta(seconds=16),
    ping_primary_interval=timedelta(minutes=5),
    assume_backlogs_exist=True,
)
Part = tuple[int, int]
"""Of the offsets in order: the first of a process, and how many further on its next one is."""

WHOLE: Part = (0, 1)
BACKLOGS = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
DRAIN = SyphonOptions(backlog_queue_count=2, primary_namespace_name="contoso")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One run: where it was cut, the result that the caller got, and the number of stored copies at the end."""

    direction: str
    offset: int
    acknowledged: bool
    copies: int

    @property
    def is_right(self) -> bool:
        """G-7."""
        return 1 <= self.copies <= 2 if self.acknowledged else self.copies <= 1


class Course:
    """A broker with both namespaces, and a proxy in front of each."""

    def __init__(self, broker: Broker, primary: ChaosProxy, secondary: ChaosProxy) -> None:
        self.primary, self.secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        self.to_primary, self.to_secondary = primary, secondary
        for path in BACKLOGS:
            self.secondary.create_queue(path, max_delivery_count=2**31 - 1)

    def fresh(self) -> None:
        """An empty destination, and empty backlogs."""
        if "orders" in self.primary.queue_names():
            self.primary.delete_queue("orders")
        self.primary.create_queue("orders")

    def copies(self) -> int:
        """How often the message is there once the syphon has brought home what is parked."""
        strings = self.primary.connection_string, self.secondary.connection_string
        if any(self.secondary.counts(path).active for path in BACKLOGS):
            asyncio.run(Syphon.from_connection_strings(*strings, options=DRAIN).drain())
        return len(self.primary.message_ids("orders"))

    def send(self, options: PairedNamespaceOptions) -> bool:
        """One paired send through the proxies; whether it was acknowledged."""
        client = PairedServiceBusClient.from_connection_strings(
            self.to_primary.connection_string(self.primary.connection_string),
            self.to_secondary.connection_string(self.secondary.connection_string),
            options=options,
            retry_total=0,  # one attempt for each cut
        )
        with client, client.get_queue_sender("orders") as sender:
            try:
                sender.send_messages(ServiceBusMessage("x", message_id="m"))
            except ServiceBusError:
                return False
            return True


def plain_send(course: Course) -> bool:
    """A send to the primary that is not redirected: the error goes to the caller."""
    raising = replace(OPTIONS, failover_interval=timedelta(minutes=1), suspect_policy="raise")
    return course.send(raising)


def redirected_send(course: Course) -> bool:
    """A send that finds the primary down, and its backlog queue behind the connection that is cut."""
    course.primary.take_down("refuse")
    try:
        return course.send(OPTIONS)
    finally:
        course.primary.bring_up()


def hop_home(course: Course) -> bool:
    """A parked message on its way home, the syphon's connection to the primary cut."""
    course.primary.take_down("refuse")
    parked = course.send(OPTIONS)
    course.primary.bring_up()
    syphon = Syphon.from_connection_strings(
        course.to_primary.connection_string(course.primary.connection_string),
        course.secondary.connection_string,
        options=DRAIN,
    )
    asyncio.run(syphon.drain())
    return parked


HOPS: dict[str, tuple[Callable[[Course], bool], str]] = {
    "send": (plain_send, "to_primary"),
    "redirected": (redirected_send, "to_secondary"),
    "syphon": (hop_home, "to_primary"),
}


def sweep(course: Course, name: str, step: int, part: Part = WHOLE) -> list[Outcome]:
    """Every ``step``-th offset of a hop, both ways, the first and the last among them; or a part of these."""
    hop, side = HOPS[name]
    proxy: ChaosProxy = getattr(course, side)
    course.fresh()
    before = proxy.passed
    if not hop(course) or course.copies() != 1:
        raise SystemExit(f"the hop '{name}' fails uncut")
    outcomes = []
    for direction, size in proxy.passed.items():
        size -= before[direction]
        first, every = part
        for offset in sorted({*range(0, size, step), size - 1})[first::every]:
            course.fresh()
            proxy.cut_next(direction, offset)
            acknowledged = hop(course)
            proxy.forget_cuts()
            outcomes.append(Outcome(direction, offset, acknowledged, course.copies()))
            collect()
    return outcomes


def collect() -> None:
    """The blocking SDK drops the socket of a connection that was cut."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def run(names: list[str], step: int, part: Part = WHOLE) -> dict[str, list[Outcome]]:
    """The hops, each swept."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        ports = [broker.namespace(name).port for name in ("contoso", "contoso-dr")]
        with ChaosProxy("127.0.0.1", ports[0]) as primary, ChaosProxy("127.0.0.1", ports[1]) as secondary:
            course = Course(broker, primary, secondary)
            return {name: sweep(course, name, step, part) for name in names}


def together(name: str, step: int, jobs: int) -> list[Outcome]:
    """One hop, its offsets divided among several processes."""
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        parts = [pool.submit(run, [name], step, (first, jobs)) for first in range(jobs)]
        for done, part in enumerate(as_completed(parts), 1):
            print(
                f"{name}: {len(part.result()[name])} cuts, {done} of {jobs} parts",
                file=sys.stderr,
                flush=True,
            )
        return [outcome for part in parts for outcome in part.result()[name]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hop", choices=HOPS, action="append", help="default: all of them")
    parser.add_argument("--step", type=int, default=1, help="every n-th byte; default %(default)s")
    parser.add_argument("--jobs", type=int, default=6, help="processes; default %(default)s")
    asked = parser.parse_args()
    wrong = 0
    for name in asked.hop or list(HOPS):
        began = time.monotonic()
        outcomes = together(name, asked.step, asked.jobs)
        broken = [outcome for outcome in outcomes if not outcome.is_right]
        wrong += len(broken)
        print(
            json.dumps(
                {
                    "hop": name,
                    "cuts": len(outcomes),
                    "raised": sum(not outcome.acknowledged for outcome in outcomes),
                    "twice": sum(outcome.copies == 2 for outcome in outcomes),
                    "broken": [(outcome.direction, outcome.offset) for outcome in broken],
                    "seconds": round(time.monotonic() - began, 1),
                }
            ),
            flush=True,
        )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
