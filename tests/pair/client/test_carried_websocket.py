"""A connection over a played WebSocket: what is opened, and what is closed afterwards."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.route import Route
from sbpair.pair.client import dial, websocket
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ConnectionLostError
from tests.pair.client.played import NAMESPACE, turns

pytestmark = pytest.mark.spec("R-66")


class PlayedWebSocket:
    """A WebSocket that stays open until the test ends it."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.is_closed = False
        self.sent: list[bytes] = []

    async def receive(self) -> Any:
        await self.ended.wait()
        return aiohttp.WSMessage(aiohttp.WSMsgType.CLOSED, None, None)

    async def send_bytes(self, data: bytes, /) -> None:
        self.sent.append(data)

    async def close(self) -> bool:
        self.is_closed = True
        return True

    def get_extra_info(self, name: str, default: object = None) -> object:
        return default


async def test_what_carries_a_websocket_closes_it_and_its_session_and_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    played = PlayedWebSocket()
    sessions: list[aiohttp.ClientSession] = []

    async def upgrade(session: aiohttp.ClientSession, *_: object) -> PlayedWebSocket:
        sessions.append(session)
        return played

    monkeypatch.setattr(websocket, "_upgrade", upgrade)
    before = set(websocket._carrying)
    namespace = parse(NAMESPACE).along(Route(over_websocket=True))
    connection = await dial._open(namespace, None, lambda: NamespaceConnection(namespace))
    assert isinstance(connection, NamespaceConnection)
    (carrying,) = websocket._carrying - before
    await turns()
    assert played.sent[0].startswith(b"AMQP")
    assert not played.is_closed
    played.ended.set()
    await asyncio.wait_for(carrying, 30)
    assert played.is_closed
    assert [session.closed for session in sessions] == [True]
    await turns()
    assert websocket._carrying == before
    with pytest.raises(ConnectionLostError):
        await connection.wait_open()
