"""A namespace that is removed while a client uses it leaves no timer behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from tests.waiting import PATIENCE, until


@pytest.mark.spec("G-26")
@pytest.mark.parametrize("is_durable", [False, True])
async def test_a_removed_namespace_has_no_timer(is_durable: bool, tmp_path: Path) -> None:
    async with Broker({"contoso": 0, "fabrikam": 0}, data=tmp_path if is_durable else None) as broker:
        removed = broker.namespace("fabrikam")
        await asyncio.to_thread(removed.create_queue, "orders")
        connection = await connect(parse(removed.connection_string))
        try:
            async with asyncio.timeout(PATIENCE):
                sender = await connection.open_sender("orders")
                await sender.send(b"")
                locked: list[MessageReceived] = []
                receiver = await connection.open_receiver("orders", locked.append)
                receiver.flow(10)  # so that it still waits once it has the message
                await until(lambda: bool(locked))
                await asyncio.to_thread(broker.remove_namespace, "fabrikam")
        finally:
            await connection.close()
        assert removed.server._timer._handle is None
        assert removed.server._continuation is None
        await asyncio.to_thread(broker.namespace("contoso").create_queue, "orders")
        assert broker.failure is None
