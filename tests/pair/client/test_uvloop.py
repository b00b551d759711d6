"""On uvloop, whose closed transports raise whatever they are asked: the reason of a loss is what is told."""

from __future__ import annotations

import asyncio
import gc

import pytest
import uvloop

from sbpair.broker import Broker
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import OutOfReachError
from sbpair.pair.pairing.aio.limits import CallLimits
from sbpair.pair.pairing.aio.shared_link import SharedLink


class Streams:
    """What the SDK has of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer

    async def _write(self) -> None: ...

    async def receive_frame(self) -> None: ...


class Handler:
    _link = _connection = _cbs_authenticator = None

    async def _send_message_impl_async(self) -> None: ...

    async def _on_send_complete_async(self) -> None: ...

    async def do_work_async(self) -> None: ...


def test_a_link_that_ends_while_opening_is_neither_shared_nor_queried() -> None:
    async def ended() -> SharedLink | None:
        server = await asyncio.start_server(lambda reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            writer.transport.abort()
            await asyncio.sleep(0)
            return SharedLink.of(Handler(), Streams(writer), CallLimits())

    assert uvloop.run(ended()) is None


def test_reading_of_a_lost_connection_is_paused_and_resumed_without_an_error() -> None:
    async def lost(namespace_string: str) -> None:
        connection: NamespaceConnection = await connect(parse(namespace_string), timeout=30)
        connection.abort()
        await asyncio.sleep(0)
        connection.pause_reading()
        connection.resume_reading()

    with Broker({"contoso": 0}) as broker:
        uvloop.run(lost(broker.namespace("contoso").connection_string))


def test_a_namespace_that_resets_connections_is_out_of_reach() -> None:
    async def reached(namespace_string: str) -> None:
        for _ in range(20):
            with pytest.raises(OutOfReachError):
                await connect(parse(namespace_string), timeout=30)

    with Broker({"contoso": 0}) as broker:
        namespace = broker.namespace("contoso")
        namespace.take_down("reset")
        uvloop.run(reached(namespace.connection_string))
    gc.collect()  # a socket that was left open is a warning, and an error
