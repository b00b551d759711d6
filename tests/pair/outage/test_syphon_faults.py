"""Other faults of a syphon's environment: no memory, incomplete peeks and messages that become visible late."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.servicebus import ServiceBusClient

from sbpair.broker import Broker
from tests.pair.outage.victims import bring_home, run_dry, victim
from tests.pair.syphon.pair import Pair, message_id, pair_of, parked, take

QUARTER = timedelta(minutes=15)
LARGE = 200_000  # bytes of a body
MESSAGES = 150  # at most one window in flight: 30 MB


@pytest.mark.slow
@pytest.mark.spec("F-20", "G-1", "G-3")
async def test_a_syphon_out_of_memory_ends_with_an_error_and_loses_nothing(pair: Pair) -> None:
    body = bytes(LARGE)
    for start in range(0, MESSAGES, 50):
        await pair.park([parked(n, body=body) for n in range(start, start + 50)])
    strings = pair.primary.connection_string, pair.secondary.connection_string
    with victim(run_dry, *strings, 8 << 20) as syphon:
        syphon.start()
        assert syphon.ended() not in (0, None)
    assert pair.primary.counts("orders").active < MESSAGES, "it had enough: the trial proves nothing"
    with victim(bring_home, *strings) as syphon:
        syphon.start()
        assert syphon.ended() == 0
    found = [message_id(m) for m in await take(pair.primary, "orders", pair.primary.counts("orders").active)]
    assert set(found) == {f"m{n}" for n in range(MESSAGES)}
    assert pair.set_aside() == 0


@pytest.mark.spec("F-57", "G-4", "G-20")
async def test_a_message_accepted_but_visible_fifteen_minutes_later_is_not_sent_again(
    shifted: Broker,
) -> None:
    shifted.namespace("contoso").delete_queue("orders")
    pair = pair_of(shifted)
    due = datetime.now(UTC) + QUARTER
    await pair.park([parked(1, x_ms_scheduledenqueuetimeutc=due.strftime("%Y-%m-%dT%H:%M:%SZ"))])
    assert (await pair.syphon().drain()).forwarded == 1
    counts = pair.primary.counts("orders")
    assert (counts.active, pair.waiting()) == (0, 0)  # invisible, but not considered lost
    shifted.advance(timedelta(minutes=10))
    assert (await pair.syphon().drain()).received == 0
    shifted.advance(timedelta(minutes=6))
    assert [message_id(m) for m in await take(pair.primary, "orders", 1)] == ["m1"]
    assert pair.primary.counts("orders").total == 0


@pytest.mark.spec("F-59", "P-42")
async def test_a_drain_finds_messages_that_a_peek_does_not_show(pair: Pair) -> None:
    """A peek shows one partition at a time and therefore cannot prove that a partitioned backlog is empty."""
    pair.secondary.delete_queue(pair.backlog(0))
    pair.secondary.create_queue(pair.backlog(0), enable_partitioning=True)
    await pair.park([parked(n) for n in range(40)])
    with ServiceBusClient.from_connection_string(pair.secondary.connection_string) as foreign:
        assert len(foreign.get_queue_receiver(pair.backlog(0)).peek_messages(100)) < 40
    counters = await pair.syphon().drain()
    assert (counters.forwarded, pair.waiting()) == (40, 0)
    assert len(await take(pair.primary, "orders", 40)) == 40
