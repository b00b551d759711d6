"""The syphon over WebSocket, where only HTTPS is allowed, with the same reports of outages and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta

import aiohttp
import pytest

from sbpair.broker import Broker
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.route import Route
from sbpair.pair.client import websocket as over_websocket
from sbpair.pair.client.connection import connect
from sbpair.pair.client.websocket import environment_proxy, open_websocket, url_of
from sbpair.syphon import ConnectionLostError, NamespaceUnusableError, Syphon, SyphonOptions
from tests.pair.syphon.pair import BACKLOGS, Pair, message_id, parked, put, take
from tests.served import served
from tests.waiting import PATIENCE, until

OVER = Route(over_websocket=True)
OFTEN = timedelta(milliseconds=200)  # between two attempts


def secure(pair: Pair, side: str) -> str:
    return getattr(pair, side).connection_string.replace(";UseDevelopmentEmulator=true", "")


def over_tls(broker: Broker, pair: Pair, **options) -> Syphon:
    """Create a syphon that reaches both sides over wss and trusts the broker's authority."""
    return Syphon.from_connection_strings(
        secure(pair, "primary"),
        secure(pair, "secondary"),
        options=SyphonOptions(
            backlog_queue_count=BACKLOGS,
            primary_namespace_name="contoso",
            over_websocket=True,
            connection_verify=str(broker.ca_file),
            primary_endpoint_address=f"localhost:{pair.primary.port}",
            secondary_endpoint_address=f"localhost:{pair.secondary.port}",
            **options,
        ),
    )


@dataclass
class Proxy:
    """An HTTP proxy with the targets of its CONNECT requests."""

    port: int = 0
    asked: list[str] = field(default_factory=list)
    refuses: int | None = None


@asynccontextmanager
async def proxy() -> AsyncIterator[Proxy]:
    """Run an HTTP proxy that supports only CONNECT."""
    state = Proxy()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        _, target, _ = head.split("\r\n")[0].split(" ")
        state.asked.append(target)
        if state.refuses is not None:
            writer.write(f"HTTP/1.1 {state.refuses} No\r\nContent-Length: 0\r\n\r\n".encode())
            return
        host, _, port = target.rpartition(":")
        inner, outer = await asyncio.open_connection(host, int(port))
        try:
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
            await asyncio.gather(copy(reader, outer), copy(inner, writer))
        finally:
            outer.transport.abort()

    async with served(serve) as port:
        state.port = port
        yield state


@pytest.mark.parametrize("scheme", ["ws", "wss"])
async def test_the_messages_come_home_over_websocket(broker: Broker, pair: Pair, scheme: str) -> None:
    await pair.park([parked(number) for number in range(200)])
    syphon = pair.syphon(over_websocket=True) if scheme == "ws" else over_tls(broker, pair)

    async with asyncio.timeout(PATIENCE):
        counters = await syphon.drain()

    assert (counters.completed, counters.lock_lost) == (200, 0)
    assert sorted(map(message_id, await take(pair.primary, "orders", 200))) == sorted(
        f"m{number}" for number in range(200)
    )


async def test_large_messages_and_more_than_the_buffers_hold_go_both_ways(pair: Pair) -> None:
    big = [parked(number, body=bytes([number]) * 200_000) for number in range(60)]
    await pair.park(big)

    async with asyncio.timeout(PATIENCE):
        await pair.syphon(over_websocket=True).drain()

    got = await take(pair.primary, "orders", 60)
    assert sum(map(len, got)) > 60 * 200_000


async def test_a_proxy_is_asked_for_both_sides(broker: Broker, pair: Pair) -> None:
    await pair.park([parked(1)])
    async with proxy() as between, asyncio.timeout(PATIENCE):
        syphon = over_tls(broker, pair, http_proxy=f"http://127.0.0.1:{between.port}")
        assert (await syphon.drain()).completed == 1
        await until(lambda: pair.primary.connection_count == 0)
    assert set(between.asked) == {f"localhost:{pair.primary.port}", f"localhost:{pair.secondary.port}"}


async def test_a_proxy_that_rejects_the_password_is_reported_without_it(broker: Broker, pair: Pair) -> None:
    async with proxy() as between, asyncio.timeout(PATIENCE):
        between.refuses = 407
        syphon = over_tls(broker, pair, http_proxy=f"http://me:S3cret@127.0.0.1:{between.port}")
        with pytest.raises(
            NamespaceUnusableError, match="proxy answers the WebSocket with status 407"
        ) as raised:
            await syphon.drain()
    assert "S3cret" not in str(raised.value) + repr(syphon.options)


@pytest.mark.spec("F-31", "S-6")
async def test_a_certificate_of_a_stranger_is_refused_over_websocket_too(pair: Pair) -> None:
    namespace = parse(secure(pair, "primary")).dial_at(f"localhost:{pair.primary.port}")
    with pytest.raises(NamespaceUnusableError, match="certificate"):
        await connect(namespace.along(OVER))


@pytest.mark.spec("F-30")
async def test_a_namespace_that_goes_down_is_a_lost_connection_and_is_reconnected(pair: Pair) -> None:
    syphon = pair.syphon(over_websocket=True, retry_backoff_max=OFTEN)
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await pair.park([parked(1)])
    await until(lambda: syphon.counters.completed == 1)

    pair.primary.take_down("reset")
    await until(lambda: pair.primary.connection_count == 0)
    pair.primary.bring_up()
    await pair.park([parked(2)])

    await until(lambda: syphon.counters.completed == 2)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


@pytest.mark.parametrize(
    ("status", "kind"), [("404 Not Found", NamespaceUnusableError), ("503 Busy", ConnectionLostError)]
)
async def test_a_refused_websocket_upgrade_is_reported_with_its_status(
    pair: Pair, status: str, kind: type[Exception]
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())

    async with served(serve) as port:
        with pytest.raises(kind, match=status[:3]):
            await connect(parse(pair.primary.connection_string).dial_at(f"127.0.0.1:{port}").along(OVER))


async def test_nobody_at_the_port_is_a_lost_connection_over_websocket_too(pair: Pair) -> None:
    pair.primary.take_down("refuse")
    with pytest.raises(ConnectionLostError, match="cannot be reached"):
        await connect(parse(pair.primary.connection_string).along(OVER))


def test_the_websocket_port_is_443_by_default() -> None:
    namespace = parse("Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b")

    assert url_of(namespace) == "wss://contoso.example:443/$servicebus/websocket"
    assert url_of(namespace.dial_at("gateway:8443")) == "wss://gateway:8443/$servicebus/websocket"
    assert url_of(namespace.dial_at("[::1]:8443")) == "wss://[::1]:8443/$servicebus/websocket"


def test_the_environment_names_the_proxy_and_its_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    namespace = parse("Endpoint=sb://contoso.example/;SharedAccessKeyName=a;SharedAccessKey=b")
    for name in ("no_proxy", "NO_PROXY", "https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert environment_proxy(namespace) is None
    monkeypatch.setenv("https_proxy", "http://proxy.example:3128")
    assert environment_proxy(namespace) == "http://proxy.example:3128"
    monkeypatch.setenv("no_proxy", "contoso.example")
    assert environment_proxy(namespace) is None


@pytest.mark.parametrize("url", ["proxy:3128", "ftp://proxy", "http://", "http://S3cret@proxy:port"])
def test_a_proxy_that_is_no_url_is_refused_without_being_repeated(url: str) -> None:
    with pytest.raises(ValueError, match="http_proxy must be") as raised:
        SyphonOptions(over_websocket=True, http_proxy=url)
    assert "S3cret" not in str(raised.value)


def test_a_proxy_without_websocket_is_a_configuration_error() -> None:
    with pytest.raises(ValueError, match="over_websocket"):
        SyphonOptions(http_proxy="http://proxy:3128")


async def test_a_message_sent_over_websocket_is_received_over_tcp(pair: Pair) -> None:
    connection = await connect(parse(pair.primary.connection_string).along(OVER))
    try:
        sender = await connection.open_sender("orders")
        await asyncio.gather(*(sender.send(parked(number)) for number in range(500)))
    finally:
        await connection.close()
    await put(pair.primary, "orders", [parked(500)])
    assert len(await take(pair.primary, "orders", 501)) == 501


@pytest.fixture
def sessions(monkeypatch: pytest.MonkeyPatch) -> list[aiohttp.ClientSession]:
    """Record the HTTP sessions that are created."""
    made: list[aiohttp.ClientSession] = []
    real = aiohttp.ClientSession

    def make() -> aiohttp.ClientSession:
        made.append(real())
        return made[-1]

    monkeypatch.setattr(aiohttp, "ClientSession", make)
    return made


@pytest.mark.parametrize("impatience", ["at once", "twice"])
async def test_however_hasty_the_end_of_a_loop_no_session_is_left_open(
    pair: Pair, sessions: list[aiohttp.ClientSession], impatience: str
) -> None:
    namespace = parse(pair.primary.connection_string)
    await open_websocket(namespace, asyncio.Protocol, context=None)
    here = asyncio.get_running_loop()
    (carrying,) = (task for task in over_websocket._carrying if task.get_loop() is here)
    pair.primary.take_down("silent")  # the peer does not answer the close
    if impatience == "twice":
        await asyncio.sleep(0)
        carrying.cancel()
        await until(lambda: carrying.cancelling() > 0)
        for _ in range(20):  # until it waits for the answer
            await asyncio.sleep(0)
    carrying.cancel()
    await asyncio.wait((carrying,), timeout=PATIENCE)
    assert [session.closed for session in sessions] == [True]
