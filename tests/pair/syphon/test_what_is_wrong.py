"""Each message that the syphon cannot deliver is dead-lettered or held, as the table says, on a real broker."""

from __future__ import annotations

import asyncio
import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from sbpair.broker import NamespaceControl
from sbpair.broker.faults import RejectWith
from sbpair.pair.amqp.message import Message
from sbpair.pair.syphon.events import BacklogDetached, DestinationHeld
from tests.pair.syphon.pair import Pair, parked, take
from tests.waiting import PATIENCE, until

SOON = dt.timedelta(milliseconds=100)
HOUR = 3_600_000  # milliseconds


def now() -> int:
    return int(time.time() * 1000)


# what is wrong: the parked message, the syphon's options, the dead-letter reason
FOR_GOOD: dict[str, tuple[Callable[[], bytes], dict[str, object], str]] = {
    "no path": (lambda: parked(1, None), {}, "MissingPath"),
    "path of a wrong type": (lambda: parked(1, 42), {}, "InvalidAlias"),
    "empty path": (lambda: parked(1, ""), {}, "InvalidPath"),
    "management node": (lambda: parked(1, "$management"), {}, "InvalidPath"),
    "sub-queue": (lambda: parked(1, "orders/$DeadLetterQueue"), {}, "InvalidPath"),
    "subscription": (lambda: parked(1, "news/Subscriptions/a"), {}, "InvalidPath"),
    "backlog queue": (lambda: parked(1, "contoso/x-servicebus-transfer/1"), {}, "InvalidPath"),
    "a URL": (lambda: parked(1, "sb://elsewhere/orders"), {}, "InvalidPath"),
    "outside the allow-list": (lambda: parked(1), {"allowed_destinations": ("invoices",)}, "PathNotAllowed"),
    "session id of a wrong type": (lambda: parked(1, x_ms_sessionid=1.5), {}, "InvalidAlias"),
    "time to live of a wrong type": (lambda: parked(1, x_ms_timetolive=[]), {}, "InvalidAlias"),
    "schedule of a wrong type": (
        lambda: parked(1, x_ms_scheduledenqueuetimeutc=b"x"),
        {},
        "InvalidAlias",
    ),
    "unknown destination": (lambda: parked(1, "nowhere"), {}, "DestinationNotFound"),
    "disabled destination": (lambda: parked(1, "shut"), {}, "DestinationDisabled"),
    "too large": (lambda: parked(1, "narrow", bytes(2000)), {}, "MessageSizeExceeded"),
    "deadline passed": (lambda: parked(1, x_sbpair_deadline=now() - 1000), {}, "TTLExpiredException"),
}


@pytest.fixture
def pair(pair: Pair) -> Pair:
    pair.primary.create_queue("shut")
    pair.primary.update_queue("shut", replace(pair.primary.description("shut"), status="Disabled"))
    pair.primary.create_queue("narrow", max_message_size_in_kilobytes=1)
    return pair


@pytest.mark.spec("G-20", "G-21", "F-42", "F-43", "F-73", "F-74", "F-75", "F-77")
@pytest.mark.parametrize("row", FOR_GOOD)
async def test_an_undeliverable_message_is_dead_lettered_with_its_reason_and_the_rest_continues(
    pair: Pair, row: str
) -> None:
    wrong, options, reason = FOR_GOOD[row]
    await pair.park([parked(0, "invoices"), wrong(), parked(2, "invoices")])

    counters = await pair.syphon(**options).drain()

    assert (counters.forwarded, counters.dead_lettered) == (2, 1)
    (aside,) = await take(pair.secondary, f"{pair.backlog(0)}/$DeadLetterQueue", 1)
    properties = Message.decode(aside).application_properties
    assert properties["DeadLetterReason"] == reason
    assert properties["DeadLetterErrorDescription"]
    assert pair.waiting() == pair.primary.counts("orders").total == 0
    assert pair.primary.counts("invoices").active == 2


@contextmanager
def down(primary: NamespaceControl) -> Iterator[None]:
    primary.take_down("refuse")
    try:
        yield
    finally:
        primary.bring_up()


def rejected(condition: str) -> Callable:
    return lambda primary: primary.fault("orders", RejectWith(condition))


MAY_PASS = {
    "unavailable": down,
    "internal error": rejected("amqp:internal-error"),
    "busy": rejected("com.microsoft:server-busy"),
    "full": rejected("amqp:resource-limit-exceeded"),
    "unauthorized": rejected("amqp:unauthorized-access"),
}


@pytest.mark.spec("G-1", "G-4", "G-20", "F-44", "F-61")
@pytest.mark.parametrize("row", MAY_PASS)
async def test_a_temporary_fault_settles_nothing_and_the_message_arrives_once_afterwards(
    pair: Pair, row: str
) -> None:
    await pair.park([parked(n) for n in range(3)])
    syphon = pair.syphon(retry_backoff_max=SOON)
    with MAY_PASS[row](pair.primary):
        draining = asyncio.create_task(syphon.drain())
        if row == "unavailable":
            await until(lambda: syphon.status.reason is not None)
        else:
            await until(lambda: len(pair.said(DestinationHeld)) >= 3)  # it has tried again
        assert (pair.waiting(), pair.set_aside(), syphon.counters.completed) == (3, 0, 0)
    async with asyncio.timeout(PATIENCE):
        counters = await draining
    assert (counters.forwarded, counters.completed, counters.dead_lettered) == (3, 3, 0)
    assert pair.primary.counts("orders").active == 3


@pytest.mark.spec("G-17")
async def test_a_past_schedule_is_delivered_now(pair: Pair) -> None:
    await pair.park([parked(1, x_ms_scheduledenqueuetimeutc=now() - HOUR), parked(2)])
    await pair.syphon().drain()
    counts = pair.primary.counts("orders")
    assert (counts.active, counts.scheduled) == (2, 0)


@pytest.mark.spec("G-15")
async def test_the_remaining_time_of_a_deadline_is_the_time_to_live(pair: Pair) -> None:
    await pair.park([parked(1, x_sbpair_deadline=now() + HOUR)])
    await pair.syphon().drain()
    (arrived,) = await take(pair.primary, "orders", 1)
    header = Message.decode(arrived).header
    assert header is not None
    assert HOUR - 60_000 < header.ttl <= HOUR


@pytest.mark.spec("G-23", "F-43")
async def test_a_refusing_backlog_is_retried_ever_more_rarely(pair: Pair) -> None:
    shut = pair.secondary.description(pair.backlog(0))
    pair.secondary.update_queue(pair.backlog(0), replace(shut, status="Disabled"))
    syphon, shutdown = pair.syphon(), asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: len(pair.said(BacklogDetached)) >= 3)
    refusals = [event.at for event in pair.said(BacklogDetached)]
    assert refusals[2] - refusals[0] > 0.5  # a first pause of up to half a second and a second of up to one
    await pair.park([parked(1)], 1)
    await until(lambda: syphon.counters.completed == 1)  # the others are not disturbed
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running
