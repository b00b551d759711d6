"""What runs beside the caller's thread, and how is its end awaited?"""

from __future__ import annotations

import threading
import time

import pytest

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
