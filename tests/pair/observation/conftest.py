"""A driven clock, and events of the pairing and of the syphon."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from sbpair.observation import PairLabels
from sbpair.pair.observation.record import Instant
from tests.waiting import PATIENCE

PAIR = PairLabels("contoso", "contoso-dr")


class Dial:
    """Both clocks, moved by the test; 2026-11-21T06:34:00Z is 1000.0 on the monotonic clock."""

    def __init__(self) -> None:
        self.passed = 0.0

    def __call__(self) -> Instant:
        return Instant(1795242840.0 + self.passed, 1000.0 + self.passed)


@pytest.fixture
def clock() -> Dial:
    return Dial()


@pytest.fixture
def pair() -> PairLabels:
    return PAIR


@pytest.fixture
def no_thread_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [each for each in threading.enumerate() if each not in before and each.name.startswith("sbpair")]
    for thread in left:
        thread.join(PATIENCE)
    assert not [thread.name for thread in left if thread.is_alive()]
