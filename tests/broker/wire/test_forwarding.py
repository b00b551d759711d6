"""Auto-forwarding, configured and used by the unmodified SDK."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient as AsyncAdministrationClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from tests.broker.wire.elsewhere import fresh

WAIT = 20.0  # seconds, at most


@pytest.fixture
def administration(broker: Broker, contoso: NamespaceControl) -> Iterator[ServiceBusAdministrationClient]:
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as opened:
        yield opened


def name(of: str) -> str:
    return fresh(of)


def send(client: ServiceBusClient, queue: str, *bodies: str) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage(body, message_id=body) for body in bodies])


def received(client: ServiceBusClient, queue: str, most: int, **how: object) -> list[str]:
    with client.get_queue_receiver(queue, **how) as receiver:
        return [str(message) for message in receiver.receive_messages(most, max_wait_time=WAIT)]


def test_messages_pass_a_forwarding_chain_created_by_the_administration_client(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient
) -> None:
    end, topic, source = name("end"), name("topic"), name("source")
    administration.create_queue(end)
    administration.create_topic(topic)
    administration.create_subscription(topic, "all", forward_to=end)
    made = administration.create_queue(source, forward_to=topic)
    assert made.forward_to.rpartition("/")[2] == topic
    assert administration.get_subscription(topic, "all").forward_to.rpartition("/")[2] == end

    send(client, source, "a", "b")
    assert received(client, end, 2) == ["a", "b"]
    assert administration.get_queue_runtime_properties(source).total_message_count == 0


@pytest.mark.spec("W-1")
def test_an_sdk_update_ends_the_forwarding_it_omits(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    end, source = make_queue(), name("source")
    administration.create_queue(source, forward_to=end)
    send(client, source, "goes")
    assert received(client, end, 1) == ["goes"]

    asked = administration.get_queue(source)
    asked.max_delivery_count = 3
    administration.update_queue(asked)
    assert administration.get_queue(source).forward_to is not None
    send(client, source, "stays")
    assert received(client, source, 1) == ["stays"]


@pytest.mark.spec("W-2")
def test_a_description_is_returned_in_the_element_order_of_the_service(
    broker: Broker, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    end, source = make_queue(), name("source")
    namespace = SdkNamespace.from_connection_string(
        "primary",
        broker.namespace("contoso").connection_string,
        SdkSettings(connection_verify=str(broker.ca_file)),
    )
    late: dict[str, Sequence[str]] = {}
    with namespace.administration(report=late.__setitem__) as administration:
        administration.create_queue(source, forward_to=end, auto_delete_on_idle=timedelta(minutes=5))
        asked = administration.get_queue(source)
        asked.max_delivery_count = 3
        administration.update_queue(asked)
        send(client, source, "goes")
        assert received(client, end, 1) == ["goes"]

        asked.forward_to = None
        administration.update_queue(asked)
        assert administration.get_queue(source).forward_to is None
        send(client, source, "stays")
    assert received(client, source, 1) == ["stays"]
    assert late == {}


def test_dead_letters_are_forwarded_as_the_administration_client_configured(
    administration: ServiceBusAdministrationClient, client: ServiceBusClient, make_queue: Callable[..., str]
) -> None:
    failures, source = make_queue(), name("source")
    made = administration.create_queue(source, forward_dead_lettered_messages_to=failures)
    assert made.forward_dead_lettered_messages_to.rpartition("/")[2] == failures
    send(client, source, "x")
    with client.get_queue_receiver(source) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
        receiver.dead_letter_message(message, reason="no", error_description="way")
    with client.get_queue_receiver(failures) as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
        assert (message.dead_letter_reason, message.dead_letter_error_description) == ("no", "way")
        assert message.dead_letter_source == source

    with (
        pytest.raises(ServiceBusError, match="auto-forwarding enabled"),
        client.get_queue_receiver(source, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=WAIT)


def test_a_source_is_not_received_from(client: ServiceBusClient, make_queue: Callable[..., str]) -> None:
    source = make_queue(forward_to=make_queue())
    with (
        pytest.raises(ServiceBusError, match="Cannot create a message receiver"),
        client.get_queue_receiver(source) as receiver,
    ):
        receiver.receive_messages(1, max_wait_time=WAIT)


def test_an_unforwardable_message_is_dead_lettered_with_the_reason(
    client: ServiceBusClient, contoso: NamespaceControl, make_queue: Callable[..., str]
) -> None:
    target = make_queue(requires_session=True)
    source = make_queue(forward_to=target)
    send(client, source, "without")
    with client.get_queue_receiver(source, sub_queue="deadletter") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
        assert message.dead_letter_reason == "Session ID is null"
    assert contoso.counts(target).total == 0


def test_forwarding_ends_after_four_hops(
    client: ServiceBusClient, contoso: NamespaceControl, make_queue: Callable[..., str]
) -> None:
    chain = [make_queue()]
    for _ in range(5):
        chain.append(make_queue(forward_to=chain[-1]))
    send(client, chain[4], "four")
    send(client, chain[5], "five")

    assert received(client, chain[0], 2) == ["four"]
    with client.get_queue_receiver(chain[1], sub_queue="deadletter") as receiver:
        (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
        assert (str(message), message.dead_letter_reason) == ("five", "MaxTransferHopCountExceeded")


def test_with_the_old_behaviour_it_ends_in_the_transfer_dead_letter_queue() -> None:
    with Broker({"contoso": 0}, legacy_forward_tdlq=True) as old:
        namespace = old.namespace("contoso")
        namespace.create_queue("end", requires_session=True)
        namespace.create_queue("source", forward_to="end")
        with ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0) as client:
            send(client, "source", "without")
            sub_queue = ServiceBusSubQueue.TRANSFER_DEAD_LETTER
            with client.get_queue_receiver("source", sub_queue=sub_queue) as receiver:
                (message,) = receiver.receive_messages(1, max_wait_time=WAIT)
                assert (str(message), message.dead_letter_reason) == ("without", "Session ID is null")
        assert namespace.counts("source").dead_letter == 0


@pytest.mark.parametrize("field", ["forward_to", "forward_dead_lettered_messages_to"])
def test_a_missing_target_is_refused(administration: ServiceBusAdministrationClient, field: str) -> None:
    source = name("source")
    with pytest.raises(ResourceNotFoundError, match=r"40400\. .*nowhere"):
        administration.create_queue(source, **{field: "nowhere"})
    with pytest.raises(ResourceNotFoundError):
        administration.get_queue(source)


@pytest.mark.spec("W-6")
def test_a_source_that_requires_sessions_is_refused(
    administration: ServiceBusAdministrationClient, make_queue: Callable[..., str]
) -> None:
    end = make_queue(requires_session=True)
    with pytest.raises(HttpResponseError, match=r"SubCode=40000\. Bad Request\."):
        administration.create_queue(name("source"), forward_to=end, requires_session=True)


@pytest.mark.spec("T-22")
def test_a_forwarding_source_outlives_its_idle_span(
    administration: ServiceBusAdministrationClient, broker: Broker, make_queue: Callable[..., str]
) -> None:
    source = name("source")
    administration.create_queue(source, forward_to=make_queue())
    shorter = administration.get_queue(source)
    assert shorter.auto_delete_on_idle > timedelta(days=10_000)
    broker.advance(timedelta(hours=1))

    assert administration.get_queue(source).name == source


@pytest.mark.spec("T-22")
async def test_the_asyncio_client_forwards(broker: Broker, contoso: NamespaceControl) -> None:
    async with (
        AsyncAdministrationClient.from_connection_string(
            contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
        ) as administration,
        AsyncClient.from_connection_string(contoso.connection_string, retry_total=0) as client,
    ):
        end, source = name("end"), name("source")
        await administration.create_queue(end)
        made = await administration.create_queue(source, forward_to=end)
        assert made.forward_to.rpartition("/")[2] == end
        async with client.get_queue_sender(source) as sender, client.get_queue_receiver(end) as receiver:
            await sender.send_messages(ServiceBusMessage("x"))
            (message,) = await receiver.receive_messages(1, max_wait_time=WAIT)
            assert (str(message), message.enqueued_sequence_number) == ("x", 1)
