"""Background threads, and how their end is awaited."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from functools import partial

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from sbpair.pair.pairing.aio import threads as aio_threads
from sbpair.pair.pairing.shared.threads import Job, Watch, Workers, finish
from tests.lacking import no_thread
from tests.waiting import PATIENCE


def test_a_worker_being_started_does_not_disturb_a_wait_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers, done = Workers(), threading.Event()
    is_registered, may_start = threading.Event(), threading.Event()
    begin = Job.start

    def slowly(job: Job) -> None:
        is_registered.set()
        may_start.wait(PATIENCE)
        begin(job)

    monkeypatch.setattr(Job, "start", slowly)
    starter = threading.Thread(target=lambda: workers.start("slow", done.set))
    starter.start()
    assert is_registered.wait(PATIENCE)
    workers.join(0.05)
    assert not done.is_set()  # it was not waited for any longer
    may_start.set()
    workers.join(PATIENCE)
    starter.join(PATIENCE)
    assert not starter.is_alive()


def test_a_caller_with_time_waits_for_a_free_worker() -> None:
    workers, hold, done = Workers(most=1), threading.Event(), threading.Event()
    workers.start("held", hold.wait)
    until = time.monotonic() + PATIENCE
    waiting = threading.Thread(target=lambda: workers.start("next", done.set, until=until))
    waiting.start()
    assert not done.wait(0.05)
    hold.set()
    assert done.wait(PATIENCE)
    waiting.join(PATIENCE)
    workers.join(PATIENCE)


def test_waiting_too_long_for_a_worker_is_a_timeout() -> None:
    workers, hold = Workers(most=1), threading.Event()
    workers.start("held", hold.wait)
    with pytest.raises(OperationTimeoutError, match="1 earlier operations still hang"):
        workers.start("next", hold.wait, until=time.monotonic() + 0.02)
    hold.set()
    workers.join(PATIENCE)


@pytest.fixture
def no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Make starting a thread fail until the event is set."""
    there_are_some, start = threading.Event(), threading.Thread.start

    def refusing(thread: threading.Thread) -> None:
        if not there_are_some.is_set():
            no_thread(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    yield there_are_some
    there_are_some.set()


@pytest.mark.spec("R-9")
def test_a_watch_whose_thread_cannot_start_tries_again(no_threads, caplog) -> None:
    ticked = threading.Event()

    def tick(now: float) -> float | None:
        ticked.set()
        return None

    watch = Watch(tick)
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        watch.wake()
    assert "no thread" in caplog.text
    no_threads.set()
    watch.wake()
    assert ticked.wait(PATIENCE)
    watch.close()


@pytest.mark.spec("R-9")
def test_a_watch_whose_thread_never_started_closes_without_an_error(no_threads) -> None:
    watch = Watch(lambda now: None)
    watch.wake()
    watch.close()


@pytest.mark.spec("R-9", "R-5")
def test_a_queued_task_whose_thread_cannot_start_runs_later(no_threads) -> None:
    workers, done = Workers(), threading.Event()
    workers.queue("sbpair-close", done.set)
    no_threads.set()
    workers.push()
    assert done.wait(PATIENCE)
    workers.join(PATIENCE)


def test_queued_tasks_run_in_order_as_workers_become_free() -> None:
    workers, hold, ran = Workers(most=1), threading.Event(), []
    workers.queue("held", hold.wait)
    jobs = [workers.queue("next", partial(ran.append, number)) for number in range(3)]
    assert workers.withdraw(jobs[1])
    hold.set()
    jobs[2].wait(PATIENCE)
    workers.join(PATIENCE)
    assert ran == [0, 2]


@pytest.mark.spec("R-9")
def test_a_last_task_runs_in_its_caller_if_no_thread_can_start(no_threads) -> None:
    ran_in: list[threading.Thread] = []
    assert finish("sbpair-spool", lambda: ran_in.append(threading.current_thread()), 0.0)
    assert ran_in == [threading.current_thread()]


@pytest.mark.spec("R-9")
async def test_with_asyncio_a_last_task_runs_in_its_caller_if_no_thread_can_start(no_threads) -> None:
    ran_in: list[threading.Thread] = []
    assert await aio_threads.finish(
        "sbpair-spool", lambda: ran_in.append(threading.current_thread()), PATIENCE
    )
    assert ran_in == [threading.current_thread()]


@pytest.mark.spec("R-9")
async def test_closing_does_not_wait_for_threads_that_could_not_start(no_threads) -> None:
    await aio_threads.Threads().join(PATIENCE)


def test_an_exception_of_a_last_task_is_raised() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        finish("sbpair-spool", fail, PATIENCE)
