"""The AMQP client connects to a namespace, or reports clearly why it cannot."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.performatives import Accepted, Modified, Rejected
from sbpair.pair.auth.connection_string import NamespaceAccess, parse
from sbpair.pair.auth.credential import SharedKey
from sbpair.pair.auth.route import Route
from sbpair.pair.client.connection import connect
from sbpair.pair.client.request import RequestNode
from sbpair.pair.syphon.watch.peeking import has_more
from sbpair.syphon import (
    ConnectionLostError,
    LinkRefusedError,
    NamespaceUnusableError,
    SyphonState,
    TokenRefusedError,
)
from tests.pair.syphon.pair import Pair, message_id, parked, put, take, take_over
from tests.waiting import PATIENCE, until

WRONG = SharedKey(lambda: ("RootManageSharedAccessKey", "d3Jvbmcga2V5"))


def tls(pair: Pair, side: str = "primary") -> NamespaceAccess:
    """Return the namespace with a TLS endpoint at the broker's port."""
    control = getattr(pair, side)
    plain = control.connection_string.replace(";UseDevelopmentEmulator=true", "")
    return parse(plain).dial_at(f"localhost:{control.port}")


async def test_messages_go_and_come_over_tls_that_trusts_the_brokers_authority(
    broker: Broker, pair: Pair
) -> None:
    connection = await connect(tls(pair).along(Route(str(broker.ca_file))))
    try:
        sender = await connection.open_sender("orders")
        assert isinstance(await sender.send(parked(1)), Accepted)
        assert [message_id(m) for m in await take_over(connection, "orders", 1)] == ["m1"]
    finally:
        await connection.close()


async def test_a_connection_over_tls_closes_its_socket_once_and_may_be_aborted_then(
    broker: Broker, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed twice, TLS forgets its socket: to abort it does nothing, and raises in Python 3.11.2."""
    connection = await connect(tls(pair).along(Route(str(broker.ca_file))))
    transport = connection._transport
    assert transport is not None
    closing, closed = transport.close, list[bool]()
    monkeypatch.setattr(transport, "close", lambda: (closed.append(True), closing()))

    await connection.close()
    connection.abort()

    assert closed == [True]


@pytest.mark.spec("F-31", "S-6")
async def test_an_untrusted_certificate_is_refused_at_once(pair: Pair) -> None:
    with pytest.raises(NamespaceUnusableError, match="certificate"):
        await connect(tls(pair))


async def test_a_file_of_certificates_that_is_not_there_is_named(pair: Pair) -> None:
    with pytest.raises(NamespaceUnusableError, match=r"nowhere\.pem"):
        await connect(tls(pair).along(Route("nowhere.pem")))


async def test_a_released_connection_opens_no_more_links(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    node = RequestNode(connection, "$cbs")  # links are opened in the next turn of the loop
    connection.abort()
    with pytest.raises(ConnectionLostError, match="the connection has ended"):
        await asyncio.wait_for(node.ask({}, None), PATIENCE)


async def test_a_node_that_nobody_waits_for_fails_silently(pair: Pair) -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    connection = await connect(parse(pair.primary.connection_string))
    opening = RequestNode(connection, "$cbs")._opening
    connection.abort()
    await asyncio.wait((opening,), timeout=PATIENCE)
    del opening
    gc.collect()  # asyncio reports unretrieved exceptions here
    assert unheard == []


@pytest.mark.spec("F-23")
async def test_a_port_where_nobody_listens_is_a_lost_connection(pair: Pair) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = parse(pair.primary.connection_string).dial_at(f"127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(ConnectionLostError, match=r"cannot be reached: Connection refused$"):
            await connect(nobody)


@pytest.fixture
def silent() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        yield server.getsockname()[1]


@pytest.mark.spec("F-25")
async def test_a_peer_that_accepts_and_stays_silent_times_out(pair: Pair, silent: int) -> None:
    namespace = parse(pair.primary.connection_string).dial_at(f"127.0.0.1:{silent}")
    with pytest.raises(ConnectionLostError, match="no answer"):
        await connect(namespace, timeout=0.2)


async def test_a_queue_that_does_not_exist_is_refused_by_name(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    try:
        with pytest.raises((LinkRefusedError, TokenRefusedError), match="nowhere") as raised:
            await connection.open_sender("nowhere")
        assert raised.value.condition is not None
        assert raised.value.condition.symbol == "amqp:not-found"
        assert "status 404: " in str(raised.value)
    finally:
        await connection.close()


@pytest.mark.spec("F-41")
async def test_a_wrong_key_is_refused_and_is_not_in_the_error(pair: Pair) -> None:
    wrong = replace(parse(pair.primary.connection_string), tokens=WRONG)
    connection = await connect(wrong)
    try:
        with pytest.raises((LinkRefusedError, TokenRefusedError)) as raised:
            await connection.open_sender("orders")
        assert raised.value.condition is not None
        assert raised.value.condition.symbol == "amqp:unauthorized-access"
        assert "d3Jvbmcga2V5" not in str(raised.value)
    finally:
        await connection.close()


@pytest.mark.spec("F-41")
async def test_a_drain_with_a_wrong_key_ends_with_the_reason(pair: Pair) -> None:
    syphon = pair.syphon()
    syphon._secondary = replace(syphon._secondary, tokens=WRONG)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(NamespaceUnusableError, match="unauthorized"):
            await syphon.drain()
    assert "d3Jvbmcga2V5" not in repr(pair.events)


@pytest.mark.spec("F-41")
async def test_a_daemon_with_a_wrong_key_says_so_and_keeps_trying(pair: Pair) -> None:
    syphon = pair.syphon(retry_backoff_max=timedelta(milliseconds=200))
    right, syphon._secondary = syphon._secondary, replace(syphon._secondary, tokens=WRONG)
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: syphon.status.state is SyphonState.REFUSED)
    assert "unauthorized" in (syphon.status.reason or "")
    syphon._secondary = right
    pair.secondary.take_down("reset")  # the next connection has the right key
    pair.secondary.bring_up()
    await until(lambda: syphon.status.state is SyphonState.RUNNING)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


@pytest.mark.spec("F-41")
async def test_a_token_is_renewed_before_it_expires_and_the_link_survives(
    broker: Broker, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbpair.pair.auth.credential.TOKEN_SPAN", 60)
    monkeypatch.setattr("sbpair.pair.client.claims.renewal_due", lambda expires, now: now + 0.01)
    connection = await connect(parse(pair.primary.connection_string))
    try:
        sender = await connection.open_sender("orders")
        monkeypatch.setattr("sbpair.pair.auth.credential.TOKEN_SPAN", 3600)
        puts = connection._tokens._puts
        await until(lambda: all(put.token.expires > time.time() + 60 for put in puts.values()))
        broker.advance_connections(timedelta(seconds=61))  # the first token has expired
        assert isinstance(await sender.send(parked(1)), Accepted)
    finally:
        await connection.close()


@pytest.mark.slow
async def test_a_message_of_many_frames_and_more_messages_than_credit_go_through(pair: Pair) -> None:
    big = parked(0, body=b"x" * 200_000)
    await put(pair.primary, "orders", [big, *(parked(n) for n in range(1, 3000))])

    found = await take(pair.primary, "orders", 3000)
    assert [message_id(m) for m in found] == [f"m{n}" for n in range(3000)]


async def test_an_abandoned_message_is_redelivered(pair: Pair) -> None:
    await put(pair.primary, "orders", [parked(1)])
    connection = await connect(parse(pair.primary.connection_string))
    came: asyncio.Queue[int] = asyncio.Queue()
    try:
        receiver = await connection.open_receiver("orders", lambda event: came.put_nowait(event.delivery_id))
        receiver.flow(1)
        answer = await receiver.settle_and_wait(await came.get(), Modified(delivery_failed=True))
        assert isinstance(answer, Modified)
        receiver.flow(1)
        answer = await receiver.settle_and_wait(await came.get(), Rejected())
        assert isinstance(answer, Rejected)
    finally:
        await connection.close()


@pytest.mark.spec("P-41")
async def test_an_idle_syphon_has_granted_credit_once_for_each_backlog(pair: Pair) -> None:
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: pair.secondary.operations.polls == 2)
    await pair.park([parked(n) for n in range(5)])
    await until(lambda: syphon.counters.completed == 5)
    assert pair.secondary.operations.polls == 2
    assert syphon.counters.receives == 2
    shutdown.set()
    await running


@pytest.mark.spec("F-78", "G-21")
async def test_a_message_too_large_for_its_destination_is_set_aside(pair: Pair) -> None:
    pair.primary.create_queue("narrow", max_message_size_in_kilobytes=64)
    await pair.park([parked(1, "narrow", b"x" * 200_000), parked(2)])

    counters = await pair.syphon().drain()

    assert (counters.forwarded, counters.dead_lettered) == (1, 1)
    [event] = [e for e in pair.events if type(e).__name__ == "MessageSetAside"]
    assert event.reason == "MessageSizeExceeded"


async def test_a_connection_closed_by_the_peer_is_lost_for_all_users(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    pair.primary.take_down("reset")
    await connection.closed
    node = RequestNode(connection, "$cbs")
    uses = (
        connection.open_sender("orders"),
        connection.open_receiver("orders", print),
        connection.authorize("orders"),
        has_more(connection, "orders"),
        node.ask({}, None),
    )
    for use in uses:
        with pytest.raises(ConnectionLostError):
            await use
    with pytest.raises(ConnectionLostError, match="a session cannot be opened"):
        connection.begin()


async def test_links_of_a_session_ended_by_the_peer_get_a_new_session(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string))
    try:
        first = await connection.open_sender("orders")
        connection.session.end()
        connection.flush_soon()
        await asyncio.wait_for(first.detached, PATIENCE)
        second = await connection.open_sender("orders")
        assert isinstance(await second.send(parked(1)), Accepted)
    finally:
        await connection.close()
