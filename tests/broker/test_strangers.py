"""A client without a valid claim can make the broker hold next to nothing."""

from __future__ import annotations

import itertools

import pytest

from sbpair.broker.auth import make_token
from sbpair.broker.frontends.amqp.connection_limits import MAX_TRIES, MAX_UNCLAIMED_BYTES
from sbpair.pair.amqp.events import ConnectionClosed, LinkDetached, MessageReceived
from sbpair.pair.amqp.message import Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Coordinator, Source, Target
from tests.costs import steps_of

NOON_S = 1_800_000_000
AUDIENCE = "sb://localhost/orders"
_NAMES = itertools.count()


def unfinished(client, target: Target | Coordinator, size: int) -> None:
    """A delivery on a separate link whose last frame never comes."""
    name = f"to-{next(_NAMES)}"
    link = client.session.attach_sender(name, target=target, source=Source(name))
    client.lab.run()
    client.engine.remote_max_frame_size = 4096
    if not link.is_open:
        return
    link.transfer(b"x" * size, tag=b"t", force=True)
    del client.engine._out[-2:]  # the last frame: head and payload
    client.lab.run()


def put_token(client, key: str = "a2V5") -> int:
    request = Message(
        properties=Properties(message_id="one"),
        application_properties={"operation": "put-token", "type": "jwt", "name": AUDIENCE},
        body=ValueBody(make_token(AUDIENCE, "Root", key, NOON_S + 60)),
    )
    return client.ask("$cbs", request).application_properties["status-code"]


@pytest.mark.spec("R-33")
def test_unfinished_requests_of_an_unauthenticated_client_close_its_connection(guarded):
    """A thousand links with a megabyte each once grew the broker from 42 to 968 MB."""
    client = guarded.client()
    for _ in range(30):
        unfinished(client, Coordinator(), 50_000)
        assert client.server._engine._held <= MAX_UNCLAIMED_BYTES + 8192
        if client.take(ConnectionClosed):
            break
    else:
        pytest.fail("it may hold whatever it likes")


@pytest.mark.spec("R-33", "X-10")
def test_a_connection_has_one_claims_link_in_each_direction(guarded):
    client = guarded.client()
    client.session.attach_sender("transactions", target=Coordinator(), source=Source("transactions"))
    first, second, replies = client.sender("$cbs"), client.sender("$cbs"), client.receiver("$cbs")

    (refused,) = client.take(LinkDetached)
    assert refused.link is second
    assert refused.condition.symbol == "amqp:not-allowed"
    told = "A link to connection 'test' $cbs node has already been opened."
    assert refused.condition.description.startswith(told)
    assert replies.is_open
    client.receiver("$cbs")
    assert len(client.take(LinkDetached)) == 1
    first.detach()
    guarded.run()
    assert client.sender("$cbs").is_open


@pytest.mark.spec("R-33")
def test_the_size_of_a_claim_request_is_limited(guarded):
    client = guarded.client()
    link = client.sender("$cbs")

    assert link.remote_attach.max_message_size == 2**64 - 1  # as the service announces
    answer = client.send(link, bytes(70_000))
    assert answer.error.symbol == "amqp:link:message-size-exceeded"


@pytest.mark.spec("R-33")
@pytest.mark.parametrize("proof", ["put-token", "plain"])
def test_a_client_with_a_claim_may_send_up_to_the_link_limit(guarded, proof):
    guarded.queue()
    if proof == "plain":
        client = guarded.client(mechanism="PLAIN", response=b"\0Root\0a2V5")
    else:
        client = guarded.client()
        assert put_token(client) == 202
    for _ in range(20):
        unfinished(client, Target("orders"), 200_000)

    assert not client.take(ConnectionClosed)
    assert client.server._engine._held > 10 * MAX_UNCLAIMED_BYTES


@pytest.mark.spec("R-33")
def test_refused_attaches_of_an_unauthenticated_client_are_limited(guarded):
    client = guarded.client()
    for number in range(300):
        client.session.attach_receiver(f"{number}-{'x' * 1000}", source=Source("orders"))
        client.server.receive_data(client.engine.data_to_send(), guarded.now)
        client.server.pieces_to_send()  # it ignores each refusal and never detaches
        if client.server.is_closed:
            return
    pytest.fail("it may leave as many links behind as it likes")


@pytest.mark.spec("R-40")
def test_requests_of_an_unauthenticated_client_are_limited(guarded):
    """One read of 256 KB may hold thousands of requests, which once blocked all other clients."""
    took = []
    for requests in (2 * MAX_TRIES, 20 * MAX_TRIES):
        client, before = guarded.client(), guarded.frontend.rejections.total
        link = client.sender("$cbs")
        client.receiver("$cbs")
        for number in range(requests):
            link.transfer(b"\x40", tag=number.to_bytes(4, "big"), force=True)
        data = client.engine.data_to_send()
        took.append(steps_of(lambda client=client, data=data: client.server.receive_data(data, guarded.now)))
        assert b"amqp:unauthorized-access" in b"".join(client.server.pieces_to_send())
        assert guarded.frontend.rejections.total - before <= MAX_TRIES
    assert (
        took[1] < took[0] * 6
    )  # unanswered requests are read too; answering all would cost ten times as much


@pytest.mark.spec("R-40")
def test_a_wrong_key_may_be_tried_a_few_times_before_the_right_one(guarded):
    guarded.queue()
    client = guarded.client()
    for _ in range(20):
        assert put_token(client, key="wrong") == 401
    assert put_token(client) == 202
    for _ in range(MAX_TRIES + 10):
        assert client.sender("orders").is_open


def test_open_access_has_no_unauthenticated_limits(lab):
    lab.queue()
    client = lab.client()
    link = client.session.attach_sender("out", target=Target("orders"), source=Source("x"))
    lab.run()
    assert link.is_open
    assert not client.take(MessageReceived)
    assert client.server._engine.allowance > MAX_UNCLAIMED_BYTES
