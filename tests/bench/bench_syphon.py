"""How fast does the syphon move parked messages, beside the loop everybody writes first with the SDK?

    python -m tests.bench.bench_syphon [--rounds N]

Both relay over loopback between two namespaces of one broker process: the broker has a core of its own, the
relay the other. Each round fills the backlogs, times the relay, and checks that everything arrived; rounds of
both are interleaved. The syphon is timed once more behind a proxy that adds 5 and 20 ms to each round trip.
Prints its settings, then one line of JSON. The proxy takes of the relay's core, so these rows are a floor.
"""

from __future__ import annotations

import asyncio
import multiprocessing as mp
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from tests.bench.report import figure, rounds

BODY = b"x" * 1024
MESSAGES = 20_000
BACKLOGS = 4
ROUND_TRIPS = (0.005, 0.020)  # seconds
NAIVE_SHARE = 10  # the naive loop gets a 10th of the messages, or it would take all day
Relay = Callable[[str, str, int, int], float]
OURS = (b"x-ms-", b"x-sbpair-")


def broker_process(pipe: Connection, backlogs: int) -> None:
    """Serve two namespaces until told to stop; count and empty queues on request."""
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for index in range(backlogs):
            secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")
        pipe.send((primary.connection_string, secondary.connection_string))
        while (request := pipe.recv()) is not None:
            if request == "arrived":
                pipe.send(primary.counts("orders").active)
            else:
                if "orders" in primary.queue_names():
                    primary.delete_queue("orders")
                primary.create_queue("orders", max_size_in_megabytes=5120)
                pipe.send(True)


async def fill(connection_string: str, backlogs: int, messages: int) -> None:
    """Park ``messages`` messages: 1 KiB, a message id, three application properties."""
    from sbpair.amqp.message import DataBody, Message, Properties
    from sbpair.syphon.connection_string import parse
    from sbpair.syphon.dial import connect

    connection = await connect(parse(connection_string))
    for index in range(backlogs):
        sender = await connection.open_sender(f"contoso/x-servicebus-transfer/{index}")
        numbers = range(index, messages, backlogs)
        await asyncio.gather(
            *(
                sender.send(
                    Message(
                        properties=Properties(message_id=f"message-{number}"),
                        application_properties={
                            "tenant": "t1",
                            "kind": "order",
                            "attempt": 1,
                            "x-ms-path": "orders",
                            "x-ms-timetolive": "P1D",
                            "x-sbpair-version": "1",
                        },
                        body=DataBody((BODY,)),
                    ).encode()
                )
                for number in numbers
            )
        )
    await connection.close()


def relay_by_syphon(primary: str, secondary: str, backlogs: int, messages: int) -> float:
    """Seconds until the syphon has drained the backlogs."""
    from sbpair.syphon import Syphon, SyphonOptions

    options = SyphonOptions(backlog_queue_count=backlogs, primary_namespace_name="contoso")
    syphon = Syphon.from_connection_strings(primary, secondary, options=options)
    began = time.perf_counter()
    counters = asyncio.run(syphon.drain())
    took = time.perf_counter() - began
    assert counters.completed == messages, counters
    return took


def relay_by_naive_loop(primary: str, secondary: str, backlogs: int, messages: int) -> float:
    """Seconds the SDK's plain loop takes (receive, send, complete one by one), without opening it."""
    from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiveMode

    took = 0.0
    with (
        ServiceBusClient.from_connection_string(secondary) as source,
        ServiceBusClient.from_connection_string(primary) as target,
        target.get_queue_sender("orders") as sender,
    ):
        sender.create_message_batch()  # opens the link
        for index in range(backlogs):
            name = f"contoso/x-servicebus-transfer/{index}"
            with source.get_queue_receiver(name, receive_mode=ServiceBusReceiveMode.PEEK_LOCK) as receiver:
                receiver.peek_messages()  # opens the link
                mine = len(range(index, messages, backlogs))
                began = time.perf_counter()
                while mine:
                    for message in receiver.receive_messages(min(50, mine), max_wait_time=5):
                        properties = message.application_properties or {}
                        kept = {key: value for key, value in properties.items() if not key.startswith(OURS)}
                        body = b"".join(message.body)
                        copy = ServiceBusMessage(
                            body, message_id=message.message_id, application_properties=kept
                        )
                        sender.send_messages(copy)
                        receiver.complete_message(message)
                        mine -= 1
                took += time.perf_counter() - began
    return took


def relay_far_away(primary: str, secondary: str, backlogs: int, messages: int, rtt: float) -> float:
    """As :func:`relay_by_syphon`, with both namespaces so many seconds away."""
    from sbpair.syphon.connection_string import parse
    from sbpair.testing import ChaosProxy

    ports = [parse(each).port for each in (primary, secondary)]
    with (
        ChaosProxy("127.0.0.1", ports[0], rtt=rtt) as near,
        ChaosProxy("127.0.0.1", ports[1], rtt=rtt) as far,
    ):
        return relay_by_syphon(
            near.connection_string(primary), far.connection_string(secondary), backlogs, messages
        )


def main(times: int) -> None:
    print(f"messages {MESSAGES}, rounds {times}, backlogs {BACKLOGS}, body 1 KiB")
    ours, theirs = mp.Pipe()
    process = mp.get_context("spawn").Process(target=broker_process, args=(theirs, BACKLOGS))
    process.start()
    primary, secondary = ours.recv()
    rates: dict[str, list[float]] = {"syphon": [], "naive": []}
    shares = {"syphon": MESSAGES, "naive": MESSAGES // NAIVE_SHARE}
    relays: dict[str, Relay] = {"syphon": relay_by_syphon, "naive": relay_by_naive_loop}
    for rtt in ROUND_TRIPS:
        name = f"syphon_at_{rtt * 1000:g}_ms"
        rates[name], shares[name], relays[name] = [], MESSAGES, partial(relay_far_away, rtt=rtt)
    try:
        for _ in range(times):
            for name, relay in relays.items():
                ours.send("fresh")
                ours.recv()
                asyncio.run(fill(secondary, BACKLOGS, shares[name]))
                took = relay(primary, secondary, BACKLOGS, shares[name])
                ours.send("arrived")
                arrived = ours.recv()
                assert arrived == shares[name], (name, arrived)
                rates[name].append(shares[name] / took)
    finally:
        ours.send(None)
        process.join()
    for name, values in rates.items():
        figure(f"syphon.{name}", "1/s", values, digits=0)
    ratios = [fast / slow for fast, slow in zip(rates["syphon"], rates["naive"], strict=True)]
    figure("syphon.over_naive_loop", "ratio", ratios)


if __name__ == "__main__":
    main(rounds(__doc__, 3))
