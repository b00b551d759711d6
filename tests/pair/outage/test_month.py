"""A month of a client, in driven connection time: what is opened again and again is closed again and again.

The broker detaches a link that was idle for ten minutes, closes a connection that has had no link for five: twice a
day the client finds nothing left of what it had opened. Every third time the primary is also down for a while.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import PairedServiceBusClient, StoredIn
from sbpair.pair.auth.connection_string import fields_of
from sbpair.pair.auth.credential import sign
from sbpair.pair.pairing.blocking.sender_pool import SenderPool
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.shared.base_runtime import BaseRuntime
from tests.pair.outage.conftest import Either, open_sockets
from tests.pair.runtimes import runtime_of

HALF_DAYS = 60
DETACHED, CLOSED = timedelta(minutes=10, seconds=1), timedelta(minutes=5, seconds=1)
WARM = 13  # half days until everything was opened once: both sides, both backlogs
CLOSING = 4  # fewer than half days: of what is left open at each, the month leaves 46
RETRIES = RetryPolicy(total=3, backoff_factor=0.05)


def is_idle(runtime: BaseRuntime) -> bool:
    """Whether the client neither pings nor opens a link; a call may leave behind a link that is still opening."""
    pools: Iterable[Any] = runtime._pools.values()  # type: ignore[attr-defined]
    return not runtime.pair._pings._running and not any(map(openings, pools))


def openings(pool: Any) -> Collection[object]:
    """The links that a pool of either skin is opening."""
    if isinstance(pool, SenderPool):
        return pool._openings
    return {*pool._outdated, pool._opening} - {None}


async def night(either: Either, client: PairedServiceBusClient) -> None:
    """The part of twelve idle hours in which the brokers close what is open; nothing happens in the rest.

    It begins once the client is idle: hours that pass while a link opens would look like a peer that never answers.
    """
    await either.until(lambda: is_idle(runtime_of(client)))
    for span in (DETACHED, CLOSED):
        await asyncio.to_thread(either.broker.advance_connections, span)


def valid_for_years(connection_string: str) -> str:
    """The same rights by a signature that outlives the month; one that the SDK makes from a key lasts an hour."""
    fields = fields_of(connection_string)
    host = f"sb://{urlsplit(fields['endpoint']).hostname}/"
    token = sign(host, fields["sharedaccesskeyname"], fields["sharedaccesskey"], int(time.time()) + 10**8)
    return f"Endpoint={fields['endpoint']};SharedAccessSignature={token};UseDevelopmentEmulator=true"


def at_the_brokers(either: Either) -> tuple[int, ...]:
    """Connections, sessions and links that are open, at both."""

    def counts() -> tuple[int, ...]:
        servers = [side.server for side in (either.primary, either.secondary)]
        wires = [wire for server in servers for wire in server.wires.values()]
        engines = [wire.client._engine for wire in wires]
        return (
            len(wires),
            sum(len(engine.sessions) for engine in engines),
            sum(len(wire.client.links) for wire in wires),
        )

    return either.broker._in_loop(counts)  # type: ignore[no-any-return]


def held(either: Either) -> tuple[int, ...]:
    """What is open in this process, and at the brokers; a link that is being closed counts."""
    return open_sockets(), threading.active_count(), len(asyncio.all_tasks()), *at_the_brokers(either)


@pytest.mark.slow
@pytest.mark.spec("R-20", "R-13")
async def test_after_a_month_of_idle_nights_and_outages_a_client_holds_no_more_than_in_the_first_week(
    either: Either,
) -> None:
    either.ways = tuple(map(valid_for_years, either.ways))  # type: ignore[assignment]
    for backlog in range(2):  # the SDK's administration client sends such a signature as a bearer token
        either.secondary.create_queue(f"contoso/x-servicebus-transfer/{backlog}")
    client = either.client(ping=60.0, retry=RETRIES, assume_backlogs_exist=True)
    sender = client.get_queue_sender("orders")
    first_week: tuple[int, ...] = ()
    for half_day in range(HALF_DAYS):
        if half_day % 3 == 0:
            either.primary.take_down("reset")
            receipt = await either.send(sender, ServiceBusMessage("parked"))
            assert receipt.stored_in is StoredIn.BACKLOG
            either.primary.bring_up()
            client.mark_path_healthy("orders")
        receipt = await either.send(sender, ServiceBusMessage("sent"))
        assert receipt.stored_in is StoredIn.PRIMARY
        await night(either, client)
        if half_day == WARM:
            first_week = held(either)
    await either.until(
        lambda: all(now <= then + CLOSING for now, then in zip(held(either), first_week, strict=True))
    )
    assert sum(either.parked()) == HALF_DAYS // 3
