"""A broker with open access refuses web pages whose host name resolves to this machine."""

from __future__ import annotations

import http.client
from collections.abc import Iterator

import pytest

from sbpair.broker import Broker

pytestmark = [pytest.mark.spec("R-48"), pytest.mark.client("amqp")]
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "AMQPWSB10",
}
QUEUES = "/$Resources/queues?api-version=2021-05"


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}, open_access=True) as broker:
        broker.namespace("contoso").create_queue("orders")
        yield broker


def status(broker: Broker, method: str, path: str, host: str, **headers: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", broker.namespace("contoso").port, timeout=30)
    try:
        sent = {"Host": host, "Authorization": "SharedAccessSignature x", **headers}
        connection.request(method, path, headers=sent)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("host", "code"),
    [
        ("localhost:5672", 200),
        ("127.0.0.1", 200),
        ("contoso.servicebus.windows.net", 200),
        ("evil.example", 403),
    ],
)
def test_the_host_header_must_name_the_broker(broker: Broker, host: str, code: int) -> None:
    assert status(broker, "GET", QUEUES, host) == code


def test_a_dns_rebound_page_cannot_delete_anything(broker: Broker) -> None:
    assert status(broker, "DELETE", "/orders?api-version=2021-05", "evil.example:5672") == 403
    assert status(broker, "POST", "/orders/messages", "evil.example:5672") == 403
    assert broker.namespace("contoso").counts("orders").total == 0


def test_a_foreign_web_page_cannot_open_a_websocket(broker: Broker) -> None:
    """A WebSocket needs no DNS rebinding: browsers let any page open one to any host."""
    path = "/$servicebus/websocket"
    assert status(broker, "GET", path, "localhost", **UPGRADE) == 101
    assert status(broker, "GET", path, "localhost", Origin="http://localhost:3000", **UPGRADE) == 101
    assert status(broker, "GET", path, "localhost", Origin="https://evil.example", **UPGRADE) == 403
    assert status(broker, "GET", path, "evil.example", **UPGRADE) == 403


def test_any_host_name_is_accepted_where_keys_are_required() -> None:
    with Broker({"contoso": 0}) as broker:
        assert status(broker, "GET", QUEUES, "proxy.example") == 401
