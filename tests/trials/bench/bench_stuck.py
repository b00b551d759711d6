"""Throughput past destinations that accept nothing.

    python -m tests.trials.bench.bench_stuck [--rounds N] [--quick]

Two namespaces in one broker process, a syphon in this one, four backlogs. Among 100,000 messages for an entity
that accepts all of them are some for k others: entities that give no credit, and entities that are full. Each
round times the 100,000 messages, with no stuck destination and with 1, 3 and 10; ratios are taken within a round.
Prints its settings, then one JSON line per figure: the rate past stuck destinations as a share of the rate without;
the same by the syphon's processor time, which a busy machine does not blur; and the number of deliveries of each
message for a stuck destination, 1 if none was delivered twice.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import platform
import time
from collections import defaultdict
from multiprocessing.connection import Connection

from tests.trials.bench.report import figure, ratio, settings

BACKLOGS = [f"contoso/x-servicebus-transfer/{index}" for index in range(4)]
MOST_STUCK = 10
EACH = 100  # messages for each that is stuck
CASES = [("free", 0), *((how, count) for how in ("creditless", "full") for count in (1, 3, MOST_STUCK))]
QUICK = 20  # times fewer messages in a quick round
BODY = b"x" * 1024


def broker_process(pipe: Connection) -> None:
    """Serve two namespaces until stopped; recreate the queues on request, a number of them stuck."""
    from contextlib import ExitStack

    from sbpair.broker import Broker
    from sbpair.broker.faults import Effect, Full, NoCredit

    effects: dict[str, tuple[Effect, str]] = {"creditless": (NoCredit(), "attach"), "full": (Full(), "send")}
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        pipe.send((primary.connection_string, secondary.connection_string))
        while (request := pipe.recv()) is not None:
            for namespace in (primary, secondary):
                for path in namespace.queue_names():
                    namespace.delete_queue(path)
            for path in ("orders", *(f"stuck-{number}" for number in range(MOST_STUCK))):
                primary.create_queue(path, max_size_in_megabytes=5120)
            for path in BACKLOGS:
                secondary.create_queue(path, max_size_in_megabytes=5120, max_delivery_count=2**31 - 1)
            with ExitStack() as stack:
                if request in effects:
                    effect, operation = effects[request]
                    stack.enter_context(primary.fault("stuck-*", effect, operation=operation))
                pipe.send("made")
                while pipe.recv() == "arrived":
                    pipe.send(primary.counts("orders").active)
            pipe.send("cleared")


async def fill(connection_string: str, stuck: int, messages: int, each: int) -> None:
    """Park them, those for the stuck ones spread evenly among the others."""
    from sbpair.pair.amqp.message import DataBody, Message, Properties
    from sbpair.pair.auth.connection_string import parse
    from sbpair.pair.client.connection import connect

    connection = await connect(parse(connection_string))
    share, stuck_share = messages // len(BACKLOGS), stuck * each // len(BACKLOGS)
    for backlog in BACKLOGS:
        sender = await connection.open_sender(backlog)
        paths = [
            f"stuck-{number % stuck}" if stuck and number * stuck_share % share < stuck_share else None
            for number in range(share)
        ]
        payloads = [
            Message(
                properties=Properties(message_id=f"{backlog[-1]}-{number}-{path}"),
                application_properties={"x-ms-path": path, "x-sbpair-version": "1"},
                body=DataBody((BODY,)),
            ).encode()
            for number, stuck_path in enumerate(paths)
            for path in ([stuck_path] if stuck_path else []) + ["orders"]
        ]
        await asyncio.gather(*map(sender.send, payloads))
    await connection.close()


async def relay(strings: tuple[str, str], pipe: Connection, messages: int) -> tuple[float, int]:
    """Seconds until all that can go has arrived, and how many deliveries that took."""
    from sbpair.syphon import Syphon, SyphonOptions

    options = SyphonOptions(backlog_queue_count=len(BACKLOGS), primary_namespace_name="contoso")
    syphon, shutdown = Syphon.from_connection_strings(*strings, options=options), asyncio.Event()
    began = time.perf_counter()
    running = asyncio.ensure_future(syphon.run(shutdown))
    while syphon.counters.completed < messages:
        await asyncio.sleep(0.005)
    took = time.perf_counter() - began
    shutdown.set()
    await running
    pipe.send("arrived")
    if (arrived := pipe.recv()) != messages:
        raise RuntimeError(f"{arrived} of {messages} messages arrived")
    return took, syphon.counters.received


def main() -> None:
    asked = settings(__doc__, 3)
    messages, each = (20_000 // QUICK, EACH // QUICK) if asked.quick else (100_000, EACH)
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, {messages} messages that can go")
    pipe, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=broker_process, args=(theirs,))
    process.start()
    theirs.close()
    strings = pipe.recv()
    rates: dict[tuple[str, int], list[float]] = defaultdict(list)
    thrift: dict[tuple[str, int], list[float]] = defaultdict(list)  # messages a second of processor time
    deliveries: dict[tuple[str, int], list[float]] = defaultdict(list)
    try:
        for number in range(asked.rounds):
            for how, stuck in CASES[:: -1 if number % 2 else 1]:
                pipe.send(how)
                pipe.recv()
                asyncio.run(fill(strings[1], stuck, messages, each))
                before = time.process_time()
                took, received = asyncio.run(relay(strings, pipe, messages))
                thrift[how, stuck].append(messages / (time.process_time() - before))
                rates[how, stuck].append(messages / took)
                if stuck:
                    deliveries[how, stuck].append((received - messages) / (stuck * each))
                pipe.send("done")
                pipe.recv()
    finally:
        pipe.send(None)
        process.join()
    figure("stuck.free", "1/s", rates["free", 0], 0)
    for how, stuck in CASES[1:]:
        ratio("stuck.past", rates[how, stuck], rates["free", 0], how=how, stuck=stuck)
        ratio("stuck.past_by_cpu", thrift[how, stuck], thrift["free", 0], how=how, stuck=stuck)
        figure("stuck.deliveries", "each", deliveries[how, stuck], how=how, stuck=stuck)


if __name__ == "__main__":
    main()
