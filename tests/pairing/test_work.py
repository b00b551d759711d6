"""What runs beside the caller's thread, and how is its end awaited?"""

from __future__ import annotations

import threading
import time

import pytest
from azure.servicebus.exceptions import OperationTimeoutError

from sbpair.pairing.work import Job, Workers


def test_a_worker_that_is_just_being_started_does_not_disturb_who_waits_for_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    workers = Workers()
    is_registered, may_start = threading.Event(), threading.Event()
    begin = Job.start

    def slowly(job: Job) -> None:
        is_registered.set()
        may_start.wait(5)
        begin(job)

    monkeypatch.setattr(Job, "start", slowly)
    starter = threading.Thread(target=lambda: workers.start("slow", lambda: None))
    starter.start()
    assert is_registered.wait(5)
    began = time.monotonic()
    workers.join(0.05)
    assert time.monotonic() - began < 2
    may_start.set()
    workers.join(5)
    starter.join(5)
    assert not starter.is_alive()


def test_who_has_time_waits_for_room_among_the_workers() -> None:
    workers, hold, done = Workers(most=1), threading.Event(), threading.Event()
    workers.start("held", hold.wait)
    until = time.monotonic() + 10
    waiting = threading.Thread(target=lambda: workers.start("next", done.set, until=until))
    waiting.start()
    assert not done.wait(0.05)
    hold.set()
    assert done.wait(5)
    waiting.join(5)
    workers.join(5)


def test_room_that_does_not_come_in_time_is_a_time_out() -> None:
    workers, hold = Workers(most=1), threading.Event()
    workers.start("held", hold.wait)
    with pytest.raises(OperationTimeoutError, match="1 earlier operations still hang"):
        workers.start("next", hold.wait, until=time.monotonic() + 0.02)
    hold.set()
    workers.join(5)
