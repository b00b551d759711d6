"""A client's links on message sessions, frame by frame, without a socket."""

from __future__ import annotations

import uuid

import pytest

from sbpair.broker.faults import FaultRule, RejectWith, Withhold
from sbpair.pair.amqp.events import LinkAttached, LinkDetached, MessageReceived
from sbpair.pair.amqp.message import DataBody, Header, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import ACCEPTED, Accepted, Rejected, Source
from sbpair.pair.amqp.types import Array, Described, Int, Symbol, Timestamp, UInt

NOON = 1_800_000_000_000
MINUTE = 60_000
FILTER = Symbol("com.microsoft:session-filter")
TIMEOUT = Symbol("com.microsoft:timeout")
LONG, UUID = 0x81, 0x98


@pytest.fixture
def sessions(lab):
    """The lab, with a queue `orders` that requires sessions."""
    lab.queue(requires_session=True)
    return lab


def send(lab, *session_ids, **properties):
    client = lab.client()
    link = client.sender("orders")
    for i, session_id in enumerate(session_ids):
        message = Message(
            properties=Properties(message_id=f"m{i}", group_id=session_id, **properties),
            body=DataBody((b"%d" % i,)),
        )
        assert isinstance(client.send(link, message.encode()), Accepted)


def accept(client, session_id, *, timeout=None, **how):
    """A receiver link on the session; its attach may not be answered yet."""
    properties = None if timeout is None else {TIMEOUT: UInt(timeout)}
    source = Source("orders", filter={FILTER: session_id})
    return client.receiver("orders", source=source, properties=properties, **how)


def granted(link):
    return link.remote_attach.source.filter[FILTER]


def is_waiting(link):
    return link.remote_attach is None


def refusal(client):
    """The condition of the one attach that was refused."""
    (attached,) = client.take(LinkAttached)
    (detached,) = client.take(LinkDetached)
    assert attached.attach.source is None
    return detached.condition


def manage(client, operation, body, node="orders/$management", **extra):
    """Status code, error condition and body of an operation."""
    request = Message(
        properties=Properties(message_id=uuid.uuid4(), reply_to=node),
        application_properties={"operation": f"com.microsoft:{operation}", "type": "entity-mgmt", **extra},
        body=ValueBody(body),
    )
    response = client.ask(node, request)
    told = response.application_properties
    return told["statusCode"], told.get("errorCondition"), response.body.value


@pytest.mark.parametrize("asked", ["a", None])
def test_a_described_session_filter_is_answered_described(sessions, asked):
    send(sessions, "a")
    described = Described(Symbol("com.microsoft:session-filter"), asked)
    link = accept(sessions.client(), described)

    assert granted(link) == Described(Symbol("com.microsoft:session-filter"), "a")  # Go reads no other


class TestAttaching:
    def test_the_attach_names_the_session_and_its_lock_expiry(self, sessions):
        send(sessions, "a")
        client = sessions.client()
        source = Source("amqps://HOST:5671/Orders", filter={FILTER: None, Symbol("other"): 1})
        link = client.receiver("orders", source=source)

        answer = link.remote_attach
        assert answer.source.address == "amqps://HOST:5671/Orders"
        assert answer.source.filter == {FILTER: "a", "other": 1}
        ticks = answer.properties["com.microsoft:locked-until-utc"]
        assert type(ticks) is int
        assert ticks == 621_355_968_000_000_000 + (NOON + MINUTE) * 10_000

    def test_the_dead_letter_queue_of_a_session_queue_accepts_only_plain_receivers(self, sessions):
        client = sessions.client()
        assert client.receiver("orders/$deadletterqueue").is_open
        client.take(LinkAttached)
        client.receiver("orders", source=Source("orders/$deadletterqueue", filter={FILTER: None}))

        assert refusal(client).symbol == "amqp:not-allowed"

    @pytest.mark.parametrize(
        ("session_id", "timeout"),
        [(7, None), (b"a", None), ("x" * 129, None), ("a", "soon"), (None, Int(-1))],
    )
    def test_an_invalid_session_filter_is_an_argument_error(self, sessions, session_id, timeout):
        client = sessions.client()
        source = Source("orders", filter={FILTER: session_id})
        client.receiver("orders", source=source, properties=timeout and {TIMEOUT: timeout})

        assert refusal(client).symbol == "com.microsoft:argument-error"
        send(sessions, "a")
        assert granted(accept(client, "a")) == "a"  # nothing was held by those who were refused

    @pytest.mark.parametrize("session_id", [None, "x" * 129])
    def test_a_message_with_a_missing_or_overlong_session_id_is_rejected(self, sessions, session_id):
        client = sessions.client()
        link = client.sender("orders")
        message = Message(properties=Properties(message_id="m", group_id=session_id), body=DataBody((b"",)))

        answer = client.send(link, message.encode())
        assert isinstance(answer, Rejected)
        expected = "com.microsoft:argument-error" if session_id else "amqp:not-allowed"
        assert answer.error.symbol == expected


class TestWaiting:
    def test_the_longest_waiting_receiver_gets_the_next_session(self, sessions):
        clients = [sessions.client() for _ in range(3)]
        links = [accept(client, None) for client in clients]
        send(sessions, "a", "b")

        assert [granted(link) for link in links[:2]] == ["a", "b"]
        assert is_waiting(links[2])
        links[0].detach()
        sessions.run()
        assert granted(links[2]) == "a"  # handed back, its message still there

    @pytest.mark.parametrize(
        ("timeout", "seconds", "text"), [(30_500, 30.5, "00:00:30.500"), (None, 65, "00:01:05")]
    )
    def test_waiting_for_a_session_ends_after_the_given_timeout_or_65_seconds(
        self, sessions, timeout, seconds, text
    ):
        client = sessions.client()
        link = accept(client, None, timeout=timeout)
        sessions.advance(connection=seconds - 0.01)
        assert is_waiting(link)
        assert client.server.next_timer() <= sessions.now.connection + 0.02
        sessions.advance(connection=0.02)

        condition = refusal(client)
        assert condition.symbol == "com.microsoft:timeout"
        assert f"within the allotted timeout of {text}." in condition.description
        send(sessions, "a")
        assert granted(accept(client, None)) == "a"  # who gave up takes nothing

    @pytest.mark.parametrize("how", ["detach", "eof"])
    def test_a_receiver_that_stops_waiting_gets_no_session(self, sessions, how):
        client = sessions.client()
        link = accept(client, None)
        if how == "detach":
            link.detach()
            sessions.run()
        else:
            client.server.receive_eof(sessions.now)
        send(sessions, "a")

        assert granted(accept(sessions.client(), None)) == "a"

    def test_deleting_a_queue_refuses_the_receivers_waiting_for_a_session(self, sessions):
        client = sessions.client()
        accept(client, None)
        sessions.namespace.delete_queue("orders", NOON)
        sessions.run()

        assert refusal(client).symbol == "amqp:resource-deleted"

    @pytest.mark.spec("T-21")
    def test_waiting_for_a_session_counts_as_use_of_the_queue(self, lab):
        queue = lab.queue(requires_session=True, auto_delete_on_idle=5 * MINUTE)
        link = accept(lab.client(), None)
        assert queue.idle_since is None

        link.detach()
        lab.run()
        assert queue.idle_since == NOON


class TestDelivering:
    def test_a_later_message_goes_to_the_holder_of_its_session(self, sessions):
        holder, other = sessions.client(), sessions.client()
        accept(holder, "a", credit=5)
        accept(other, "b", credit=5)
        send(sessions, "a")

        assert len(holder.take(MessageReceived)) == 1
        assert other.take(MessageReceived) == []

    @pytest.mark.parametrize("how", ["detach", "eof"])
    def test_an_ending_link_releases_its_session_without_counting_a_delivery(self, sessions, how):
        send(sessions, "a")
        client = sessions.client()
        link = accept(client, "a", credit=5)
        if how == "detach":
            link.detach()
            sessions.run()
        else:
            client.server.receive_eof(sessions.now)

        again = sessions.client()
        accept(again, None, credit=5)
        (delivery,) = again.take(MessageReceived)
        assert Message.decode(delivery.payload).header in (None, Header(delivery_count=0))

    def test_settling_twice_loses_the_message_lock_but_not_the_session_lock(self, sessions):
        send(sessions, "a")
        client = sessions.client()
        accept(client, "a", credit=5)
        (delivery,) = client.take(MessageReceived)
        tokens = Array(UUID, (uuid.UUID(bytes_le=delivery.tag),))
        assert isinstance(client.settle(delivery, ACCEPTED), Accepted)
        body = {"disposition-status": "completed", "lock-tokens": tokens, "session-id": "a"}

        assert manage(client, "update-disposition", body)[:2] == (410, "com.microsoft:message-lock-lost")


class TestManagement:
    def test_renewing_a_session_lock_starts_it_from_now(self, sessions):
        client = sessions.client()
        link = accept(client, "a")
        sessions.advance(entity=MINUTE - 1)
        code, _, body = manage(client, "renew-session-lock", {"session-id": "a"})

        assert (code, body) == (200, {"expiration": NOON + 2 * MINUTE - 1})
        assert type(body["expiration"]) is Timestamp
        sessions.advance(entity=MINUTE - 1)
        assert link.is_open
        sessions.advance(entity=1)
        assert not link.is_open

    @pytest.mark.parametrize(
        ("operation", "body"),
        [
            ("get-session-state", {}),
            ("set-session-state", {"session-state": b"x"}),
            ("renew-session-lock", {}),
            ("receive-by-sequence-number", {"sequence-numbers": Array(LONG, (1,))}),
            (
                "update-disposition",
                {"disposition-status": "completed", "lock-tokens": Array(UUID, (uuid.uuid4(),))},
            ),
        ],
    )
    def test_a_client_that_does_not_hold_the_session_gets_session_lock_lost(self, sessions, operation, body):
        accept(sessions.client(), "a")
        for name in ("a", "nobody has it"):
            answer = manage(sessions.client(), operation, {**body, "session-id": name})
            assert answer[:2] == (410, "com.microsoft:session-lock-lost")

    @pytest.mark.parametrize(
        ("operation", "body", "condition"),
        [
            ("get-session-state", {}, "com.microsoft:argument-error"),
            ("get-session-state", {"session-id": 7}, "com.microsoft:argument-error"),
            ("set-session-state", {"session-id": "a", "session-state": "x"}, "com.microsoft:argument-error"),
            ("get-message-sessions", {"skip": Int(-1)}, "com.microsoft:argument-out-of-range"),
            ("get-message-sessions", {"top": Int(0)}, "com.microsoft:argument-out-of-range"),
            ("get-message-sessions", {"top": "all"}, "com.microsoft:argument-error"),
        ],
    )
    def test_an_invalid_session_request_is_named(self, sessions, operation, body, condition):
        assert manage(sessions.client(), operation, body)[:2] == (400, condition)

    def test_a_queue_without_sessions_refuses_session_management(self, lab):
        lab.queue()
        for operation in ("get-message-sessions", "get-session-state", "renew-session-lock"):
            answer = manage(lab.client(), operation, {"session-id": "a"})
            assert answer[:2] == (400, "amqp:not-allowed")


class TestScheduling:
    def scheduled(self, name, at, session_id=None, **fields):
        message = Message(
            properties=Properties(message_id=name, group_id=session_id),
            message_annotations={Symbol("x-opt-scheduled-enqueue-time"): Timestamp(at)},
            body=DataBody((b"",)),
            **fields,
        )
        return {"message-id": name, "message": message.encode()}

    def test_a_cancelled_or_unknown_number_is_not_found(self, lab):
        lab.queue()
        asked = {"sequence-numbers": Array(LONG, (5,))}

        answer = manage(lab.client(), "cancel-scheduled-message", asked)
        assert answer[:2] == (404, "com.microsoft:message-not-found")

    def test_messages_are_scheduled_all_or_none(self, sessions):
        client = sessions.client()
        messages = [self.scheduled("a", NOON + MINUTE, "s"), self.scheduled("b", NOON + MINUTE)]

        assert manage(client, "schedule-message", {"messages": messages})[:2] == (400, "amqp:not-allowed")
        assert sessions.namespace.queue("orders").counts(NOON).total == 0

    @pytest.mark.parametrize(
        ("messages", "condition"),
        [
            ([], "com.microsoft:argument-out-of-range"),
            (["x"], "com.microsoft:argument-error"),
            ([{"message": "x"}], "com.microsoft:argument-error"),
            ([{"message": b"\x00\x53\x75"}], "amqp:decode-error"),
            ([{"message": bytes(300_000)}], "amqp:link:message-size-exceeded"),
            (None, "com.microsoft:argument-error"),
        ],
    )
    def test_an_invalid_session_request_is_named(self, lab, messages, condition):
        lab.queue()

        assert manage(lab.client(), "schedule-message", {"messages": messages})[:2] == (400, condition)

    def test_faults_on_sends_apply_to_scheduling(self, lab):
        queue = lab.queue()
        client = lab.client()
        body = {"messages": [self.scheduled("m", NOON + MINUTE)]}
        later = RejectWith("com.microsoft:server-busy", "later")
        reject = lab.frontend.set_fault(FaultRule(later, "orders"), lab.now.idle)
        assert manage(client, "schedule-message", body)[:2] == (500, "com.microsoft:server-busy")
        assert (reject.hits, queue.counts(NOON).scheduled) == (1, 0)
        withhold = lab.frontend.set_fault(FaultRule(Withhold(), "orders"), lab.now.idle)
        with pytest.raises(ValueError, match="not enough values"):  # no answer came
            manage(client, "schedule-message", body)
        assert (withhold.hits, queue.counts(NOON).scheduled) == (1, 1)
        asked = {"from-sequence-number": 1, "message-count": Int(1)}
        assert manage(client, "peek-message", asked)[0] == 200  # not a send

    def test_a_listen_only_client_may_not_schedule(self, guarded):
        from sbpair.broker.auth import make_token

        guarded.queue()
        client = guarded.client()
        token = make_token("sb://localhost/orders", "Listener", "bGlzdGVu", NOON // 1000 + 3600)
        client.ask(
            "$cbs",
            Message(
                properties=Properties(message_id="1", reply_to="$cbs"),
                application_properties={
                    "operation": "put-token",
                    "type": "servicebus.windows.net:sastoken",
                    "name": "sb://localhost/orders",
                },
                body=ValueBody(token),
            ),
        )
        body = {"messages": [self.scheduled("m", NOON + MINUTE)]}

        assert manage(client, "schedule-message", body)[:2] == (401, "amqp:unauthorized-access")
        asked = {"from-sequence-number": 1, "message-count": Int(1)}
        assert manage(client, "peek-message", asked)[0] == 204

    @pytest.mark.parametrize("span", [UInt(0), UInt(1), UInt(60_000)])
    def test_every_answer_comes_within_the_timeout_of_the_client(self, lab, span):
        lab.queue()
        asked = {"from-sequence-number": 1, "message-count": Int(1)}

        extra = {"com.microsoft:server-timeout": span}
        assert manage(lab.client(), "peek-message", asked, **extra)[0] == 204

    @pytest.mark.parametrize("span", ["soon", Int(-1), True])
    def test_an_invalid_timeout_is_an_argument_error(self, lab, span):
        lab.queue()

        answer = manage(lab.client(), "peek-message", {}, **{"com.microsoft:server-timeout": span})
        assert answer[:2] == (400, "com.microsoft:argument-error")


def test_a_receive_and_delete_receiver_holds_its_session_until_the_link_ends(sessions):
    send(sessions, "a")
    client, other = sessions.client(), sessions.client()
    link = accept(client, "a", deletes=True, credit=10)
    assert len(client.take(MessageReceived)) == 1
    sessions.advance(entity=10 * MINUTE)

    assert link.is_open
    accept(other, "a")
    assert refusal(other).symbol == "com.microsoft:session-cannot-be-locked"
    link.detach()
    sessions.run()
    assert granted(accept(other, "a")) == "a"
