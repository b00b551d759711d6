"""A connection over a played transport: flow control, how it ends, and its attach frames."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.link import UNOPENED, ReceiverLink
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from sbpair.pair.client.session import SessionReceiver
from tests.pair.client.played import NAMESPACE, Peer, Played, turns
from tests.pair.syphon.scripted import driven, now

pytestmark = pytest.mark.spec("R-66")


async def test_reading_can_be_paused_and_resumed_again_and_again(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr(played.peer, "pause_reading", lambda: calls.append("pause"), raising=False)
    monkeypatch.setattr(played.peer, "resume_reading", lambda: calls.append("resume"), raising=False)
    for _ in range(2):
        played.connection.pause_reading()
        played.connection.pause_reading()  # paused already
        played.connection.resume_reading()
        played.connection.resume_reading()  # reads already
    assert calls == ["pause", "resume", "pause", "resume"]


async def test_a_full_socket_is_shown_until_it_drains(played: Played) -> None:
    assert played.connection.is_writable is True
    played.connection.pause_writing()
    assert played.connection.is_writable is False
    played.connection.resume_writing()
    assert played.connection.is_writable is True


async def test_the_reason_for_which_the_peer_closes_reaches_every_link_and_caller(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    receiver = await played.connection.open_receiver("orders", played.received.append)
    why = Condition("amqp:connection:forced", "upgrade")
    played.peer.engine.close(why)
    played.peer.speak()
    await turns()
    assert played.connection.closed.result() == why
    assert (sender.detached.result(), receiver.detached.result()) == (why, why)
    with pytest.raises(ConnectionLostError, match="amqp:connection:forced: upgrade") as lost:
        played.connection.begin()
    assert lost.value.condition == why


async def test_a_receiver_names_its_own_end_of_the_link(played: Played) -> None:
    receiver = await played.connection.open_receiver("orders", played.received.append)
    attach = played.peer.links["from orders"].remote_attach
    assert attach is not None
    assert attach.target is not None
    assert attach.target.address == attach.name == receiver.link.name


async def test_a_refused_session_names_the_entity_and_its_token_is_put_anew(played: Played) -> None:
    played.peer.refuses["orders"] = Condition("amqp:unauthorized-access", "no Listen")
    for attempt in (1, 2):
        with pytest.raises(LinkRefusedError, match="no link to orders: amqp:unauthorized-access"):
            await played.connection.open_session_receiver("orders", played.received.append, session_id="s")
        assert len(played.peer.requests) == attempt


async def test_a_session_receiver_knows_its_entity(played: Played) -> None:
    receiver = await played.connection.open_session_receiver("orders", played.received.append, session_id="s")
    assert isinstance(receiver, SessionReceiver)
    assert receiver.path == "orders"


@pytest.mark.parametrize("is_sender", [True, False])
async def test_an_attach_without_the_asked_for_end_announces_a_refusal(
    played: Played, is_sender: bool
) -> None:
    played.peer.silent.add("orders")
    connection = played.connection
    opening = asyncio.ensure_future(
        connection.open_sender("orders")
        if is_sender
        else connection.open_receiver("orders", played.received.append)
    )
    await turns()
    (link,) = (
        each
        for session in played.peer.engine.sessions
        for each in session.links.values()
        if each.remote_attach is not None and "orders" in str(each.remote_attach) and each.local is UNOPENED
    )
    remote = link.remote_attach
    assert remote is not None
    link.attach(
        source=remote.source if is_sender else None,
        target=None if is_sender else remote.target,
    )
    played.peer.speak()
    await turns()
    assert not opening.done()
    link.detach(Condition("amqp:not-found", "gone"))
    played.peer.speak()
    with pytest.raises(LinkRefusedError, match="no link to orders: amqp:not-found: gone"):
        await opening


class Counted:
    """A message that counts its answers."""

    message_format, state = 0, None

    def __init__(self, number: int) -> None:
        self.payload = b"%d" % number
        self.answers: list[object] = []

    def may_go(self, now: float) -> bool:
        return True

    def answered(self, outcome: object) -> None:
        self.answers.append(outcome)


@pytest.mark.spec("R-98")
@pytest.mark.parametrize("ending", ["session", "link", "connection"])
async def test_messages_that_get_credit_and_the_end_in_one_chunk_are_answered_once_each(
    played: Played, ending: str
) -> None:
    sender = await played.connection.open_sender("orders")
    link = played.peer.links["to orders"]
    assert isinstance(link, ReceiverLink)
    link.flow(0)
    played.peer.speak()
    await turns()
    messages = [Counted(number) for number in range(5)]
    for message in messages:
        sender.transfer(message)
    await turns()
    assert not played.peer.received
    link.flow(100)
    {"session": link.session.end, "link": link.detach, "connection": played.peer.engine.close}[ending]()
    played.peer.speak()
    await turns()
    assert sender.detached.done()
    assert [message.answers for message in messages] == [[None]] * 5
    assert not played.peer.received


# --- a peer that says nothing


async def opened(answer_timeout: float) -> Played:
    connection = NamespaceConnection(parse(NAMESPACE), answer_timeout=answer_timeout)
    peer = Peer(connection)
    connection.connection_made(peer)
    await connection.wait_open()
    await connection.authorize("orders")
    return Played(connection, peer)


@pytest.mark.parametrize("answer_timeout", [1.0, 5.0, 60.0])
@driven
async def test_a_silent_peer_ends_the_connection_when_an_answer_would_be_overdue(
    monkeypatch: pytest.MonkeyPatch, answer_timeout: float
) -> None:
    played = await opened(answer_timeout)
    await asyncio.sleep(0.3)
    heard_at = now()
    await played.connection.authorize("invoices")
    monkeypatch.setattr(played.peer, "write", lambda data: None)
    await played.connection.closed
    assert now() == pytest.approx(heard_at + answer_timeout)
    with pytest.raises(ConnectionLostError, match="silent for"):
        played.connection.begin()


@driven
async def test_a_peer_that_has_nothing_to_say_is_asked_for_a_sign_of_life() -> None:
    played = await opened(5.0)
    await asyncio.sleep(100.0)
    assert played.connection.is_open
    played.connection.abort()


@driven
async def test_a_peer_that_is_not_read_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    played = await opened(5.0)
    for name in ("pause_reading", "resume_reading"):
        monkeypatch.setattr(played.peer, name, lambda: None, raising=False)
    monkeypatch.setattr(played.peer, "write", lambda data: None)
    played.connection.pause_reading()
    await asyncio.sleep(100.0)
    assert played.connection.is_open
    played.connection.resume_reading()
    await asyncio.sleep(10.0)
    assert not played.connection.is_open


@pytest.mark.parametrize("answer_timeout", [1.0, 3.0])
@driven
async def test_an_attach_and_a_request_wait_as_long_as_an_answer_may_take(answer_timeout: float) -> None:
    played = await opened(answer_timeout)
    played.peer.silent.add("orders")
    with pytest.raises(LinkRefusedError, match=f"no answer within {answer_timeout:g} s"):
        await played.connection.open_sender("orders")
    assert now() == pytest.approx(answer_timeout)
    played.peer.nodes["$cbs"] = lambda request: None
    with pytest.raises(ConnectionLostError, match=f"within {answer_timeout:g} s"):
        await played.connection.authorize("invoices")
    assert now() == pytest.approx(2 * answer_timeout)
    played.connection.abort()
