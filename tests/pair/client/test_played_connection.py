"""A connection over a played transport: flow control, how it ends, and its attach frames."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.link import UNOPENED, ReceiverLink
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from tests.pair.client.played import NAMESPACE, Peer, Played, turns
from tests.pair.syphon.scripted import driven, now

pytestmark = pytest.mark.spec("R-66")


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
async def test_messages_credit_and_close_in_one_chunk_are_each_handled_once(
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
async def test_a_silent_peer_ends_the_connection_when_an_answer_is_overdue(
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
async def test_an_idle_peer_is_asked_for_a_heartbeat() -> None:
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
