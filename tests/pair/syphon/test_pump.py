"""Answers that arrive late: after the link was lost, after a wait, after the stop."""

from __future__ import annotations

import asyncio
import datetime as dt
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from sbpair.broker import Broker, NamespaceControl
from sbpair.broker.faults import Withhold
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.syphon.events import BacklogMissing, DestinationHeld
from sbpair.pair.syphon.watch.peeking import oldest
from tests.pair.syphon.pair import BACKLOGS, Pair, message_id, parked, running, take
from tests.waiting import PATIENCE, until

SOON = dt.timedelta(milliseconds=100)


@contextmanager
def stalled(namespace: NamespaceControl) -> Iterator[None]:
    """Block the broker's thread for the duration of the block, so that it neither reads nor answers."""
    stands, go_on = threading.Event(), threading.Event()

    def stand() -> None:
        stands.set()
        go_on.wait(PATIENCE)

    standing = threading.Thread(target=namespace._in_loop, args=(stand,))
    standing.start()
    assert stands.wait(PATIENCE)
    try:
        yield
    finally:
        go_on.set()
        standing.join(PATIENCE)


@pytest.fixture
def pair_of_brokers() -> Iterator[Pair]:
    """A broker, and therefore a thread, for each namespace."""
    with Broker({"contoso": 0}) as first, Broker({"contoso-dr": 0}) as second:
        pair = Pair(first.namespace("contoso"), second.namespace("contoso-dr"))
        pair.primary.create_queue("orders")
        for index in range(BACKLOGS):
            pair.secondary.create_queue(pair.backlog(index))
        yield pair


@pytest.mark.spec("G-27")
async def test_a_query_cancelled_before_its_links_exist_raises_the_cancellation(
    pair_of_brokers: Pair,
) -> None:
    """The error of the lost connection must not replace the cancellation: a syphon would never end."""
    pair = pair_of_brokers
    connection = await connect(parse(pair.secondary.connection_string))
    assert await oldest(connection, pair.backlog(0)) is None  # the claim is accepted from here on
    with stalled(pair.secondary):
        looking = asyncio.ensure_future(oldest(connection, pair.backlog(0)))
        for _ in range(10):
            await asyncio.sleep(0)
        looking.cancel()
        await asyncio.sleep(0)
        connection.abort()
        await asyncio.wait([looking], timeout=PATIENCE)

    assert looking.cancelled()


@pytest.mark.spec("F-62", "G-20")
async def test_an_answer_for_a_delivery_of_a_lost_link_is_not_taken_for_its_successor(
    pair_of_brokers: Pair,
) -> None:
    pair = pair_of_brokers
    syphon = pair.syphon(missing_backlog_interval=dt.timedelta(seconds=1))
    async with running(syphon):
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)  # the destination is open
        with stalled(pair.primary):
            await pair.park([parked(1)])
            await until(lambda: syphon.counters.received == 2)
            pair.secondary.delete_queue(pair.backlog(0))
            pair.secondary.create_queue(pair.backlog(0))
            await pair.park([parked(2), parked(3)])  # m3 now has the delivery number that m1 had
            await until(lambda: syphon.counters.received == 4)  # over another link, whose numbers restart
        await until(lambda: syphon.counters.forwarded == 4)
        await until(lambda: syphon.counters.completed == 3)  # all except m1
        assert syphon.counters.lock_lost == 1
        assert pair.waiting() == syphon.counters.pending == 0
    assert [message_id(m) for m in await take(pair.primary, "orders", 4)] == ["m0", "m1", "m2", "m3"]


async def test_a_stopped_destination_stays_stopped_after_later_answers(pair: Pair) -> None:
    syphon = pair.syphon(stop_timeout=dt.timedelta(0), retry_backoff_max=SOON)
    with pair.primary.fault("orders", Withhold()):
        async with running(syphon):
            await pair.park([parked(n) for n in range(10)])
            await until(lambda: pair.primary.counts("orders").active == 10)
    assert syphon.counters.released == 10
    assert not pair.said(DestinationHeld)  # the closed link left ten sends without an outcome: too late
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "Destination" in str(task.get_coro())]


@pytest.mark.spec("G-18", "P-42")
async def test_a_closed_token_node_is_reopened_on_its_connection(pair: Pair) -> None:
    syphon = pair.syphon(missing_backlog_interval=dt.timedelta(seconds=1), retry_backoff_max=SOON)
    async with running(syphon):
        await pair.park([parked(0)])
        await until(lambda: syphon.counters.completed == 1)
        pair.secondary.delete_queue(pair.backlog(0))
        await until(lambda: bool(pair.said(BacklogMissing)))  # its next link is authorised again
        await syphon._session._secondary._tokens._node.close()
        pair.secondary.create_queue(pair.backlog(0))
        await pair.park([parked(1)])
        await until(lambda: syphon.counters.completed == 2)
