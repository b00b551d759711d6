"""The unmodified Python SDK over each transport, and what else of it no file of tests/broker/wire shows."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient


def over_tls(contoso, broker) -> tuple[str, dict[str, object]]:
    """Without the flag of the emulator the SDK speaks TLS; it is told the port, and whom to trust."""
    text = contoso.connection_string.replace(";UseDevelopmentEmulator=true", "")
    where = {
        "custom_endpoint_address": f"sb://localhost:{contoso.port}",
        "transport_type": TransportType.Amqp,
    }
    return text, {"connection_verify": str(broker.ca_file), **where}


def over_tcp(contoso, _broker) -> tuple[str, dict[str, object]]:
    return contoso.connection_string, {}


@pytest.mark.does("tcp", "tls")
@pytest.mark.parametrize("transport", [over_tcp, over_tls])
def test_the_blocking_sdk_sends_and_receives(broker, contoso, queue, transport):
    text, keywords = transport(contoso, broker)
    with ServiceBusClient.from_connection_string(text, retry_total=0, **keywords) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b" * 200_000)])
        with client.get_queue_receiver(queue) as receiver:
            got = receiver.receive_messages(2)
            while len(got) < 2:  # the large one may take longer than the SDK waits for more
                got += receiver.receive_messages(1)
            for message in got:
                receiver.complete_message(message)
    assert [str(message)[:1] for message in got] == ["a", "b"]
    assert contoso.counts(queue).active == 0


@pytest.mark.does("tcp", "tls")
@pytest.mark.parametrize("transport", [over_tcp, over_tls])
async def test_the_asyncio_sdk_sends_and_receives(broker, contoso, queue, transport):
    text, keywords = transport(contoso, broker)
    async with AsyncServiceBusClient.from_connection_string(text, retry_total=0, **keywords) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b" * 200_000)])
        async with client.get_queue_receiver(queue) as receiver:
            got = await receiver.receive_messages(2)
            while len(got) < 2:  # the large one may take longer than the SDK waits for more
                got += await receiver.receive_messages(1)
            for message in got:
                await receiver.complete_message(message)
    assert [str(message)[:1] for message in got] == ["a", "b"]
    assert contoso.counts(queue).active == 0


@pytest.mark.slow
@pytest.mark.does("topics")
async def test_the_asyncio_sdk_sends_to_a_topic_and_receives_from_its_subscriptions(contoso):
    contoso.create_topic("python-events")
    for name in ("billing", "audit"):
        contoso.create_subscription("python-events", name)
    bodies = {}
    async with AsyncServiceBusClient.from_connection_string(
        contoso.connection_string, retry_total=0
    ) as client:
        async with client.get_topic_sender("python-events") as sender:
            await sender.send_messages(ServiceBusMessage("paid"))
        for name in ("billing", "audit"):
            async with client.get_subscription_receiver("python-events", name, max_wait_time=20) as receiver:
                (got,) = await receiver.receive_messages(1)
                await receiver.complete_message(got)
                bodies[name] = str(got)
    assert bodies == {"billing": "paid", "audit": "paid"}
