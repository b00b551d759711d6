"""Several namespaces on one port: the host name that a client sends selects the namespace."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.exceptions import ServiceBusError

from sbpair.broker import Broker
from sbpair.broker.auth import Right, SharedAccessPolicy, make_token
from sbpair.broker.faults import Outage
from sbpair.pair.amqp.connection import Connection, ConnectionRole
from sbpair.pair.amqp.events import ConnectionClosed, CreditGranted, DispositionReceived
from sbpair.pair.amqp.message import DataBody, Message
from sbpair.pair.amqp.performatives import Source, Target
from tests.waiting import PATIENCE, wait_until

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


def fields_of(connection_string: str) -> dict[str, str]:
    return dict(part.partition("=")[::2] for part in connection_string.split(";"))


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


def test_an_unknown_host_name_is_reported(broker: Broker) -> None:
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
def test_the_host_header_selects_the_namespace_of_a_request(broker: Broker, host: str, status: int) -> None:
    name = host.lower().partition(":")[0].partition(".")[0]
    namespace = broker.namespace(name if name in NAMES else "contoso")
    fields = fields_of(namespace.connection_string)
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
def test_one_namespace_goes_down_while_the_other_keeps_serving(broker: Broker) -> None:
    broker.namespace("contoso").take_down()
    try:
        with pytest.raises(ServiceBusError):
            send(broker, "contoso")
        send(broker, "contoso-dr")
    finally:
        broker.namespace("contoso").bring_up()
    send(broker, "contoso")


@pytest.mark.parametrize(
    ("outage", "within", "seen"),
    [(Outage.RESET, 30, ConnectionError), (Outage.SILENT, 0.5, TimeoutError)],
    ids=str,
)
def test_a_request_to_a_namespace_in_an_outage_fails_accordingly(
    broker: Broker, outage: Outage, within: float, seen: type[OSError]
) -> None:
    broker.namespace("contoso").take_down(outage)
    connection = HTTPConnection("localhost", broker.namespace("contoso").port, timeout=within)
    try:
        connection.request("GET", "/orders", headers={"Host": "contoso"})
        with pytest.raises(seen):
            connection.getresponse()
    finally:
        connection.close()
        broker.namespace("contoso").bring_up()


@pytest.mark.spec("F-25")
def test_a_request_that_arrived_during_a_silent_outage_is_answered_after_it(broker: Broker) -> None:
    contoso = broker.namespace("contoso")
    connection = HTTPConnection("localhost", contoso.port, timeout=PATIENCE)
    contoso.take_down("silent")
    try:
        connection.request("GET", "/orders", headers={"Host": "contoso"})
        wait_until(lambda: contoso.inspect(lambda server: server.turned_away))
        contoso.bring_up()
        assert connection.getresponse().status == 401
    finally:
        connection.close()
        contoso.bring_up()


def said(broker: Broker, hostname: str | None, policy: str, key: str) -> tuple[bool, str]:
    """Send a message to ``orders`` with SASL PLAIN; return the outcome or the error of the close."""
    engine = Connection(
        role=ConnectionRole.CLIENT,
        container_id="plain",
        hostname=hostname,
        mechanisms=("PLAIN",),
        initial_response=f"\0{policy}\0{key}".encode(),
        now=0.0,
    )
    link = engine.begin().attach_sender("s", target=Target("orders"), source=Source("s"))
    with socket.create_connection(("localhost", broker.namespace("contoso").port), 30) as connected:
        while True:
            connected.sendall(engine.data_to_send())
            data = connected.recv(65536)
            engine.receive_data(data, 0.0) if data else engine.receive_eof(0.0)
            for event in engine.events():
                if isinstance(event, CreditGranted):
                    link.transfer(Message(body=DataBody((b"x",))).encode(), tag=b"1")
                if isinstance(event, DispositionReceived):
                    return True, ""
                if isinstance(event, ConnectionClosed):
                    return False, event.condition.description if event.condition else ""
            if not data:
                return False, ""


ROOT = "RootManageSharedAccessKey"


@pytest.mark.parametrize("hostname", [None, "localhost"])
@pytest.mark.parametrize("name", NAMES)
def test_a_sasl_plain_key_held_by_one_namespace_selects_that_namespace(
    broker: Broker, name: str, hostname: str | None
) -> None:
    before = {each: broker.namespace(each).counts("orders").total for each in NAMES}
    assert said(
        broker, hostname, ROOT, fields_of(broker.namespace(name).connection_string)["SharedAccessKey"]
    ) == (True, "")
    after = {each: broker.namespace(each).counts("orders").total for each in NAMES}
    assert after == {each: count + (each == name) for each, count in before.items()}


def test_a_sasl_plain_key_of_several_namespaces_needs_a_host_name(broker: Broker) -> None:
    key = fields_of(broker.namespace("contoso").add_policy("shared", ("Send",)))["SharedAccessKey"]
    other = broker.namespace("contoso-dr")
    other.server.frontend.verifier.add(SharedAccessPolicy("shared", key, key, frozenset({Right.SEND})))
    try:
        sent, why = said(broker, None, "shared", key)
        assert not sent
        assert "several have the SASL PLAIN key: contoso, contoso-dr. Use one" in why
        assert said(broker, "contoso-dr", "shared", key) == (True, "")
    finally:
        for name in NAMES:
            broker.namespace(name).remove_policy("shared")


def test_an_unknown_sasl_plain_key_is_refused_and_logged(broker: Broker) -> None:
    assert said(broker, None, ROOT, "bm9ib2R5cw==") == (False, "SASL outcome 1")
    refused = broker.namespace("contoso").inspect(lambda server: server.frontend.rejections.recent[-1])
    assert refused.text.startswith(
        "No namespace of this port has the SASL PLAIN key; there are: contoso, contoso-dr."
    )
