"""A namespace whose name has two addresses, the first of which swallows packets: everything reaches the second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.aio import PairedServiceBusClient as AsyncClient
from sbpair.broker import Broker
from sbpair.pair.auth import dialling
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.processor import ProcessorOptions
from sbpair.syphon import Syphon, SyphonOptions
from tests.stopwatch import Stopwatch
from tests.two_addresses import TwoAddresses, black_hole

BACKLOG = "contoso/x-servicebus-transfer/0"
MOST = 1.0  # seconds that a dead address may cost
PATIENCE = 30.0
LOOPS: dict[str, Callable[[Coroutine[Any, Any, Any]], Any]] = {"asyncio": asyncio.run, "uvloop": uvloop.run}
OPTIONS = PairedNamespaceOptions(backlog_queue_count=1, primary_namespace_name="contoso")


class Sides:
    """Two namespaces with a parked message and one to process; after `dead` the name's first address is dead."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.primary, self.secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        self.primary.create_queue("orders")
        self.secondary.create_queue(BACKLOG)
        self.strings = self.primary.connection_string, self.secondary.connection_string


@pytest.fixture
def sides(monkeypatch) -> Iterator[Sides]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, black_hole() as hole:
        found = Sides(broker)
        with PairedServiceBusClient.from_connection_strings(*found.strings, options=OPTIONS) as client:
            client.hold("orders")
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("parked"))
        with (
            ServiceBusClient.from_connection_string(found.strings[0]) as bare,
            # it knows its senders only weakly, and would close none
            bare.get_queue_sender("orders") as sender,
        ):
            sender.send_messages(ServiceBusMessage("waits"))
        monkeypatch.setattr(dialling, "_answered", {})
        TwoAddresses(monkeypatch, "localhost", [hole, None])
        yield found


def test_a_blocking_sender(sides) -> None:
    with PairedServiceBusClient.from_connection_strings(*sides.strings, options=OPTIONS) as client:
        sender = client.get_queue_sender("orders")
        with Stopwatch() as watch:
            receipt = sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE)
        assert (receipt.stored_in, watch.seconds < MOST) == (StoredIn.PRIMARY, True)


@pytest.mark.parametrize("loop", LOOPS)
def test_an_asyncio_sender(sides, loop) -> None:
    async def send() -> None:
        async with AsyncClient.from_connection_strings(*sides.strings, options=OPTIONS) as client:
            sender = client.get_queue_sender("orders")
            with Stopwatch() as watch:
                receipt = await sender.send_messages(ServiceBusMessage("x"), timeout=PATIENCE)
            assert (receipt.stored_in, watch.seconds < MOST) == (StoredIn.PRIMARY, True)

    LOOPS[loop](send())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("transport", list(TransportType))
def test_a_processor(sides, loop, transport) -> None:
    async def process() -> None:
        got = asyncio.Event()

        async def handle(message: object) -> None:
            got.set()

        async with AsyncClient.from_connection_strings(
            *sides.strings, options=OPTIONS, transport_type=transport
        ) as client:
            processor = client.get_queue_processor(
                "orders", handle, options=ProcessorOptions(secondary="never")
            )
            with Stopwatch() as watch:
                async with processor:
                    await asyncio.wait_for(got.wait(), PATIENCE)
            assert watch.seconds < 2 * MOST  # with its closing

    LOOPS[loop](process())


@pytest.mark.parametrize("loop", LOOPS)
def test_a_syphon(sides, loop) -> None:
    options = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")

    async def drain() -> int:
        async with asyncio.timeout(PATIENCE):
            return (await Syphon.from_connection_strings(*sides.strings, options=options).drain()).completed

    with Stopwatch() as watch:
        assert LOOPS[loop](drain()) == 1
    assert watch.seconds < 2 * MOST  # two namespaces


def test_administration(sides) -> None:
    settings = SdkSettings(connection_verify=str(sides.broker.ca_file))
    namespace = SdkNamespace.from_connection_string("primary", sides.strings[0], settings)
    with Stopwatch() as watch, namespace.administration() as administration:
        assert administration.get_queue("orders").name == "orders"
    assert watch.seconds < MOST
