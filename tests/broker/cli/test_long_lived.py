"""Objects that survive a long garbage collection are not traversed again for an hour (R-44)."""

from __future__ import annotations

import gc
import threading
import time
from collections import deque
from collections.abc import Iterator

import pytest

from sbpair.broker.cli.broker.long_lived import (
    ALL_AGAIN,
    LONG,
    SHARE,
    WORKED,
    CollectionPace,
    LongLivedObjects,
    short_collections,
)

pytestmark = pytest.mark.spec("R-44")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True)
def frozen_as_before() -> Iterator[None]:
    """Freeze the imported objects again afterwards, as tests/conftest.py does."""
    gc.unfreeze()
    yield
    gc.unfreeze()
    gc.freeze()


def collection(objects: LongLivedObjects, clock: Clock, took: float, generation: int = 2) -> None:
    objects("start", {"generation": generation})
    clock.now += took
    objects("stop", {"generation": generation})


def test_survivors_of_a_long_full_collection_are_frozen() -> None:
    clock = Clock()
    collection(LongLivedObjects(clock), clock, LONG * 2)
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize(("took", "generation"), [(LONG / 2, 2), (LONG * 2, 1), (LONG * 2, 0)])
def test_a_short_or_partial_garbage_collection_freezes_nothing(took: float, generation: int) -> None:
    clock = Clock()
    collection(LongLivedObjects(clock), clock, took, generation)
    assert gc.get_freeze_count() == 0


def test_an_hourly_full_collection_is_followed_by_a_new_freeze() -> None:
    clock = Clock()
    objects = LongLivedObjects(clock)
    collection(objects, clock, LONG * 2)
    clock.now += ALL_AGAIN
    collection(objects, clock, LONG * 2)
    assert gc.get_freeze_count() == 0
    collection(objects, clock, LONG * 2)
    assert gc.get_freeze_count() > 0


def test_a_stopped_broker_restores_the_garbage_collector() -> None:
    callbacks = list(gc.callbacks)
    with short_collections():
        assert len(gc.callbacks) == len(callbacks) + 1
        gc.freeze()
    assert gc.callbacks == callbacks
    assert not any(each.name == "sbpair-collections" for each in threading.enumerate())
    assert gc.get_freeze_count() == 0


def test_an_idle_process_does_not_collect_garbage() -> None:
    pace = CollectionPace(5.0)
    assert not pace.is_due(5.0)
    assert not pace.is_due(5.0 + WORKED / 2)
    assert pace.is_due(5.0 + WORKED * 2)


def test_garbage_collection_takes_at_most_a_sixth_of_the_processor_time() -> None:
    pace = CollectionPace(0.0)
    pace.collected(1.0, took=WORKED)
    assert not pace.is_due(1.0 + WORKED * (SHARE - 1))
    assert pace.is_due(1.0 + WORKED * (SHARE + 1))


def test_a_process_with_steady_allocation_still_collects() -> None:
    backlog: deque[list[int]] = deque([] for _ in range(1000))
    full, until = gc.get_stats()[2]["collections"], time.monotonic() + 60
    with short_collections():
        while gc.get_stats()[2]["collections"] == full:
            assert time.monotonic() < until
            for _ in range(1000):
                backlog.append([])
                backlog.popleft()
