"""The instrument that permutes the turns of event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from tests.turns import Seeded, permuted, pieces

SEEDS = range(20)


def played(seed: int, story: Callable[[list[str]], Coroutine[Any, Any, None]]) -> list[str]:
    """Run a story in a loop with permuted turns; return what it noted."""
    noted: list[str] = []
    with permuted(Seeded(str(seed))):
        asyncio.run(story(noted))
    return noted


async def three_tasks(noted: list[str]) -> None:
    async def note(name: str) -> None:
        await asyncio.sleep(0)
        noted.append(name)

    await asyncio.gather(*map(note, "abc"))


async def three_beginnings(noted: list[str]) -> None:
    async def note(name: str) -> None:
        noted.append(name)

    await asyncio.gather(*map(note, "abc"))


async def three_callbacks(noted: list[str]) -> None:
    for name in "abc":
        asyncio.get_running_loop().call_soon(noted.append, name)
    while len(noted) < 3:
        await asyncio.sleep(0)


async def ready_in_one_turn(noted: list[str], *ready: str) -> None:
    """Let a waiting task and a callback become ready in one turn, in this order."""
    woken = asyncio.Event()

    async def wait() -> None:
        await woken.wait()
        noted.append("task")

    waiting = asyncio.ensure_future(wait())
    for _ in range(9):
        await asyncio.sleep(0)
    for each in ready:
        if each == "task":
            woken.set()
        else:
            asyncio.get_running_loop().call_soon(noted.append, each)
    await waiting
    while len(noted) < 2:
        await asyncio.sleep(0)


async def a_task_and_a_callback(noted: list[str]) -> None:
    await ready_in_one_turn(noted, "task", "callback")


async def a_callback_and_a_task(noted: list[str]) -> None:
    await ready_in_one_turn(noted, "callback", "task")


async def two_timers(noted: list[str]) -> None:
    """Note two timers, and a task that the first one wakes."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()

    async def wait() -> None:
        await woken.wait()
        noted.append("task")

    waiting = asyncio.ensure_future(wait())
    loop.call_later(0.010, lambda: (noted.append("first"), woken.set()))
    loop.call_later(0.011, noted.append, "second")
    await waiting
    while len(noted) < 3:
        await asyncio.sleep(0)


def test_concurrent_tasks_continue_in_any_order_each_once() -> None:
    orders = {"".join(played(seed, three_tasks)) for seed in SEEDS}
    assert len(orders) > 3
    assert all(sorted(order) == ["a", "b", "c"] for order in orders)


def test_callbacks_and_task_starts_keep_the_order_that_asyncio_promises() -> None:
    assert {"".join(played(seed, three_beginnings)) for seed in SEEDS} == {"abc"}
    assert {"".join(played(seed, three_callbacks)) for seed in SEEDS} == {"abc"}


def test_a_late_task_overtakes_no_callback() -> None:
    orders = {tuple(played(seed, a_task_and_a_callback)) for seed in SEEDS}
    assert orders == {("task", "callback"), ("callback", "task")}
    assert {played(seed, a_callback_and_a_task)[0] for seed in SEEDS} == {"callback"}


def test_timers_due_almost_together_precede_the_tasks_woken_by_the_first() -> None:
    orders = {tuple(played(seed, two_timers)) for seed in SEEDS}
    assert ("first", "second", "task") in orders


def test_a_seed_reproduces_the_order_and_another_test_gets_another() -> None:
    assert [played(seed, three_tasks) for seed in SEEDS] == [played(seed, three_tasks) for seed in SEEDS]
    seeded = Seeded("1")
    draws = []
    for name in ("one", "two", "one"):
        seeded.began(name)
        draws.append([seeded.next_loop().random() for _ in range(2)])
    assert draws[0] == draws[2] != draws[1]
    assert draws[0][0] != draws[0][1]


def test_a_read_returns_any_part_of_the_data_and_all_of_it_arrives() -> None:
    async def echo(noted: list[str]) -> None:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(await reader.readexactly(5000))
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1")
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(bytes(5000))
        while data := await reader.read(5000):
            noted.append(str(len(data)))
        writer.close()
        server.close()
        await server.wait_closed()

    reads = played(1, echo)
    assert sum(map(int, reads)) == 5000
    assert len(reads) > 2
    with permuted(Seeded("1")):
        assert b"".join(pieces(bytes(5000))) == bytes(5000)
        assert len(pieces(bytes(5000))) > 1
    assert pieces(bytes(5000)) == [bytes(5000)]


def test_an_order_error_hidden_by_a_plain_loop_is_found() -> None:
    async def hand_over(noted: list[str]) -> None:
        box: list[int] = []

        async def fill() -> None:
            await asyncio.sleep(0)
            box.append(1)

        async def empty() -> None:
            await asyncio.sleep(0)
            noted.append(str(box.pop()))

        await asyncio.gather(fill(), empty())

    asyncio.run(hand_over([]))
    found = 0
    for seed in SEEDS:
        try:
            played(seed, hand_over)
        except IndexError:
            found += 1
    assert 0 < found < len(SEEDS)
