"""Several namespaces behind one port: the host name that a client says is the namespace it gets."""

from __future__ import annotations

import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from sbpair.broker import Broker
from sbpair.broker.auth import make_token

NAMES = ("contoso", "contoso-dr")


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(dict.fromkeys(NAMES, 0), one_port=True) as running:
        for name in NAMES:
            running.namespace(name).create_queue("orders")
        yield running


def client(broker: Broker, name: str, host: str | None = None) -> ServiceBusClient:
    namespace = broker.namespace(name)
    text = namespace.connection_string
    if host is not None:
        text = text.replace(f"{name}.servicebus.windows.net", host)
    return ServiceBusClient.from_connection_string(
        text,
        transport_type=TransportType.Amqp,
        custom_endpoint_address=f"https://localhost:{namespace.port}",
        connection_verify=str(broker.ca_file),
        retry_total=0,
    )


def send(broker: Broker, name: str, host: str | None = None) -> None:
    with client(broker, name, host) as opened, opened.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(f"for {name}"))


def test_the_sdk_reaches_each_namespace_by_its_host_name(broker: Broker) -> None:
    assert broker.namespace("contoso").port == broker.namespace("contoso-dr").port
    for name in NAMES:
        send(broker, name)
    for name in NAMES:
        with client(broker, name) as opened, opened.get_queue_receiver("orders") as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
            assert str(message) == f"for {name}"


def test_a_key_of_one_namespace_opens_no_other(broker: Broker) -> None:
    with pytest.raises(ServiceBusError):
        send(broker, "contoso", host="contoso-dr.servicebus.windows.net")
    assert broker.namespace("contoso-dr").counts("orders").total == 0


def test_a_host_name_that_means_nobody_is_told_so(broker: Broker) -> None:
    with pytest.raises(ServiceBusError):
        send(broker, "contoso", host="fabrikam.servicebus.windows.net")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("contoso.servicebus.windows.net", 201),
        ("CONTOSO-DR:443", 201),
        ("fabrikam.servicebus.windows.net", 404),
        ("localhost", 404),
    ],
)
def test_a_request_means_the_namespace_of_its_host(broker: Broker, host: str, status: int) -> None:
    name = host.lower().partition(":")[0].partition(".")[0]
    namespace = broker.namespace(name if name in NAMES else "contoso")
    fields = dict(part.partition("=")[::2] for part in namespace.connection_string.split(";"))
    token = make_token(
        f"https://{host.partition(':')[0]}/", "RootManageSharedAccessKey", fields["SharedAccessKey"],
        int(time.time()) + 60,
    )  # fmt: skip
    before = namespace.counts("orders").total
    connection = HTTPConnection("localhost", namespace.port, timeout=10)
    connection.request("POST", "/orders/messages", b"x", {"Host": host, "Authorization": token})
    answer = connection.getresponse()
    assert answer.status == status
    if status == 404:
        assert b"contoso, contoso-dr" in answer.read()
    connection.close()
    assert namespace.counts("orders").total - before == (status == 201)


@pytest.mark.usefixtures("forgiving_of_sockets")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_one_namespace_goes_down_and_the_other_goes_on(broker: Broker) -> None:
    broker.namespace("contoso").take_down()
    try:
        with pytest.raises(ServiceBusError):
            send(broker, "contoso")
        send(broker, "contoso-dr")
    finally:
        broker.namespace("contoso").bring_up()
    send(broker, "contoso")
