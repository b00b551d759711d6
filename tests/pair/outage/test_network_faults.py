"""Network faults on a client's connections: one direction lost, slow, fragmented, closed or blocked."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusError

from sbpair import EntityState, StoredIn
from sbpair.events import EntitySuspected
from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import AMQP_FRAME, FRAME_HEAD, frame
from sbpair.pair.amqp.performatives import Close, Condition, Open
from sbpair.testing import Ledger
from tests.pair.outage.conftest import Either
from tests.pair.outage.emptying import emptied
from tests.pair.outage.tap import Passing, Tap
from tests.stopwatch import Stopwatch

OVERRUN = 1.5  # seconds after its deadline that a blocking send may take


@pytest.mark.slow
@pytest.mark.spec("F-28", "G-4", "G-7", "G-18")
async def test_a_message_whose_answer_is_lost_is_stored_once_and_acknowledged_by_a_backlog(
    either: Either, parks_early: None, tap: Tap
) -> None:
    sender = either.client(interval=0, ping=60).get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"), timeout=200)
    tap.rule = lambda passing: passing.is_clients
    with Stopwatch() as watch:
        receipt = await either.send(sender, ServiceBusMessage("x"), timeout=60)
    assert watch.seconds < 60 + OVERRUN
    assert (receipt.stored_in, receipt.ambiguous) == (StoredIn.BACKLOG, True)
    assert (either.primary.counts("orders").active, sum(either.parked())) == (2, 1)


@pytest.mark.slow
@pytest.mark.spec("F-27", "G-18")
async def test_a_peer_that_died_silently_is_detected_by_the_deadline(
    either: Either, parks_early: None, tap: Tap
) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"), timeout=200)
    for connection in range(tap.connections):
        tap.block(connection)
    with Stopwatch() as watch:
        receipt = await either.send(sender, ServiceBusMessage("x"), timeout=60)
    assert watch.seconds < 60 + OVERRUN
    assert receipt.stored_in is StoredIn.BACKLOG
    assert client.state_of("orders") is EntityState.FAILED_OVER
    assert either.primary.counts("orders").active == 1


@pytest.mark.slow
@pytest.mark.spec("P-6", "R-8")
async def test_a_link_opened_before_a_manual_failover_fails_no_later_send(either: Either, tap: Tap) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    swallowed: set[int] = set()

    def rule(passing: Passing) -> bool:
        if isinstance(passing.performative, Open) and not swallowed:
            swallowed.add(passing.connection)
        return passing.connection not in swallowed

    tap.rule = rule
    client.fail_over("orders")
    await either.until(lambda: bool(swallowed))  # the ping opens a link, and gets no answer
    client.mark_path_healthy("orders")
    receipt = await either.send(sender, ServiceBusMessage("after"))
    assert receipt.stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY


@pytest.fixture
def black_hole() -> Iterator[int]:
    """A port whose accept queue is full, so that the kernel drops every SYN."""
    with ExitStack() as held:
        listener = held.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        port: int = listener.getsockname()[1]
        while True:
            waiting = held.enter_context(socket.socket())
            waiting.settimeout(0.2)
            try:
                waiting.connect(("127.0.0.1", port))
            except TimeoutError:
                break
        yield port


@pytest.mark.slow
@pytest.mark.spec("F-26", "G-18")
async def test_a_send_is_parked_by_its_deadline_when_connection_packets_are_dropped(
    either: Either, parks_early: None, black_hole: int
) -> None:
    primary, secondary = either.ways
    either.ways = primary.replace(f":{either.primary.port}", f":{black_hole}"), secondary
    client = either.client(interval=0, ping=60)
    with Stopwatch() as watch:
        receipt = await either.send(client.get_queue_sender("orders"), ServiceBusMessage("x"), timeout=60)
    assert watch.seconds < 60 + OVERRUN
    assert receipt.stored_in is StoredIn.BACKLOG
    assert client.state_of("orders") is EntityState.FAILED_OVER


@pytest.mark.spec("F-29", "G-1")
async def test_a_slow_and_sliced_connection_is_no_outage(either: Either, tap: Tap) -> None:
    tap.delay, tap.is_sliced = 0.03, True
    client = either.client(interval=0, ping=60, timeout=60)
    sender = client.get_queue_sender("orders")
    for text in ("one", "two"):
        assert (await either.send(sender, ServiceBusMessage(text))).stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not any(isinstance(event, EntitySuspected) for event in either.told)
    assert either.primary.counts("orders").active == 2


HEAD_OF_64_MIB = FRAME_HEAD.pack(64 * 1024 * 1024, 2, AMQP_FRAME, 0)


@pytest.mark.spec("G-18", "R-33")
async def test_a_frame_above_the_announced_size_ends_the_connection_at_its_header(
    either: Either, tap: Tap
) -> None:
    client = either.client(interval=60, timeout=20, suspect_policy="raise")
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    tap.rule = lambda passing: not passing.is_answer("orders") or HEAD_OF_64_MIB
    with pytest.raises(ServiceBusConnectionError, match="announced a frame of 67108864 bytes"):
        await either.send(sender, ServiceBusMessage("x"))
    tap.let_pass()
    assert (await either.send(sender, ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY


def with_an_error(passing: Passing) -> bytes:
    return frame(0, encode_composite(Close(Condition("amqp:connection:forced", "Going away."))))


def without_a_word(passing: Passing) -> bytes:
    raise ConnectionAbortedError


def by_a_reset(passing: Passing) -> bytes:
    raise ConnectionResetError


def slowly(passing: Passing) -> bytes:
    return frame(0, encode_composite(Close(None)))


@pytest.mark.spec("F-30", "F-24", "G-1", "G-7")
@pytest.mark.parametrize("ends", [with_an_error, without_a_word, by_a_reset, slowly])
async def test_a_connection_that_ends_during_a_send_is_reopened_and_nothing_is_lost(
    either: Either, tap: Tap, ends: Callable[[Passing], bytes]
) -> None:
    client = either.client(interval=0, ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    struck: list[Passing] = []

    def rule(passing: Passing) -> bool | bytes:
        if passing.is_answer("orders") and not struck:
            struck.append(passing)
            return ends(passing)
        return True

    tap.rule = rule
    receipt = await either.send(sender, ServiceBusMessage("during"), timeout=60)
    assert receipt.ambiguous
    assert receipt.stored_in is StoredIn.PRIMARY  # over a new connection
    assert (await either.send(sender, ServiceBusMessage("after"))).stored_in is StoredIn.PRIMARY
    assert client.state_of("orders") is EntityState.HEALTHY
    assert either.primary.counts("orders").active == 4  # one of them twice


@pytest.mark.slow
@pytest.mark.spec("F-39", "G-1", "G-3")
async def test_connections_blocked_and_freed_in_different_orders_lose_nothing(
    either: Either, tap: Tap
) -> None:
    ledger, clients = Ledger(), [either.client(interval=60, suspect_policy="raise") for _ in range(3)]
    senders = [client.get_queue_sender("orders") for client in clients]

    async def send(number: int, name: str, timeout: float = 60) -> None:
        ledger.attempted(name)
        await either.send(senders[number], ServiceBusMessage(name, message_id=name), timeout=timeout)
        ledger.acknowledged(name)

    for number in range(3):
        await send(number, f"before-{number}")
    blocked = list(range(tap.connections))
    for number, connection in enumerate(blocked):
        tap.block(connection)
        with pytest.raises(ServiceBusError):
            await send(number, f"blocked-{number}", timeout=1)
    for connection in (blocked[1], blocked[2], blocked[0]):
        tap.free(connection)
        for number in range(3):
            await send(number, f"freed-{connection}-{number}")
    found = await asyncio.to_thread(ids_of, either)
    ledger.received_all(found)
    assert ledger.check().is_conserved, str(ledger.check())


def ids_of(either: Either) -> list[str]:
    return [str(message.message_id) for message in emptied(either.primary, "orders")]
