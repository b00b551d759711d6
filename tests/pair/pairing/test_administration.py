"""The stand-in for the SDK's administration client: it asks the primary, and answers for one that is away."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ResourceNotFoundError,
    ServiceRequestError,
)

from sbpair.pair.paired_client.administration import AWAY_SECONDS, AdministrationLoan, AdministrationStandIn
from sbpair.pair.pairing.decide.health import EntityState

pytestmark = [pytest.mark.spec("R-123")]


class Primary:
    """The administration of a namespace with one queue of three messages; ``error`` is raised instead, if set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.asked = 0
        self.now = 0.0
        self.state = EntityState.HEALTHY

    def loan(self) -> AdministrationLoan:
        sdk: Any = self
        return AdministrationStandIn(lambda: sdk, lambda path: self.state, lambda: self.now)("ignored")

    def _answer(self, answer: object) -> Any:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return answer

    def create_queue(self, queue_name: str, *, lock_duration: str | None = None) -> Any:
        return self._answer(SimpleNamespace(name=queue_name, lock_duration=lock_duration))

    def get_queue_runtime_properties(self, queue_name: str) -> Any:
        return self._answer(SimpleNamespace(name=queue_name, total_message_count=3))

    def delete_queue(self, queue_name: str) -> Any:
        return self._answer(None)


def away(primary: Primary) -> None:
    primary.error = ServiceRequestError("refused")


def busy(primary: Primary) -> None:
    primary.error = HttpResponseError("busy")
    primary.error.status_code = 503


def failed_over(primary: Primary) -> None:
    primary.error = AssertionError("a primary that failed over is not asked")
    primary.state = EntityState.FAILED_OVER


def test_administration_calls_go_to_a_primary_that_answers() -> None:
    loan = Primary().loan()
    assert loan.create_queue("orders", lock_duration="PT1M").lock_duration == "PT1M"
    assert loan.get_queue_runtime_properties("orders").total_message_count == 3
    assert loan.delete_queue("orders") is None  # type: ignore[operator]


@pytest.mark.parametrize("make_away", [away, busy, failed_over])
def test_a_queue_counts_as_existing_while_the_primary_is_away(make_away: Callable[[Primary], None]) -> None:
    primary = Primary()
    loan = primary.loan()
    loan.get_queue_runtime_properties("orders")
    make_away(primary)
    with pytest.raises(ResourceExistsError, match="'orders' counts as existing"):
        loan.create_queue("orders")
    assert loan.get_queue_runtime_properties("ORDERS").total_message_count == 3
    assert loan.get_queue_runtime_properties("never seen").total_message_count == 0


def test_a_primary_that_did_not_answer_is_asked_again_only_after_a_while() -> None:
    primary = Primary()
    loan = primary.loan()
    away(primary)
    for _ in range(3):
        loan.get_queue_runtime_properties("orders")
    assert primary.asked == 1
    primary.error, primary.now = None, AWAY_SECONDS
    assert loan.get_queue_runtime_properties("orders").total_message_count == 3


def test_an_answer_that_is_no_outage_is_raised() -> None:
    primary = Primary()
    primary.error = ResourceNotFoundError("no such queue")
    with pytest.raises(ResourceNotFoundError):
        primary.loan().get_queue_runtime_properties("orders")
