"""Topics and subscriptions, with the unmodified SDK."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import (
    NEXT_AVAILABLE_SESSION,
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceiveMode,
    ServiceBusSubQueue,
)
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from sbpair.broker import Broker, NamespaceControl
from tests.broker.wire.elsewhere import fresh


@pytest.fixture
def topic(contoso: NamespaceControl) -> str:
    """The path of a topic with the subscriptions `first` and `second`."""
    path = fresh("events")
    contoso.create_topic(path)
    contoso.create_subscription(path, "first")
    contoso.create_subscription(path, "second")
    return path


def send(client: ServiceBusClient, topic: str, *messages: ServiceBusMessage) -> None:
    with client.get_topic_sender(topic) as sender:
        sender.send_messages(list(messages))


def bodies(client: ServiceBusClient, topic: str, name: str, most: int = 10, **how: object) -> list[str]:
    """Receive and complete the messages of the subscription."""
    with client.get_subscription_receiver(topic, name, **how) as receiver:
        messages = receiver.receive_messages(most, max_wait_time=20)
        for message in messages:
            receiver.complete_message(message)
        return [str(message) for message in messages]


@pytest.mark.does("topics")
def test_a_message_sent_to_a_topic_is_received_from_each_subscription(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    send(client, topic, *(ServiceBusMessage(f"news {i}") for i in range(3)))
    assert contoso.counts(f"{topic}/Subscriptions/first").active == 3
    for name in ("first", "SECOND"):
        assert bodies(client, topic, name, 3) == ["news 0", "news 1", "news 2"]
        assert contoso.counts(f"{topic}/Subscriptions/{name}").total == 0


def test_a_copy_has_its_subscription_number_and_the_topic_number(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    send(client, topic, ServiceBusMessage("before"))
    contoso.create_subscription(topic, "late")
    send(client, topic, ServiceBusMessage("after"))
    with client.get_subscription_receiver(topic, "late") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
    assert (str(message), message.sequence_number, message.enqueued_sequence_number) == ("after", 1, 2)


def test_a_subscription_has_a_dead_letter_queue(client: ServiceBusClient, topic: str) -> None:
    send(client, topic, ServiceBusMessage("broken"))
    with client.get_subscription_receiver(topic, "first") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        receiver.dead_letter_message(message, reason="Broken", error_description="it is")
    with client.get_subscription_receiver(
        topic, "first", sub_queue=ServiceBusSubQueue.DEAD_LETTER
    ) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=20)
        assert (message.dead_letter_reason, message.dead_letter_source) == ("Broken", None)
        receiver.complete_message(message)
    assert bodies(client, topic, "second", 1) == ["broken"]


def test_peek_renew_and_deferral_work_on_a_subscription(client: ServiceBusClient, topic: str) -> None:
    send(client, topic, ServiceBusMessage("one"), ServiceBusMessage("two"))
    with client.get_subscription_receiver(topic, "first") as receiver:
        assert [str(message) for message in receiver.peek_messages(10)] == ["one", "two"]
        one, two = receiver.receive_messages(2, max_wait_time=20)
        assert receiver.renew_message_lock(one) > datetime.now(UTC)
        receiver.complete_message(one)
        receiver.defer_message(two)
        (again,) = receiver.receive_deferred_messages(two.sequence_number)
        receiver.complete_message(again)
        assert receiver.peek_messages(10, sequence_number=1) == []


def test_receive_and_delete_empties_only_one_subscription(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    send(client, topic, ServiceBusMessage("news"))
    mode = ServiceBusReceiveMode.RECEIVE_AND_DELETE
    with client.get_subscription_receiver(topic, "first", receive_mode=mode) as receiver:
        assert [str(message) for message in receiver.receive_messages(1, max_wait_time=20)] == ["news"]
    assert contoso.counts(f"{topic}/Subscriptions/first").total == 0
    assert contoso.counts(f"{topic}/Subscriptions/second").total == 1


def test_a_subscription_may_require_sessions(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    contoso.create_subscription(topic, "by-session", requires_session=True)
    send(client, topic, ServiceBusMessage("a1", session_id="a"), ServiceBusMessage("none"))
    assert bodies(client, topic, "by-session", 1, session_id=NEXT_AVAILABLE_SESSION) == ["a1"]
    assert contoso.counts(f"{topic}/Subscriptions/by-session").dead_letter == 1
    assert bodies(client, topic, "first", 2) == ["a1", "none"]


def test_a_message_scheduled_on_a_topic_is_published_when_due(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl, broker: Broker
) -> None:
    with client.get_topic_sender(topic) as sender:
        at = datetime.now(UTC) + timedelta(days=30)
        kept, cancelled = sender.schedule_messages([ServiceBusMessage("kept"), ServiceBusMessage("not")], at)
        assert contoso.counts(topic).scheduled == 2
        sender.cancel_scheduled_messages(cancelled)
    assert kept != cancelled
    broker.advance(timedelta(days=40))
    assert contoso.counts(topic).scheduled == 0
    assert bodies(client, topic, "first", 1) == ["kept"]


@pytest.mark.spec("P-31")
def test_a_ping_to_a_topic_reaches_nobody(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    before = contoso.operations.pings
    ping = ServiceBusMessage(
        b"", content_type="application/vnd.ms-servicebus-ping", time_to_live=timedelta(seconds=1)
    )
    send(client, topic, ping)
    assert contoso.operations.pings == before + 1
    assert contoso.counts(f"{topic}/Subscriptions/first").total == 0


def test_a_topic_is_not_received_from_and_a_subscription_not_sent_to(
    client: ServiceBusClient, topic: str
) -> None:
    with (
        pytest.raises(ServiceBusError, match=r":topic:.*could not be found"),
        client.get_queue_receiver(topic) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=20)
    with (
        pytest.raises(ServiceBusError, match="cannot be sent to the subscription"),
        client.get_topic_sender(f"{topic}/Subscriptions/first") as sender,
    ):
        sender.send_messages(ServiceBusMessage("news"))


@pytest.mark.parametrize("path", ["{}/Subscriptions/third", "{}/$DeadLetterQueue"])
def test_an_operation_unsupported_by_topics_is_refused(
    client: ServiceBusClient, topic: str, path: str
) -> None:
    with (
        pytest.raises(ServiceBusAuthenticationError),  # the SDK's error for a 404 of $cbs
        client.get_queue_receiver(path.format(topic)) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=20)


def test_deleting_a_topic_ends_the_links_of_its_subscriptions(
    client: ServiceBusClient, topic: str, contoso: NamespaceControl
) -> None:
    with client.get_subscription_receiver(topic, "first") as receiver:
        assert receiver.peek_messages(1) == []
        contoso.delete_topic(topic)
        with pytest.raises(ServiceBusError):
            receiver.receive_messages(1, max_wait_time=20)
    assert topic not in contoso.topic_names()


def test_an_error_names_the_kind_of_its_entity(client, contoso, topic, queue):
    def refusal(open_link) -> str:
        with pytest.raises(ServiceBusError) as raised, open_link as link:
            link._open()
        return str(raised.value)

    assert f"SystemTracker:{contoso.name}:Topic:{topic}" in refusal(client.get_queue_receiver(topic))
    subscription = f"{topic}/Subscriptions/first"
    assert f"SystemTracker:{contoso.name}:Subscription:{subscription}" in refusal(
        client.get_queue_sender(subscription)
    )
    assert f"SystemTracker:{contoso.name}:Queue:{queue}/$D" in refusal(
        client.get_queue_sender(f"{queue}/$DeadLetterQueue")
    )
