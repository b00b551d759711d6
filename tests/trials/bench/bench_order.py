"""The cost of ordered sessions: a healthy send compared with ``ordering="none"``, and the drain of many sessions.

    python -m tests.trials.bench.bench_order [--rounds N] [--quick]

The two senders are measured in turn, ten milliseconds each, in one process: CPU time of a send, and the difference of
neighbouring measurements. The drain forwards 1 000 sessions of 100 messages of 1 KiB over loopback, and checks that
all arrived; then over a round trip of 20 ms to both sides, 1 and 200 sessions. The broker runs in its own process.
Prints its settings, then one JSON line per figure.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import platform
import time
from multiprocessing.connection import Connection

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.envelope.ordering import place_of
from sbpair.syphon import Syphon, SyphonOptions
from tests.trials.bench.bench_send import PAIRS, SENDS, no_collections
from tests.trials.bench.process import cpu_seconds
from tests.trials.bench.report import figure, settings
from tests.trials.bench.site import Site, at_distance

BACKLOGS = 4
SESSIONS, EACH = 1000, 100
FAR = {1: 3000, 200: 100}  # sessions, and the messages of each, over RTT
RTT = 0.020  # seconds
QUICK = 20  # times fewer sessions in a quick round


def serve(pipe: Connection) -> None:
    """Serve two namespaces until stopped; count and empty the queue on request."""
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        for index in range(BACKLOGS):
            secondary.create_queue(ordered_backlog_name("contoso", index), requires_session=True)
        pipe.send((primary.connection_string, secondary.connection_string))
        while pipe.recv() is not None:
            pipe.send(primary.counts("orders").active)
            primary.delete_queue("orders")
            primary.create_queue("orders")


def options(ordering: str) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        backlog_queue_count=BACKLOGS,
        assume_backlogs_exist=True,
        ordering=ordering,  # type: ignore[arg-type]
    )


def message(number: int) -> ServiceBusMessage:
    return ServiceBusMessage(
        b"x" * 1024,
        message_id="m-1",
        session_id=f"s{number % 10}",
        application_properties={"a": "one", "b": 2, "c": True},
    )


def cpu_of(sender: object) -> float:
    """Microseconds of CPU for one send."""
    messages = [message(number) for number in range(SENDS)]
    send = sender.send_messages  # type: ignore[attr-defined]
    start = time.process_time()
    for each in messages:
        send(each)
    return (time.process_time() - start) / SENDS * 1e6


def healthy(primary: str, secondary: str, rounds: int) -> None:
    made = [
        PairedServiceBusClient.from_connection_strings(primary, secondary, options=options(ordering))
        for ordering in ("none", "session")
    ]
    with made[0] as without, made[1] as with_order:
        plain, ordered = without.get_queue_sender("orders"), with_order.get_queue_sender("orders")
        for index in range(200):  # a session in each ordered backlog: the fence stays open
            ordered.send_messages(ServiceBusMessage(b"", session_id=f"warm-{index}"))
        pairs = []
        with no_collections():
            for number in range(rounds * PAIRS):
                if number % 2:
                    pairs.append((cpu_of(plain), cpu_of(ordered)))
                else:
                    there = cpu_of(ordered)
                    pairs.append((cpu_of(plain), there))
        figure("order.healthy_send", "us more", [there - here for here, there in pairs], 3)
        figure("order.healthy_send_ratio", "ratio", [there / here for here, there in pairs], 4)


def parked(number: int, session: str, parked_id: str) -> bytes:
    return Message(
        header=Header(durable=True),
        properties=Properties(message_id=f"{session}.{number}", group_id=parked_id),
        application_properties={
            "x-ms-path": "orders",
            "x-ms-sessionid": session,
            "x-sbpair-version": "1",
            "x-sbpair-order": f"0123456789abcdef/1795000000000/{number + 1}",
        },
        body=DataBody((b"x" * 1024,)),
    ).encode()


async def fill(secondary: str, sessions: int, each: int = EACH) -> None:
    connection = await connect(parse(secondary))
    senders = [await connection.open_sender(ordered_backlog_name("contoso", i)) for i in range(BACKLOGS)]
    for session in range(sessions):
        place = place_of("orders", f"s{session}", BACKLOGS)
        sends = (
            senders[place.queue].send(parked(number, f"s{session}", place.parked_id))
            for number in range(each)
        )
        if not all(isinstance(outcome, Accepted) for outcome in await asyncio.gather(*sends)):
            raise RuntimeError("a message was not parked")
    await connection.close()


async def drain(primary: str, secondary: str, messages: int) -> float:
    asked = SyphonOptions(backlog_queue_count=BACKLOGS, primary_namespace_name="contoso", ordering="session")
    syphon = Syphon.from_connection_strings(primary, secondary, options=asked)
    shutdown, began = asyncio.Event(), time.perf_counter()
    running = asyncio.ensure_future(syphon.run(shutdown))
    while syphon.counters.completed < messages:
        await asyncio.sleep(0.005)
    took = time.perf_counter() - began
    shutdown.set()
    await running
    return took


def main() -> None:
    asked = settings(__doc__, 3)
    sessions = SESSIONS // QUICK if asked.quick else SESSIONS
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, {sessions} sessions of {EACH}")
    pipe, theirs = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    server.start()
    theirs.close()
    primary, secondary = pipe.recv()
    rates, cpu, broker_cpu = [], [], []
    try:
        healthy(primary, secondary, asked.rounds)
        pipe.send("empty")
        pipe.recv()
        for _ in range(asked.rounds):
            asyncio.run(fill(secondary, sessions))
            own, its = time.process_time(), cpu_seconds(server.pid or 0)
            took = asyncio.run(drain(primary, secondary, sessions * EACH))
            cpu.append((time.process_time() - own) / (sessions * EACH) * 1e6)
            broker_cpu.append((cpu_seconds(server.pid or 0) - its) / (sessions * EACH) * 1e6)
            rates.append(sessions * EACH / took)
            pipe.send("empty")
            if (arrived := pipe.recv()) != sessions * EACH:
                raise RuntimeError(f"{arrived} of {sessions * EACH} messages arrived")
        with at_distance(Site(primary, secondary, ""), RTT) as far:
            for few, each in FAR.items():
                rates_far = []
                for _ in range(asked.rounds):
                    asyncio.run(fill(secondary, few, each))
                    rates_far.append(few * each / asyncio.run(drain(far.primary, far.secondary, few * each)))
                    pipe.send("empty")
                    if (arrived := pipe.recv()) != few * each:
                        raise RuntimeError(f"{arrived} of {few * each} messages arrived")
                figure("order.drain", "1/s", rates_far, 0, sessions=few, network="20 ms")
    finally:
        pipe.send(None)
        server.join(10)
    figure("order.drain", "1/s", rates, 0, sessions=sessions)
    figure("order.drain_cpu", "us a message, syphon", cpu)
    figure("order.drain_cpu", "us a message, broker", broker_cpu)


if __name__ == "__main__":
    main()
