"""One pooled asyncio sender and its background tasks: how calls end, and what is awaited or cancelled."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
)

from sbpair.pair.pairing.aio import sender_pool as aio_sender_pool
from sbpair.pair.pairing.aio.sender_pool import AsyncPooledSender, Tasks
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE, turns

pytestmark = pytest.mark.spec("R-66")


async def answer(value: object, after: asyncio.Event | None = None) -> object:
    if after is not None:
        await after.wait()
    if isinstance(value, Exception):
        raise value
    return value


async def test_a_call_has_its_result_or_its_error() -> None:
    pooled = AsyncPooledSender(Sender())  # type: ignore[arg-type]
    assert await pooled.run(answer("accepted"), time.monotonic() + PATIENCE) == "accepted"
    with pytest.raises(ServiceBusError, match="refused"):
        await pooled.run(answer(ServiceBusError("refused")), time.monotonic() + PATIENCE)
    assert not pooled.has_overrun
    assert not pooled.is_retired


async def test_a_late_call_ends_alone_although_others_share_its_link() -> None:
    pooled, gate = AsyncPooledSender(Sender()), asyncio.Event()  # type: ignore[arg-type]
    pooled.calls = 2
    other = asyncio.ensure_future(pooled.run(answer("accepted", gate), time.monotonic() + PATIENCE))
    await turns()
    with pytest.raises(OperationTimeoutError):
        await pooled.run(answer("late", gate), time.monotonic() - 1.0)
    assert pooled.is_retired
    assert not pooled.has_overrun  # the connection serves the other
    gate.set()
    assert await other == "accepted"
    pooled.calls = 1
    with pytest.raises(OperationTimeoutError):
        await pooled.run(answer("late", asyncio.Event()), time.monotonic() - 1.0)
    assert pooled.has_overrun  # it was alone


async def test_a_call_whose_caller_was_cancelled_ends_too() -> None:
    pooled, started, ended = AsyncPooledSender(Sender()), asyncio.Event(), asyncio.Event()  # type: ignore[arg-type]

    async def call() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    caller = asyncio.ensure_future(pooled.run(call(), time.monotonic() + PATIENCE))
    await started.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await asyncio.wait_for(ended.wait(), PATIENCE)
    assert pooled.is_retired


# --- sends over a shared link


def sharing() -> AsyncPooledSender:
    pooled = AsyncPooledSender(Sender())  # type: ignore[arg-type]
    pooled.wire.is_shared = True
    return pooled


@pytest.mark.spec("P-2")
async def test_a_send_over_a_shared_link_runs_in_the_task_of_its_caller() -> None:
    pooled, caller = sharing(), asyncio.current_task()

    async def call() -> bool:
        return asyncio.current_task() is caller

    assert await pooled.send(call(), time.monotonic() + PATIENCE)
    with pytest.raises(ServiceBusError, match="refused"):
        await pooled.send(answer(ServiceBusError("refused")), time.monotonic() + PATIENCE)


@pytest.mark.spec("G-18", "P-2")
async def test_a_late_send_on_a_shared_link_ends_alone() -> None:
    pooled, gate = sharing(), asyncio.Event()
    other = asyncio.ensure_future(pooled.send(answer("accepted", gate), time.monotonic() + PATIENCE))
    await turns()
    with pytest.raises(OperationTimeoutError, match="did not end by its deadline"):
        await pooled.send(answer("late", gate), time.monotonic() - 1.0)
    assert not pooled.has_overrun
    gate.set()
    assert await other == "accepted"


@pytest.mark.spec("G-18", "P-2")
@pytest.mark.parametrize("how", ["late", "cancelled"])
async def test_a_call_that_ends_early_leaves_its_link_to_the_sends_that_share_it(how: str) -> None:
    pooled, gate = sharing(), asyncio.Event()
    pooled.calls = 2
    send = asyncio.ensure_future(pooled.send(answer("accepted", gate), time.monotonic() + PATIENCE))
    until = time.monotonic() + (PATIENCE if how == "cancelled" else -1.0)
    batch = asyncio.ensure_future(pooled.run(answer("never", asyncio.Event()), until))
    await turns()
    if how == "cancelled":
        batch.cancel()
    with pytest.raises(asyncio.CancelledError if how == "cancelled" else OperationTimeoutError):
        await batch
    assert not pooled.has_overrun
    gate.set()
    assert await send == "accepted"


@pytest.mark.spec("G-18", "P-2")
async def test_a_cancelled_send_over_a_shared_link_raises_at_once() -> None:
    pooled = sharing()
    sending = asyncio.ensure_future(
        pooled.send(answer("accepted", asyncio.Event()), time.monotonic() + PATIENCE)
    )
    await turns()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    assert sending.cancelled()


@pytest.mark.spec("P-2")
async def test_aborting_a_shared_link_ends_its_sends() -> None:
    pooled = sharing()
    sends = [
        asyncio.ensure_future(pooled.send(answer("accepted", asyncio.Event()), time.monotonic() + PATIENCE))
        for _ in range(3)
    ]
    await turns()
    pooled.abort()
    ended = await asyncio.gather(*sends, return_exceptions=True)
    assert [type(each) for each in ended] == [ServiceBusConnectionError] * 3


async def test_a_link_whose_close_fails_or_hangs_is_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio_sender_pool, "CLOSE_TIMEOUT", 0.0)
    for problem in (OSError("gone"), None):
        sender = Sender()

        async def close(problem: Exception | None = problem) -> None:
            if problem is not None:
                raise problem
            await asyncio.Event().wait()

        monkeypatch.setattr(sender, "close", close)
        await AsyncPooledSender(sender).close()  # type: ignore[arg-type]


# --- background tasks


async def test_tasks_that_clean_up_are_not_cancelled_with_the_others() -> None:
    tasks, gate, ended = Tasks(), asyncio.Event(), []

    async def task(name: str) -> None:
        try:
            await gate.wait()
            ended.append(f"{name} ended")
        except asyncio.CancelledError:
            ended.append(f"{name} was cancelled")
            raise

    tasks.start("work", task("work"))
    tasks.let_end("close", task("close"))
    await turns()
    tasks.cancel()
    await turns()
    assert ended == ["work was cancelled"]
    await tasks.join(0.0)
    gate.set()
    await tasks.join(PATIENCE)
    assert ended == ["work was cancelled", "close ended"]


async def test_a_task_is_named_and_its_subtasks_are_awaited() -> None:
    tasks, ended = Tasks(), []

    async def inner() -> None:
        await turns()
        ended.append("inner")

    async def outer() -> str:
        tasks.start("inner", inner())
        return "outer"

    started = tasks.start("outer", outer())
    assert started.get_name() == "outer"
    await tasks.join(PATIENCE)
    assert ended == ["inner"]
    assert started.result() == "outer"


async def test_a_call_cancelled_as_it_fails_reports_no_unretrieved_error() -> None:
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def cancelled() -> None:
        pooled = AsyncPooledSender(Sender())  # type: ignore[arg-type]

        async def call() -> None:
            caller.cancel()
            raise ServiceBusError("refused")

        caller = asyncio.ensure_future(pooled.run(call(), time.monotonic() + PATIENCE))
        with pytest.raises(asyncio.CancelledError):
            await caller
        assert not pooled.is_retired

    await cancelled()
    await turns()  # until then the loop holds the cancellation, and with it the frames
    gc.collect()
    assert reported == []
