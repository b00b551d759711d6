"""Libraries that create their own ServiceBusClient survive an outage on a paired one, unchanged.

Each sends while the primary is down, and receives what it sent once the syphon has forwarded it. Only the name by
which the library imports the SDK's client is replaced.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from sbpair import EntityState, aio
from sbpair.broker.testing.pair import NamespacePair
from tests.pair.outage.conftest import collect_forgotten
from tests.waiting import PATIENCE

pytestmark = [
    pytest.mark.spec("R-15"),
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),  # an outage cuts a library's receiver off
]


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    """Collect what a library left unclosed, so that no later test gets the warning."""
    yield
    collect_forgotten("unclosed")


@pytest.fixture
async def client(servicebus_pair: NamespacePair) -> AsyncIterator[aio.PairedServiceBusClient]:
    servicebus_pair.primary.create_queue("tasks")
    async with servicebus_pair.async_client() as client:
        yield client


async def home(pair: NamespacePair, client: aio.PairedServiceBusClient, sent: int) -> None:
    """Bring the primary up and let the syphon forward everything to it."""
    assert client.state_of("tasks") is EntityState.FAILED_OVER
    pair.primary.bring_up()
    assert await asyncio.to_thread(pair.drain) == sent


def test_kombu_publishes_through_an_outage_and_consumes_afterwards(
    servicebus_pair: NamespacePair, monkeypatch: pytest.MonkeyPatch
) -> None:
    kombu = pytest.importorskip("kombu")
    from kombu.transport import azureservicebus

    client = servicebus_pair.client()
    stand_in = client.stand_in()
    monkeypatch.setattr(azureservicebus, "ServiceBusClient", stand_in)
    monkeypatch.setattr(azureservicebus, "ServiceBusAdministrationClient", stand_in.administration)
    with (
        kombu.Connection("azureservicebus://name:key@contoso") as connection,
        connection.SimpleQueue("tasks") as queue,
    ):
        queue.put({"n": 1})
        assert queue.get(timeout=PATIENCE).payload == {"n": 1}
        servicebus_pair.primary.take_down("refuse")
        for n in (2, 3):
            queue.put({"n": n})
        assert client.state_of("tasks") is EntityState.FAILED_OVER
        servicebus_pair.primary.bring_up()
        assert servicebus_pair.drain() == 2
        found = []
        for _ in range(2):
            message = queue.get(timeout=PATIENCE)
            found.append(message.payload["n"])
            message.ack()
    assert sorted(found) == [2, 3]


@pytest.mark.slow
async def test_taskiq_kicks_through_an_outage_and_works_afterwards(
    servicebus_pair: NamespacePair, client: aio.PairedServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("taskiq_service_bus.broker")
    from taskiq.receiver import Receiver

    monkeypatch.setattr(module, "ServiceBusClient", client.stand_in())
    broker = module.ServiceBusBroker("Endpoint=sb://contoso/", "tasks")
    done: list[int] = []

    @broker.task(task_name="work")
    async def work(n: int) -> None:
        done.append(n)

    await broker.startup()
    servicebus_pair.primary.take_down("refuse")
    for n in range(3):
        await work.kiq(n)
    await broker.shutdown()  # closes the stand-in and not the client
    await home(servicebus_pair, client, 3)

    broker.is_worker_process = True
    await broker.startup()
    worker = Receiver(broker)
    async with asyncio.timeout(PATIENCE):
        async for message in broker.listen():
            await worker.callback(message)
            if len(done) == 3:
                break
    await broker.shutdown()
    assert sorted(done) == [0, 1, 2]


@pytest.mark.slow
async def test_faststream_publishes_through_an_outage_and_consumes_afterwards(
    servicebus_pair: NamespacePair, client: aio.PairedServiceBusClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = pytest.importorskip("faststream_azure_servicebus.broker.broker")
    monkeypatch.setattr(module, "build_client_factory", lambda **_: client.stand_in())
    broker = module.ServiceBusBroker("Endpoint=sb://contoso/", logger=None)
    done: asyncio.Queue[int] = asyncio.Queue()

    @broker.subscriber(queue="tasks")
    async def work(n: int) -> None:
        await done.put(n)

    await broker.start()
    async with asyncio.timeout(PATIENCE):
        await broker.publish(0, queue="tasks")
        assert await done.get() == 0
    servicebus_pair.primary.take_down("refuse")
    for n in (1, 2):
        await broker.publish(n, queue="tasks")
    await home(servicebus_pair, client, 2)
    async with asyncio.timeout(PATIENCE):
        assert {await done.get(), await done.get()} == {1, 2}
    await broker.stop()
