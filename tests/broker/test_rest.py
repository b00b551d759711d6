"""Sending and receiving over HTTP as requests and responses, without a socket."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime

import pytest

from sbpair.broker.access import OpenAccess, SharedAccess
from sbpair.broker.auth import Right, SharedAccessPolicy, make_token
from sbpair.broker.clock import ClockReading
from sbpair.broker.entities import Namespace, QueueDescription, SubscriptionDescription, TopicDescription
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.frontends.admin.http_messages import Request, Response
from sbpair.broker.frontends.namespace_frontend import NamespaceFrontend
from sbpair.broker.frontends.received_message import stored_messages
from sbpair.broker.frontends.rest import requests as rest
from sbpair.broker.frontends.rest.message import (
    BATCH_TYPE,
    read_header,
    read_instant,
    read_span,
    response_parts,
    write_header,
)
from sbpair.broker.frontends.rest.receiver import RestReceiver
from sbpair.pair.amqp.message import DataBody, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.types import Described, Symbol, Timestamp

pytestmark = pytest.mark.client("amqp")  # written by hand
NOW = 1_800_000_000_000
MOMENT = ClockReading(0.0, NOW // 1000, NOW, 0.0)
LOCK = str(uuid.uuid4())


@pytest.fixture
def frontend() -> NamespaceFrontend:
    namespace = Namespace("contoso", created_at=NOW)
    namespace.create_queue("orders", QueueDescription(), NOW)
    return NamespaceFrontend(namespace, OpenAccess())


def request(method: str, path: str, body: bytes = b"", **headers: str) -> Request:
    named = {name.lower().replace("_", "-"): value for name, value in headers.items()}
    raw, _, query = path.partition("?")
    return Request(method, raw, query, {"host": "localhost"} | named, body)


def answer(frontend: NamespaceFrontend, asked: Request) -> Response:
    call = rest.call_of(asked)
    assert call is not None
    fate = rest.answer(frontend, call, MOMENT, frontend)
    if isinstance(fate, RestReceiver):
        receiver = fate
        receiver.begin(MOMENT)
        frontend.deliver(MOMENT)
        receiver.end(MOMENT)
        fate = receiver.fate
        if fate is None:
            return Response(204)
    assert fate.response is not None
    return fate.response


@pytest.mark.parametrize(
    ("asked", "status", "text"),
    [
        (request("POST", "/orders/messages", brokerproperties="{"), 400, "BrokerProperties is not JSON"),
        (request("POST", "/orders/messages", brokerproperties="[1]"), 400, "not a JSON object"),
        (request("POST", "/orders/messages", brokerproperties="[" * 100_000), 400, "not JSON"),
        (request("POST", "/orders/messages", brokerproperties='{"MessageId": 7}'), 400, "MessageId is 7"),
        (request("POST", "/orders/messages", brokerproperties='{"TimeToLive": -1}'), 400, "TimeToLive is -1"),
        (request("POST", "/orders/messages", brokerproperties='{"TimeToLive": NaN}'), 400, "not JSON"),
        (request("POST", "/orders/messages", brokerproperties='{"TimeToLive": 1e999}'), 400, "TimeToLive is"),
        (request("POST", "/orders/messages", brokerproperties='{"TimeToLive": true}'), 400, "is True"),
        (
            request("POST", "/orders/messages", brokerproperties='{"ScheduledEnqueueTimeUtc": "soon"}'),
            400,
            "ScheduledEnqueueTimeUtc is 'soon'",
        ),
        (
            request("POST", "/orders/messages", brokerproperties=json.dumps({"MessageId": "x" * 129})),
            400,
            "128",
        ),
        (
            request("POST", "/orders/messages", brokerproperties='{"SessionId": "a", "PartitionKey": "b"}'),
            400,
            "",
        ),
        (request("POST", "/orders/messages", content_type="téxt"), 400, "Content-Type is not ASCII"),
        (request("POST", "/orders/messages", b"{}", content_type=BATCH_TYPE), 400, "not a JSON array"),
        (request("POST", "/orders/messages", b"[]", content_type=BATCH_TYPE), 400, "not a JSON array"),
        (request("POST", "/orders/messages", b"[1]", content_type=BATCH_TYPE), 400, "Message 0 is not"),
        (
            request(
                "POST", "/orders/messages", b'[{"UserProperties": {"a": []}}]', content_type=BATCH_TYPE
            ),
            400,
            "UserProperties.a",
        ),
        (
            request(
                "POST", "/orders/messages", b'[{"UserProperties": {"a": 1' + b"0" * 30 + b"}}]",
                content_type=BATCH_TYPE + "; charset=utf-8",
            ),
            400,
            "cannot be sent",
        ),
        (request("POST", "/none/messages"), 410, "'sb://localhost/none' could not be found"),
        (request("POST", "/none/messages/head"), 410, "'sb://localhost/none' could not be found"),
        (request("DELETE", f"/none/messages/1/{LOCK}"), 410, "'sb://localhost/none' could not be found"),
        (request("DELETE", f"/orders/messages/1/{LOCK}"), 404, "lock supplied is invalid"),
        (request("PUT", f"/orders/messages/1/{LOCK}"), 404, "lock supplied is invalid"),
        (request("POST", f"/orders/messages/1/{LOCK}"), 404, "lock supplied is invalid"),
        (request("POST", "/orders/messages/head?timeout=-1"), 400, "timeout is not"),
        (request("POST", "/orders/messages/head?timeout=nan"), 400, "timeout is not"),
        (request("POST", "/orders/messages/head?timeout=soon"), 400, "timeout is not"),
        (request("POST", "/orders/messages/head?" + "a=1&" * 40), 400, "timeout is not"),
    ],
)  # fmt: skip
def test_a_bad_request_gets_an_error_description_and_changes_nothing(
    frontend: NamespaceFrontend, asked: Request, status: int, text: str
) -> None:
    refused = answer(frontend, asked)
    assert refused.status == status
    assert text in refused.body.decode()
    assert frontend.namespace.queue("orders").counts(NOW).total == 0


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/orders/messages"),
        ("PUT", "/orders/messages"),
        ("GET", "/orders/messages/head"),
        ("PUT", "/orders/messages/1/no-guid"),
        ("POST", "/messages"),
        ("PUT", "/orders"),
        ("DELETE", "/orders/messages"),  # an entity of that name
    ],
)
def test_a_request_that_is_no_messaging_call_goes_to_administration(method: str, path: str) -> None:
    assert rest.call_of(request(method, path)) is None


def test_sending_needs_send_and_the_other_calls_need_listen() -> None:
    for right, path, other in (
        (Right.SEND, "/orders/messages", "/orders/messages/head"),
        (Right.LISTEN, "/orders/messages/head", "/orders/messages"),
    ):
        policy = SharedAccessPolicy.generate("p", frozenset({right}))
        frontend = NamespaceFrontend(Namespace("contoso"), SharedAccess((policy,)))
        token = make_token("https://localhost/orders", "p", policy.primary_key, int(time.time()) + 60)
        now_s = int(time.time())
        allowed = rest.call_of(request("POST", path, authorization=token))
        barred = rest.call_of(request("POST", other, authorization=token))
        assert allowed is not None
        assert barred is not None
        assert rest.refusal(allowed, frontend, now_s) is None
        refused = rest.refusal(barred, frontend, now_s)
        assert refused is not None
        assert refused.status == 401
        assert policy.primary_key.encode() not in refused.body


def test_a_span_longer_than_the_header_allows_arrives_complete(frontend: NamespaceFrontend) -> None:
    days = 100
    sent = answer(
        frontend,
        request("POST", "/orders/messages", brokerproperties=json.dumps({"TimeToLive": days * 86_400})),
    )
    assert sent.status == 201
    (message,) = frontend.namespace.queue("orders").peek(1, 10, NOW)
    assert message.time_to_live == days * 86_400_000
    got = answer(frontend, request("DELETE", "/orders/messages/head"))
    assert json.loads(got.headers["BrokerProperties"])["TimeToLive"] == days * 86_400


def test_the_largest_span_means_no_expiry(frontend: NamespaceFrontend) -> None:
    answer(
        frontend,
        request("POST", "/orders/messages", brokerproperties='{"TimeToLive": 922337203685.47754}'),
    )
    (message,) = frontend.namespace.queue("orders").peek(1, 10, NOW)
    assert message.time_to_live is None


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (DataBody((b"a", b"b")), b"ab"),
        (ValueBody("ü"), "ü".encode()),
        (ValueBody(b"\x00"), b"\x00"),
        (ValueBody({"a": [1, b"\x01"]}), b'{"a": [1, "01"]}'),
        (SequenceBody(([1, "x"],)), b'[1, "x"]'),
        (ValueBody(None), b"null"),
        (None, b""),
    ],
    ids=["data", "text", "binary", "map", "sequence", "null", "none"],
)
def test_every_kind_of_body_is_returned(frontend: NamespaceFrontend, body: object, shown: bytes) -> None:
    queue = frontend.namespace.queue("orders")
    queue.enqueue(_stored(Message(properties=Properties(), body=body)), NOW)  # type: ignore[arg-type]
    got = answer(frontend, request("DELETE", "/orders/messages/head"))
    assert (got.status, got.body) == (200, shown)


@pytest.mark.parametrize("garbled", ["005374 c1020140 005375 a00178", "005377 a101ff"], ids=["map", "text"])
def test_a_message_with_an_undecodable_body_arrives_as_raw_bytes(
    frontend: NamespaceFrontend, garbled: str
) -> None:
    queue = frontend.namespace.queue("orders")
    queue.enqueue_all(stored_messages(bytes.fromhex(garbled), 0), NOW)
    got = answer(frontend, request("DELETE", "/orders/messages/head"))
    assert (got.status, got.body.endswith(bytes.fromhex(garbled))) == (200, True)
    assert json.loads(got.headers["BrokerProperties"])["SequenceNumber"] == 1


@pytest.mark.spec("R-117")
@pytest.mark.parametrize(
    "name",
    [
        "location",
        "Set-Cookie",
        "content-length",
        "Server",
        "Access-Control-Allow-Origin",
        "brokerproperties",
        "Date",
    ],
)
def test_a_property_named_like_an_http_header_is_returned_with_a_prefix(
    frontend: NamespaceFrontend, name: str
) -> None:
    queue = frontend.namespace.queue("orders")
    queue.enqueue(_stored(Message(application_properties={name: "chosen by the sender"})), NOW)
    got = answer(frontend, request("POST", "/orders/messages/head"))
    shown = {header.lower(): value for header, value in got.headers.items()}
    assert shown[f"property-{name}".lower()] == '"chosen by the sender"'
    assert "chosen by the sender" not in shown.get(name.lower(), "")
    assert [header.lower() for header in got.headers].count("location") == 1


@pytest.mark.spec("W-6")
def test_a_received_message_has_the_broker_properties_of_the_service(frontend: NamespaceFrontend) -> None:
    asked = request(
        "POST", "/orders/messages", b"x", Priority='"High"', brokerproperties='{"TimeToLive": 40}'
    )
    answer(frontend, asked)
    answer(frontend, request("POST", "/orders/messages", b"y"))
    got = answer(frontend, request("POST", "/Orders/messages/head?api-version=2017-04"))
    properties = json.loads(got.headers["BrokerProperties"])
    assert got.headers["priority"] == '"High"'
    assert list(properties) == sorted(properties)
    assert (properties["TimeToLive"], type(properties["TimeToLive"])) == (40, int)
    assert properties["EnqueuedSequenceNumber"] == 0
    assert got.headers["Location"].startswith("https://localhost/Orders/messages/1/")
    assert got.headers["Content-Type"] == "application/xml; charset=utf-8"
    assert got.headers["etag"] == "639355968000000000"
    second = answer(frontend, request("DELETE", "/orders/messages/head"))
    assert json.loads(second.headers["BrokerProperties"])["TimeToLive"] == 922337203685.47754


@pytest.mark.spec("W-6")
def test_a_subscription_copy_has_the_sequence_number_of_its_topic(frontend: NamespaceFrontend) -> None:
    frontend.namespace.create_topic("news", TopicDescription(), NOW)
    answer(frontend, request("POST", "/news/messages", b"before anybody subscribed"))
    frontend.namespace.create_subscription("news", "all", SubscriptionDescription(), NOW)
    answer(frontend, request("POST", "/news/messages", b"x"))
    got = answer(frontend, request("DELETE", "/news/Subscriptions/all/messages/head"))
    properties = json.loads(got.headers["BrokerProperties"])
    assert (properties["SequenceNumber"], properties["EnqueuedSequenceNumber"]) == (1, 2)


def test_properties_without_a_header_form_are_omitted(frontend: NamespaceFrontend) -> None:
    said: dict[object, object] = {
        "fine": "x",
        "line\nbreak": "x",
        "bytes": b"x",
        "unknown": Described(Symbol("what"), 1),
        "span": Described(Symbol("com.microsoft:timespan"), 900_000_000_000),
    }
    stored = _stored(Message(application_properties=said))
    queue = frontend.namespace.queue("orders")
    queue.enqueue(stored, NOW)
    headers, _ = response_parts(queue.receive(NOW), queue)  # type: ignore[arg-type]
    assert headers["fine"] == '"x"'
    assert headers["span"] == '"1.01:00:00"'
    assert not {"line\nbreak", "bytes", "unknown"} & headers.keys()


def _stored(message: Message) -> StoredMessage:
    (stored,) = stored_messages(message.encode(), 0)
    return stored


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"High"', "High"),
        ('"say \\"hi\\""', 'say "hi"'),
        ('"C:\\temp"', "C:\temp"),
        ('"C:\\dir"', "C:\\dir"),
        ('""', ""),
        ('"', '"'),
        ("High", "High"),
        ("12345,ABC", "12345,ABC"),
        ("-7", -7),
        ("9223372036854775807", 2**63 - 1),
        ("9223372036854775808", "9223372036854775808"),
        ("1.5", 1.5),
        ("nan", "nan"),
        ("TRUE", True),
        ('"Fri, 06 Nov 2026 08:49:37 GMT"', Timestamp(1_793_954_977_000)),
        ('"Fri, 99 Nov 2026 08:49:37 GMT"', "Fri, 99 Nov 2026 08:49:37 GMT"),
        ("", ""),
    ],
)
def test_a_header_value_is_a_text_number_boolean_or_timestamp(text: str, value: object) -> None:
    read = read_header(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize("value", ["a\r\nb: c", 'q"q', "ü", 7, -1.5, True, Timestamp(1_793_954_977_000)])
def test_a_written_property_is_read_back(value: object) -> None:
    written = write_header(value)
    assert written is not None
    assert written.isascii()
    assert not set(written) & set("\r\n")
    assert read_header(written) == value


@pytest.mark.parametrize(
    ("value", "span"),
    [(90, 90_000), (0.5, 500), ("00:00:40", 40_000), ("1.02:03:04.5", 93_784_500), (10**12, None)],
)
def test_a_span_is_given_in_seconds_or_as_text(value: object, span: int | None) -> None:
    assert read_span("TimeToLive", value) == span


@pytest.mark.parametrize(
    "text", ["Fri, 06 Nov 2026 08:49:37 GMT", "2026-11-06T08:49:37", "2026-11-06T09:49:37+01:00"]
)
def test_a_timestamp_is_read_in_both_forms(text: str) -> None:
    assert read_instant(text) == datetime(2026, 11, 6, 8, 49, 37, tzinfo=UTC).timestamp() * 1000
