"""The unmodified administration client, for asyncio (aiohttp), over TLS on the namespace's one port."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from sbpair.broker import Broker

BACKLOG = "contoso/x-servicebus-transfer/0"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso-dr": 0}) as broker:
        yield broker


def client_of(broker: Broker, connection_string: str | None = None) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string or broker.namespace("contoso-dr").connection_string,
        connection_verify=str(broker.ca_file),
        retry_total=0,
    )


@pytest.mark.spec("P-10", "P-12")
@pytest.mark.does("admin queues")
async def test_a_backlog_queue_lives_from_creation_to_deletion(broker: Broker) -> None:
    async with client_of(broker) as client:
        with pytest.raises(ResourceNotFoundError):
            await client.get_queue(BACKLOG)
        created = await client.create_queue(BACKLOG, max_size_in_megabytes=5120, max_delivery_count=2**31 - 1)
        assert (created.name, created.max_size_in_megabytes) == (BACKLOG, 5120)
        with pytest.raises(ResourceExistsError):
            await client.create_queue(BACKLOG)
        await client.update_queue(created, lock_duration=timedelta(seconds=30))
        assert (await client.get_queue(BACKLOG)).lock_duration == timedelta(seconds=30)
        assert (await client.get_queue_runtime_properties(BACKLOG)).total_message_count == 0
        assert [queue.name async for queue in client.list_queues()] == [BACKLOG]
        assert (await client.get_namespace_properties()).name == "contoso-dr"
        await client.delete_queue(BACKLOG)
        assert [queue.name async for queue in client.list_queues()] == []
