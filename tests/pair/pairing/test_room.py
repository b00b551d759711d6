"""How full the backlog queues are: by what was parked, or by the service, and when that is worth a warning (H-52)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError

from sbpair.pair.pairing.decide.backlogs import CREATED_LIMIT, FIRST_LOOK, LOOK_EVERY, BacklogSize, Room
from sbpair.pair.pairing.decide.pair import Result
from sbpair.pair.pairing.events import BacklogFilling, MessageParked
from sbpair.pair.pairing.shared.backlog import Backlogs
from tests.pair.pairing.conftest import Driver
from tests.pair.pairing.quiet_runtime import Base

pytestmark = pytest.mark.spec("H-52")

GIBIBYTE = 1024**3


@pytest.fixture
def room() -> Room:
    return Room(random.Random(7))


def test_a_backlog_warns_once_at_70_and_once_at_90_percent_of_its_size(
    room: Room,
) -> None:
    warned = [room.parked(3, GIBIBYTE // 4, float(second)) for second in range(20)]
    told = [(each.backlog, each.threshold, each.limit) for each in warned if each is not None]
    assert told == [(3, 0.7, CREATED_LIMIT), (3, 0.9, CREATED_LIMIT)]
    assert room.levels()[3].size == CREATED_LIMIT
    assert room.levels()[3].messages is None


def test_a_backlog_that_fills_at_once_warns_once_at_the_higher_threshold(room: Room) -> None:
    filling = room.parked(0, CREATED_LIMIT, 0.0)
    assert filling is not None
    assert filling.threshold == 0.9
    assert room.parked(0, 1, 1.0) is None


def test_the_measured_size_replaces_the_estimate_and_later_messages_are_added(room: Room) -> None:
    room.parked(0, 1000, 0.0)
    assert room.measure({0: BacklogSize(80, 100, 7)})[0].threshold == 0.7
    assert room.levels()[0].messages == 7
    filling = room.parked(0, 15, 1.0)
    assert filling is not None
    assert (filling.size, filling.limit, filling.threshold) == (95, 100, 0.9)


def test_a_drained_queue_is_warned_of_again_when_it_fills(room: Room) -> None:
    room.measure({0: BacklogSize(95, 100, 7)})
    room.measure({0: BacklogSize(10, 100, 1)})
    assert room.measure({0: BacklogSize(75, 100, 7)})[0].threshold == 0.7


def test_a_new_outage_does_not_add_to_the_estimate_of_the_last(room: Room) -> None:
    room.parked(0, 1000, 0.0)
    room.outage_ended()
    assert room.levels()[0].size == 1000  # it may still be there
    room.parked(0, 10, 100.0)
    assert room.levels()[0].size == 10


def test_the_size_is_queried_a_minute_after_the_first_parked_message_and_then_every_five(room: Room) -> None:
    assert room.next_timer() is None
    room.parked(2, 10, 1000.0)
    first = room.next_timer()
    assert first is not None
    assert FIRST_LOOK * 0.75 <= first - 1000.0 <= FIRST_LOOK * 1.25
    assert room.due(first - 1) == ()
    assert room.due(first) == (2,)
    second = room.next_timer()
    assert second is not None
    assert LOOK_EVERY * 0.75 <= second - first <= LOOK_EVERY * 1.25


def test_size_queries_stop_when_all_backlogs_are_empty_or_the_key_lacks_manage(room: Room) -> None:
    room.parked(0, 10, 0.0)
    room.measure({0: BacklogSize(0, 100, 0)})
    assert room.next_timer() is None
    room.parked(0, 10, 5.0)
    assert room.next_timer() is not None
    room.refused()
    room.parked(0, 10, 6.0)
    assert room.next_timer() is None


def test_parked_bytes_are_reported_and_a_queue_that_fills_is_an_event(driver: Driver) -> None:
    driver.pair.fail_over("orders", 0.0)
    driver.send(lambda _: Result(driver.now, size=int(CREATED_LIMIT * 0.75)))
    parked, filling = driver.pair.events()[-2:]
    assert isinstance(parked, MessageParked)
    assert parked.size == int(CREATED_LIMIT * 0.75)
    assert isinstance(filling, BacklogFilling)
    assert (filling.backlog, filling.size, filling.threshold) == (parked.backlog, parked.size, 0.7)


class Administration:
    """Tells sizes, or raises ``error``."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def __enter__(self) -> Administration:
        return self

    def __exit__(self, *_: object) -> None: ...

    def get_queue_runtime_properties(self, name: str) -> Any:
        if self._error is not None:
            raise self._error
        raise AssertionError(name)


@pytest.mark.parametrize(
    ("error", "found"),
    [(ClientAuthenticationError("no Manage"), None), (ServiceRequestError("gone"), {})],
)
def test_a_key_without_manage_is_not_asked_again_but_an_absent_service_is(
    error: Exception, found: object
) -> None:
    def administration() -> Any:
        return Administration(error)

    assert Backlogs("contoso", 2, administration).sizes([0, 1]) == found


@pytest.mark.parametrize(("exist", "asked"), [(False, 1), (True, 0)])
def test_senders_configured_without_manage_never_query_sizes(exist: bool, asked: int) -> None:
    core = Base(assume_backlogs_exist=exist)
    core.pair.room.parked(0, 10, 0.0)
    assert (core.next_timer() is not None) == bool(asked)
    assert len(core._sizes_due(1e9)) == asked


def test_measured_sizes_become_events_of_the_client() -> None:
    core = Base()
    core.sized({1: BacklogSize(95, 100, 7)})
    (told,) = core.told
    assert isinstance(told, BacklogFilling)
    assert (told.backlog, told.threshold) == (1, 0.9)
