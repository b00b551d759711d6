"""Kill the syphon three times in mid-drain: nothing is lost, and only messages in flight are repeated."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sbpair.broker import Broker
from tests.pair.syphon.pair import BACKLOGS, Pair, message_id, parked, start_syphon, take
from tests.waiting import until

MESSAGES = 6000  # in all backlogs together
WINDOW = 100
LOCK = 5000  # ms, the shortest allowed; after it, the messages of a killed syphon are redelivered


@pytest.fixture
def pair() -> Iterator[Pair]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        pair = Pair(broker.namespace("contoso"), broker.namespace("contoso-dr"))
        pair.primary.create_queue("orders")
        for index in range(BACKLOGS):
            pair.secondary.create_queue(pair.backlog(index), max_delivery_count=2**31 - 1, lock_duration=LOCK)
        yield pair


def copies(pair: Pair) -> int:
    """Count the messages in the backlogs and on the primary; one that is in both counts twice.

    The backlogs are counted first, so a message that is forwarded in between counts twice instead of not at all.
    """
    waiting = pair.waiting()
    return waiting + pair.primary.counts("orders").active


@pytest.mark.slow
@pytest.mark.spec("F-16", "G-1", "G-3", "F-7", "F-9", "F-10")
async def test_three_kills_during_a_drain_lose_nothing_and_repeat_only_messages_in_flight(pair: Pair) -> None:
    sent = {f"m{n}" for n in range(MESSAGES)}
    for index in range(BACKLOGS):
        await pair.park([parked(n) for n in range(index, MESSAGES, BACKLOGS)], index)

    for kill in range(3):
        process = await start_syphon(pair, "--window", str(WINDOW))
        goal = MESSAGES * (kill + 1) // 5
        await until(lambda goal=goal: pair.primary.counts("orders").active >= goal)
        before = copies(pair)
        process.send_signal(signal.SIGKILL)
        await process.wait()
        assert pair.waiting() > 0, "the drain ended before the kill, so the test proves nothing"
        assert before >= MESSAGES

    # one drain is enough: it waits for the messages that the killed processes hold locked
    process = await start_syphon(pair, "--window", str(WINDOW), "--drain")
    _, said = await process.communicate()
    assert process.returncode == 0, said.decode()
    assert pair.waiting() == 0

    arrived = pair.primary.counts("orders").active
    found = Counter(message_id(m) for m in await take(pair.primary, "orders", arrived))
    assert set(found) == sent
    assert pair.set_aside() == 0
    twice = sum(count - 1 for count in found.values())
    assert twice <= 3 * BACKLOGS * WINDOW
    assert max(found.values()) <= 4


@pytest.mark.slow
@pytest.mark.spec("G-27", "F-22", "G-1", "G-4")
@pytest.mark.parametrize(
    "is_told_twice",
    [pytest.param(False, id="once"), pytest.param(True, id="twice", marks=pytest.mark.trial)],
)
async def test_a_syphon_stopped_during_a_drain_loses_nothing_and_releases_the_rest_at_once(
    pair: Pair, is_told_twice: bool
) -> None:
    """After one signal it releases its messages: they are available before their locks of five minutes end."""
    for index in range(BACKLOGS):
        if not is_told_twice:
            queue = pair.secondary.description(pair.backlog(index))
            pair.secondary.update_queue(pair.backlog(index), replace(queue, lock_duration=300_000))
        await pair.park([parked(n) for n in range(index, MESSAGES, BACKLOGS)], index)

    for stop in range(3):
        process = await start_syphon(pair, "--window", str(WINDOW))
        goal = MESSAGES * (stop + 1) // 5
        await until(lambda goal=goal: pair.primary.counts("orders").active >= goal)
        process.send_signal(signal.SIGTERM)
        if is_told_twice:
            process.send_signal(signal.SIGTERM)
        _, said = await process.communicate()
        assert process.returncode == 0 or is_told_twice, said.decode()

    assert pair.waiting() > 0, "the trial ended before the stops: it proves nothing"
    left = [message_id(m) for index in range(BACKLOGS) for m in await take_all(pair, index)]
    arrived = [
        message_id(m) for m in await take(pair.primary, "orders", pair.primary.counts("orders").active)
    ]
    assert set(left) | set(arrived) == {f"m{n}" for n in range(MESSAGES)}
    assert pair.set_aside() == 0
    if not is_told_twice:
        assert len(left) + len(arrived) == MESSAGES


async def take_all(pair: Pair, index: int) -> list[bytes]:
    waiting = pair.secondary.counts(pair.backlog(index)).active
    return await take(pair.secondary, pair.backlog(index), waiting)
