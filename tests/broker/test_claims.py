"""$cbs and the claims of a connection, without a socket: which links may attach, and until when."""

from __future__ import annotations

import uuid

import pytest

from sbpair.broker.auth import make_token
from sbpair.broker.bearer import make_bearer
from sbpair.pair.amqp.events import ConnectionClosed, ConnectionOpened, LinkAttached, LinkDetached
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.types import Int
from tests.broker.test_management import manage

NOON_S = 1_800_000_000
AUDIENCE = "sb://localhost:5671/orders"


def token(key="a2V5", name="Root", audience=AUDIENCE, expires=NOON_S + 3600):
    return make_token(audience, name, key, expires)


def put(client, proof, *, audience=AUDIENCE, operation="put-token", message_id="one", reply_to=None):
    """Put a token; return status code, description and the whole response."""
    asked = {"operation": operation, "type": "jwt", "name": audience}
    asked = {key: value for key, value in asked.items() if value is not None}
    response = client.ask(
        "$cbs",
        Message(
            properties=Properties(message_id=message_id, reply_to=reply_to),
            application_properties=asked,
            body=ValueBody(proof),
        ),
    )
    return response.application_properties["status-code"], response


def conditions(client):
    return [event.condition.symbol for event in client.take(LinkDetached)]


@pytest.mark.parametrize("message_id", [uuid.UUID(int=1), "text", b"bytes"])
def test_a_valid_token_is_accepted_and_the_answer_has_the_request_id_as_correlation(guarded, message_id):
    guarded.queue()
    code, response = put(guarded.client(), token(), message_id=message_id)

    assert (code, type(code)) == (202, Int)
    correlated = response.properties.correlation_id
    assert (correlated, type(correlated)) == (message_id, type(message_id))


@pytest.mark.parametrize(
    ("proof", "code"),
    [
        (token(key="wrong"), 401),
        (token(name="Nobody"), 401),
        (token(expires=NOON_S), 401),
        (token(audience="sb://localhost:5671/other"), 401),
        ("not a token", 401),
        (b"bytes", 400),
        (None, 400),
    ],
)
def test_a_bad_token_is_refused_with_a_reason_that_does_not_repeat_it(guarded, proof, code):
    guarded.queue()
    got, response = put(guarded.client(), proof)

    assert got == code
    words = response.application_properties["status-description"]
    assert "TrackingId:" in words
    assert "sig=" not in words


def test_a_token_for_a_missing_queue_is_answered_404(guarded):
    audience = "sb://localhost:5671/nowhere"
    code, _ = put(guarded.client(), token(audience=audience), audience=audience)

    assert code == 404


def test_a_path_below_a_queue_is_authorised_like_the_queue(guarded):
    guarded.queue()
    for below in ("/$management", "/$DeadLetterQueue", "/$DeadLetterQueue/$management"):
        code, _ = put(guarded.client(), token(), audience=AUDIENCE + below)
        assert code == 202


@pytest.mark.parametrize("wrong", [{"operation": "delete"}, {"operation": None}, {"audience": None}])
def test_a_request_other_than_put_token_is_answered_400(guarded, wrong):
    guarded.queue()
    code, _ = put(guarded.client(), token(), **wrong)

    assert code == 400


def test_a_reply_goes_to_the_link_named_by_reply_to(guarded):
    guarded.queue()
    client = guarded.client()
    other = client.receiver("$cbs", name="cbs-other")
    code, _ = put(client, token(), reply_to="cbs-other")

    assert code == 202
    assert other.is_open


@pytest.mark.spec("S-4")
def test_attaching_without_a_claim_is_refused(guarded):
    guarded.queue()
    client = guarded.client()
    for direction, node in (("sender", "orders"), ("receiver", "orders")):
        getattr(client, direction)(node)

    assert conditions(client) == ["amqp:unauthorized-access"] * 2


@pytest.mark.spec("W-9", "S-4")
def test_a_management_request_before_the_first_claim_is_judged_itself(guarded):
    guarded.queue()
    client = guarded.client()
    peek = "peek-message", {"from-sequence-number": 1, "message-count": Int(1)}
    for node in ("orders/$management", "nowhere/$management"):
        code, condition, _ = manage(client, *peek, node=node)
        assert (code, condition) == (401, "amqp:unauthorized-access")

    assert put(client, token())[0] == 202
    assert manage(client, *peek)[0] == 204
    assert conditions(client) == []


@pytest.mark.spec("S-4")
def test_a_client_without_a_claim_does_not_learn_whether_a_queue_exists(guarded):
    client = guarded.client()
    client.sender("nowhere")

    assert conditions(client) == ["amqp:unauthorized-access"]


@pytest.mark.spec("S-3")
def test_the_right_to_listen_does_not_include_send(guarded):
    guarded.queue()
    client = guarded.client()
    put(client, token(name="Listener", key="bGlzdGVu"))
    assert client.receiver("orders").is_open
    client.take(LinkAttached)
    client.sender("orders")

    assert conditions(client) == ["amqp:unauthorized-access"]


@pytest.mark.spec("S-4")
def test_a_claim_applies_only_to_its_connection(guarded):
    guarded.queue()
    first, second = guarded.client(), guarded.client()
    put(first, token())
    assert first.sender("orders").is_open
    second.sender("orders")

    assert conditions(second) == ["amqp:unauthorized-access"]


@pytest.mark.spec("S-4")
def test_an_expired_token_detaches_its_links(guarded):
    guarded.queue()
    client = guarded.client()
    put(client, token(expires=NOON_S + 100))
    client.sender("orders")
    client.receiver("orders", credit=1)
    guarded.advance(wall=99, connection=99)
    assert conditions(client) == []
    guarded.advance(wall=1, connection=1)

    taken = [event.condition for event in client.take(LinkDetached)]
    assert [condition.symbol for condition in taken] == ["amqp:link:detach-forced"] * 2
    texts = [condition.description for condition in taken]
    assert all("Code: RenewToken. Details: Unauthorized access. " in text for text in texts)


def test_a_refreshed_token_keeps_its_links(guarded):
    guarded.queue()
    client = guarded.client()
    put(client, token(expires=NOON_S + 100))
    client.sender("orders")
    guarded.advance(wall=90, connection=90)
    put(client, token(expires=NOON_S + 1000))
    guarded.advance(wall=100, connection=100)

    assert conditions(client) == []


def test_a_shifted_entity_clock_does_not_age_a_token(guarded):
    guarded.queue()
    client = guarded.client()
    put(client, token(expires=NOON_S + 100))
    link = client.sender("orders")
    guarded.advance(entity=10**9)

    assert link.is_open


@pytest.mark.spec("S-4")
def test_a_connection_without_a_claim_in_time_is_closed(guarded):
    client = guarded.client()
    guarded.advance(connection=21)

    assert [event.condition.symbol for event in client.take(ConnectionClosed)] == ["amqp:connection:forced"]


def test_a_connection_with_a_claim_may_stay_idle(guarded):
    guarded.queue()
    client = guarded.client()
    put(client, token())
    guarded.advance(connection=21)

    assert client.take(ConnectionClosed) == []


class TestPlain:
    def test_sasl_plain_with_key_name_and_key_opens_the_namespace(self, guarded):
        guarded.queue()
        client = guarded.client(mechanism="PLAIN", response=b"\0Root\0a2V5")

        assert client.sender("orders").is_open
        assert client.receiver("orders").is_open

    @pytest.mark.parametrize(
        "response", [b"", b"\0Root\0wrong", b"Root\0a2V5", b"\0\xff\0a2V5", b"\0Root\0a2V5\0", b"\0" * 5000]
    )
    def test_sasl_plain_with_a_wrong_name_or_key_is_refused(self, guarded, response):
        client = guarded.client(mechanism="PLAIN", response=response)

        assert client.take(ConnectionOpened) == []
        assert client.take(ConnectionClosed)

    def test_a_mechanism_that_was_not_offered_is_refused(self, guarded):
        client = guarded.client(mechanism="GSSAPI", response=b"")

        assert client.take(ConnectionOpened) == []


def test_open_access_requires_no_claim(lab):
    lab.queue()

    assert lab.client().sender("orders").is_open


def test_sending_via_an_entity_needs_a_claim_for_both(guarded):
    guarded.queue()
    guarded.queue("bills")
    client = guarded.client()
    put(client, token())
    there = {"com.microsoft:transfer-destination-address": "bills"}
    client.sender("orders", properties=there)
    assert conditions(client) == ["amqp:unauthorized-access"]

    bills = "sb://localhost:5671/bills"
    put(client, token(audience=bills), audience=bills)
    assert client.sender("orders", properties=there).is_open


@pytest.mark.spec("X-17")
def test_an_expired_token_is_refused_in_the_words_of_the_service(guarded):
    guarded.queue()
    code, response = put(guarded.client(), token(expires=NOON_S - 60))

    told = "ExpiredToken: The token is expired. Expiration time: '2027-01-15 07:59:00Z'. TrackingId:"
    assert code == 401
    assert response.application_properties["status-description"].startswith(told)


@pytest.mark.spec("X-17", "W-4")
def test_an_expired_bearer_token_is_refused_without_its_time(guarded):
    guarded.queue()
    code, response = put(guarded.client(), make_bearer("Root", "a2V5", NOON_S - 60))

    told = "ExpiredToken: The token is expired. TrackingId:"
    assert code == 401
    assert response.application_properties["status-description"].startswith(told)
