"""Turns: the sends of a session run in the order of the calls, in threads and in tasks."""

from __future__ import annotations

import asyncio
import threading

import pytest

from sbpair.pair.pairing.shared.turns import TaskTurns, ThreadTurns, Turn, Turns
from tests.waiting import PATIENCE


def of_another_thread() -> Turn:
    turn = Turn()
    turn.thread = 0
    return turn


@pytest.mark.spec("O-3")
def test_turns_are_passed_on_in_call_order() -> None:
    turns: Turns[str] = Turns()
    assert turns.take("s")
    assert turns.join("s", "second")
    assert turns.join("s", "third")
    assert turns.leave("s") == "second"
    assert turns.leave("s") == "third"
    assert turns.leave("s") is None
    assert len(turns) == 0
    assert turns.take("s")


@pytest.mark.spec("O-3")
def test_sessions_do_not_delay_each_other() -> None:
    turns: Turns[str] = Turns()
    assert turns.take("s")
    assert turns.take("t")
    assert not turns.take("s")


def test_a_waiter_that_gives_up_is_skipped_unless_it_has_the_turn() -> None:
    turns: Turns[str] = Turns()
    turns.take("s")
    turns.join("s", "second")
    turns.join("s", "third")
    assert turns.give_up("s", "second")
    assert turns.leave("s") == "third"
    assert not turns.give_up("s", "third")


@pytest.mark.spec("O-3")
def test_threads_wait_for_their_turn() -> None:
    turns, order, first = ThreadTurns(), [], Turn()
    assert turns.take("s", first)
    begun = [threading.Event() for _ in range(3)]

    def send(number: int) -> None:
        turn = Turn()
        begun[number].set()
        assert turns.wait("s", turn, 60)
        order.append(number)
        turns.leave("s", turn)

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for number, thread in enumerate(threads):
        thread.start()
        while len(turns.lines["s"]) <= number + 1:  # it stands in the line
            begun[number].wait(0.01)
    turns.leave("s", first)
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2]


def test_a_thread_whose_turn_does_not_come_in_time_leaves_the_queue() -> None:
    turns, first, late = ThreadTurns(), of_another_thread(), Turn()
    assert turns.take("s", first)
    assert not turns.wait("s", late, 0.0)
    turns.leave("s", late)
    turns.leave("s", first)
    assert turns.wait("s", Turn(), 0.0)


@pytest.mark.spec("O-3")
async def test_tasks_wait_for_their_turn_and_a_cancelled_one_passes_it_on() -> None:
    turns, order = TaskTurns(), []
    assert turns.take("s")

    async def send(number: int) -> None:
        assert await turns.wait("s", 60)
        order.append(number)
        turns.leave("s")

    tasks = [asyncio.ensure_future(send(number)) for number in range(4)]
    await asyncio.sleep(0)
    tasks[1].cancel()
    turns.leave("s")  # task 0 has the turn, and is cancelled before it runs
    tasks[0].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert order == [2, 3]
    assert turns.take("s")


async def test_a_task_whose_turn_does_not_come_in_time_leaves_the_queue() -> None:
    turns = TaskTurns()
    assert turns.take("s")
    assert not await turns.wait("s", 0.0)
    turns.leave("s")
    assert turns.take("s")


@pytest.mark.spec("O-3", "F-19")
def test_every_turn_is_free_after_a_fork() -> None:
    turns, of_parent, turn = ThreadTurns(), Turn(), of_another_thread()
    assert turns.take("s", of_parent)
    assert turns._lock.acquire()  # by a thread that the child does not have
    turns.renew()
    turns.leave("s", of_parent)  # by a send in which the process was forked
    assert turns.wait("s", turn, 0.0)
    assert not turns.take("s", Turn())
    late = Turn()
    assert not turns.wait("s", late, 0.0)
    turns.leave("s", late)
    turns.leave("s", turn)
    assert turns.take("s", Turn())


@pytest.mark.spec("R-104", "O-3")
def test_a_send_in_a_callback_of_a_send_to_the_same_session_is_refused_at_once() -> None:
    turns, first, inner = ThreadTurns(), Turn(), Turn()
    assert turns.take("s", first)
    with pytest.raises(RuntimeError, match="callback cannot send to session 's'"):
        turns.wait("s", inner, PATIENCE)
    turns.leave("s", inner)
    assert turns.wait("other", Turn(), 0.0)
    turns.leave("s", first)
    assert turns.take("s", Turn())
