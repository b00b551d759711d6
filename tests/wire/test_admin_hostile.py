"""HTTP that no client would send: each is refused, and the next client finds the broker well."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
from collections.abc import Iterator

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker
from sbpair.broker.auth import make_token

PUT = b"PUT /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n"
LARGE = b" " * (2 * 1024 * 1024)
BOMB = gzip.compress(b"<a>" + b" " * 20_000_000)
CHUNKS = b"".join(b"10000\r\n%b\r\n" % LARGE[:65536] for _ in range(32))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as broker:
        yield broker


def authorized(broker: Broker) -> bytes:
    """A PUT whose token holds: only then is its body read."""
    contoso = broker.namespace("contoso")
    parts = dict(part.partition("=")[::2] for part in contoso.connection_string.split(";"))
    token = make_token(
        "https://localhost/", parts["SharedAccessKeyName"], parts["SharedAccessKey"], int(time.time()) + 600
    )
    return PUT + b"Authorization: " + token.encode() + b"\r\n"


def status_after(broker: Broker, request: bytes) -> int:
    trust = ssl.create_default_context(cafile=str(broker.ca_file))
    address = ("127.0.0.1", broker.namespace("contoso").port)
    with (
        socket.create_connection(address, 5) as plain,
        trust.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        secure.sendall(request)
        answer = secure.recv(65536)
    assert b"Traceback" not in answer
    return int(answer.split(b" ")[1])


@pytest.mark.spec("S-8")
@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (PUT + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (PUT + b"Content-Length: -1\r\n\r\n", 400),
        (PUT + b"Content-Length: %d\r\n\r\n" % len(LARGE), 401),
        (PUT + b"Transfer-Encoding: chunked\r\n\r\n", 401),
        (PUT + b"X-Bad: a\x01b\r\n\r\n", 400),
        (b"\x00\x01 garbage\r\n\r\n", 400),
        (b"GET /\xff?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
        (PUT + b"Authorization: SharedAccessSignature sr=a&sig=b&se=1&skn=c\r\n\r\n", 401),
    ],
    ids=[
        "both-lengths",
        "negative",
        "large-without-token",
        "chunks-without-token",
        "control",
        "garbage",
        "path",
        "no-token",
        "bad-token",
    ],
)
def test_a_hostile_request_is_refused_and_the_next_client_is_served(
    broker: Broker, request_bytes: bytes, status: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert status_after(broker, request_bytes) == status
    assert capfd.readouterr().err == ""  # answered, not shouted
    with ServiceBusAdministrationClient.from_connection_string(
        broker.namespace("contoso").connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as client:
        assert client.get_namespace_properties().name == "contoso"
        assert list(client.list_queues()) == []


@pytest.mark.spec("S-7")
@pytest.mark.parametrize(
    ("headers", "body"),
    [
        (b"Content-Length: %d\r\n\r\n" % len(LARGE), LARGE),
        (b"Transfer-Encoding: chunked\r\n\r\n", CHUNKS),
        (b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(BOMB), BOMB),
    ],
    ids=["large", "chunks", "bomb"],
)
def test_a_body_is_bounded_for_those_who_may_send_one(broker: Broker, headers: bytes, body: bytes) -> None:
    assert status_after(broker, authorized(broker) + headers + body) == 413


@pytest.mark.spec("S-7")
def test_a_body_that_does_not_come_is_not_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.broker.server.http.BODY_WITHIN", 0.1)
    assert status_after(broker, authorized(broker) + b"Content-Length: 10\r\n\r\nabc") == 408


def test_a_refused_client_cannot_keep_its_connection(broker: Broker) -> None:
    """One answer, and the connection ends: nobody without a token holds one open."""
    address = ("127.0.0.1", broker.namespace("contoso").port)
    with socket.create_connection(address, 10) as sock:
        sock.sendall(b"GET /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_a_fault_of_the_brokers_own_is_not_hidden(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise AssertionError("a fault of ours")

    monkeypatch.setattr("sbpair.broker.faces.admin.refusal", broken)
    assert status_after(broker, PUT + b"\r\n") == 500
    assert "a fault of ours" in caplog.text
