"""The $management node of a queue, without a socket."""

from __future__ import annotations

import uuid

import pytest

from sbpair.broker.entities import SubscriptionDescription, TopicDescription
from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Modified, Rejected
from sbpair.pair.amqp.types import Array, Int, Symbol, Timestamp, UInt

NOON = 1_800_000_000_000
MINUTE = 60_000
LONG, UUID = 0x81, 0x98


def manage(client, operation, body, node="orders/$management"):
    """Run an operation; return status code, error condition and body."""
    response = client.ask(
        node,
        Message(
            properties=Properties(message_id=uuid.uuid4(), reply_to=node),
            application_properties={"operation": f"com.microsoft:{operation}", "type": "entity-mgmt"},
            body=ValueBody(body),
        ),
    )
    told = response.application_properties
    assert type(told["statusCode"]) is Int
    condition = told.get("errorCondition")
    assert condition is None or type(condition) is Symbol
    return told["statusCode"], condition, response.body.value


def stock(lab, count=1):
    client = lab.client()
    link = client.sender("orders")
    for i in range(count):
        client.send(link, Message(properties=Properties(message_id=f"m{i}"), body=DataBody((b"x",))).encode())


def lock(client):
    client.receiver("orders", credit=1)
    (delivery,) = client.take(MessageReceived)
    return Array(UUID, (uuid.UUID(bytes_le=delivery.tag),))


def test_peek_shows_messages_from_a_sequence_number(lab):
    lab.queue()
    stock(lab, 3)
    code, _, body = manage(lab.client(), "peek-message", {"from-sequence-number": 2, "message-count": Int(5)})

    assert code == 200
    shown = [Message.decode(entry["message"]) for entry in body["messages"]]
    assert [message.properties.message_id for message in shown] == ["m1", "m2"]
    assert shown[0].message_annotations["x-opt-sequence-number"] == 2
    assert shown[0].message_annotations["x-opt-message-state"] == 0


def test_a_large_peek_is_cut_to_one_message_size(lab):
    lab.queue()
    client = lab.client()
    link = client.sender("orders")
    for _ in range(8):
        client.send(link, Message(body=DataBody((bytes(200_000),))).encode())
    _, _, body = manage(client, "peek-message", {"from-sequence-number": 1, "message-count": Int(2**31 - 1)})

    assert 1 <= len(body["messages"]) <= 5


@pytest.mark.spec("T-6", "T-7")
@pytest.mark.parametrize("scheduled", [False, True])
def test_peek_shows_the_time_to_live_lowered_to_the_maximum(lab, scheduled):
    lab.queue(default_message_time_to_live=MINUTE)
    client = lab.client()
    annotations = {"x-opt-scheduled-enqueue-time": Timestamp(NOON + MINUTE)} if scheduled else None
    long = Message(header=Header(ttl=60 * MINUTE), message_annotations=annotations, body=DataBody((b"x",)))
    client.send(client.sender("orders"), long.encode())
    _, _, body = manage(client, "peek-message", {"from-sequence-number": 1, "message-count": Int(1)})

    assert Message.decode(body["messages"][0]["message"]).header.ttl == MINUTE


def test_renewing_a_lock_returns_its_new_expiry(lab):
    lab.queue()
    stock(lab)
    client = lab.client()
    tokens = lock(client)
    lab.advance(entity=30_000)
    code, _, body = manage(client, "renew-lock", {"lock-tokens": tokens})

    assert code == 200
    assert body["expirations"].items == (Timestamp(NOON + 30_000 + MINUTE),)


@pytest.mark.parametrize(
    ("status", "counts"),
    [("completed", (0, 0, 0)), ("abandoned", (1, 0, 0)), ("defered", (0, 1, 0)), ("suspended", (0, 0, 1))],
)
def test_a_lock_is_settled_from_another_connection(lab, status, counts):
    queue = lab.queue()
    stock(lab)
    tokens = lock(lab.client())
    body = {"disposition-status": status, "lock-tokens": tokens, "deadletter-reason": "poison"}

    assert manage(lab.client(), "update-disposition", body)[0] == 200
    found = queue.counts(NOON)
    assert (found.active, found.deferred, found.dead_letter) == counts
    if found.dead_letter:
        assert queue.dead_letter_queue.receive(NOON).amended == {"DeadLetterReason": "poison"}


@pytest.mark.parametrize("operation", ["renew-lock", "update-disposition"])
def test_a_lost_lock_is_answered_410(lab, operation):
    lab.queue()
    stock(lab)
    client = lab.client()
    tokens = lock(client)
    lab.advance(entity=MINUTE)
    code, condition, _ = manage(client, operation, {"lock-tokens": tokens, "disposition-status": "completed"})

    assert (code, condition) == (410, "com.microsoft:message-lock-lost")


def test_a_deferred_message_is_received_by_its_number(lab):
    queue = lab.queue()
    stock(lab)
    client = lab.client()
    client.receiver("orders", credit=1)
    (delivery,) = client.take(MessageReceived)
    client.settle(delivery, Modified(True, True))
    asked = {"sequence-numbers": Array(LONG, (1,)), "receiver-settle-mode": UInt(1)}
    code, _, body = manage(client, "receive-by-sequence-number", asked)

    assert code == 200
    (entry,) = body["messages"]
    received = Message.decode(entry["message"])
    assert received.properties.message_id == "m0"
    assert received.delivery_annotations == {
        "x-opt-lock-token": entry["lock-token"]
    }  # where the Go SDK looks for it
    queue.complete(entry["lock-token"].bytes_le, NOON)
    code, condition, _ = manage(client, "receive-by-sequence-number", asked)
    assert (code, condition) == (404, "com.microsoft:message-not-found")


@pytest.mark.parametrize("operation", ["delete-everything", "nonsense"])
def test_a_missing_message_is_refused_by_name(lab, operation):
    lab.queue()
    code, condition, _ = manage(lab.client(), operation, {})

    assert (code, condition) == (501, "amqp:not-implemented")


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("peek-message", {}),
        ("peek-message", {"from-sequence-number": "1", "message-count": Int(1)}),
        ("peek-message", {"from-sequence-number": 1, "message-count": Int(0)}),
        ("peek-message", "no map"),
        ("renew-lock", {}),
        ("renew-lock", {"lock-tokens": Array(LONG, (1,))}),
        ("renew-lock", {"lock-tokens": [b"x"]}),
        ("update-disposition", {"disposition-status": "burned", "lock-tokens": [uuid.UUID(int=1)]}),
        ("update-disposition", {"disposition-status": ["completed"]}),
        ("receive-by-sequence-number", {"sequence-numbers": ["x"]}),
        ("receive-by-sequence-number", {"sequence-numbers": []}),
    ],
)
def test_a_bad_argument_is_answered_400(lab, operation, body):
    lab.queue()
    code, condition, _ = manage(lab.client(), operation, body)

    assert code == 400
    assert condition in ("com.microsoft:argument-error", "com.microsoft:argument-out-of-range")


def test_responses_do_not_wait_for_credit(lab):
    lab.queue()
    client = lab.client()
    for _ in range(300):  # its receiver link never grants credit
        assert manage(client, "peek-message", {"from-sequence-number": 1, "message-count": Int(1)})[0] == 204
    assert lab.namespace.operations.management == 300


def test_a_request_that_cannot_be_answered_is_rejected(lab):
    lab.queue()
    client = lab.client()
    state = client.send(client.sender("orders/$management"), Message(body=ValueBody({})).encode())

    assert isinstance(state, Rejected)
    assert state.error.symbol == "amqp:precondition-failed"


def test_a_malformed_request_is_rejected(lab):
    lab.queue()
    client = lab.client()
    client.receiver("orders/$management")
    state = client.send(client.sender("orders/$management"), b"garbage")

    assert state.error.symbol == "amqp:decode-error"
    assert client.take(DispositionReceived) == []


class TestBatchDelete:
    def delete(self, lab, count, client=None, **more):
        body = {"message-count": Int(count), **more}
        return manage(client or lab.client(), "batch-delete-messages", body)

    def test_batch_delete_removes_the_oldest_and_returns_the_count(self, lab):
        queue = lab.queue()
        stock(lab, 3)
        code, _, body = self.delete(lab, 2)
        assert (code, body) == (200, {"message-count": 2})
        assert queue.receive(NOON).message_id == "m2"
        assert self.delete(lab, 2)[0] == 204  # a locked message does not count as waiting
        assert queue.counts(NOON).active == 1

    def test_batch_delete_leaves_messages_enqueued_since(self, lab):
        queue = lab.queue()
        stock(lab, 2)
        lab.advance(entity=MINUTE)
        stock(lab, 1)
        code, _, body = self.delete(lab, 9, **{"enqueued-time-utc": Timestamp(NOON + MINUTE)})
        assert (code, body) == (200, {"message-count": 2})
        assert queue.receive(NOON + MINUTE).sequence_number == 3

    @pytest.mark.parametrize("count", [0, -1, 501])
    def test_a_count_out_of_range_is_refused(self, lab, count):
        lab.queue()
        assert self.delete(lab, count)[:2] == (400, "com.microsoft:argument-out-of-range")

    def test_an_invalid_time_is_refused(self, lab):
        lab.queue()
        assert self.delete(lab, 1, **{"enqueued-time-utc": "now"})[1] == "com.microsoft:argument-error"

    def test_a_partitioned_entity_does_not_support_batch_delete(self, lab):
        lab.queue(enable_partitioning=True)
        assert self.delete(lab, 1)[:2] == (400, "amqp:not-allowed")


class TestRules:
    NODE = "news/Subscriptions/all/$management"

    @pytest.fixture
    def client(self, lab):
        lab.namespace.create_topic("news", TopicDescription(), NOON)
        lab.namespace.create_subscription("news", "all", SubscriptionDescription(), NOON)
        return lab.client()

    @pytest.mark.spec("W-9")
    def test_a_rule_with_an_empty_action_map_has_no_action(self, client, lab):
        described = {"sql-filter": {"expression": "1=1"}, "sql-rule-action": {}}
        added = {"rule-name": "r", "rule-description": described}
        assert manage(client, "add-rule", added, self.NODE)[0] == 200
        assert lab.namespace.subscription("news", "all").rules.get("r").action is None

    def test_a_rule_is_added_listed_and_removed(self, client):
        correlation = {"label": "red", "to": None, "properties": {"n": 1}}
        added = {"rule-name": "r", "rule-description": {"correlation-filter": correlation}}
        assert manage(client, "add-rule", added, self.NODE)[0] == 200
        code, _, body = manage(client, "enumerate-rules", {"top": Int(9), "skip": Int(1)}, self.NODE)
        ((_, described),) = body["rules"][0].items()
        assert (code, described.descriptor, described.value[2]) == (200, 0x13700000004, "r")
        condition, action = described.value[:2]
        assert (condition.descriptor, condition.value[4], condition.value[8]) == (
            0x1370000009,
            "red",
            {"n": 1},
        )
        assert (action.descriptor, action.value) == (0x13700000005, [])
        assert manage(client, "remove-rule", {"rule-name": "R"}, self.NODE)[0] == 200
        assert manage(client, "enumerate-rules", {"top": Int(9), "skip": Int(1)}, self.NODE)[0] == 204

    @pytest.mark.parametrize(
        ("operation", "body", "condition"),
        [
            ("add-rule", {"rule-name": "r"}, "com.microsoft:argument-error"),
            ("add-rule", {"rule-name": "r", "rule-description": {}}, "com.microsoft:argument-error"),
            (
                "add-rule",
                {"rule-name": "r", "rule-description": {"sql-filter": {"expression": "a ="}}},
                "com.microsoft:argument-error",
            ),
            (
                "add-rule",
                {"rule-name": "$default", "rule-description": {"sql-filter": {"expression": "1=1"}}},
                "com.microsoft:entity-already-exists",
            ),
            ("add-rule", {"rule-name": 5, "rule-description": {}}, "com.microsoft:argument-error"),
            ("remove-rule", {"rule-name": "none"}, "amqp:not-found"),
            ("enumerate-rules", {"top": Int(0)}, "com.microsoft:argument-out-of-range"),
        ],
    )
    def test_an_invalid_request_is_refused_by_name(self, client, operation, body, condition):
        assert manage(client, operation, body, self.NODE)[1] == condition

    def test_a_queue_has_no_rules(self, lab, client):
        lab.queue()
        assert manage(client, "remove-rule", {"rule-name": "r"})[1] == "amqp:not-allowed"


@pytest.mark.spec("X-8")
@pytest.mark.parametrize(
    ("settings", "session_id", "is_omitted"),
    [
        ({}, None, True),
        ({"enable_partitioning": True}, None, False),
        ({"enable_partitioning": True, "requires_session": True}, "a", True),
    ],
    ids=["plain", "partitioned", "a session of a partitioned one"],
)
def test_a_peek_omits_the_body_where_the_service_does(lab, settings, session_id, is_omitted):
    lab.queue(**settings)
    client = lab.client()
    sent = Message(
        properties=Properties(message_id="m", group_id=session_id),
        application_properties={"n": 1},
        body=DataBody((b"x",)),
        footer={Symbol("f"): 1},
    )
    client.send(client.sender("orders"), sent.encode())
    body = {"from-sequence-number": 0, "message-count": Int(1), "omit-message-body": True}
    if session_id is not None:
        body["session-id"] = session_id
    _, _, answer = manage(client, "peek-message", body)

    shown = Message.decode(answer["messages"][0]["message"])
    assert shown.body == (None if is_omitted else sent.body)
    assert (shown.application_properties, shown.footer) == (sent.application_properties, sent.footer)


@pytest.mark.spec("X-22")
def test_the_skip_value_of_listed_sessions_is_an_int(lab):
    lab.queue(requires_session=True)
    client = lab.client()
    client.send(client.sender("orders"), Message(properties=Properties(group_id="a")).encode())
    _, _, body = manage(client, "get-message-sessions", {"skip": Int(0), "top": Int(9)})

    assert (type(body["skip"]), body["skip"]) == (Int, 1)
