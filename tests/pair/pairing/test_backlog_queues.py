"""Ensuring the backlog queues: how often it is attempted, and what ends it."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from sbpair.pair.pairing.shared.backlog import MAX_LISTED, MAX_WAIT_SECONDS, Backlogs, first_moment

pytestmark = pytest.mark.spec("R-66")


AS_CREATED = dict.fromkeys(
    [
        "max_size_in_megabytes",
        "max_delivery_count",
        "default_message_time_to_live",
        "auto_delete_on_idle",
        "lock_duration",
        "dead_lettering_on_message_expiration",
        "requires_session",
        "requires_duplicate_detection",
        "enable_partitioning",
        "enable_batched_operations",
        "status",
        "forward_to",
    ]
)


class Administration:
    """An administration client that raises the ``errors`` in turn and then has no queue."""

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors
        self.tried = 0
        self.created: list[str] = []
        self.existing: list[str] = []
        self.creations: list[Exception | None] = []
        self.entered = self.left = 0

    def __enter__(self) -> Administration:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.left += 1

    def list_queues(self) -> Iterator[object]:
        self._try()
        return iter([SimpleNamespace(name=name, **AS_CREATED) for name in self.existing])

    def get_queue(self, name: str) -> object:
        self._try()
        raise ResourceNotFoundError("no such queue")

    def create_queue(self, name: str, **settings: object) -> None:
        if self.creations and (error := self.creations.pop(0)) is not None:
            raise error
        self.created.append(name)

    def _try(self) -> None:
        self.tried += 1
        if self._errors:
            raise self._errors.pop(0)


class Closed(threading.Event):
    """A client that is closed after so many pauses, which take no time."""

    def __init__(self, after: int = 1000) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._after = after

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout or 0.0)
        if len(self.pauses) >= self._after:
            self.set()
        return self.is_set()


def gone(count: int) -> list[Exception]:
    return [ServiceRequestError("gone") for _ in range(count)]


def test_queues_are_made_in_the_background_as_soon_as_the_service_is_back() -> None:
    administration, closed = Administration(gone(9)), Closed()
    backlogs = Backlogs("contoso", 2, lambda: administration)  # type: ignore[arg-type, return-value]
    made = backlogs.ensure_in_background(closed)
    assert made == ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1")
    assert administration.created == list(made)
    assert administration.entered == administration.left == 10
    assert len(closed.pauses) == 9
    assert all(0.9 < pause <= MAX_WAIT_SECONDS + 1.0 for pause in closed.pauses)
    assert closed.pauses[0] < 4.0
    assert closed.pauses[-1] > 30.0  # the pauses grow


def test_a_refused_creation_is_retried_since_it_may_be_allowed_later() -> None:
    administration, closed = Administration([ClientAuthenticationError("refused")]), Closed()
    backlogs = Backlogs("contoso", 2, lambda: administration)  # type: ignore[arg-type, return-value]
    assert backlogs.ensure_in_background(closed) == (backlogs.name(0), backlogs.name(1))
    assert len(closed.pauses) == 1


def test_creation_ends_with_its_client_and_the_last_error() -> None:
    administration, closed = Administration(gone(9)), Closed(after=3)
    with pytest.raises(ServiceRequestError, match="gone"):
        Backlogs("contoso", 2, lambda: administration).ensure_in_background(closed)  # type: ignore[arg-type, return-value]
    assert administration.tried == 4
    assert administration.created == []


@pytest.mark.parametrize(("indexes", "numbers"), [(None, [0, 1, 2]), ([2], [2]), ([], [])])
def test_the_requested_queues_are_created(indexes: list[int] | None, numbers: list[int]) -> None:
    administration = Administration([])
    backlogs = Backlogs("contoso", 3, lambda: administration)  # type: ignore[arg-type, return-value]
    assert backlogs.ensure(indexes) == tuple(backlogs.name(number) for number in numbers)
    assert administration.created == [f"contoso/x-servicebus-transfer/{number}" for number in numbers]


def busy() -> HttpResponseError:
    error = HttpResponseError("429")
    error.status_code = 429
    return error


@pytest.mark.spec("H-50")
def test_one_call_confirms_all_existing_queues() -> None:
    administration, closed = Administration([]), Closed()
    backlogs = Backlogs("contoso", 10, lambda: administration)  # type: ignore[arg-type, return-value]
    administration.existing = [backlogs.name(number) for number in range(10)]
    assert backlogs.ensure_in_background(closed) == ()
    assert (administration.tried, administration.created) == (1, [])


@pytest.mark.spec("H-50")
def test_a_busy_service_is_retried_from_where_it_stopped() -> None:
    administration, closed = Administration([busy()]), Closed()
    administration.creations = [None, None, busy(), None, busy()]
    backlogs = Backlogs("contoso", 6, lambda: administration)  # type: ignore[arg-type, return-value]
    administration.existing = [backlogs.name(1), "orders", backlogs.name(4)]
    made = backlogs.ensure_in_background(closed)
    assert made == tuple(backlogs.name(number) for number in (0, 2, 3, 5))
    assert administration.created == list(made)
    assert (administration.tried, len(closed.pauses)) == (2, 3)


@pytest.mark.spec("H-50")
def test_listing_a_namespace_with_very_many_queues_is_bounded() -> None:
    administration = Administration([])
    backlogs = Backlogs("contoso", 3, lambda: administration)  # type: ignore[arg-type, return-value]
    administration.existing = [f"a{number}" for number in range(10 * MAX_LISTED)] + [backlogs.name(0)]
    assert backlogs.ensure() == tuple(backlogs.name(number) for number in range(3))
    assert administration.tried == 4  # the list, and each of the three


@pytest.mark.spec("H-50")
def test_the_crowd_spreads_before_a_failover_could_need_the_queues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbpair.pair.pairing.shared.backlog.SPREAD_SECONDS", 30.0)
    moments = [first_moment(random.Random(seed), 60.0) for seed in range(100)]
    assert 0.0 <= min(moments) < 3.0
    assert 27.0 < max(moments) <= 30.0
    assert first_moment(random.Random(1), 4.0) <= 2.0
    assert first_moment(random.Random(1), 0.0) == 0.0


@pytest.mark.spec("H-50")
def test_a_client_closed_before_its_turn_makes_no_request() -> None:
    administration, closed = Administration([]), Closed(after=1)
    backlogs = Backlogs("contoso", 3, lambda: administration)  # type: ignore[arg-type, return-value]
    told: list[object] = []
    backlogs.make_in_background(closed, 12.0, told.append)
    assert told == []
    assert (closed.pauses, administration.entered) == ([12.0], 0)
