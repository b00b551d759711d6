"""A durable broker as its clients see it: accepted messages survive a restart (G-26)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AioClient
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, BrokerError


class OnDisk:
    """A broker that can be restarted on its directory, like a process."""

    def __init__(self, data: Path) -> None:
        self._data = data
        self.start(0)

    def start(self, port: int) -> None:
        self.broker = Broker({"contoso": port}, data=self._data)
        self.broker.start()
        self.contoso = self.broker.namespace("contoso")

    def restart(self) -> None:
        port = self.contoso.port
        self.broker.stop()
        self.start(port)

    def client(self) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(self.contoso.connection_string, retry_total=0)


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[OnDisk]:
    found = OnDisk(tmp_path / "data")
    yield found
    found.broker.stop()


@pytest.mark.slow
@pytest.mark.spec("G-26")
def test_the_sdk_finds_its_messages_after_a_restart_with_the_same_connection_string(on_disk: OnDisk) -> None:
    on_disk.contoso.create_queue("orders")
    before = on_disk.contoso.connection_string
    with on_disk.client() as client:
        with client.get_queue_sender("orders") as sender:
            sender.send_messages([ServiceBusMessage(f"body {n}", message_id=str(n)) for n in range(6)])
            soon = datetime.now(UTC) + timedelta(hours=1)
            (scheduled,) = sender.schedule_messages(ServiceBusMessage("later"), soon)
        with client.get_queue_receiver("orders") as receiver:
            done, deferred, dead, given_back, locked = receiver.receive_messages(5, max_wait_time=20)
            receiver.complete_message(done)
            receiver.defer_message(deferred)
            receiver.dead_letter_message(dead, reason="why", error_description="because")
            receiver.abandon_message(given_back)
            assert locked.delivery_count == 0
    on_disk.restart()
    assert on_disk.contoso.connection_string == before
    with ServiceBusClient.from_connection_string(before) as client:
        with client.get_queue_receiver("orders") as receiver:
            found = receiver.receive_messages(10, max_wait_time=20)
            counts = {message.message_id: message.delivery_count for message in found}
            assert counts == {"3": 1, "4": 0, "5": 0}
            assert [str(message) for message in found] == ["body 3", "body 4", "body 5"]
            (again,) = receiver.receive_deferred_messages([deferred.sequence_number])
            assert again.message_id == "1"
        with client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
            (buried,) = receiver.receive_messages(max_wait_time=20)
            assert (buried.message_id, buried.dead_letter_reason) == ("2", "why")
        with client.get_queue_sender("orders") as sender:
            sender.cancel_scheduled_messages([scheduled])


@pytest.mark.spec("G-26")
async def test_the_asyncio_sdk_finds_its_sessions_and_topics_after_a_restart(on_disk: OnDisk) -> None:
    on_disk.contoso.create_topic("events", enable_partitioning=True)
    on_disk.contoso.create_subscription("events", "billing", requires_session=True)
    async with AioClient.from_connection_string(on_disk.contoso.connection_string) as client:
        async with client.get_topic_sender("events") as sender:
            await sender.send_messages([ServiceBusMessage(str(n), session_id="one") for n in range(3)])
        async with client.get_subscription_receiver("events", "billing", session_id="one") as receiver:
            await receiver.session.set_state(b"so far")
            (first,) = await receiver.receive_messages(1, max_wait_time=20)
            await receiver.complete_message(first)
    await asyncio.to_thread(on_disk.restart)
    async with (
        AioClient.from_connection_string(on_disk.contoso.connection_string) as client,
        client.get_subscription_receiver("events", "billing", session_id=NEXT_AVAILABLE_SESSION) as receiver,
    ):
        assert bytes(await receiver.session.get_state()) == b"so far"
        found = await receiver.receive_messages(5, max_wait_time=20)
        assert [str(message) for message in found] == ["1", "2"]


@pytest.mark.spec("G-26")
def test_administrative_changes_survive_a_restart(
    on_disk: OnDisk,
) -> None:
    def administration() -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(
            on_disk.contoso.connection_string, connection_verify=str(on_disk.broker.ca_file)
        )

    authority = on_disk.broker.ca_file.read_bytes()
    with administration() as admin:
        made = admin.create_queue("orders", lock_duration=timedelta(seconds=7))
        made.max_delivery_count = 3
        admin.update_queue(made)
        admin.create_queue("gone")
        admin.delete_queue("gone")
        times = admin.get_queue_runtime_properties("orders")
    on_disk.restart()
    assert on_disk.broker.ca_file.read_bytes() == authority
    with administration() as admin:
        assert [queue.name for queue in admin.list_queues()] == ["orders"]
        found = admin.get_queue("orders")
        assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=7), 3)
        again = admin.get_queue_runtime_properties("orders")
        assert (again.created_at_utc, again.updated_at_utc) == (times.created_at_utc, times.updated_at_utc)


def test_a_broker_that_could_not_start_releases_its_directory(tmp_path: Path, on_disk: OnDisk) -> None:
    other = tmp_path / "other"
    with pytest.raises(BrokerError, match="cannot listen"):
        Broker({"taken": on_disk.contoso.port}, data=other).start()
    with pytest.raises(BrokerError, match="names differ only by case"):
        Broker({"a": 0, "A": 0}, data=other)
    with pytest.raises(BrokerError, match="cannot be a file name"):
        Broker({"../up": 0}, data=other)
    with Broker({"taken": 0}, data=other):
        pass
