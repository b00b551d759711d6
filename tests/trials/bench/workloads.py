"""Short pieces of work, measured by the processor time that this process spends on them.

:func:`main` reads names of :data:`WORKLOADS`, one a line, and answers each with one line of JSON: {"seconds": ...} or
{"error": ...}. The broker runs in a thread of this process, so its work counts too. The guard (guard.py) runs two such
processes in turn, each with other sources.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.pair.envelope.names import backlog_queue_name
from sbpair.pair.envelope.restore import restore
from tests.trials.bench import bench_processor
from tests.trials.bench.bench_amqp import one_round
from tests.trials.bench.bench_syphon import BACKLOGS, by_syphon, fill, parked
from tests.trials.bench.raw_client import RawClient, endpoint_of, payload
from tests.trials.bench.site import Site

Work = Callable[[], float]
"""Does one round, and returns its seconds of processor time."""

QUEUE = "orders"
# Messages of a round
ENGINE, ENQUEUE, DURABLE, SENDS = 8_000, 4_000, 2_000, 300
RESTORED, PARKED, PROCESSED = 20_000, 6_400, 6_000


def spent(work: Callable[[], object]) -> float:
    """The processor time of all threads of this process during `work`, in seconds."""
    gc.collect()
    before = time.process_time()
    work()
    return time.process_time() - before


@contextmanager
def engine() -> Iterator[Work]:
    """Both ends of an AMQP connection, without a broker."""
    body = payload()
    yield lambda: spent(lambda: one_round(body, ENGINE))


@contextmanager
def _client(data: str | None = None) -> Iterator[RawClient]:
    with Broker({"contoso": 0}, data=data) as broker:
        namespace = broker.namespace("contoso")
        namespace.create_queue(QUEUE)
        with RawClient(endpoint_of(namespace.connection_string)) as client:
            yield client


@contextmanager
def enqueue() -> Iterator[Work]:
    """Messages sent to the broker, until the last was accepted."""
    with _client() as client:

        def work() -> float:
            with client.sender(QUEUE) as link:
                seconds = spent(lambda: client.send(link, payload(), ENQUEUE))
            with client.receiver(QUEUE) as receiver:
                client.receive(receiver, ENQUEUE, each=False)
            return seconds

        yield work


@contextmanager
def settle_each() -> Iterator[Work]:
    """Messages received from the broker and settled one by one."""
    with _client() as client:

        def work() -> float:
            with client.sender(QUEUE) as link:
                client.send(link, payload(), ENQUEUE)
            with client.receiver(QUEUE) as receiver:
                return spent(lambda: client.receive(receiver, ENQUEUE, each=True))

        yield work


@contextmanager
def durable() -> Iterator[Work]:
    """Messages sent to a broker that keeps them on disk, then received and settled."""
    with tempfile.TemporaryDirectory(prefix="sbpair-guard-") as directory, _client(directory) as client:

        def there_and_back() -> None:
            with client.sender(QUEUE) as link:
                client.send(link, payload(durable=True), DURABLE)
            with client.receiver(QUEUE) as receiver:
                client.receive(receiver, DURABLE, each=True)

        yield lambda: spent(there_and_back)


@contextmanager
def _pair() -> Iterator[tuple[Broker, Site]]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue(QUEUE)
        yield broker, Site(primary.connection_string, secondary.connection_string, str(broker.ca_file))


def wrapper_send() -> AbstractContextManager[Work]:
    """Sends of a healthy paired sender: the processor time of the calling thread, without the broker's."""
    return _sending(is_held=False)


def parked_send() -> AbstractContextManager[Work]:
    """The same while the entity is failed over."""
    return _sending(is_held=True)


@contextmanager
def _sending(*, is_held: bool) -> Iterator[Work]:
    options = PairedNamespaceOptions(
        primary_namespace_name="contoso", assume_backlogs_exist=True, backlog_queue_count=1
    )
    with (
        _pair() as (broker, site),
        PairedServiceBusClient.from_connection_strings(site.primary, site.secondary, options=options) as pair,
        pair.get_queue_sender(QUEUE) as sender,
    ):
        if is_held:
            broker.namespace("contoso-dr").create_queue(backlog_queue_name("contoso", 0))
            pair.hold(QUEUE)

        def work() -> float:
            messages = [ServiceBusMessage(b"x" * 1024, message_id="m-1") for _ in range(SENDS)]
            gc.collect()
            before = time.thread_time()
            for message in messages:
                sender.send_messages(message)
            return time.thread_time() - before

        yield work


@contextmanager
def restoring() -> Iterator[Work]:
    """Parked messages made into what was sent, without any connection."""
    messages, now = list(parked(QUEUE, RESTORED)), int(time.time() * 1000)

    def work() -> None:
        for message in messages:
            restore(message, now)

    yield lambda: spent(work)


@contextmanager
def syphon() -> Iterator[Work]:
    """Parked messages brought home, the syphon's opening included."""
    with _pair() as (broker, site):
        for path in BACKLOGS:
            broker.namespace("contoso-dr").create_queue(path)
        backlogs = dict.fromkeys(BACKLOGS, PARKED // len(BACKLOGS))

        def work() -> float:
            asyncio.run(fill(site.secondary, backlogs))
            return spent(lambda: by_syphon(site, backlogs))

        yield work


@contextmanager
def _processor(path: str) -> Iterator[Work]:
    """Messages handled by a processor whose handler does nothing, its opening included."""
    with _pair() as (broker, site):
        if path != QUEUE:
            broker.namespace("contoso").create_queue(path, requires_session=True)

        def work() -> float:
            asyncio.run(bench_processor.fill(site.primary, path, PROCESSED))
            return spent(lambda: bench_processor.by_processor(site, path, PROCESSED))

        yield work


WORKLOADS: dict[str, Callable[[], AbstractContextManager[Work]]] = {
    "engine": engine,
    "enqueue": enqueue,
    "settle each": settle_each,
    "durable": durable,
    "wrapper send": wrapper_send,
    "parked send": parked_send,
    "restore": restoring,
    "syphon": syphon,
    "processor": lambda: _processor(bench_processor.PATHS[bench_processor.QUEUE]),
    "sessions": lambda: _processor(bench_processor.PATHS[bench_processor.SESSION_QUEUE]),
}


def main() -> None:
    with ExitStack() as opened:
        ready: dict[str, Work] = {}
        for line in sys.stdin:
            name = line.strip()
            try:
                if name not in ready:
                    ready[name] = opened.enter_context(WORKLOADS[name]())
                    ready[name]()  # to warm up
                    gc.freeze()
                answer: dict[str, object] = {"seconds": ready[name]()}
            except Exception as error:
                answer = {"error": f"{type(error).__name__}: {error}"}
            print(json.dumps(answer), flush=True)
