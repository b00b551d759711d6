"""A processor reaches its namespaces as the client is configured: credentials, TLS, WebSocket."""

from __future__ import annotations

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import TransportType

from sbpair.aio import PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.pair.auth.connection_string import fields_of
from sbpair.processor import ReceivingLost
from tests.pair.processor.pair import Pair, numbered, put
from tests.waiting import until


async def handles_one(pair: Pair, client: PairedServiceBusClient) -> None:
    await put(pair.primary, "orders", [numbered(1)])
    async with client, client.get_queue_processor("orders", pair.note) as processor:
        await until(lambda: processor.counters.completed == 1)


@pytest.mark.spec("C-18")
async def test_a_processor_receives_over_websocket(pair: Pair) -> None:
    strings = pair.primary.connection_string, pair.secondary.connection_string
    await handles_one(
        pair,
        PairedServiceBusClient.from_connection_strings(
            *strings, transport_type=TransportType.AmqpOverWebsocket
        ),
    )


@pytest.mark.spec("C-18")
async def test_a_processor_receives_over_tls_with_the_authorities_of_the_client(
    broker: Broker, pair: Pair
) -> None:
    sides = (pair.primary, pair.secondary)
    plain = [side.connection_string.replace(";UseDevelopmentEmulator=true", "") for side in sides]
    addresses = [f"localhost:{side.port}" for side in sides]
    await handles_one(
        pair,
        PairedServiceBusClient.from_connection_strings(
            *plain,
            connection_verify=str(broker.ca_file),
            custom_endpoint_address=addresses[0],
            secondary_custom_endpoint_address=addresses[1],
        ),
    )


@pytest.mark.spec("C-18")
async def test_an_untrusted_certificate_is_reported_and_nothing_is_received(pair: Pair) -> None:
    sides = (pair.primary, pair.secondary)
    plain = [side.connection_string.replace(";UseDevelopmentEmulator=true", "") for side in sides]
    client = PairedServiceBusClient.from_connection_strings(
        *plain,
        custom_endpoint_address=f"localhost:{pair.primary.port}",
        secondary_custom_endpoint_address=f"localhost:{pair.secondary.port}",
    )
    await put(pair.primary, "orders", [numbered(1)])
    async with client:
        processor = client.get_queue_processor("orders", pair.note)
        processor.on_event(pair.events.append)
        async with processor:
            await until(lambda: bool(pair.said(ReceivingLost)))
    assert "certificate" in str(pair.said(ReceivingLost)[0])
    assert pair.handled == []


@pytest.mark.spec("C-18")
async def test_a_processor_receives_with_a_named_key(pair: Pair) -> None:
    fields = [fields_of(side.connection_string) for side in (pair.primary, pair.secondary)]
    primary, secondary = (
        AzureNamedKeyCredential(each["sharedaccesskeyname"], each["sharedaccesskey"]) for each in fields
    )
    hosts = [each["endpoint"].removeprefix("sb://").strip("/") for each in fields]
    await handles_one(
        pair,
        PairedServiceBusClient(*hosts, primary, secondary_credential=secondary, use_tls=False),
    )
