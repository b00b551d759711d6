"""The blocking processor, whose handlers run in threads."""

from __future__ import annotations

import asyncio
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from queue import Queue
from typing import Any, cast

import pytest
from azure.servicebus.exceptions import MessageLockLostError

from sbpair import PairedServiceBusClient
from sbpair.pair.processor.delivery import Delivery
from sbpair.pair.processor.threads import ThreadInvoker
from sbpair.processor import DeadLetter, EntityMissing, LockEnded, ProcessorOptions, ReceivedMessage
from tests.children import exit_code_of
from tests.lacking import THREAD, no_descriptor, no_thread
from tests.pair.processor.pair import Pair, numbered, put
from tests.waiting import PATIENCE, wait_until


def client_of(pair: Pair) -> PairedServiceBusClient:
    return PairedServiceBusClient.from_connection_strings(
        pair.primary.connection_string, pair.secondary.connection_string
    )


def fill(pair: Pair, count: int, side: str = "primary") -> None:
    asyncio.run(put(getattr(pair, side), "orders", [numbered(n) for n in range(count)]))


@pytest.mark.spec("C-10", "C-11")
def test_a_function_is_called_for_each_message_of_both_sides(pair: Pair) -> None:
    pair.secondary.create_queue("orders")
    fill(pair, 50)
    fill(pair, 50, "secondary")
    handled: Queue[tuple[str, str]] = Queue()
    with (
        client_of(pair) as client,
        client.get_queue_processor(
            "orders", lambda m: handled.put((m.side.value, threading.current_thread().name))
        ) as processor,
    ):
        found = [handled.get(timeout=PATIENCE) for _ in range(100)]
        wait_until(lambda: processor.counters.completed == 100)
    assert sorted({side for side, _ in found}) == ["primary", "secondary"]
    assert len({thread for _, thread in found}) <= ProcessorOptions().max_concurrent_calls
    assert pair.left() == 0


@pytest.mark.spec("C-12")
def test_the_number_of_concurrent_handlers_is_limited(pair: Pair) -> None:
    fill(pair, 30)
    running, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3)

    def handle(message: ReceivedMessage) -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(PATIENCE)  # released once three run at the same time
        with lock:
            running -= 1

    with client_of(pair) as client:
        options = ProcessorOptions(max_concurrent_calls=3)
        with client.get_queue_processor("orders", handle, options=options) as processor:
            wait_until(lambda: processor.counters.completed == 30)
    assert most == 3


@pytest.fixture
def spared(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """The threads of handlers that can still start: one for each item."""
    spared, start = list[None](), threading.Thread.start

    def start_if_spared(thread: threading.Thread) -> None:
        if thread.name.startswith("sbpair-handler"):
            if not spared:
                no_thread(thread)
            spared.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_if_spared)
    return spared


@pytest.mark.spec("C-11", "C-12")
def test_a_handler_without_a_thread_waits_for_one(pair: Pair, spared, caplog) -> None:
    fill(pair, 3)
    with (
        client_of(pair) as client,
        client.get_queue_processor("orders", lambda message: None) as processor,
    ):
        wait_until(lambda: "handlers wait for a thread (3): can't start new thread" in caplog.text)
        assert processor.counters.in_flight == 3
        spared.append(None)
        wait_until(lambda: processor.counters.completed == 3)
    assert (pair.left(), processor.counters.locks_lost) == (0, 0)


@pytest.mark.spec("C-17")
async def test_a_handler_waiting_for_a_thread_at_the_stop_is_never_called(
    spared,
) -> None:
    may_end, called = threading.Event(), Queue[str]()

    def handle(message: ReceivedMessage) -> None:
        called.put(threading.current_thread().name)
        may_end.wait(PATIENCE)

    spared.append(None)
    invoker = ThreadInvoker(handle)
    for number in range(2):
        delivery = Delivery(cast(Any, None), cast(Any, None), number, b"", ReceivedMessage(b""), 0.0, 60.0)
        invoker.start(delivery, lambda *_: None)
    name = await asyncio.to_thread(called.get, timeout=PATIENCE)
    (worker,) = (each for each in threading.enumerate() if each.name == name)
    invoker.close()
    may_end.set()
    await asyncio.to_thread(worker.join, PATIENCE)
    assert (worker.is_alive(), called.empty()) == (False, True)


@pytest.mark.spec("C-11")
def test_exceptions_of_a_function_choose_the_outcome(pair: Pair) -> None:
    def handle(message: ReceivedMessage) -> None:
        if message.message_id == "m0":
            raise DeadLetter("BadOrder", "no customer")
        if message.message_id == "m1" and not message.delivery_count:
            raise ValueError("boom")

    fill(pair, 3)
    with client_of(pair) as client, client.get_queue_processor("orders", handle) as processor:
        wait_until(lambda: processor.counters.completed == 2)
    assert pair.primary.counts("orders").dead_letter == 1
    assert processor.counters.handlers_failed == 1


@pytest.mark.spec("C-11", "C-13")
def test_a_thread_settles_manually_and_waits_for_the_confirmation(pair: Pair) -> None:
    fill(pair, 2)
    kept: Queue[ReceivedMessage] = Queue()
    with client_of(pair) as client:
        options = ProcessorOptions(autosettle=False)
        with client.get_queue_processor("orders", kept.put, options=options) as processor:
            first, second = (kept.get(timeout=PATIENCE) for _ in range(2))
            processor.complete_message(first)
            assert pair.left() == 1
            processor.dead_letter_message(second, "BadOrder")
            with pytest.raises(MessageLockLostError):
                processor.complete_message(first)
    assert pair.primary.counts("orders").dead_letter == 1


@pytest.mark.spec("C-17")
def test_run_returns_once_a_handler_asks_to_stop(pair: Pair) -> None:
    fill(pair, 5)
    with client_of(pair) as client:
        processor = client.get_queue_processor("orders", lambda m: processor.request_stop())
        with ThreadPoolExecutor() as pool:
            pool.submit(processor.run).result(timeout=PATIENCE)
    assert pair.left() + processor.counters.completed == 5


@pytest.mark.spec("C-12", "C-17")
def test_a_function_that_outlasts_the_stop_is_logged_and_its_message_released(pair: Pair) -> None:
    fill(pair, 1)
    began, may_end = threading.Event(), threading.Event()
    told: Queue[Exception | None] = Queue()

    def handle(message: ReceivedMessage) -> None:
        began.set()
        may_end.wait(PATIENCE)
        told.put(message.auto_renew_error)

    with client_of(pair) as client:
        options = ProcessorOptions(stop_timeout=timedelta(0))
        with client.get_queue_processor("orders", handle, options=options):
            began.wait(PATIENCE)
        may_end.set()
        assert "stopping" in str(told.get(timeout=PATIENCE))
    assert pair.left() == 1


def test_closing_the_client_stops_its_processors(pair: Pair) -> None:
    fill(pair, 1)
    handled: Queue[ReceivedMessage] = Queue()
    with client_of(pair) as client:
        processor = client.get_queue_processor("orders", handled.put)
        processor.on_event(pair.events.append)
        processor.__enter__()
        handled.get(timeout=PATIENCE)
    assert "stopped" in repr(processor)
    assert pair.said(LockEnded) == []


@pytest.mark.spec("C-17")
def test_a_call_still_waiting_when_the_processor_stops_raises(pair: Pair) -> None:
    waits, ended = threading.Event(), Queue[object]()

    async def endless() -> None:
        waits.set()
        await asyncio.Event().wait()

    def call() -> None:
        try:
            ended.put(processor._in_loop(endless()))
        except ValueError as error:
            ended.put(error)

    with client_of(pair) as client, client.get_queue_processor("orders", lambda m: None) as processor:
        threading.Thread(target=call, daemon=True).start()
        assert waits.wait(PATIENCE)
    assert "is stopped" in str(ended.get(timeout=PATIENCE))


@pytest.mark.spec("C-17", "F-19")
def test_a_forked_child_restarts_its_copy_of_a_processor_and_the_parents_keeps_running(pair: Pair) -> None:
    handled: Queue[ReceivedMessage] = Queue()
    fill(pair, 1)
    with client_of(pair) as client:
        processor = client.get_queue_processor("orders", handled.put)
        processor.on_event(pair.events.append)
        with processor:
            handled.get(timeout=PATIENCE)
            wait_until(lambda: processor.counters.completed == 1)
            wait_until(lambda: pair.said(EntityMissing))  # the secondary's: no thread is busy during the fork
            child = os.fork()
            if child == 0:
                try:
                    processor.stop()
                    with processor:
                        pass
                    client.close()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            assert exit_code_of(child) == 0
            fill(pair, 1)
            handled.get(timeout=PATIENCE)
            wait_until(lambda: processor.counters.completed == 2)


@pytest.mark.spec("R-108")
@pytest.mark.parametrize(
    ("lacking", "stand_in", "why"),
    [
        ("asyncio.new_event_loop", no_descriptor, "Too many open files"),
        (THREAD, no_thread, "can't start new thread"),
    ],
    ids=["loop", "thread"],
)
def test_a_processor_without_a_loop_or_thread_raises_and_starts_later(
    pair: Pair, lacking: str, stand_in: object, why: str
) -> None:
    fill(pair, 1)
    handled: Queue[ReceivedMessage] = Queue()
    with client_of(pair) as client, ThreadPoolExecutor(1) as pool:
        processor = client.get_queue_processor("orders", handled.put)
        pool.submit(int).result()  # from here on it has its thread
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(lacking, stand_in)
            starting = pool.submit(processor.__enter__)
            with pytest.raises((OSError, RuntimeError), match=why):
                starting.result(timeout=PATIENCE)
        with processor:
            handled.get(timeout=PATIENCE)
