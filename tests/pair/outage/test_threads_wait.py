"""Threads that wait for a link, for name resolution or for a worker thread: the blocking test_crowd.py.

What a batch waits for is shown for both clients.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError

from sbpair import EntityState, StoredIn
from sbpair.events import BacklogWithdrawn, EntityFailedOver, EntitySuspected
from sbpair.pair.pairing.blocking.sender_pool import PooledSender, SenderPool
from tests.pair.outage.conftest import Either, Pairing, options_of
from tests.pair.runtimes import runtime_of
from tests.stopwatch import Stopwatch
from tests.waiting import PATIENCE, wait_until


def told(pairing: Pairing, *kinds: type) -> list[object]:
    return [event for event in pairing.told if isinstance(event, kinds)]


def idle(pool: SenderPool) -> list[PooledSender]:
    """The open links that no call uses."""
    return list(pool._idle)


@pytest.fixture
def crowd() -> Iterator[Callable[..., list[Future[object]]]]:
    """Send one message from each of many threads."""
    with ThreadPoolExecutor(120) as pool:

        def send(sender, count: int, **named: object) -> list[Future[object]]:
            return [
                pool.submit(sender.send_messages, ServiceBusMessage(str(n)), **named) for n in range(count)
            ]

        yield send


@pytest.fixture
def may_open(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Delay the links to "orders" until the event is set."""
    event, begin = threading.Event(), PooledSender.open

    def late(pooled: PooledSender) -> None:
        if pooled.sender.entity_name == "orders":
            event.wait(PATIENCE)
        begin(pooled)

    monkeypatch.setattr(PooledSender, "open", late)
    yield event
    event.set()


@pytest.mark.spec("R-8")
def test_an_opening_outlives_the_call_that_began_it_and_the_next_call_uses_it(pairing, may_open) -> None:
    client = pairing.client(interval=60, suspect_policy="raise")
    sender, pool = client.get_queue_sender("orders"), runtime_of(client).primary_pool("orders")
    calls = 0
    while calls < 3 or not pool._openings:  # a call may time out before it has begun one
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("early"), timeout=0.05)
        calls += 1
    (opening,) = pool._openings
    may_open.set()
    wait_until(lambda: idle(pool))
    assert idle(pool) == [opening.pooled]
    assert sender.send_messages(ServiceBusMessage("later")).stored_in is StoredIn.PRIMARY
    assert idle(pool) == [opening.pooled]
    assert not told(pairing, EntitySuspected, EntityFailedOver)


@pytest.mark.spec("R-8")
def test_an_opening_that_fails_while_nobody_waits_counts_all_the_same(pairing, may_open) -> None:
    client = pairing.client(interval=60, suspect_policy="raise")
    pairing.primary.take_down("refuse")
    while (
        not runtime_of(client).primary_pool("orders")._openings
    ):  # a call may time out before it has begun one
        with pytest.raises(OperationTimeoutError):
            client.get_queue_sender("orders").send_messages(ServiceBusMessage("early"), timeout=0.05)
    assert client.state_of("orders") is EntityState.HEALTHY
    may_open.set()
    pairing.wait_for(EntitySuspected)


@pytest.mark.spec("R-8")
def test_entering_a_sender_opens_its_link(pairing) -> None:
    client = pairing.client(interval=60)
    with client.get_queue_sender("orders") as sender:
        assert len(idle(runtime_of(client).primary_pool("orders"))) == 1
        for _ in range(12):
            assert sender.send_messages(ServiceBusMessage("x"), timeout=60).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("R-8", "P-2")
def test_entering_a_sender_raises_nothing_while_the_primary_is_away(pairing) -> None:
    client = pairing.client(interval=0, ping=60)
    pairing.primary.take_down("refuse")
    with client.get_queue_sender("orders") as sender:
        assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.BACKLOG


@pytest.mark.slow
@pytest.mark.spec("R-5")
def test_whoever_waits_for_a_link_at_the_failover_parks_at_once(pairing, may_open, crowd) -> None:
    client = pairing.client(interval=60, ping=60)
    sending = crowd(client.get_queue_sender("orders"), 100, timeout=60)
    wait_until(lambda: runtime_of(client).primary_pool("orders")._waiting.__len__() == 100)
    client.fail_over("orders")
    assert {each.result(60).stored_in for each in sending} == {StoredIn.BACKLOG}
    assert sum(pairing.parked()) == 100
    assert not told(pairing, BacklogWithdrawn)
    may_open.set()


@pytest.mark.slow
@pytest.mark.spec("R-6")
def test_a_primary_whose_name_is_not_found_costs_the_secondary_nothing(
    pairing, monkeypatch, crowd, parks_early
) -> None:
    found, name, find = threading.Event(), "primary.contoso.example", socket.getaddrinfo

    def hanging(host: object, *given: object, **named: object) -> object:
        if host == name:
            found.wait(PATIENCE * 3)
            raise socket.gaierror(socket.EAI_NONAME, "the test is over")
        return find(host, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", hanging)
    primary = re.sub(r"//[^:/;]+", f"//{name}", pairing.primary.connection_string)
    client = pairing.client_of(
        primary, pairing.secondary.connection_string, options=options_of(interval=0, ping=60, timeout=30)
    )
    sending = crowd(client.get_queue_sender("orders"), 100, timeout=20)
    assert {each.result(60).stored_in for each in sending} == {StoredIn.BACKLOG}
    assert sum(pairing.parked()) == 100
    found.set()


@pytest.mark.spec("R-13")
def test_idle_links_are_closed_after_many_concurrent_threads_but_for_one(pairing, may_open, crowd) -> None:
    client = pairing.client(interval=60)
    sender, pool = client.get_queue_sender("orders"), runtime_of(client).primary_pool("orders")
    sending = crowd(sender, 30, timeout=60)
    wait_until(lambda: len(pool._openings) == 30)
    may_open.set()
    assert {each.result(60).stored_in for each in sending} == {StoredIn.PRIMARY}
    wait_until(lambda: len(idle(pool)) == 30)
    later = time.monotonic() + 3600
    assert pool.trim(later) is None
    assert len(idle(pool)) == 1
    assert sender.send_messages(ServiceBusMessage("after")).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("R-11")
async def test_a_batch_waits_for_a_silent_primary_once_and_that_counts(either: Either) -> None:
    client = either.client(interval=60, timeout=60)
    either.primary.take_down("silent")
    sender = client.get_queue_sender("orders")
    with Stopwatch() as watch:
        assert (await either.done(sender.create_message_batch(timeout=1.5))).max_size_in_bytes == 256 * 1024
        assert client.state_of("orders") is EntityState.SUSPECT
        for _ in range(20):
            await either.done(sender.create_message_batch())
    assert watch.seconds < 10
    either.primary.bring_up()


@pytest.mark.spec("R-11")
async def test_a_batch_has_the_last_limit_known_while_the_primary_is_away(either: Either) -> None:
    client = either.client(interval=60)
    sender = client.get_queue_sender("orders")
    known = (await either.done(sender.create_message_batch())).max_size_in_bytes
    sender._batch_limit = known + 1  # stands for an entity with a limit other than the default
    client.fail_over("orders")
    assert (await either.done(sender.create_message_batch())).max_size_in_bytes == known + 1
