"""Cancel an asyncio send after any number of turns of the event loop, wherever it is then."""

from __future__ import annotations

import asyncio

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import EntityState, StoredIn
from tests.pair.outage.conftest import AsyncPairing

EVERY_TURN = (
    16  # up to here each number of turns; then half as many more each time, until the send completes first
)


async def cancelled_after(turns: int, sending: asyncio.Task[object]) -> bool:
    """Cancel ``sending`` after so many turns; return whether it was still under way."""
    for _ in range(turns):
        await asyncio.sleep(0)
    sending.cancel()
    await asyncio.wait((sending,))
    return sending.cancelled()


@pytest.mark.spec("F-21", "G-18")
@pytest.mark.parametrize("way", ["cold", "open", "parked"])
async def test_a_send_cancelled_while_it_waits_leaves_no_state(aio_pairing: AsyncPairing, way: str) -> None:
    client = aio_pairing.client(interval=60, ping=60, timeout=30)
    sender = client.get_queue_sender("orders")
    if way == "parked":
        client.hold("orders")
    await sender.send_messages(ServiceBusMessage("before"))
    expected, pool = client.state_of("orders"), aio_pairing.pool("orders")
    tasks, turns, cancelled = len(asyncio.all_tasks()), 0, 0
    while True:
        if way == "cold":
            for pooled in [*pool._senders]:
                pool._senders.remove(pooled)
                await pooled.discard()
        if not await cancelled_after(
            turns, asyncio.create_task(sender.send_messages(ServiceBusMessage("x")))
        ):
            break
        cancelled += 1
        turns += 1 if turns < EVERY_TURN else turns // 2
        assert not pool.calls
        assert client.state_of("orders") is expected
        assert client.pings_sent == 0
    assert cancelled > 2, "it hardly waited: the trial proves nothing"
    async with asyncio.timeout(60):
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.01)
    receipt = await sender.send_messages(ServiceBusMessage("after"))
    assert receipt.stored_in is (
        StoredIn.BACKLOG if expected is EntityState.FAILED_OVER else StoredIn.PRIMARY
    )
