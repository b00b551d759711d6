"""AMQP over WebSocket on the broker's port with the unmodified SDKs, plain and over TLS."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import aiohttp
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

CONNECTION = "GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\n"


def options(contoso, broker, scheme: str) -> tuple[str, dict[str, object]]:
    """Return the connection string and keywords with which the SDK connects over WebSocket."""
    text = contoso.connection_string
    keywords: dict[str, object] = {
        "transport_type": TransportType.AmqpOverWebsocket,
        "custom_endpoint_address": f"{scheme}://localhost:{contoso.port}",
        "retry_total": 0,
    }
    if scheme == "https":
        text = text.replace(";UseDevelopmentEmulator=true", "")
        keywords["connection_verify"] = str(broker.ca_file)
    return text, keywords


def bodies(messages) -> list[str]:
    return [str(message) for message in messages]


@pytest.mark.does("websocket")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_the_blocking_sdk_sends_and_receives_over_websocket(broker, contoso, queue, scheme):
    text, keywords = options(contoso, broker, scheme)
    with ServiceBusClient.from_connection_string(text, **keywords) as client:
        with client.get_queue_sender(queue) as sender:
            sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b" * 200_000)])
        with client.get_queue_receiver(queue) as receiver:
            got = receiver.receive_messages(2)
            while len(got) < 2:  # the large one may take longer than the SDK waits for further messages
                got += receiver.receive_messages(1)
            for message in got:
                receiver.complete_message(message)
    assert [body[:1] for body in bodies(got)] == ["a", "b"]
    assert contoso.counts(queue).active == 0


@pytest.mark.slow
@pytest.mark.does("websocket")
async def test_the_sdk_of_asyncio_sends_and_receives_over_websocket(broker, contoso, queue):
    """Over TLS only: without it the SDK passes ``ssl=None``, which aiohttp no longer accepts."""
    text, keywords = options(contoso, broker, "https")
    async with AsyncServiceBusClient.from_connection_string(text, **keywords) as client:
        async with client.get_queue_sender(queue) as sender:
            await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        async with client.get_queue_receiver(queue) as receiver:
            got = await receiver.receive_messages(2)
            while len(got) < 2:  # over TLS they may arrive one by one
                got += await receiver.receive_messages(1)
            for message in got:
                await receiver.complete_message(message)
    assert bodies(got) == ["a", "b"]
    assert contoso.counts(queue).active == 0


def answer(port: int, request: str) -> str:
    with socket.create_connection(("127.0.0.1", port), 5) as sock:
        sock.sendall(request.encode())
        return sock.recv(65536).decode()


@pytest.mark.parametrize(
    "headers",
    [
        "",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: mqtt\r\n",
    ],
    ids=["no-upgrade", "no-sub-protocol", "another-sub-protocol"],
)
def test_a_bad_websocket_upgrade_is_refused_with_a_reason(contoso, headers):
    said = answer(contoso.port, CONNECTION + headers + "\r\n")
    assert said.startswith("HTTP/1.1 400 ")
    assert "AMQPWSB10" in said


@pytest.mark.parametrize("what", ["text", "garbage", "huge"])
async def test_a_websocket_that_carries_no_amqp_is_closed_and_the_next_is_served(contoso, what):
    url = f"ws://localhost:{contoso.port}/$servicebus/websocket"
    async with aiohttp.ClientSession() as session:
        async with session.ws_connect(url, protocols=("AMQPWSB10",)) as websocket:
            if what == "text":
                await websocket.send_str("hello")
            else:
                with suppress(ConnectionError):  # the connection may be closed while the client still sends
                    await websocket.send_bytes(b"\xff" * (5_000_000 if what == "huge" else 64))
            async with asyncio.timeout(30):
                while (await websocket.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
        async with session.ws_connect(url, protocols=("AMQPWSB10",)) as websocket:
            await websocket.send_bytes(b"AMQP\x03\x01\x00\x00")
            assert (await websocket.receive_bytes(timeout=30)).startswith(b"AMQP\x03\x01\x00\x00")


@pytest.mark.parametrize("offered", [("AMQPWSB10",), ("amqp",), ("amqp", "AMQPWSB10")])
async def test_both_names_of_the_subprotocol_are_accepted(contoso, offered):
    """The Go SDK documents `amqp`, as does the standard (AMQP WebSocket Binding, 2.1)."""
    url = f"ws://localhost:{contoso.port}/$servicebus/websocket"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=offered) as websocket,
    ):
        assert websocket.protocol == offered[0]
        await websocket.send_bytes(b"AMQP\x03\x01\x00\x00")
        assert (await websocket.receive_bytes(timeout=30)).startswith(b"AMQP\x03\x01\x00\x00")


async def test_an_outage_cuts_websockets_like_other_connections(contoso):
    url = f"ws://localhost:{contoso.port}/$servicebus/websocket"
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(url, protocols=("AMQPWSB10",)) as websocket,
    ):
        await websocket.send_bytes(b"AMQP\x03\x01\x00\x00")
        await websocket.receive_bytes(timeout=30)
        contoso.take_down("reset")
        try:
            async with asyncio.timeout(30):
                while (await websocket.receive()).type is aiohttp.WSMsgType.BINARY:
                    pass
        finally:
            contoso.bring_up()


@pytest.mark.parametrize("target", ["https://localhost:{port}", "HTTP://contoso.servicebus.windows.net"])
def test_a_target_with_scheme_and_host_is_accepted(contoso, target):
    """The Java SDK sends its upgrade in this form (RFC 9112, 3.2.2)."""
    where = target.format(port=contoso.port) + "/$servicebus/websocket"
    lines = (
        f"GET {where} HTTP/1.1",
        f"Host: localhost:{contoso.port}",
        "Connection: Upgrade,Keep-Alive",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Protocol: AMQPWSB10",
    )

    assert answer(contoso.port, "\r\n".join((*lines, "", ""))).startswith("HTTP/1.1 101 ")
