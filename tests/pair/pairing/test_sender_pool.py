"""The connection of a call, and what happens to it afterwards."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from sbpair.pair.pairing.blocking.sender_pool import PooledSender, SenderPool
from sbpair.pair.pairing.shared.threads import Job, Watch, Workers
from tests.waiting import PATIENCE


@pytest.fixture
def silent() -> Iterator[str]:
    """A connection string for a peer that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        yield (
            f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=R;SharedAccessKey=K;"
            "UseDevelopmentEmulator=true"
        )


@pytest.fixture
def pool(silent: str) -> Iterator[SenderPool]:
    before = set(threading.enumerate())  # others' threads may live on in this process
    watch, workers = Watch(lambda now: None), Workers(most=4)
    client = ServiceBusClient.from_connection_string(silent, retry_total=0)
    pool = SenderPool(lambda: client.get_queue_sender("orders"), watch, workers)
    yield pool
    watch.close()
    pool.close()
    workers.join(PATIENCE)
    left = [each for each in set(threading.enumerate()) - before if each.name.startswith("sbpair")]
    for thread in left:
        thread.join(PATIENCE)
    assert not [thread for thread in left if thread.is_alive()]


def stored_lane(pool: SenderPool) -> PooledSender:
    pooled = PooledSender(pool._make())
    pool.release(pooled)
    return pooled


@pytest.mark.spec("R-9")
def test_an_opening_not_yet_begun_when_its_watch_closes_opens_nothing(
    pool: SenderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing would end it: a silent peer would hold its thread for ever."""
    may_begin, run = threading.Event(), Job.run
    opened: list[PooledSender] = []

    def slowly(job: Job) -> None:
        may_begin.wait(PATIENCE)
        run(job)

    monkeypatch.setattr(Job, "run", slowly)
    monkeypatch.setattr(PooledSender, "open", lambda pooled: opened.append(pooled))
    pool.warm()
    (opening,) = pool._openings
    closing = threading.Thread(target=pool._watch.close)
    closing.start()
    while closing.is_alive() and not opening.pooled.has_overrun:
        closing.join(0.005)
    may_begin.set()
    closing.join(PATIENCE)
    pool._workers.join(PATIENCE)
    assert opening.is_over
    assert not opened


def test_a_lane_that_completed_its_work_is_reused(pool: SenderPool) -> None:
    pooled = stored_lane(pool)
    taken = pool.acquire(time.monotonic() + PATIENCE)
    assert taken is pooled
    pool.release(taken)
    assert taken.until == math.inf


def test_a_lane_whose_socket_was_shut_at_the_last_instant_is_not_stored(pool: SenderPool) -> None:
    pooled = PooledSender(pool._make())
    pooled.overrun()
    pool.release(pooled)
    assert pool.try_acquire() is None


def test_a_lane_whose_socket_was_shut_on_return_is_skipped_for_the_next_stored(
    pool: SenderPool,
) -> None:
    sound, shut = stored_lane(pool), stored_lane(pool)
    shut.overrun()
    assert pool.try_acquire() is sound
    assert pool.try_acquire() is None
    pool.discard(sound)


def test_a_lane_returned_after_the_close_is_closed(pool: SenderPool) -> None:
    pool.close()
    stored_lane(pool)
    assert pool.try_acquire() is None


@pytest.mark.spec("G-18", "F-25")
def test_opening_a_lane_to_a_silent_peer_times_out(pool: SenderPool) -> None:
    with pytest.raises(OperationTimeoutError):
        pool.acquire(time.monotonic() + 0.2)
    assert [opening.is_over for opening in pool._openings] == [False]  # and does not wait for the peer


@pytest.mark.spec("G-18")
def test_a_lane_opened_at_its_deadline_is_not_closed_in_the_callers_thread(
    pool: SenderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_in: list[threading.Thread] = []
    wait = Job.wait
    monkeypatch.setattr(PooledSender, "open", lambda pooled: None)
    monkeypatch.setattr(PooledSender, "discard", lambda pooled: ended_in.append(threading.current_thread()))
    monkeypatch.setattr(Job, "wait", lambda job, seconds: not wait(job, PATIENCE))  # too late by a hair
    with pytest.raises(OperationTimeoutError):
        pool.try_out(time.monotonic() + PATIENCE)
    monkeypatch.undo()
    pool._workers.join(PATIENCE)
    assert ended_in
    assert threading.current_thread() not in ended_in


def test_hanging_workers_are_limited() -> None:
    workers, hold = Workers(most=2), threading.Event()
    for _ in range(2):
        workers.start("sbpair-held", hold.wait)
    with pytest.raises(OperationTimeoutError, match="still hang"):
        workers.start("sbpair-third", hold.wait)
    hold.set()
    workers.join(PATIENCE)
    workers.start("sbpair-after", hold.wait).join(PATIENCE)


def test_a_thread_the_system_cannot_provide_is_an_error_and_takes_no_slot() -> None:
    workers = Workers(most=1)
    before = threading.stack_size(2**46)  # no system has room for that one
    try:
        with pytest.raises(OperationTimeoutError, match="no thread for sbpair-close"):
            workers.start("sbpair-close", threading.Event().set)
    finally:
        threading.stack_size(before)
    done = threading.Event()
    workers.start("sbpair-close", done.set).join(PATIENCE)
    assert done.is_set()


def test_a_failing_tick_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    failed, again = threading.Event(), threading.Event()

    def tick(now: float) -> float | None:
        if failed.is_set():
            again.set()
            return None
        failed.set()
        raise RuntimeError("one bad turn")

    watch = Watch(tick)
    watch.wake()
    assert failed.wait(PATIENCE)
    watch.wake()
    assert again.wait(PATIENCE)
    watch.close()
    assert "timers" in caplog.text
