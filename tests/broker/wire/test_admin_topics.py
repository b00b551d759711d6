"""Topics, subscriptions and their rule, with the unmodified administration clients, blocking and asyncio."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.management import ServiceBusAdministrationClient, TrueRuleFilter

from sbpair.broker import Broker, NamespaceControl


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as running:
        yield running


@pytest.fixture
def contoso(broker: Broker) -> Iterator[NamespaceControl]:
    """A namespace that is emptied afterwards."""
    namespace = broker.namespace("contoso")
    yield namespace
    for name in namespace.topic_names():
        namespace.delete_topic(name)


@pytest.fixture
def client(broker: Broker, contoso: NamespaceControl) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as opened:
        yield opened


@pytest.mark.does("admin topics")
def test_a_topic_lives_from_creation_to_deletion(client: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.get_topic("events/news")
    made = client.create_topic(
        "events/news",
        default_message_time_to_live=timedelta(days=3),
        max_size_in_megabytes=2048,
        requires_duplicate_detection=True,
        support_ordering=True,
        user_metadata="of <all> kinds",
    )
    for topic in (made, client.get_topic("Events/News"), *client.list_topics()):
        assert (topic.status, topic.availability_status) == ("Active", "Available")
        assert topic.default_message_time_to_live == timedelta(days=3)
        assert (topic.max_size_in_megabytes, topic.requires_duplicate_detection) == (2048, True)
        assert topic.user_metadata == "of <all> kinds"
    assert [topic.name for topic in client.list_topics()] == ["events/news"]
    with pytest.raises(ResourceExistsError):
        client.create_topic("EVENTS/NEWS")
    with pytest.raises(ResourceExistsError):
        client.create_queue("events/news")
    made.default_message_time_to_live = timedelta(days=1)
    client.update_topic(made)
    assert client.get_topic("events/news").default_message_time_to_live == timedelta(days=1)
    client.delete_topic("events/news")
    with pytest.raises(ResourceNotFoundError):
        client.delete_topic("events/news")
    with pytest.raises(ResourceNotFoundError):
        client.update_topic(made)


@pytest.mark.does("admin subscriptions")
def test_a_subscription_lives_from_creation_to_deletion(client: ServiceBusAdministrationClient) -> None:
    with pytest.raises(ResourceNotFoundError):
        client.create_subscription("events/news", "billing")
    client.create_topic("events/news")
    with pytest.raises(ResourceNotFoundError):
        client.get_subscription("events/news", "billing")
    made = client.create_subscription(
        "events/news",
        "billing",
        lock_duration=timedelta(seconds=30),
        requires_session=True,
        default_message_time_to_live=timedelta(hours=1),
        dead_lettering_on_message_expiration=True,
        dead_lettering_on_filter_evaluation_exceptions=False,
        max_delivery_count=3,
        auto_delete_on_idle=timedelta(minutes=10),
    )
    listed = list(client.list_subscriptions("events/news"))
    for subscription in (made, client.get_subscription("events/news", "BILLING"), *listed):
        assert subscription.status == "Active"
        assert subscription.lock_duration == timedelta(seconds=30)
        assert (subscription.requires_session, subscription.max_delivery_count) == (True, 3)
        assert subscription.default_message_time_to_live == timedelta(hours=1)
        assert subscription.dead_lettering_on_message_expiration is True
        assert subscription.dead_lettering_on_filter_evaluation_exceptions is False
        assert subscription.auto_delete_on_idle == timedelta(minutes=10)
    assert [subscription.name for subscription in listed] == ["billing"]
    with pytest.raises(ResourceExistsError):
        client.create_subscription("events/news", "Billing")
    made.max_delivery_count = 7
    client.update_subscription("events/news", made)
    assert client.get_subscription("events/news", "billing").max_delivery_count == 7
    client.delete_subscription("events/news", "billing")
    assert list(client.list_subscriptions("events/news")) == []
    with pytest.raises(ResourceNotFoundError):
        client.delete_subscription("events/news", "billing")


def test_topics_and_subscriptions_report_their_counts(
    client: ServiceBusAdministrationClient, contoso: NamespaceControl
) -> None:
    client.create_topic("news")
    client.create_subscription("news", "first")
    client.create_subscription("news", "second")
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as data,
        data.get_topic_sender("news") as sender,
        data.get_subscription_receiver("news", "first") as receiver,
    ):
        sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        receiver.dead_letter_message(message)
    topic = client.get_topic_runtime_properties("news")
    assert (topic.subscription_count, topic.scheduled_message_count) == (2, 0)
    assert (topic.sql_filter_count, topic.correlation_filter_count) == (2, 0)
    assert topic.size_in_bytes > 0
    counted = {
        each.name: (each.total_message_count, each.active_message_count, each.dead_letter_message_count)
        for each in client.list_subscriptions_runtime_properties("news")
    }
    assert counted == {"first": (2, 1, 1), "second": (2, 2, 0)}
    assert client.get_subscription_runtime_properties("news", "second").active_message_count == 2


def test_the_default_rule_is_listed(client: ServiceBusAdministrationClient) -> None:
    client.create_topic("news")
    client.create_subscription("news", "billing")
    got = client.get_rule("news", "billing", "$Default")
    for rule in (got, *client.list_rules("news", "billing")):
        assert rule.name == "$Default"
        assert isinstance(rule.filter, TrueRuleFilter)
        assert rule.action is None
    with pytest.raises(ResourceNotFoundError):
        client.get_rule("news", "billing", "dear")
    with pytest.raises(ResourceNotFoundError):
        client.create_rule("news", "nobody", "dear")


@pytest.mark.parametrize("name", ["$Default", "a/b", "-a", "a?b"])
def test_a_name_no_subscription_may_have_is_refused(
    client: ServiceBusAdministrationClient, name: str
) -> None:
    client.create_topic("news")
    with pytest.raises(HttpResponseError) as caught:
        client.create_subscription("news", name)
    assert caught.value.status_code == 400
    assert list(client.list_subscriptions("news")) == []


@pytest.mark.spec("Q-2", "Q-3")
def test_a_partitioned_topic_reports_its_partitioning_and_keeps_it(
    client: ServiceBusAdministrationClient,
) -> None:
    client.create_topic("news", enable_partitioning=True)
    client.create_subscription("news", "billing")
    topic = client.get_topic("news")

    assert (topic.enable_partitioning, topic.max_size_in_megabytes) == (True, 16 * 1024)
    assert topic.availability_status == "Available"
    assert client.get_subscription("news", "billing").availability_status == "Available"
    topic.enable_partitioning = False
    with pytest.raises(HttpResponseError, match="Partitioning cannot be changed for"):
        client.update_topic(topic)


@pytest.mark.does("admin topics", "admin subscriptions")
async def test_the_asyncio_client_administers_topics(broker: Broker, contoso: NamespaceControl) -> None:
    async with AsyncAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as client:
        topic = await client.create_topic("events/news")
        subscription = await client.create_subscription("events/news", "billing")
        with pytest.raises(ResourceExistsError):
            await client.create_subscription("events/news", "billing")
        await client.update_topic(topic, max_size_in_megabytes=2048)
        await client.update_subscription("events/news", subscription, max_delivery_count=3)
        assert (await client.get_topic("events/news")).max_size_in_megabytes == 2048
        assert (await client.get_subscription("events/news", "billing")).max_delivery_count == 3
        assert [each.name async for each in client.list_topics()] == ["events/news"]
        assert [each.name async for each in client.list_subscriptions("events/news")] == ["billing"]
        assert [rule.name async for rule in client.list_rules("events/news", "billing")] == ["$Default"]
        assert (await client.get_topic_runtime_properties("events/news")).subscription_count == 1
        counts = await client.get_subscription_runtime_properties("events/news", "billing")
        assert counts.total_message_count == 0
        await client.delete_subscription("events/news", "billing")
        await client.delete_topic("events/news")
        with pytest.raises(ResourceNotFoundError):
            await client.get_topic("events/news")
