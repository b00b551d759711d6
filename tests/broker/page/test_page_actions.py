"""The requests of the page's script that change entities, and their authorization."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSubQueue
from hypothesis import given
from hypothesis import strategies as st

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.errors import InvalidArgumentError
from sbpair.broker.frontends.dashboard.actions import MAX_AT_ONCE, Draft
from sbpair.broker.server.dashboard import Page
from sbpair.broker.server.dashboard_actions import INTENT, MAX_REQUEST
from sbpair.pair.amqp.message import DataBody, Message

Act = Callable[..., tuple[int, dict]]
DEAD = "/$DeadLetterQueue"
JSON = {"Content-Type": "application/json"}


def post(page: Page, name: str, body: bytes, **headers: str) -> tuple[int, dict]:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    try:
        connection.request("POST", f"/api/{name}", body, headers)
        answer = connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else {}
    finally:
        connection.close()


def session_of(page: Page) -> tuple[str, str]:
    """Open a session of the page as a browser does; return its cookie and its proof."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    try:
        connection.request("GET", f"/?token={page.token}")
        answer = connection.getresponse()
        answer.read()
        return answer.headers["Set-Cookie"].partition(";")[0], answer.headers["Location"].partition("=")[2]
    finally:
        connection.close()


@pytest.fixture
def act(page: Page) -> Act:
    """Request an action with the token."""

    def asked(name: str, **given: object) -> tuple[int, dict]:
        headers = JSON | {"Authorization": f"Bearer {page.token}"}
        return post(page, name, json.dumps({"namespace": "contoso"} | given).encode(), **headers)

    return asked


def put(namespace: NamespaceControl, path: str, *messages: ServiceBusMessage) -> None:
    with (
        ServiceBusClient.from_connection_string(namespace.connection_string) as client,
        client.get_queue_sender(path) as sender,
    ):
        sender.send_messages(list(messages))


def dead_letter(namespace: NamespaceControl, path: str, count: int, *subscription: str) -> None:
    with ServiceBusClient.from_connection_string(namespace.connection_string) as client:
        receiver = (
            client.get_subscription_receiver(path, *subscription)
            if subscription
            else client.get_queue_receiver(path)
        )
        with receiver:
            left = count
            while left:
                for message in receiver.receive_messages(left, max_wait_time=10):
                    receiver.dead_letter_message(message, reason="NoSuchCustomer")
                    left -= 1


# Sending


@pytest.mark.spec("R-195")
def test_a_message_is_sent_with_all_entered_fields(act, contoso):
    contoso.create_queue("orders")
    message = {
        "body": "größe", "message_id": "m1", "subject": "new", "content_type": "text/plain", "session_id": "s",
        "properties": {"kind": "order", "attempt": 1, "share": 0.5, "new": True},
    }  # fmt: skip
    assert act("send", path="orders", message=message) == (200, {"number": 1})
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        (came,) = receiver.receive_messages(max_wait_time=10)
        receiver.complete_message(came)
    assert (str(came), came.message_id, came.subject, came.content_type, came.session_id) == (
        "größe", "m1", "new", "text/plain", "s")  # fmt: skip
    assert came.application_properties == {b"kind": b"order", b"attempt": 1, b"share": 0.5, b"new": True}


@pytest.mark.spec("R-195")
def test_a_waiting_receiver_gets_a_sent_message_at_once(act, contoso):
    contoso.create_topic("events")
    contoso.create_subscription("events", "billing")
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_subscription_receiver("events", "billing", max_wait_time=20) as receiver,
    ):
        assert receiver.receive_messages(max_wait_time=0.1) == []
        assert act("send", path="events", message={"body": "hello"})[0] == 200
        assert [str(each) for each in receiver.receive_messages(max_wait_time=20)] == ["hello"]


REFUSED = {
    "no such queue": ("gone", {"body": "x"}, 404, "gone"),
    "a subscription": ("events/Subscriptions/billing", {"body": "x"}, 400, "send it to 'events'"),
    "a dead-letter queue": ("orders" + DEAD, {"body": "x"}, 400, "sub-queue"),
    "a session is missing": ("carts", {"body": "x"}, 400, "session"),
    "too large": ("orders", {"body": "x" * 300_000}, 400, "262144"),
    "an unknown field": ("orders", {"text": "x"}, 400, "'text'"),
    "a number for a text": ("orders", {"subject": 7}, 400, "subject must be a string"),
    "properties that are a list": ("orders", {"properties": [1]}, 400, "properties must be an object"),
    "a property that is a list": ("orders", {"properties": {"a": []}}, 400, "'a' must be a string, a number"),
    "a number that is too large": (
        "orders",
        {"properties": {"a": 2**63}},
        400,
        "'a' must be a string, a number",
    ),
    "accented type": (
        "orders",
        {"content_type": "té"},
        400,
        "content_type has a letter that is not ASCII: '\\xe9'",
    ),
    "half a letter": ("orders", {"body": "\ud83d"}, 400, "body has a letter that is not UTF-8: '\\ud83d'"),
    "half a name": ("orders", {"properties": {"\ud83d": 1}}, 400, "The name of a property has a letter"),
    "half a value": ("orders", {"properties": {"a": "\ud83d"}}, 400, "The property 'a' has a letter"),
    "no message": ("orders", None, 400, "message must be an object"),
}


@pytest.mark.spec("R-195")
@pytest.mark.parametrize("why", REFUSED)
def test_an_invalid_message_is_refused_by_name_and_not_stored(act, contoso, why):
    contoso.create_queue("orders")
    contoso.create_queue("carts", requires_session=True)
    contoso.create_topic("events")
    contoso.create_subscription("events", "billing")
    path, message, status, said = REFUSED[why]
    code, answer = act("send", path=path, message=message)
    assert (code, said in answer["error"]) == (status, True), answer
    assert contoso.counts("orders").total == contoso.counts("carts").total == 0


LETTERS = st.text(st.characters(codec=None))  # halves of surrogate pairs too: JSON has them


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(("body", "message_id", "session_id", "subject", "content_type", "properties", "x")),
        st.one_of(
            LETTERS, st.integers(), st.none(), st.dictionaries(LETTERS, st.floats() | st.lists(st.text()))
        ),
    )
)
def test_any_json_is_accepted_as_a_message_or_refused(given_):
    try:
        message = Message.decode(Draft.of(given_).encode())
    except InvalidArgumentError:
        return
    assert isinstance(message.body, DataBody)


# Purging


@pytest.mark.spec("R-195")
@pytest.mark.parametrize("partitioned", [False, True])
def test_purge_removes_active_messages_and_keeps_locked_and_scheduled_ones(act, contoso, partitioned):
    contoso.create_queue("orders", enable_partitioning=partitioned)
    put(contoso, "orders", *(ServiceBusMessage("x") for _ in range(3)))
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
        client.get_queue_sender("orders") as sender,
    ):
        (held,) = receiver.receive_messages(1, max_wait_time=10)
        sender.schedule_messages(ServiceBusMessage("later"), datetime.now(UTC) + timedelta(hours=1))
        for _ in range(MAX_AT_ONCE // 100):
            sender.send_messages([ServiceBusMessage("y") for _ in range(120)])
        code, answer = act("purge", path="orders")
        assert (code, answer) == (200, {"deleted": 2 + MAX_AT_ONCE // 100 * 120})
        counts = contoso.counts("orders")
        assert (counts.active, counts.scheduled) == (1, 1)
        receiver.complete_message(held)
    assert contoso.counts("orders").active == 0


@pytest.mark.spec("R-195")
def test_unlocked_sessions_are_purged(act, contoso):
    contoso.create_queue("carts", requires_session=True)
    put(contoso, "carts", *(ServiceBusMessage("x", session_id=name) for name in ("ann", "bob", "bob", "eve")))
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("carts", session_id="ann"),
    ):
        assert act("purge", path="carts") == (200, {"deleted": 3})
        assert contoso.counts("carts").active == 1


@pytest.mark.spec("R-195")
def test_dead_letters_and_subscriptions_are_purged_but_topics_are_not(act, contoso):
    contoso.create_topic("events")
    contoso.create_subscription("events", "billing")
    for _ in range(2):
        act("send", path="events", message={"body": "x"})
    dead_letter(contoso, "events", 1, "billing")
    path = "events/Subscriptions/billing"
    assert act("purge", path=path + DEAD) == (200, {"deleted": 1})
    assert act("purge", path=path) == (200, {"deleted": 1})
    assert act("purge", path="events")[0] == 400
    assert act("purge", path="nowhere")[0] == 404


# Resubmitting


@pytest.mark.spec("R-195")
@pytest.mark.parametrize("partitioned", [False, True])
def test_dead_letters_are_resubmitted_without_the_reason(act, contoso, partitioned):
    contoso.create_queue("orders", enable_partitioning=partitioned)
    put(contoso, "orders", *(ServiceBusMessage(f"{n}", message_id=f"m{n}", subject="s") for n in range(3)))
    dead_letter(contoso, "orders", 3)
    assert act("resubmit", path="orders" + DEAD, number=None) == (200, {"resubmitted": 3})
    counts = contoso.counts("orders")
    assert (counts.active, counts.dead_letter) == (3, 0)
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders") as receiver,
    ):
        came = []
        while len(came) < 3:
            came += receiver.receive_messages(3, max_wait_time=10)
        assert sorted((each.message_id, str(each), each.subject) for each in came) == [
            (f"m{n}", f"{n}", "s") for n in range(3)
        ]
        assert all(not each.application_properties and each.dead_letter_reason is None for each in came)
        assert {each.delivery_count for each in came} == {0}


@pytest.mark.spec("R-195")
def test_one_dead_letter_is_resubmitted_by_its_number(act, contoso):
    contoso.create_queue("orders", requires_duplicate_detection=True)
    put(contoso, "orders", *(ServiceBusMessage("x", message_id=f"m{n}") for n in range(3)))
    dead_letter(contoso, "orders", 3)
    assert act("resubmit", path="orders" + DEAD, number=2) == (200, {"resubmitted": 1})
    assert sorted(contoso.message_ids("orders" + DEAD)) == ["m0", "m2"]
    assert contoso.message_ids("orders") == ["m1"], "its id is known still, and it is no duplicate of itself"
    assert act("resubmit", path="orders" + DEAD, number=2)[0] == 404


@pytest.mark.spec("R-195")
def test_a_subscription_dead_letter_is_resubmitted_to_that_subscription_only(act, contoso):
    contoso.create_topic("events")
    for name in ("billing", "other"):
        contoso.create_subscription("events", name)
    act("send", path="events", message={"body": "x"})
    dead_letter(contoso, "events", 1, "billing")
    path = "events/Subscriptions/billing"
    assert act("resubmit", path=path + DEAD, number=None) == (200, {"resubmitted": 1})
    assert [contoso.counts(f"events/Subscriptions/{name}").active for name in ("billing", "other")] == [1, 1]


@pytest.mark.spec("R-195")
def test_a_locked_dead_letter_is_not_resubmitted(act, contoso):
    contoso.create_queue("orders")
    put(contoso, "orders", ServiceBusMessage("x"), ServiceBusMessage("y"))
    dead_letter(contoso, "orders", 2)
    with (
        ServiceBusClient.from_connection_string(contoso.connection_string) as client,
        client.get_queue_receiver("orders", sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver,
    ):
        (held,) = receiver.receive_messages(1, max_wait_time=10)
        assert act("resubmit", path="orders" + DEAD, number=held.sequence_number)[0] == 404
        assert act("resubmit", path="orders" + DEAD, number=None) == (200, {"resubmitted": 1})
        receiver.complete_message(held)
    counts = contoso.counts("orders")
    assert (counts.active, counts.dead_letter) == (1, 0)


@pytest.mark.spec("R-195")
@pytest.mark.parametrize("part", ["", "/$Transfer/$DeadLetterQueue"])
def test_only_dead_letters_are_resubmitted(act, contoso, part):
    contoso.create_queue("orders")
    put(contoso, "orders", ServiceBusMessage("x"))
    code, answer = act("resubmit", path="orders" + part, number=1)
    assert (code, "not a dead-letter queue" in answer["error"]) == (400, True)
    assert contoso.counts("orders").active == 1
    for number in ("1", -1, True):
        assert act("resubmit", path="orders" + DEAD, number=number)[0] == 400


@pytest.mark.spec("R-195", "G-26")
def test_a_resubmitted_message_is_stored_on_disk(tmp_path):
    with Broker({"contoso": 0}, data=tmp_path) as broker, Page(broker) as page:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        put(contoso, "orders", ServiceBusMessage("x", message_id="m0"))
        dead_letter(contoso, "orders", 1)
        body = json.dumps({"namespace": "contoso", "path": "orders" + DEAD, "number": 1}).encode()
        headers = JSON | {"Authorization": f"Bearer {page.token}"}
        assert post(page, "resubmit", body, **headers) == (200, {"resubmitted": 1})
    with Broker({"contoso": 0}, data=tmp_path) as again:
        counts = again.namespace("contoso").counts("orders")
        assert (counts.active, counts.dead_letter) == (1, 0)
        assert again.namespace("contoso").message_ids("orders") == ["m0"]


# Authorization


@pytest.mark.spec("R-196")
@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({"Cookie": "{cookie}"}, 401),
        ({"Cookie": "{cookie}", "Origin": "{origin}", INTENT: "1"}, 401),
        ({"Cookie": "{cookie}", "Origin": "{origin}"}, 401),
        ({"Origin": "{origin}", INTENT: "{proof}"}, 401),
        ({"Cookie": "{cookie}", INTENT: "{proof}"}, 403),
        ({"Cookie": "{cookie}", "Origin": "http://127.0.0.1:9", INTENT: "{proof}"}, 403),
        ({"Cookie": "{cookie}", "Origin": "null", INTENT: "{proof}"}, 403),
        ({"Cookie": "{cookie}", "Origin": "{origin}", INTENT: "{proof}"}, 200),
        ({"Authorization": "Bearer {token}"}, 200),
    ],
    ids=str,
)
def test_a_cookie_without_the_token_authorises_no_cross_site_request(page, contoso, headers, status):
    contoso.create_queue("orders")
    cookie, proof = session_of(page)
    known = {"cookie": cookie, "proof": proof, "origin": page.address, "token": page.token}
    sent = JSON | {name: value.format(**known) for name, value in headers.items()}
    body = json.dumps({"namespace": "contoso", "path": "orders", "message": {"body": "x"}}).encode()
    assert post(page, "send", body, **sent)[0] == status
    assert contoso.counts("orders").active == (1 if status == 200 else 0)


@pytest.mark.spec("R-196")
def test_cors_is_denied_to_other_origins(page):
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    try:
        asking = {"Origin": "http://evil", "Access-Control-Request-Headers": INTENT,
                  "Access-Control-Request-Method": "POST", "Cookie": session_of(page)[0]}  # fmt: skip
        connection.request("OPTIONS", "/api/purge", headers=asking)
        answer = connection.getresponse()
        answer.read()
        assert answer.status == 401
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    finally:
        connection.close()


@pytest.mark.spec("R-196")
@pytest.mark.parametrize(
    ("body", "kind", "status", "said"),
    [
        (b"{}", "text/plain", 400, "application/json"),
        (b"{", "application/json", 400, "not JSON"),
        (b"[" * 100_000, "application/json", 400, "not JSON"),
        (b"[]", "application/json", 400, "a JSON object"),
        (b"{}", "application/json", 400, "no namespace"),
        (b'{"namespace": 7}', "application/json", 400, "namespace must be a string"),
        (b"x" * (MAX_REQUEST + 1), "application/json", 413, ""),
    ],
    ids=["form", "broken", "deep", "list", "empty", "number", "large"],
)
def test_a_nonsensical_request_is_refused(page, body, kind, status, said):
    headers = {"Content-Type": kind, "Authorization": f"Bearer {page.token}"}
    code, answer = post(page, "purge", body, **headers)
    assert (code, said in answer.get("error", "")) == (status, True), answer


def test_a_view_refuses_post_and_an_action_refuses_get(page):
    shown = {"Authorization": f"Bearer {page.token}"}
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    try:
        for name in ("send", "purge", "resubmit"):
            connection.request("GET", f"/api/{name}", headers=shown)
            answer = connection.getresponse()
            answer.read()
            assert answer.status == 405
    finally:
        connection.close()
