"""What a REST client sends the unmodified SDK receives, and the reverse."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPMessage, HTTPSConnection
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue

from sbpair.broker import Broker, NamespaceControl, RejectWith, Throttle, Withhold
from sbpair.broker.auth import make_token
from tests.waiting import wait_until

pytestmark = pytest.mark.client("azure-servicebus")
AT = datetime(2026, 11, 6, 8, 49, 37, tzinfo=UTC)
BATCH = "application/vnd.microsoft.servicebus.json"


class Answer(NamedTuple):
    status: int
    headers: HTTPMessage
    body: bytes

    @property
    def broker_properties(self) -> dict[str, object]:
        told: dict[str, object] = json.loads(self.headers["BrokerProperties"])
        return told


class Rest:
    """A minimal client of the REST API: HTTP with shared access signatures."""

    def __init__(self, contoso: NamespaceControl, trust: ssl.SSLContext | None = None) -> None:
        self.port = contoso.port
        self.trust = trust
        fields = dict(part.partition("=")[::2] for part in contoso.connection_string.split(";"))
        self.key = fields["SharedAccessKey"]
        self.token = self.token_for("")

    def token_for(self, path: str, expires_in: int = 600) -> str:
        uri = f"https://localhost:{self.port}/{path}"
        return make_token(uri, "RootManageSharedAccessKey", self.key, int(time.time()) + expires_in)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | str = b"",
        token: str | None = None,
        **headers: str,
    ) -> Answer:
        trust = self.trust
        connection = (
            HTTPConnection("localhost", self.port, timeout=30)
            if trust is None
            else HTTPSConnection("localhost", self.port, timeout=30, context=trust)
        )
        try:
            sent = {"Authorization": self.token if token is None else token, **headers}
            data = body.encode() if isinstance(body, str) else body
            connection.request(method, path, data, sent)
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read())
        finally:
            connection.close()

    def send(self, entity: str, body: bytes | str = b"", **headers: str) -> Answer:
        return self.ask("POST", f"/{entity}/messages", body, **headers)

    def lock(self, entity: str, timeout: float = 5) -> Answer:
        return self.ask("POST", f"/{entity}/messages/head?timeout={timeout}")

    def take(self, entity: str, timeout: float = 5) -> Answer:
        return self.ask("DELETE", f"/{entity}/messages/head?timeout={timeout}")

    def at(self, method: str, locked: Answer) -> Answer:
        return self.ask(method, urlsplit(locked.headers["Location"]).path)


@pytest.fixture
def rest(contoso: NamespaceControl) -> Rest:
    return Rest(contoso)


@pytest.fixture
def receive(client: ServiceBusClient) -> Iterator[Callable[..., object]]:
    """Receive one message with the SDK and complete it."""

    def one(queue: str, **how: object) -> object:
        with client.get_queue_receiver(queue, **how) as receiver:
            (message,) = receiver.receive_messages(max_wait_time=10)
            receiver.complete_message(message)
            return message

    return one


def test_a_message_sent_over_rest_is_received_by_the_sdk(rest: Rest, queue: str, receive: Callable) -> None:
    properties = {
        "MessageId": "m-1",
        "CorrelationId": "c-1",
        "Label": "L",
        "ReplyTo": "there",
        "To": "here",
        "ReplyToSessionId": "rs",
        "SessionId": "s",
        "PartitionKey": "s",
        "TimeToLive": 90,
        "Unheard": [1],
    }
    sent = rest.send(
        queue,
        '{"a": 1}',
        BrokerProperties=json.dumps(properties),
        Priority='"High \\"1\\""',
        customer="12345,ABC",
        Count="3",
        Price="1.5",
        Paid="true",
        At='"Fri, 06 Nov 2026 08:49:37 GMT"',
        **{"Content-Type": "application/json", "User-Agent": "nobody"},
    )
    assert (sent.status, sent.body) == (201, b"")
    message = receive(queue)
    assert b"".join(message.body) == b'{"a": 1}'
    assert (message.message_id, message.correlation_id, message.subject) == ("m-1", "c-1", "L")
    assert (message.reply_to, message.to, message.reply_to_session_id) == ("there", "here", "rs")
    assert (message.session_id, message.partition_key) == ("s", "s")
    assert message.time_to_live == timedelta(seconds=90)
    assert message.content_type == "application/json"
    assert message.application_properties == {
        b"Priority": b'High "1"',
        b"customer": b"12345,ABC",
        b"Count": 3,
        b"Price": 1.5,
        b"Paid": True,
        b"At": int(AT.timestamp() * 1000),
        # headers that http.client adds are not properties
    }


def test_a_message_sent_by_the_sdk_is_received_over_rest(
    rest: Rest, client: ServiceBusClient, queue: str
) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(
            ServiceBusMessage(
                b"\x00body",
                message_id="m/2",
                subject="L",
                session_id="s",
                content_type="text/plain",
                time_to_live=timedelta(seconds=60),
                application_properties={
                    "text": 'a "b"\r\nInjected: c é',
                    "number": 7,
                    "float": 0.5,
                    "truth": False,
                    "not a token": 1,
                },
            )
        )
    got = rest.take(queue)
    assert (got.status, got.body) == (200, b"\x00body")
    assert json.loads(got.headers["text"]) == 'a "b"\r\nInjected: c é'
    assert got.headers["Injected"] is None  # a value cannot inject a header
    assert (got.headers["number"], got.headers["float"], got.headers["truth"]) == ("7", "0.5", "false")
    assert got.headers["Content-Type"] == "text/plain"
    told = got.broker_properties
    assert (told["MessageId"], told["Label"], told["SessionId"]) == ("m/2", "L", "s")
    assert (told["DeliveryCount"], told["SequenceNumber"], told["State"]) == (1, 1, "Active")
    assert told["TimeToLive"] == 60.0
    assert "LockToken" not in told
    assert rest.take(queue, 0).status == 204


def test_a_locked_message_is_unlocked_renewed_and_completed_by_its_location(
    rest: Rest, client: ServiceBusClient, queue: str, contoso: NamespaceControl, broker: Broker
) -> None:
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("x", message_id="m/3 ü"))
    locked = rest.lock(queue)
    assert locked.status == 201
    assert locked.broker_properties["LockToken"] in locked.headers["Location"]
    assert rest.lock(queue, 0).status == 204
    broker.advance(timedelta(seconds=40))
    assert rest.at("POST", locked).status == 200  # the lock restarts
    broker.advance(timedelta(seconds=40))
    assert rest.at("PUT", locked).status == 200
    again = rest.lock(queue)
    assert again.broker_properties["DeliveryCount"] == 2
    assert rest.at("DELETE", locked).status == 404  # the lock has ended
    assert rest.at("DELETE", again).status == 200
    assert contoso.counts(queue).total == 0


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_location_of_a_locked_message_has_the_scheme_of_its_request(
    broker: Broker, contoso: NamespaceControl, queue: str, scheme: str
) -> None:
    trust = ssl.create_default_context(cafile=str(broker.ca_file)) if scheme == "https" else None
    rest = Rest(contoso, trust)
    rest.send(queue, "x")
    locked = rest.lock(queue)
    assert locked.headers["Location"].startswith(f"{scheme}://localhost:{contoso.port}/{queue}/messages/")
    assert rest.at("DELETE", locked).status == 200


def test_a_locked_message_is_addressed_by_its_own_sequence_number(rest: Rest, queue: str) -> None:
    rest.send(queue, "x")
    told = rest.lock(queue).broker_properties
    lock = told["LockToken"]
    assert rest.ask("DELETE", f"/{queue}/messages/no-such/{lock}").status == 404
    assert rest.ask("DELETE", f"/{queue}/messages/{told['SequenceNumber']}/{lock}").status == 200


def test_a_message_locked_over_rest_is_hidden_from_the_sdk_until_the_lock_ends(
    rest: Rest, client: ServiceBusClient, queue: str, broker: Broker
) -> None:
    rest.send(queue, "x")
    assert rest.lock(queue).status == 201
    with client.get_queue_receiver(queue) as receiver:
        assert receiver.receive_messages(max_wait_time=0.3) == []
        broker.advance(timedelta(seconds=61))
        (message,) = receiver.receive_messages(max_wait_time=10)
        assert message.delivery_count == 1
        receiver.complete_message(message)


def test_a_rest_batch_is_stored_whole(rest: Rest, client: ServiceBusClient, queue: str) -> None:
    batch = [
        {"Body": "first ü", "BrokerProperties": {"Label": "M1", "TimeToLiveTimeSpan": "00:00:40"}},
        {"Body": "second", "UserProperties": {"Priority": "Low", "Count": 2}},
        {"Body": "third", "BrokerProperties": None, "UserProperties": {"Paid": True, "None": None}},
    ]
    assert rest.send(queue, json.dumps(batch), **{"Content-Type": BATCH}).status == 201
    with client.get_queue_receiver(queue) as receiver:
        first, second, third = receiver.receive_messages(max_message_count=3, max_wait_time=10)
    assert (str(first), first.subject, first.time_to_live) == ("first ü", "M1", timedelta(seconds=40))
    assert second.application_properties == {b"Priority": b"Low", b"Count": 2}
    assert third.application_properties == {b"Paid": True, b"None": None}


def test_a_batch_with_one_bad_message_is_refused_whole(
    rest: Rest, contoso: NamespaceControl, queue: str
) -> None:
    batch = json.dumps([{"Body": "good"}, {"Body": 7}])
    refused = rest.send(queue, batch, **{"Content-Type": BATCH})
    assert refused.status == 400
    assert b"Message 1: Body is not a string" in refused.body
    assert contoso.counts(queue).total == 0


def test_a_waiting_request_gets_the_next_message(rest: Rest, client: ServiceBusClient, queue: str) -> None:
    got: list[Answer] = []
    waiting = threading.Thread(target=lambda: got.append(rest.take(queue, 20)))
    waiting.start()
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("at last"))
    waiting.join(30)
    assert (got[0].status, got[0].body) == (200, b"at last")


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_waiting_request_is_not_cut_as_an_incomplete_one(
    broker: Broker, contoso: NamespaceControl, queue: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = ssl.create_default_context(cafile=str(broker.ca_file)) if scheme == "https" else None
    rest = Rest(contoso, trust)
    monkeypatch.setattr("sbpair.broker.server.guarded_requests.HEAD_WITHIN", 0.5)
    assert rest.take(queue, 1).status == 204


def test_a_disconnected_client_gets_no_message(
    rest: Rest, client: ServiceBusClient, queue: str, contoso: NamespaceControl
) -> None:
    leaving = HTTPConnection("localhost", rest.port, timeout=5)
    leaving.request("DELETE", f"/{queue}/messages/head?timeout=60", b"", {"Authorization": rest.token})
    entity = contoso.server.frontend.namespace.queue(queue)
    wait_until(lambda: entity.idle_since is None)  # somebody waits
    leaving.close()
    wait_until(lambda: entity.idle_since is not None)
    rest.send(queue, "x")
    assert contoso.counts(queue).active == 1


def test_a_client_waiting_on_a_deleted_entity_gets_an_error(
    rest: Rest, contoso: NamespaceControl, make_queue: Callable[..., str]
) -> None:
    queue = make_queue()
    got: list[Answer] = []
    waiting = threading.Thread(target=lambda: got.append(rest.lock(queue, 20)))
    waiting.start()
    entity = contoso.server.frontend.namespace.queue(queue)
    wait_until(lambda: entity.idle_since is None)  # somebody waits
    contoso.delete_queue(queue)
    waiting.join(30)
    assert got[0].status == 410


def test_dead_letters_topics_and_subscriptions_are_reached_by_their_paths(
    rest: Rest, client: ServiceBusClient, contoso: NamespaceControl, queue: str
) -> None:
    topic = f"news-{queue}"
    contoso.create_topic(topic)
    contoso.create_subscription(topic, "all")
    assert rest.send(topic, "news", Region='"eu"').status == 201
    path = f"{topic}/Subscriptions/all"
    with client.get_subscription_receiver(topic, "all") as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        receiver.dead_letter_message(message, reason="because", error_description="so")
    dead = rest.lock(f"{path}/$DeadLetterQueue")
    assert (dead.status, dead.body) == (201, b"news")
    assert dead.headers["DeadLetterReason"] == '"because"'
    assert dead.headers["Region"] == '"eu"'
    assert rest.at("DELETE", dead).status == 200
    assert rest.take(path, 0).status == 204
    assert rest.take(topic, 0).status == 400  # a topic itself cannot be received from
    assert rest.send(path, "x").status == 400
    assert rest.send(f"{queue}/$DeadLetterQueue", "x").status == 400


@pytest.mark.parametrize("spelling", ["$Transfer/$DeadLetterQueue", "$transfer/%24deadletterqueue"])
def test_a_failed_transfer_is_received_from_the_transfer_dead_letter_queue(spelling: str) -> None:
    with Broker({"contoso": 0}, legacy_forward_tdlq=True) as old:
        contoso = old.namespace("contoso")
        contoso.create_queue("end", requires_session=True)
        contoso.create_queue("source", forward_to="end")
        rest = Rest(contoso)
        rest.send("source", "without")
        dead = rest.lock(f"source/{spelling}")
        assert (dead.status, dead.body) == (201, b"without")
        assert dead.headers["DeadLetterReason"] == '"Session ID is null"'
        assert urlsplit(dead.headers["Location"]).path.startswith(f"/source/{spelling}/messages/1/")
        assert rest.at("DELETE", dead).status == 200
        assert rest.take(f"source/{spelling}", 0).status == 204
        assert rest.send(f"source/{spelling}", "x").status == 400


def test_the_dead_letter_queue_is_received_over_rest_and_amqp(
    rest: Rest, client: ServiceBusClient, queue: str, contoso: NamespaceControl, broker: Broker
) -> None:
    rest.send(queue, "x")
    for _ in range(10):
        rest.at("PUT", rest.lock(queue))
    assert contoso.counts(queue).dead_letter == 1
    with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=10)
        assert message.dead_letter_reason == "MaxDeliveryCountExceeded"


def test_a_scheduled_message_waits_for_its_time(
    rest: Rest, queue: str, contoso: NamespaceControl, broker: Broker
) -> None:
    now = contoso.server.read_clocks().entity / 1000
    at = datetime.fromtimestamp(now + 3600, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
    assert (
        rest.send(queue, "later", BrokerProperties=json.dumps({"ScheduledEnqueueTimeUtc": at})).status == 201
    )
    assert rest.take(queue, 0).status == 204
    broker.advance(timedelta(hours=2))
    assert rest.take(queue).body == b"later"


def test_a_partitioned_queue_works_like_any_other_over_rest(
    rest: Rest, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(enable_partitioning=True)
    for key in ("a", "b"):
        rest.send(queue, key, BrokerProperties=json.dumps({"PartitionKey": key}))
    bodies = set()
    for _ in range(2):
        locked = rest.lock(queue)
        bodies.add(locked.body)
        assert rest.at("DELETE", locked).status == 200
    assert bodies == {b"a", b"b"}


def test_a_session_is_not_received_over_rest(rest: Rest, make_queue: Callable[..., str]) -> None:
    queue = make_queue(requires_session=True)
    assert rest.send(queue, "x").status == 400
    assert rest.send(queue, "x", BrokerProperties='{"SessionId": "s"}').status == 201
    refused = rest.take(queue)
    assert refused.status == 400
    assert b"requires sessions" in refused.body


def test_a_token_authorises_its_right_on_its_path(rest: Rest, queue: str) -> None:
    assert rest.ask("POST", f"/{queue}/messages", token=rest.token_for(queue)).status == 201
    assert rest.ask("POST", f"/{queue}/messages", token=rest.token_for(f"{queue}/messages")).status == 201
    assert rest.ask("POST", f"/{queue}/messages", token=rest.token_for(f"{queue}2")).status == 401
    assert rest.ask("POST", f"/{queue}/messages", token=rest.token_for(queue, -5)).status == 401
    assert rest.ask("POST", f"/{queue}/messages", token="").status == 401
    refused = rest.ask("DELETE", f"/{queue}/messages/head", token=rest.token + "x")
    assert refused.status == 401
    assert rest.key.encode() not in refused.body


@pytest.mark.spec("R-50")
def test_a_message_that_is_too_large_or_finds_the_queue_full_is_forbidden(
    rest: Rest, make_queue: Callable[..., str]
) -> None:
    queue = make_queue(max_message_size_in_kilobytes=64)
    assert rest.send(queue, b"x" * 70_000).status == 403
    refused = rest.send(queue, b"x" * (1024 * 1024 + 1))
    assert refused.status == 403  # like a message that a queue does not accept
    assert b"exceeds the limit (1048576 bytes)" in refused.body
    assert b"TrackingId:" in refused.body


def test_faults_apply_to_http_requests_as_to_links(rest: Rest, queue: str, contoso: NamespaceControl) -> None:
    with contoso.fault(queue, Throttle(), times=1):
        assert rest.send(queue, "x").status == 503
    with contoso.fault(queue, RejectWith("com.microsoft:message-lock-lost"), operation="send", times=1):
        assert rest.send(queue, "x").status == 410
    with contoso.fault(queue, Withhold(), times=1):
        lost = HTTPConnection("localhost", rest.port, timeout=0.3)
        lost.request("POST", f"/{queue}/messages", b"kept", {"Authorization": rest.token})
        with pytest.raises(TimeoutError):
            lost.getresponse()
        lost.close()
    assert rest.take(queue).body == b"kept"
    assert contoso.counts(queue).total == 0
