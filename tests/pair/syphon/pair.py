"""Two namespaces in one broker, a low-level client, and a syphon between the namespaces."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties
from sbpair.pair.amqp.performatives import Accepted
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.syphon.events import SyphonEvent
from sbpair.syphon import Syphon, SyphonOptions
from tests.waiting import PATIENCE

BACKLOGS = 2


def parked(number: int, path: object = "orders", body: bytes = b"hello", **aliases: object) -> bytes:
    """Encode parked message ``number``; keyword arguments are further aliases, with underscores for hyphens."""
    carried: dict[object, object] = {} if path is None else {"x-ms-path": path}
    carried |= {name.replace("_", "-"): value for name, value in aliases.items()}
    return Message(
        header=Header(durable=True),
        properties=Properties(message_id=f"m{number}"),
        application_properties={"number": number, "x-sbpair-version": "1"} | carried,
        body=DataBody((body,)),
    ).encode()


def message_id(payload: bytes) -> str:
    properties = Message.decode(payload).properties
    return str(properties.message_id) if properties else ""


@asynccontextmanager
async def running(syphon: Syphon) -> AsyncIterator[None]:
    """Run ``syphon`` for the duration of the block; it must stop within a bound afterwards."""
    shutdown = asyncio.Event()
    task = asyncio.create_task(syphon.run(shutdown))
    try:
        yield
    finally:
        shutdown.set()
        async with asyncio.timeout(PATIENCE):
            await task


async def put(namespace: NamespaceControl, path: str, payloads: list[bytes]) -> None:
    """Send encoded messages to an entity; each must be accepted."""
    connection = await connect(parse(namespace.connection_string))
    try:
        async with asyncio.timeout(PATIENCE):
            sender = await connection.open_sender(path)
            outcomes = await asyncio.gather(*(sender.send(payload) for payload in payloads))
        assert all(isinstance(outcome, Accepted) for outcome in outcomes), outcomes
    finally:
        await connection.close()


async def take(namespace: NamespaceControl, path: str, count: int) -> list[bytes]:
    """Receive and complete ``count`` messages of an entity, in the order they come."""
    connection = await connect(parse(namespace.connection_string))
    try:
        return await take_over(connection, path, count)
    finally:
        await connection.close()


async def take_over(connection: NamespaceConnection, path: str, count: int) -> list[bytes]:
    found: list[bytes] = []
    numbers: list[int] = []

    def on_message(event) -> None:
        found.append(event.payload)
        numbers.append(event.delivery_id)

    async with asyncio.timeout(PATIENCE):
        receiver = await connection.open_receiver(path, on_message)
        receiver.flow(count)
        while len(found) < count:
            await asyncio.sleep(0.002)
        await asyncio.gather(*(receiver.settle_and_wait(number, Accepted()) for number in numbers))
    return found


@dataclass
class Pair:
    """A primary with ``orders`` and ``invoices``, a secondary with the backlogs, and the syphon's events."""

    primary: NamespaceControl
    secondary: NamespaceControl
    events: list[SyphonEvent] = field(default_factory=list)
    backlogs: int = BACKLOGS

    def backlog(self, index: int) -> str:
        return f"contoso/x-servicebus-transfer/{index}"

    def syphon(self, **options) -> Syphon:
        settings = {"backlog_queue_count": self.backlogs, "primary_namespace_name": "contoso"} | options
        syphon = Syphon.from_connection_strings(
            self.primary.connection_string,
            self.secondary.connection_string,
            options=SyphonOptions(**settings),
        )
        syphon.on_event(self.events.append)
        return syphon

    async def park(self, payloads: list[bytes], index: int = 0) -> None:
        await put(self.secondary, self.backlog(index), payloads)

    def waiting(self) -> int:
        """Count the messages in the backlogs, without the dead letters."""
        return sum(self.secondary.counts(self.backlog(index)).active for index in range(self.backlogs))

    def set_aside(self) -> int:
        return sum(self.secondary.counts(self.backlog(index)).dead_letter for index in range(self.backlogs))

    def said(self, kind: type) -> list:
        return [event for event in self.events if isinstance(event, kind)]


async def arrived(pair: Pair) -> Counter[str]:
    """Receive everything in the primary's ``orders``; count the messages by id."""
    count = pair.primary.counts("orders").active
    return Counter(message_id(message) for message in await take(pair.primary, "orders", count))


def pair_of(broker: Broker) -> Pair:
    """Create the queues of a broker's two namespaces."""
    pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
    for path in ("orders", "invoices"):
        pair.primary.create_queue(path)
    for index in range(BACKLOGS):
        pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1)
    return pair


async def start_syphon(pair: Pair, *flags: str) -> asyncio.subprocess.Process:
    """Start `sbpair syphon` for this pair as a process; a drain prints its counters as JSON when it ends."""
    environment = os.environ | {
        "SBPAIR_PRIMARY": pair.primary.connection_string,
        "SBPAIR_SECONDARY": pair.secondary.connection_string,
    }
    settings = ("--primary-namespace-name", "contoso", "--backlogs", str(pair.backlogs))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "sbpair", "syphon", *settings, "--json", *flags, env=environment,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
