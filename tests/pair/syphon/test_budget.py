"""The memory budget bounds the bytes of messages in memory, whatever arrives."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext

import pytest

from sbpair.broker.faults import Full, Operation
from sbpair.pair.syphon.forward.credit import INITIAL_SIZE, MemoryBudget, RecentSize
from tests.pair.syphon.driven import BACKLOGS, Driven, play
from tests.pair.syphon.pair import parked

MIB = 1024 * 1024
BODY = 200 * 1024


@pytest.mark.spec("R-27")
def test_the_free_budget_is_shared_among_the_backlogs_by_message_size() -> None:
    budget = MemoryBudget(100 * MIB, 10)
    assert budget.credit(MIB, lambda: None) == 10
    budget.used = 50 * MIB
    assert budget.credit(MIB, lambda: None) == 5
    assert budget.credit(100 * MIB, lambda: None) == 1, "one is always taken"
    assert budget.credit(1, lambda: None) == 5 * 1024, "the smallest message costs something too"


@pytest.mark.spec("R-27")
def test_a_backlog_without_credit_is_called_when_half_of_the_budget_is_free() -> None:
    budget, woken = MemoryBudget(10 * MIB, 1), []
    budget.used = 12 * MIB
    assert budget.credit(MIB, lambda: woken.append(1)) == 0
    for left, times in ((6, 0), (5, 1), (4, 1)):
        budget.used = left * MIB
        budget.wake()
        assert len(woken) == times


@pytest.mark.spec("R-119")
def test_arriving_messages_count_against_the_budget() -> None:
    arriving = 0
    budget = MemoryBudget(100 * MIB, 10, lambda: arriving)
    assert (budget.credit(MIB, lambda: None), budget.is_exceeded) == (10, False)
    arriving = 60 * MIB
    assert (budget.credit(MIB, lambda: None), budget.is_exceeded) == (4, False)
    arriving = 101 * MIB
    assert budget.credit(MIB, lambda: None) == 1
    budget.used, arriving = 60 * MIB, 41 * MIB
    assert budget.is_exceeded


@pytest.mark.spec("R-27", "R-119")
def test_reading_continues_if_nothing_in_memory_would_resume_it() -> None:
    budget = MemoryBudget(100 * MIB, 10, lambda: 60 * MIB)
    for used, held, is_exceeded in ((50, 0, False), (51, 0, True), (70, 70, False), (71, 70, True)):
        budget.used, budget.held = used * MIB, held * MIB
        assert budget.is_exceeded is is_exceeded


@pytest.mark.spec("R-22", "R-27")
def test_with_more_than_half_held_reading_resumes_once_nothing_else_is_in_memory() -> None:
    budget, woken = MemoryBudget(10 * MIB, 1), []
    budget.used, budget.held = 12 * MIB, 6 * MIB
    assert budget.credit(MIB, lambda: woken.append(1)) == 0
    for left, times in ((7, 0), (6, 1)):
        budget.used = left * MIB
        budget.wake()
        assert len(woken) == times


@pytest.mark.spec("R-27")
def test_half_of_the_budget_is_for_held_messages() -> None:
    budget = MemoryBudget(10 * MIB, 1)
    assert budget.may_hold(5 * MIB)
    budget.held = 5 * MIB
    assert not budget.may_hold(1)


@pytest.mark.spec("R-27")
def test_the_recent_size_grows_at_once_and_shrinks_slowly() -> None:
    size = RecentSize()
    assert size.bytes == INITIAL_SIZE
    for _ in range(50):
        size.update(1000)
    assert 1000 <= size.bytes < 1100
    size.update(MIB)
    assert size.bytes == MIB
    size.update(1000)
    assert size.bytes > MIB * 0.7


def bodies(count: int) -> list[bytes]:
    return [parked(number, body=bytes(BODY)) for number in range(count)]


@pytest.mark.spec("R-27")
@pytest.mark.parametrize("is_stuck", [False, True])
def test_received_bytes_stay_within_the_budget(is_stuck: bool) -> None:
    async def story(world: Driven) -> None:
        for backlog in BACKLOGS:
            await world.park(bodies(150), backlog)
        syphon, most = world.syphon(memory_budget=8 * MIB), 0
        full = world.fault("contoso", "orders", Full(), Operation.SEND)
        async with world.running(syphon):
            with full if is_stuck else nullcontext():
                for _ in range(400):
                    await asyncio.sleep(0.05)
                    if syphon._session is not None:
                        budget = syphon._session.budget
                        most = max(most, budget.used)
                        assert budget.held <= 4 * MIB + len(BACKLOGS) * 2 * BODY
            await world.until(lambda: syphon.counters.completed == 300)
            assert most <= 8 * MIB + 2 * len(BACKLOGS) * BODY
            assert most > 2 * MIB
            assert world.active("contoso", "orders") == 300
            assert syphon.counters.received <= 600

    play(story)


@pytest.mark.spec("R-27")
def test_messages_larger_than_the_budget_pass_one_at_a_time() -> None:
    async def story(world: Driven) -> None:
        for backlog in BACKLOGS:
            await world.park([parked(number, body=bytes(900 * 1024)) for number in range(20)], backlog)
        syphon = world.syphon(memory_budget=MIB)
        async with world.running(syphon):
            await world.until(lambda: syphon.counters.completed == 40)
        assert world.active("contoso", "orders") == 40

    play(story)
