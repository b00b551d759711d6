"""HTTP requests that no client would send are refused, and the broker keeps serving."""

from __future__ import annotations

import gzip
import socket
import ssl
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import quote

import pytest
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker
from sbpair.broker.auth import make_token
from sbpair.broker.frontends.admin.atom import ATOM, INSTANCE, SERVICE_BUS

PUT = b"PUT /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n"
LARGE = b" " * (2 * 1024 * 1024)
BOMB = gzip.compress(b"<a>" + b" " * 20_000_000)
CHUNKS = b"".join(b"10000\r\n%b\r\n" % LARGE[:65536] for _ in range(32))


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as broker:
        yield broker


def authorized(broker: Broker) -> bytes:
    """Return a PUT with a valid token, without which its body is not read."""
    contoso = broker.namespace("contoso")
    parts = dict(part.partition("=")[::2] for part in contoso.connection_string.split(";"))
    token = make_token(
        "https://localhost/", parts["SharedAccessKeyName"], parts["SharedAccessKey"], int(time.time()) + 600
    )
    return PUT + b"Authorization: " + token.encode() + b"\r\n"


def statuses(broker: Broker, *requests: bytes) -> list[int]:
    """Send each request on a separate plain connection; return the statuses, 0 where none came."""
    told = []
    for request in requests:
        with socket.create_connection(("127.0.0.1", broker.namespace("contoso").port), 5) as sock:
            sock.sendall(request)
            answer = sock.recv(65536)
        assert b"Traceback" not in answer
        told.append(int(answer.split(b" ")[1]) if answer else 0)
    return told


def entity(
    broker: Broker, path: str, kind: str = "QueueDescription", inner: str = "", method: bytes = b"PUT"
) -> bytes:
    """Return a request with a valid token and, where needed, a description."""
    body = (
        (
            f'<entry xmlns="{ATOM}"><content type="application/xml"><{kind} xmlns="{SERVICE_BUS}" '
            f'xmlns:i="{INSTANCE}">{inner}</{kind}></content></entry>'
        ).encode()
        if method == b"PUT"
        else b""
    )
    head = authorized(broker).replace(b"PUT /q?", b"%b /%b?" % (method, path.encode()))
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


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
    assert capfd.readouterr().err == ""  # answered without an error in the log
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
def test_the_body_size_is_bounded_even_with_a_valid_token(
    broker: Broker, headers: bytes, body: bytes
) -> None:
    assert status_after(broker, authorized(broker) + headers + body) == 413


@pytest.mark.spec("R-115")
def test_a_request_head_with_many_large_fields_is_refused_early(broker: Broker) -> None:
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"x" * 30_000) for number in range(120))
    assert status_after(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + fields + b"\r\n") in (431, 0)
    assert status_after(broker, b"GET / HTTP/1.1\r\nHost: localhost\r\n" + fields[:70_000]) == 431


@pytest.mark.spec("R-116")
def test_an_unauthenticated_request_ends_its_connection(broker: Broker) -> None:
    with socket.create_connection(("127.0.0.1", broker.namespace("contoso").port), 5) as sock:
        sock.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while piece := sock.recv(65_536):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")


@pytest.mark.spec("S-7")
def test_a_missing_body_is_not_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.broker.server.http.BODY_WITHIN", 0.1)
    assert status_after(broker, authorized(broker) + b"Content-Length: 10\r\n\r\nabc") == 408


@pytest.mark.spec("S-7")
def test_endless_chunks_are_not_waited_for(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.broker.server.http.BODY_WITHIN", 0.1)
    assert (
        status_after(broker, authorized(broker) + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n") == 408
    )


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (b"Content-Length: 5\r\n\r\n<entry/>", 400),  # the rest is not a request
        (b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n<entry", 400),
        (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 400),
        (b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", 400),
        (b"Content-Length: 5_0\r\n\r\nhello", 400),
    ],
    ids=["short", "two-lengths", "both", "gzip-last", "no-number", "no-gzip", "no-length"],
)
def test_a_body_with_two_or_no_lengths_is_refused(broker: Broker, headers: bytes, status: int) -> None:
    assert status_after(broker, authorized(broker) + headers) == status
    assert broker.namespace("contoso").queue_names() == []


def test_entity_names_ignore_case(broker: Broker) -> None:
    paths = (quote("Größe"), "Orders", "oRDERS", "%4frders")  # only ASCII letters
    told = statuses(broker, *(entity(broker, path) for path in paths))
    assert told == [400, 201, 409, 409]
    assert statuses(broker, entity(broker, "ORDERS", method=b"DELETE")) == [200]


def test_only_one_of_many_concurrent_creates_succeeds(broker: Broker) -> None:
    with ThreadPoolExecutor(8) as many:
        asked = [entity(broker, "raced")] * 16
        told = sorted(status for (status,) in many.map(lambda each: statuses(broker, each), asked))
    assert told == [201] + [409] * 15
    assert statuses(broker, entity(broker, "raced")) == [409]  # without If-Match it is not an update
    assert statuses(broker, entity(broker, "raced", method=b"DELETE")) == [200]


@pytest.mark.spec("S-7")
@pytest.mark.parametrize(
    "expression",
    [
        "(" * 10_000 + "a = 1" + ")" * 10_000,
        "NOT " * 10_000 + "a = 1",
        "a = 1" + " OR a = 1" * 10_000,
        "a = '" + "x" * 50_000,
    ],
    ids=["parentheses", "nots", "ors", "open"],
)
def test_a_huge_expression_is_refused_cheaply(broker: Broker, expression: str) -> None:
    filtered = f'<Filter i:type="SqlFilter"><SqlExpression>{expression}</SqlExpression></Filter>'
    contoso = broker.namespace("contoso")
    contoso.create_topic("t")
    contoso.create_subscription("t", "s")
    before = time.process_time()
    assert statuses(broker, entity(broker, "t/Subscriptions/s/Rules/r", "RuleDescription", filtered)) == [400]
    assert time.process_time() - before < 1.0
    contoso.delete_topic("t")


def test_a_catastrophic_pattern_is_evaluated_cheaply(broker: Broker) -> None:
    contoso = broker.namespace("contoso")
    contoso.create_topic("t")
    contoso.create_subscription("t", "s")
    pattern = f"<SqlExpression>a LIKE '{'%a' * 500}%b'</SqlExpression>"
    rule = entity(
        broker,
        "t/Subscriptions/s/Rules/r",
        "RuleDescription",
        f'<Filter i:type="SqlFilter">{pattern}</Filter>',
    )
    assert statuses(broker, entity(broker, "t/Subscriptions/s/Rules/$Default", method=b"DELETE"), rule) == [
        200,
        201,
    ]
    before = time.process_time()
    head = authorized(broker).replace(b"PUT /q?", b"POST /t/messages?")
    sent = head + b'A: "%b"\r\nContent-Length: 0\r\n\r\n' % (b"a" * 5_000)
    assert statuses(broker, sent) == [201]
    assert time.process_time() - before < 1.0
    assert contoso.counts("t/Subscriptions/s").active == 0
    contoso.delete_topic("t")


def test_a_refused_client_cannot_keep_its_connection(broker: Broker) -> None:
    """After one answer the connection ends, so a client without a token cannot keep it open."""
    address = ("127.0.0.1", broker.namespace("contoso").port)
    with socket.create_connection(address, 10) as sock:
        sock.sendall(b"GET /q?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b"".join(iter(lambda: sock.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 401 ")


def test_an_internal_error_of_the_broker_is_not_hidden(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*given: object) -> None:
        raise AssertionError("a fault of ours")

    monkeypatch.setattr("sbpair.broker.frontends.admin.requests.refusal", broken)
    assert status_after(broker, PUT + b"\r\n") == 500
    assert "a fault of ours" in caplog.text
