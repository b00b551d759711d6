"""Many concurrent sends, slow links and failing name resolution do not count as an outage."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.aio import EntityState, SendReceipt, StoredIn
from sbpair.broker.faults import RejectWith, Withhold
from sbpair.events import BacklogsCreated, BacklogWithdrawn, EntityFailedOver, EntitySuspected
from sbpair.pair.pairing.aio.sender_pool import MAX_SENDERS, AsyncPooledSender, AsyncSenderPool
from tests.pair.outage.conftest import options_of
from tests.pair.runtimes import runtime_of
from tests.waiting import PATIENCE, until


def told(pairing, *kinds: type) -> list[object]:
    return [event for event in pairing.told if isinstance(event, kinds)]


def under_way(pool: AsyncSenderPool) -> Any:
    """The opening of a link that is under way; None without one."""
    return pool._opening


def pooled_in(pool: AsyncSenderPool) -> list[AsyncPooledSender]:
    return pool._senders


def crowd(sender, count: int, **named: object) -> list[asyncio.Task[object]]:
    return [
        asyncio.create_task(sender.send_messages(ServiceBusMessage(str(n), message_id=str(n)), **named))
        for n in range(count)
    ]


@pytest.fixture
async def slow_to_open(request, aio_pairing, monkeypatch) -> AsyncIterator[asyncio.Event]:
    """Delay the links to the primary until the event is set. The parameter is the client's policy for suspects."""
    may_open = asyncio.Event()
    policy = getattr(request, "param", "redirect")
    client = aio_pairing.client(
        interval=60, ping=60, suspect_policy=policy, attempt_timeout=timedelta(seconds=0.5)
    )
    pool = runtime_of(client).primary_pool("orders")
    monkeypatch.setattr(pool, "_find", may_open.wait)
    yield may_open
    may_open.set()


@pytest.mark.spec("R-5")
async def test_many_sends_are_under_way_at_once_on_a_few_links(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60).get_queue_sender("orders")
    with aio_pairing.primary.fault("orders", Withhold()):
        sending = crowd(sender, 300, timeout=60)
        await until(lambda: aio_pairing.primary.counts("orders").active == 300)
        assert aio_pairing.pool("orders").calls == 300
        assert aio_pairing.pool("orders").links <= MAX_SENDERS
        for each in sending:
            each.cancel()
        await asyncio.wait(sending)
    assert not aio_pairing.pool("orders").calls


@pytest.mark.spec("R-5")
async def test_consecutive_sends_on_one_link_are_stored_once_each(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60).get_queue_sender("orders")
    sending = []
    for n in range(200):
        sending += crowd(sender, 1)
        for _ in range(n % 7):
            await asyncio.sleep(0)
    receipts = await asyncio.gather(*sending)
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.PRIMARY}
    assert aio_pairing.primary.counts("orders").active == 200


@pytest.mark.spec("R-5")
async def test_a_rejected_message_among_many_fails_alone(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60).get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("first"))
    with aio_pairing.primary.fault("orders", RejectWith("com.microsoft:argument-error"), nth=20):
        ended = await asyncio.gather(*crowd(sender, 50), return_exceptions=True)
    assert len([each for each in ended if isinstance(each, ServiceBusError)]) == 1
    assert aio_pairing.primary.counts("orders").active == 50


@pytest.mark.spec("R-5", "R-8")
@pytest.mark.parametrize(
    ("slow_to_open", "timeout", "end"),
    [("redirect", 10.0, SendReceipt), ("raise", 0.2, OperationTimeoutError)],
    indirect=["slow_to_open"],
)
async def test_a_crowd_that_waits_for_a_link_in_vain_is_no_outage(
    aio_pairing, slow_to_open, timeout: float, end: type
) -> None:
    client = aio_pairing.clients[-1]
    sender = client.get_queue_sender("orders")
    ended = await asyncio.gather(*crowd(sender, 100, timeout=timeout), return_exceptions=True)
    assert {isinstance(each, end) for each in ended} == {True}
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not told(aio_pairing, BacklogWithdrawn)


@pytest.mark.spec("R-8")
@pytest.mark.parametrize("slow_to_open", ["raise"], indirect=True)
async def test_an_opening_outlives_its_call_and_serves_the_next(aio_pairing, slow_to_open) -> None:
    client = aio_pairing.clients[-1]
    sender, pool = client.get_queue_sender("orders"), aio_pairing.pool("orders")
    calls = 0
    while calls < 3 or under_way(pool) is None:  # a call may time out before it has begun one
        with pytest.raises(OperationTimeoutError):
            await sender.send_messages(ServiceBusMessage("early"), timeout=0.02)
        calls += 1
    opening = under_way(pool)
    slow_to_open.set()
    await until(lambda: pool.links == 1)
    assert pooled_in(pool) == [opening.pooled]
    assert (await sender.send_messages(ServiceBusMessage("later"))).stored_in is StoredIn.PRIMARY
    assert pooled_in(pool) == [opening.pooled]
    assert not told(aio_pairing, EntitySuspected, EntityFailedOver)


@pytest.mark.spec("R-8")
@pytest.mark.parametrize("slow_to_open", ["raise"], indirect=True)
async def test_an_opening_that_fails_while_nobody_waits_counts_all_the_same(
    aio_pairing, slow_to_open
) -> None:
    client = aio_pairing.clients[-1]
    aio_pairing.primary.take_down("refuse")
    while under_way(aio_pairing.pool("orders")) is None:  # a call may time out before it has begun one
        with pytest.raises(OperationTimeoutError):
            await client.get_queue_sender("orders").send_messages(ServiceBusMessage("early"), timeout=0.02)
    assert client.state_of("orders") is EntityState.HEALTHY
    slow_to_open.set()
    await until(lambda: client.state_of("orders") is EntityState.SUSPECT)
    aio_pairing.primary.bring_up()


@pytest.mark.spec("R-8")
async def test_entering_a_sender_opens_its_link(aio_pairing) -> None:
    client = aio_pairing.client(interval=60)
    async with client.get_queue_sender("orders") as sender:
        assert aio_pairing.pool("orders").links == 1
        for _ in range(12):
            assert (
                await sender.send_messages(ServiceBusMessage("x"), timeout=60)
            ).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("R-8", "P-2")
async def test_entering_a_sender_raises_nothing_while_the_primary_is_away(aio_pairing) -> None:
    client = aio_pairing.client(interval=0, ping=60)
    runtime_of(client).bind()
    await aio_pairing.heard(BacklogsCreated)
    aio_pairing.primary.take_down("refuse")
    async with client.get_queue_sender("orders") as sender:
        assert (await sender.send_messages(ServiceBusMessage("x"))).stored_in is StoredIn.BACKLOG


@pytest.mark.spec("R-5")
async def test_sends_waiting_for_a_link_at_the_failover_are_parked_at_once(aio_pairing, slow_to_open) -> None:
    client = aio_pairing.clients[-1]
    sending = crowd(client.get_queue_sender("orders"), 200, timeout=60)
    await until(lambda: len(aio_pairing.pool("orders")._waiters) == 200)
    client.fail_over("orders")
    receipts = await asyncio.gather(*sending)
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert sum(aio_pairing.parked()) == 200
    assert not told(aio_pairing, BacklogWithdrawn)


@pytest.mark.spec("R-5", "P-5")
async def test_a_crowd_at_a_primary_that_refuses_is_parked_and_no_backlog_is_withdrawn(aio_pairing) -> None:
    client = aio_pairing.client(interval=0, ping=60, timeout=60)
    aio_pairing.primary.take_down("refuse")
    receipts = await asyncio.gather(*crowd(client.get_queue_sender("orders"), 200))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert sum(aio_pairing.parked()) == 200
    assert not told(aio_pairing, BacklogWithdrawn)


@pytest.mark.spec("R-5")
async def test_concurrent_sends_stop_writing_to_a_lost_connection(aio_pairing, caplog) -> None:
    """asyncio logs a warning for each write to a transport that is closing, from the sixth one on."""
    sender = aio_pairing.client(interval=0, ping=60).get_queue_sender("orders")
    await asyncio.gather(*crowd(sender, 20))
    aio_pairing.primary.take_down("refuse")
    receipts = await asyncio.gather(*crowd(sender, 20))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert [record.getMessage() for record in caplog.records if record.name == "asyncio"] == []


@pytest.mark.spec("R-13")
async def test_idle_links_are_closed_after_concurrent_sends_but_for_one(aio_pairing) -> None:
    sender = aio_pairing.client(interval=60).get_queue_sender("orders")
    pool = aio_pairing.pool("orders")
    await asyncio.gather(*crowd(sender, 400))
    await until(lambda: under_way(pool) is None)
    pool._open_another()  # whether the crowd needed a second link depends on its speed
    await until(lambda: pool.links > 1)
    later = max(pooled.used_at for pooled in pooled_in(pool)) + 3600
    assert pool.trim(later) is None
    assert pool.links == 1
    assert (await sender.send_messages(ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY


@pytest.fixture
def unfound(monkeypatch) -> Iterator[str]:
    """A host name whose resolution hangs until the end of the test."""
    found, name, find = threading.Event(), "primary.contoso.example", socket.getaddrinfo

    def hanging(host: object, *given: object, **named: object) -> object:
        if host == name:
            found.wait(PATIENCE * 3)
            raise socket.gaierror(socket.EAI_NONAME, "the test is over")
        return find(host, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    yield name
    found.set()


@pytest.mark.spec("R-6")
async def test_an_unresolvable_primary_does_not_affect_the_secondary(
    aio_pairing, unfound, parks_early
) -> None:
    primary = re.sub(r"//[^:/;]+", f"//{unfound}", aio_pairing.primary.connection_string)
    client = aio_pairing.client_of(
        primary, aio_pairing.secondary.connection_string, options=options_of(interval=0, timeout=20)
    )
    receipts = await asyncio.gather(*crowd(client.get_queue_sender("orders"), 32))
    assert {receipt.stored_in for receipt in receipts} == {StoredIn.BACKLOG}
    assert sum(aio_pairing.parked()) == 32
