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


def test_a_long_full_collection_sets_its_survivors_aside() -> None:
    clock = Clock()
    collection(LongLivedObjects(clock), clock, LONG * 2)
    assert gc.get_freeze_count() > 0


@pytest.mark.parametrize(("took", "generation"), [(LONG / 2, 2), (LONG * 2, 1), (LONG * 2, 0)])
def test_a_short_or_partial_collection_sets_nothing_aside(took: float, generation: int) -> None:
    clock = Clock()
    collection(LongLivedObjects(clock), clock, took, generation)
    assert gc.get_freeze_count() == 0


def test_after_an_hour_everything_is_collected_once_more_and_then_set_aside_again() -> None:
    clock = Clock()
    objects = LongLivedObjects(clock)
    collection(objects, clock, LONG * 2)
    clock.now += ALL_AGAIN
    collection(objects, clock, LONG * 2)
    assert gc.get_freeze_count() == 0
    collection(objects, clock, LONG * 2)
    assert gc.get_freeze_count() > 0


def test_the_process_is_as_before_when_the_broker_has_ended() -> None:
    callbacks = list(gc.callbacks)
    with short_collections():
        assert len(gc.callbacks) == len(callbacks) + 1
        gc.freeze()
    assert gc.callbacks == callbacks
    assert not any(each.name == "sbpair-collections" for each in threading.enumerate())
    assert gc.get_freeze_count() == 0


def test_an_idle_process_does_not_collect() -> None:
    pace = CollectionPace(5.0)
    assert not pace.is_due(5.0)
    assert not pace.is_due(5.0 + WORKED / 2)
    assert pace.is_due(5.0 + WORKED * 2)


def test_collections_take_a_sixth_of_the_processor_time_at_most() -> None:
    pace = CollectionPace(0.0)
    pace.collected(1.0, took=WORKED)
    assert not pace.is_due(1.0 + WORKED * (SHARE - 1))
    assert pace.is_due(1.0 + WORKED * (SHARE + 1))


def test_a_process_that_frees_an_object_for_each_it_makes_collects_all_the_same() -> None:
    backlog: deque[list[int]] = deque([] for _ in range(1000))
    full, until = gc.get_stats()[2]["collections"], time.monotonic() + 60
    with short_collections():
        while gc.get_stats()[2]["collections"] == full:
            assert time.monotonic() < until
            for _ in range(1000):
                backlog.append([])
                backlog.popleft()
