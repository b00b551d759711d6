"""Over which connection does a call go, and what becomes of it afterwards?"""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.exceptions import OperationTimeoutError

from sbpair.pairing.sender_pool import PooledSender, SenderPool
from sbpair.pairing.threads import Job, Watch, Workers
from tests.stopwatch import Stopwatch


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
    yield SenderPool(lambda: client.get_queue_sender("orders"), watch, workers)
    watch.close()
    workers.join(5.0)
    left = set(threading.enumerate()) - before
    assert not [thread for thread in left if thread.name.startswith("sbpair")]


def stored_lane(pool: SenderPool) -> PooledSender:
    pooled = PooledSender(pool._make())
    pool.release(pooled)
    return pooled


def test_a_lane_that_did_its_work_is_used_again(pool: SenderPool) -> None:
    pooled = stored_lane(pool)
    taken = pool.acquire(time.monotonic() + 5)
    assert taken is pooled
    assert taken.was_reused
    pool.release(taken)
    assert taken.until == math.inf


def test_a_lane_whose_socket_was_shut_in_its_last_instant_is_not_stored(pool: SenderPool) -> None:
    pooled = PooledSender(pool._make())
    pooled.overrun()
    pool.release(pooled)
    assert pool.try_acquire() is None


def test_a_lane_whose_socket_was_shut_while_it_came_back_is_left_for_the_next_in_store(
    pool: SenderPool,
) -> None:
    sound, shut = stored_lane(pool), stored_lane(pool)
    shut.overrun()
    assert pool.try_acquire() is sound
    assert pool.try_acquire() is None
    pool.discard(sound)


def test_what_comes_back_to_closed_lanes_is_closed(pool: SenderPool) -> None:
    pool.close()
    stored_lane(pool)
    assert pool.try_acquire() is None


@pytest.mark.spec("G-18", "F-25")
def test_opening_a_lane_to_a_silent_peer_ends_in_time(pool: SenderPool) -> None:
    watch = Stopwatch()
    with pytest.raises(OperationTimeoutError):
        pool.acquire(time.monotonic() + 0.2)
    assert watch.seconds < 1.0


@pytest.mark.spec("G-18")
def test_a_lane_that_opens_in_the_instant_of_its_deadline_is_not_ended_in_the_callers_thread(
    pool: SenderPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_in: list[threading.Thread] = []
    wait = Job.wait
    monkeypatch.setattr(PooledSender, "open", lambda pooled: None)
    monkeypatch.setattr(PooledSender, "discard", lambda pooled: ended_in.append(threading.current_thread()))
    monkeypatch.setattr(Job, "wait", lambda job, seconds: not wait(job, 5.0))  # too late by a hair
    with pytest.raises(OperationTimeoutError):
        pool.try_out(time.monotonic() + 5)
    monkeypatch.undo()
    pool._workers.join(5.0)
    assert ended_in
    assert threading.current_thread() not in ended_in


def test_too_many_hanging_workers_are_refused_instead_of_piling_up() -> None:
    workers, hold = Workers(most=2), threading.Event()
    for _ in range(2):
        workers.start("sbpair-held", hold.wait)
    with pytest.raises(OperationTimeoutError, match="still hang"):
        workers.start("sbpair-third", hold.wait)
    hold.set()
    workers.join(5.0)
    workers.start("sbpair-after", hold.wait).join(5.0)


def test_a_thread_the_system_cannot_give_is_an_error_and_takes_no_place() -> None:
    workers = Workers(most=1)
    before = threading.stack_size(2**46)  # no system has room for that one
    try:
        with pytest.raises(OperationTimeoutError, match="no thread for sbpair-close"):
            workers.start("sbpair-close", threading.Event().set)
    finally:
        threading.stack_size(before)
    done = threading.Event()
    workers.start("sbpair-close", done.set).join(5.0)
    assert done.is_set()


def test_a_tick_that_fails_does_not_end_the_watch(caplog: pytest.LogCaptureFixture) -> None:
    ticks: list[float] = []
    again = threading.Event()

    def tick(now: float) -> float | None:
        ticks.append(now)
        if len(ticks) > 1:
            again.set()
            return None
        raise RuntimeError("one bad turn")

    watch = Watch(tick)
    watch.wake()
    assert again.wait(5.0)
    watch.close()
    assert "timers" in caplog.text
