"""Handlers in a pool of tasks are as concurrent and as isolated as in a task each."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable

import pytest

from sbpair.pair.processor.delivery import Delivery
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.tasks import TaskInvoker
from tests.waiting import PATIENCE

VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class Calls:
    """An invoker with the deliveries given to it and their results."""

    def __init__(self, handler: Callable[[ReceivedMessage], Awaitable[object]]) -> None:
        self.invoker = TaskInvoker(handler)
        self.ended: dict[str, BaseException | None] = {}
        self.more: list[Delivery] = []

    def start(self, *names: str) -> list[Delivery]:
        deliveries = [
            Delivery(None, None, number, b"", ReceivedMessage(name.encode()), 0.0, 0.0)  # type: ignore[arg-type]
            for number, name in enumerate(names)
        ]
        for delivery in deliveries:
            self.invoker.start(delivery, self._finished)
        return deliveries

    def _finished(self, delivery: Delivery, error: BaseException | None) -> None:
        self.ended[delivery.message.payload.decode()] = error
        if self.more:
            self.invoker.start(self.more.pop(), self._finished)

    async def all_ended(self, count: int) -> None:
        async with asyncio.timeout(PATIENCE):
            while len(self.ended) < count:
                await asyncio.sleep(0)


async def test_waiting_handlers_run_concurrently() -> None:
    waiting, go = [], asyncio.Event()

    async def handle(message: ReceivedMessage) -> None:
        waiting.append(message)
        await go.wait()

    calls = Calls(handle)
    calls.start(*map(str, range(100)))
    async with asyncio.timeout(PATIENCE):
        while len(waiting) < 100:
            await asyncio.sleep(0)
    go.set()
    await calls.all_ended(100)


async def test_handlers_that_do_not_wait_share_a_task_and_run_in_order() -> None:
    seen: list[tuple[bytes, object]] = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append((message.payload, asyncio.current_task()))

    calls = Calls(handle)
    calls.start("a", "b", "c")
    await calls.all_ended(3)
    assert [payload for payload, _ in seen] == [b"a", b"b", b"c"]
    assert len({task for _, task in seen}) == 1


async def test_a_handler_that_becomes_ready_when_another_ends_is_called() -> None:
    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0)

    calls = Calls(handle)
    calls.more = [
        Delivery(None, None, 9, b"", ReceivedMessage(b"next"), 0.0, 0.0)  # type: ignore[arg-type]
    ]
    calls.start("first")
    await calls.all_ended(2)
    assert list(calls.ended) == ["first", "next"]


async def test_context_variables_set_in_a_handler_are_invisible_to_others() -> None:
    seen = []

    async def handle(message: ReceivedMessage) -> None:
        seen.append(VARIABLE.get())
        VARIABLE.set(message.payload.decode())

    calls = Calls(handle)
    calls.start(*map(str, range(20)))
    await calls.all_ended(20)
    assert seen == ["unset"] * 20
    assert VARIABLE.get() == "unset"


async def test_a_cancelled_handler_does_not_affect_the_next() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.payload == b"long":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return  # the handler hides that it was cancelled
        async with asyncio.timeout(PATIENCE):
            await asyncio.sleep(0)

    calls = Calls(handle)
    (long,) = calls.start("long")
    while long.task is None:
        await asyncio.sleep(0)
    calls.start("a", "b")
    calls.invoker.cancel(long, Exception("the lock is lost"))
    await calls.all_ended(3)
    assert calls.ended == {"long": None, "a": None, "b": None}


async def test_a_handler_cancelled_before_it_starts_is_not_called() -> None:
    called: list[bytes] = []

    async def handle(message: ReceivedMessage) -> None:
        called.append(message.payload)

    calls = Calls(handle)
    first, _ = calls.start("first", "second")
    calls.invoker.cancel(first, Exception("the lock is lost"))
    await calls.all_ended(2)
    assert called == [b"second"]
    assert isinstance(calls.ended["first"], asyncio.CancelledError)


async def test_an_error_is_attributed_to_its_own_handler() -> None:
    async def handle(message: ReceivedMessage) -> None:
        if message.payload == b"bad":
            raise ValueError("bad")

    calls = Calls(handle)
    calls.start("good", "bad", "better")
    await calls.all_ended(3)
    assert {name: type(error) for name, error in calls.ended.items()} == {
        "good": type(None),
        "bad": ValueError,
        "better": type(None),
    }


async def test_the_loop_runs_between_handlers_that_never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.pair.processor.tasks.SLICE", 0.0)
    turns: list[int] = []

    async def handle(message: ReceivedMessage) -> None:
        turns.append(ticks)

    ticks = 0
    calls = Calls(handle)
    calls.start(*map(str, range(500)))
    async with asyncio.timeout(PATIENCE):
        while len(calls.ended) < 500:  # a turn of the loop
            ticks += 1
            await asyncio.sleep(0)
    assert len(set(turns)) > 1
