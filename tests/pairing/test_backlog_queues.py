"""Ensuring the backlog queues: how often it is attempted, and what ends it."""

from __future__ import annotations

import threading

import pytest
from azure.core.exceptions import ClientAuthenticationError, ResourceNotFoundError, ServiceRequestError

from sbpair.pairing.backlog import MAX_WAIT_SECONDS, Backlogs

pytestmark = pytest.mark.spec("R-66")


class Administration:
    """An administration client that raises the ``errors`` in turn and then has no queue."""

    def __init__(self, errors: list[Exception]) -> None:
        self._errors = errors
        self.tried = 0
        self.created: list[str] = []
        self.entered = self.left = 0

    def __enter__(self) -> Administration:
        self.entered += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.left += 1

    def get_queue(self, name: str) -> object:
        self.tried += 1
        if self._errors:
            raise self._errors.pop(0)
        raise ResourceNotFoundError("no such queue")

    def create_queue(self, name: str, **settings: object) -> None:
        self.created.append(name)


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


def test_an_error_that_does_not_pass_ends_it_at_once() -> None:
    refused = ClientAuthenticationError("refused")
    administration, closed = Administration([refused]), Closed()
    with pytest.raises(ClientAuthenticationError) as raised:
        Backlogs("contoso", 2, lambda: administration).ensure_in_background(closed)  # type: ignore[arg-type, return-value]
    assert raised.value is refused
    assert (administration.tried, closed.pauses) == (1, [])


def test_it_ends_with_its_client_and_the_last_error() -> None:
    administration, closed = Administration(gone(9)), Closed(after=3)
    with pytest.raises(ServiceRequestError, match="gone"):
        Backlogs("contoso", 2, lambda: administration).ensure_in_background(closed)  # type: ignore[arg-type, return-value]
    assert administration.tried == 4
    assert administration.created == []


@pytest.mark.parametrize(("indexes", "numbers"), [(None, [0, 1, 2]), ([2], [2]), ([], [])])
def test_the_queues_that_were_asked_for_are_made(indexes: list[int] | None, numbers: list[int]) -> None:
    administration = Administration([])
    backlogs = Backlogs("contoso", 3, lambda: administration)  # type: ignore[arg-type, return-value]
    assert backlogs.ensure(indexes) == tuple(backlogs.name(number) for number in numbers)
    assert administration.created == [f"contoso/x-servicebus-transfer/{number}" for number in numbers]
