"""The unmodified administration client, blocking, over TLS on the namespace's one port."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, Conflict

BACKLOG = "contoso/x-servicebus-transfer/0"
NEVER = "P10675199DT2H48M5.4775807S"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker


def client_of(
    broker: Broker, name: str = "contoso-dr", connection_string: str | None = None
) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string or broker.namespace(name).connection_string,
        connection_verify=str(broker.ca_file),
        retry_total=0,
    )


@pytest.fixture
def client(broker: Broker) -> Iterator[ServiceBusAdministrationClient]:
    with client_of(broker) as client:
        yield client
    for name in broker.namespace("contoso-dr").queue_names():
        broker.namespace("contoso-dr").delete_queue(name)


@pytest.mark.spec("P-10", "P-11")
@pytest.mark.does("admin queues")
def test_a_backlog_queue_is_created_as_the_articles_describe(
    client: ServiceBusAdministrationClient, broker: Broker
) -> None:
    made = client.create_queue(
        BACKLOG,
        max_size_in_megabytes=5120,
        max_delivery_count=2**31 - 1,
        default_message_time_to_live=NEVER,
        auto_delete_on_idle=NEVER,
        lock_duration=timedelta(minutes=1),
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )
    for queue in (made, client.get_queue(BACKLOG)):
        assert queue.name == BACKLOG
        assert queue.max_size_in_megabytes == 5120
        assert queue.max_delivery_count == 2**31 - 1
        assert queue.lock_duration == timedelta(minutes=1)
        assert queue.default_message_time_to_live > timedelta(days=10675198)
        assert queue.auto_delete_on_idle > timedelta(days=10675198)
        assert queue.dead_lettering_on_message_expiration is True
        assert queue.enable_batched_operations is True
        assert (queue.status, queue.availability_status) == ("Active", "Available")
        assert not queue.authorization_rules
    assert broker.namespace("contoso-dr").queue_names() == [BACKLOG]


@pytest.mark.spec("P-12")
def test_creating_an_existing_queue_and_reading_a_missing_one_fail_differently(
    client: ServiceBusAdministrationClient,
) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue_runtime_properties(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        client.delete_queue(BACKLOG)
    client.create_queue(BACKLOG)
    with pytest.raises(ResourceExistsError, match="SubCode=40900"):
        client.create_queue(BACKLOG.upper())
    client.delete_queue(BACKLOG)
    with pytest.raises(ResourceNotFoundError):
        client.get_queue(BACKLOG)


@pytest.mark.does("admin queues")
def test_an_update_returns_the_whole_description_with_one_change(
    client: ServiceBusAdministrationClient, broker: Broker
) -> None:
    created = client.create_queue("orders", user_metadata="a <b> & 'c' ü")
    created.lock_duration = timedelta(seconds=30)
    client.update_queue(created, max_delivery_count=3)
    found = client.get_queue("orders")
    assert (found.lock_duration, found.max_delivery_count) == (timedelta(seconds=30), 3)
    assert found.user_metadata == "a <b> & 'c' ü"
    assert found.default_message_time_to_live > timedelta(days=10675198)


@pytest.mark.does("admin queues")
def test_an_update_of_a_deleted_entity_finds_nothing(client: ServiceBusAdministrationClient) -> None:
    queue = client.create_queue("orders")
    client.delete_queue("orders")
    with pytest.raises(ResourceNotFoundError):
        client.update_queue(queue)


@pytest.mark.parametrize("count", [0, 1, 100, 101, 200])
@pytest.mark.does("admin queues")
def test_listing_returns_all_queues_over_several_pages(
    client: ServiceBusAdministrationClient, broker: Broker, count: int
) -> None:
    names = [f"contoso/x-servicebus-transfer/{i:03}" for i in range(count)]
    for name in names:
        broker.namespace("contoso-dr").create_queue(name)
    assert [queue.name for queue in client.list_queues()] == names
    assert [queue.name for queue in client.list_queues_runtime_properties()] == names


def test_the_counts_follow_the_messages(client: ServiceBusAdministrationClient, broker: Broker) -> None:
    before = datetime.now(UTC) - timedelta(seconds=1)
    client.create_queue("orders")
    fresh = client.get_queue_runtime_properties("orders")
    assert (fresh.total_message_count, fresh.size_in_bytes) == (0, 0)
    assert fresh.accessed_at_utc.year == 1
    assert before <= fresh.created_at_utc <= datetime.now(UTC)
    connection_string = broker.namespace("contoso-dr").connection_string
    with (
        ServiceBusClient.from_connection_string(connection_string) as messages,
        messages.get_queue_sender("orders") as sender,
    ):
        sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(3)])
        sender.send_messages(
            ServiceBusMessage(b"later", scheduled_enqueue_time_utc=before + timedelta(hours=1))
        )
        with messages.get_queue_receiver("orders") as receiver:
            receiver.dead_letter_message(receiver.receive_messages(1, max_wait_time=20)[0])
    counts = client.get_queue_runtime_properties("orders")
    assert counts.active_message_count == 2
    assert counts.dead_letter_message_count == 1
    assert counts.scheduled_message_count == 1
    assert (counts.transfer_message_count, counts.transfer_dead_letter_message_count) == (0, 0)
    assert counts.total_message_count == 4
    assert counts.size_in_bytes > 300
    assert counts.accessed_at_utc >= before


@pytest.mark.parametrize("verb", ["create", "update", "delete"])
def test_concurrent_changes_of_one_entity_do_not_conflict(
    client: ServiceBusAdministrationClient, broker: Broker, verb: str
) -> None:
    namespace = broker.namespace("contoso-dr")
    client.create_queue("there")
    changes = {
        "create": lambda: client.create_queue("orders"),
        "update": lambda: client.update_queue(client.get_queue("there"), max_delivery_count=3),
        "delete": lambda: client.delete_queue("there"),
    }
    with namespace.fault(None, Conflict(), times=1) as fault:
        with pytest.raises(HttpResponseError, match=r"SubCode=40901\. Another") as caught:
            changes[verb]()
        assert (caught.value.status_code, fault.hits) == (409, 1)
        assert namespace.queue_names() == ["there"]
        assert namespace.description("there").max_delivery_count == 10
        changes[verb]()
    assert namespace.queue_names() == {"create": ["orders", "there"], "update": ["there"], "delete": []}[verb]


def test_the_namespace_tells_its_name(client: ServiceBusAdministrationClient) -> None:
    properties = client.get_namespace_properties()
    assert (properties.name, properties.messaging_sku) == ("contoso-dr", "Standard")


@pytest.mark.parametrize("stolen", ["c29tZXRoaW5nIGVsc2U=", "SAS_KEY_VALUE"])
def test_a_wrong_key_is_an_authentication_error(broker: Broker, stolen: str) -> None:
    head, _, _ = broker.namespace("contoso-dr").connection_string.partition("SharedAccessKey=")
    with (
        client_of(
            broker, connection_string=f"{head}SharedAccessKey={stolen};UseDevelopmentEmulator=true"
        ) as client,
        pytest.raises(ClientAuthenticationError),
    ):
        client.get_queue("orders")


@pytest.mark.spec("S-2")
def test_the_key_of_one_namespace_is_refused_by_the_other(broker: Broker) -> None:
    theirs, ours = (broker.namespace(name) for name in ("contoso", "contoso-dr"))
    crossed = theirs.connection_string.replace(f":{theirs.port};", f":{ours.port};")
    with client_of(broker, connection_string=crossed) as client, pytest.raises(ClientAuthenticationError):
        client.get_queue("orders")


def test_a_client_that_was_not_given_the_authority_does_not_connect(broker: Broker) -> None:
    connection_string = broker.namespace("contoso-dr").connection_string
    with (
        ServiceBusAdministrationClient.from_connection_string(connection_string, retry_total=0) as client,
        pytest.raises(ServiceRequestError, match="CERTIFICATE_VERIFY_FAILED"),
    ):
        client.get_queue("orders")


def test_the_published_emulator_connection_string_works_where_access_is_open() -> None:
    with Broker({"contoso": 0}, open_access=True) as broker:
        port = broker.namespace("contoso").port
        published = (
            f"Endpoint=sb://localhost:{port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )
        with client_of(broker, connection_string=published) as client:
            assert client.create_queue("orders").name == "orders"
