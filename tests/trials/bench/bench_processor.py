"""Rate at which a processor handles messages, compared with the SDK's receive and complete.

    python -m tests.trials.bench.bench_processor [--rounds N] [--quick]

Both consume a queue of one broker process, 1 KiB per message, with a handler that does nothing: on loopback, with a
round trip of 20 ms (``delay_line``), and from a queue that requires sessions. Each round fills the queue and times each
consumer in turn, until the broker has confirmed the last completion. Ratios are taken within a round. The time of
the processor includes its opening; the SDK's links are open before its time starts. The consumer's and the broker's
processor time per message are printed too: on two cores the greater of them is the limit.
Prints its settings, then one JSON line per figure (name, unit, n, median, p95, range).
"""

from __future__ import annotations

import asyncio
import platform
import time
from collections import defaultdict
from collections.abc import Callable
from multiprocessing.connection import Connection

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.processor import ProcessorOptions, ReceivedMessage
from tests.trials.bench.report import figure, ratio, settings
from tests.trials.bench.site import BrokerProcess, Site, sites_of

BODY = b"x" * 1024
NETWORKS = {"loopback": 0.0, "20 ms": 0.020}
SESSIONS = 20
CALLS = 1000  # handlers at a time: more than a round trip's worth, as for a handler that waits
AT_ONCE = 50
QUICK = 20  # times fewer messages in a quick round


Consumer = Callable[[Site, str, int], float]


def broker_process(pipe: Connection) -> None:
    """Serve two namespaces until stopped; renew the queues, and count what is left, on request."""
    from sbpair.broker import Broker

    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        pipe.send(Site(primary.connection_string, secondary.connection_string, str(broker.ca_file)))
        while (request := pipe.recv()) is not None:
            if request == "left":
                pipe.send(sum(len(primary.message_ids(path)) for path in PATHS.values()))
            else:
                for path in PATHS.values():
                    if path in primary.queue_names():
                        primary.delete_queue(path)
                    primary.create_queue(
                        path,
                        max_size_in_megabytes=5120,
                        lock_duration=300_000,
                        requires_session=path == "carts",
                    )
                pipe.send(True)


async def fill(connection_string: str, path: str, count: int) -> None:
    """Send messages: 1 KiB, a message id, three application properties; to the sessions in turn."""
    from sbpair.pair.amqp.message import DataBody, Message, Properties
    from sbpair.pair.auth.connection_string import parse
    from sbpair.pair.client.connection import connect

    connection = await connect(parse(connection_string))
    sender = await connection.open_sender(path)
    messages = (
        Message(
            properties=Properties(
                message_id=f"m-{number}", group_id=f"s-{number % SESSIONS}" if path == "carts" else None
            ),
            application_properties={"tenant": "t1", "kind": "order", "attempt": 1},
            body=DataBody((BODY,)),
        ).encode()
        for number in range(count)
    )
    await asyncio.gather(*(sender.send(message) for message in messages))
    await connection.close()


def by_processor(site: Site, path: str, count: int) -> float:
    """Seconds until an asyncio processor has completed all, its opening included."""

    async def handle(message: ReceivedMessage) -> None:
        pass

    async def consume() -> float:
        client = PairedServiceBusClient.from_connection_strings(
            site.primary,
            site.secondary,
            options=PairedNamespaceOptions(primary_namespace_name="contoso", assume_backlogs_exist=True),
            connection_verify=site.ca_file,
        )
        sessions = SESSIONS if path == "carts" else None
        options = ProcessorOptions(max_concurrent_calls=CALLS, max_concurrent_sessions=sessions)
        async with client:
            began = time.perf_counter()
            async with client.get_queue_processor(path, handle, options=options) as processor:
                while processor.counters.completed < count:
                    await asyncio.sleep(0.005)
                return time.perf_counter() - began

    return asyncio.run(consume())


def by_sdk(site: Site, path: str, count: int) -> float:
    """Receive fifty, complete each: the loop of the SDK's samples."""
    with (
        ServiceBusClient.from_connection_string(site.primary) as client,
        client.get_queue_receiver(path) as r,
    ):
        r.peek_messages()  # opens the link
        left = count
        began = time.perf_counter()
        while left:
            messages = r.receive_messages(min(AT_ONCE, left), max_wait_time=5)
            for message in messages:
                r.complete_message(message)
            left -= len(messages)
        return time.perf_counter() - began


def by_sdk_in_sessions(site: Site, path: str, count: int) -> float:
    """The same, session after session; accepting and closing them is not timed."""
    took = 0.0
    with ServiceBusClient.from_connection_string(site.primary) as client:
        for _ in range(SESSIONS):
            with client.get_queue_receiver(path, session_id=NEXT_AVAILABLE_SESSION) as receiver:
                left = count // SESSIONS
                began = time.perf_counter()
                while left:
                    messages = receiver.receive_messages(min(AT_ONCE, left), max_wait_time=5)
                    for message in messages:
                        receiver.complete_message(message)
                    left -= len(messages)
                took += time.perf_counter() - began
    return took


OURS, SDK = "processor", "SDK"
QUEUE, SESSION_QUEUE = "queue", "session queue"
Key = tuple[str, str, str]  # consumer, entity, network
PATHS = {QUEUE: "orders", SESSION_QUEUE: "carts"}
CONSUMERS: dict[tuple[str, str], Consumer] = {
    (OURS, QUEUE): by_processor,
    (SDK, QUEUE): by_sdk,
    (OURS, SESSION_QUEUE): by_processor,
    (SDK, SESSION_QUEUE): by_sdk_in_sessions,
}
# How many messages a consumer gets in a round, so that none takes seconds
MESSAGES: dict[Key, int] = {
    (OURS, QUEUE, "loopback"): 40_000,
    (OURS, QUEUE, "20 ms"): 40_000,
    (SDK, QUEUE, "loopback"): 2_000,
    (SDK, QUEUE, "20 ms"): 60,
    (OURS, SESSION_QUEUE, "loopback"): 20_000,
    (OURS, SESSION_QUEUE, "20 ms"): 20_000,
    (SDK, SESSION_QUEUE, "loopback"): 2_000,
    (SDK, SESSION_QUEUE, "20 ms"): 60,
}


class Bench:
    """What was measured."""

    def __init__(self, broker: BrokerProcess, sites: dict[str, Site], part: int) -> None:
        self._broker, self._sites, self._part = broker, sites, part
        self.rates: dict[Key, list[float]] = defaultdict(list)
        self.cpu: dict[tuple[str, Key], list[float]] = defaultdict(list)

    def measure(self, key: Key) -> None:
        consumer, entity, network = key
        count = max(AT_ONCE, MESSAGES[key] // self._part) // SESSIONS * SESSIONS
        self._broker.ask("fresh")
        path = PATHS[entity]
        asyncio.run(fill(self._broker.site.primary, path, count))
        before, ours = self._broker.cpu_seconds, time.process_time()
        took = CONSUMERS[consumer, entity](self._sites[network], path, count)
        self.cpu["consumer", key].append((time.process_time() - ours) / count * 1e6)
        self.cpu["broker", key].append((self._broker.cpu_seconds - before) / count * 1e6)
        if left := self._broker.ask("left"):
            raise RuntimeError(f"{consumer}, {entity}, {network}: {left} of {count} messages are left")
        self.rates[key].append(count / took)

    def tell(self) -> None:
        for (consumer, entity, network), values in self.rates.items():
            figure("processor.rate", "1/s", values, 0, consumer=consumer, entity=entity, network=network)
        for (process, (consumer, entity, network)), values in self.cpu.items():
            if network == "loopback":
                name = f"processor.{process}_cpu"
                figure(name, "us/message", values, 1, consumer=consumer, entity=entity, network=network)
        for entity in PATHS:
            for network in NETWORKS:
                labels = {"entity": entity, "network": network}
                ours, theirs = (OURS, entity, network), (SDK, entity, network)
                ratio("processor.over_sdk", self.rates[ours], self.rates[theirs], **labels)
            near, sdk = (OURS, entity, "loopback"), (SDK, entity, "loopback")
            ratio(
                "processor.cpu_of_sdk", self.cpu["consumer", near], self.cpu["consumer", sdk], entity=entity
            )


def main() -> None:
    asked = settings(__doc__, 3)
    part = QUICK if asked.quick else 1
    print(f"# python {platform.python_version()}, {asked.rounds} rounds, body 1 KiB")
    with sites_of(broker_process, NETWORKS) as (broker, sites):
        bench = Bench(broker, sites, part)
        keys = list(MESSAGES)
        for number in range(asked.rounds):
            for key in keys[:: -1 if number % 2 else 1]:
                bench.measure(key)
    bench.tell()


if __name__ == "__main__":
    main()
