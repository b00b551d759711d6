"""Send, park and count messages for the tests of Spark."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceivedMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions

BACKLOGS = 2
CHUNK = 100  # messages a send


def string(broker: Broker, name: str) -> str:
    return broker.namespace(name).connection_string


def send(broker: Broker, path: str, ids: Iterable[str], namespace: str = "contoso") -> None:
    messages = [ServiceBusMessage(f"body of {each}", message_id=each) for each in ids]
    with (
        ServiceBusClient.from_connection_string(string(broker, namespace)) as client,
        client.get_queue_sender(path) as sender,
    ):
        for at in range(0, len(messages), CHUNK):
            sender.send_messages(messages[at : at + CHUNK])


def park(broker: Broker, path: str, ids: Iterable[str]) -> None:
    """Park messages for ``path`` in the backlogs."""
    options = PairedNamespaceOptions(
        backlog_queue_count=BACKLOGS, failover_interval=timedelta(0), primary_namespace_name="contoso"
    )
    with PairedServiceBusClient.from_connection_strings(
        string(broker, "contoso"),
        string(broker, "contoso-dr"),
        options=options,
        connection_verify=str(broker.ca_file),
    ) as client:
        client.hold(path)
        for part in ([*ids][0::2], [*ids][1::2]):
            with client.get_queue_sender(path) as sender:
                sender.send_messages([ServiceBusMessage(f"body of {each}", message_id=each) for each in part])


def ids_in(broker: Broker, path: str, namespace: str = "contoso") -> list[str]:
    """Peek the ids of all messages of an entity, in order."""
    return [str(each.message_id) for each in _peeked(broker, path, namespace)]


def bodies_in(broker: Broker, path: str, namespace: str = "contoso") -> list[str]:
    """Peek the bodies of all messages of an entity, in order."""
    return [str(each) for each in _peeked(broker, path, namespace)]


def _peeked(broker: Broker, path: str, namespace: str) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    with (
        ServiceBusClient.from_connection_string(string(broker, namespace)) as client,
        client.get_queue_receiver(path) as receiver,
    ):
        start = 1
        while page := receiver.peek_messages(200, sequence_number=start, timeout=20):
            found += page
            start = max(each.sequence_number or 0 for each in page) + 1
    return found


def backlogs() -> list[str]:
    return [f"contoso/x-servicebus-transfer/{number}" for number in range(BACKLOGS)]


def parked(broker: Broker) -> int:
    return sum(broker.namespace("contoso-dr").counts(each).active for each in backlogs())


@contextmanager
def syphon(broker: Broker) -> Iterator[None]:
    """Run a syphon for the duration of the block."""
    loop, shutdown = asyncio.new_event_loop(), asyncio.Event()
    chosen = SyphonOptions(backlog_queue_count=BACKLOGS, primary_namespace_name="contoso", window=20)
    one = Syphon.from_connection_strings(
        string(broker, "contoso"), string(broker, "contoso-dr"), options=chosen
    )
    thread = threading.Thread(target=lambda: loop.run_until_complete(one.run(shutdown)))
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(shutdown.set)
        thread.join(30)
        loop.close()
