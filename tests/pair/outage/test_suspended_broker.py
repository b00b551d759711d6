"""Suspend the process of the primary's broker: its port accepts connections and never answers."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import EntityState, StoredIn
from tests.pair.outage.conftest import Either
from tests.pair.outage.victims import PROCESSES, serve, victim
from tests.stopwatch import Stopwatch

OVERRUN = 1.5  # seconds after its deadline that a blocking send may take


@pytest.mark.slow
@pytest.mark.spec("F-18", "G-18", "G-7", "P-4")
async def test_sends_to_a_suspended_broker_end_by_their_deadline_and_late_stores_were_marked_ambiguous(
    either: Either, parks_early: None
) -> None:
    hears, says = PROCESSES.Pipe(duplex=False)
    until, asks = PROCESSES.Pipe(duplex=False)
    with hears, says, until, asks, victim(serve, says, until) as broker:
        broker.start()
        assert hears.poll(60)
        either.ways = hears.recv(), either.ways[1]
        client = either.client(interval=0, ping=60)
        sender = client.get_queue_sender("orders")
        assert (
            await either.send(sender, ServiceBusMessage("before"), timeout=200)
        ).stored_in is StoredIn.PRIMARY
        broker.suspend()
        try:
            with Stopwatch() as watch:
                receipt = await either.send(sender, ServiceBusMessage("during"), timeout=60)
            assert watch.seconds < 60 + OVERRUN
            assert client.state_of("orders") is EntityState.FAILED_OVER
            quick = await either.send(sender, ServiceBusMessage("after"), timeout=60)
        finally:
            broker.wake()
        assert (receipt.stored_in, quick.stored_in) == (StoredIn.BACKLOG, StoredIn.BACKLOG)
        assert (receipt.ambiguous, quick.ambiguous) == (True, False)
        asks.send(True)
        assert hears.poll(60)
        assert hears.recv() in (1, 2)  # "during" may have been in its socket, hence the ambiguity
        client.mark_path_healthy("orders")
        assert (await either.send(sender, ServiceBusMessage("home"))).stored_in is StoredIn.PRIMARY
        await either.done(client.close())
        asks.send(False)
        assert broker.ended() == 0
    assert sum(either.parked()) == 2
