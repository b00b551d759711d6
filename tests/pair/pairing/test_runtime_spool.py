"""What both runtimes spool and replay, with a played spool; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair.pair.pairing.decide.pair import Attempt
from sbpair.pair.pairing.decide.pair import SpoolMessages as SpoolStep
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.outcome import Stranded
from sbpair.pair.pairing.request.request import Cancellation, SendRequest, freeze
from sbpair.pair.pairing.shared.base_runtime import (
    wall_clock,
)
from tests.pair.pairing.quiet_runtime import NOW, Base

pytestmark = [pytest.mark.spec("R-66"), pytest.mark.usefixtures("frozen")]


class Spooled:
    """A played spool: the entities with waiting messages, and what was written."""

    def __init__(self) -> None:
        self.ahead: dict[str, int] = {}
        self.kept: list[tuple[str, SendRequest]] = []
        self.is_left = False

    def takes_first(self, path: str, session: str | None = None, *, wants_numbers: bool = False) -> bool:
        return self.ahead.get(path, 0) > 0

    def waiting(self, path: str | None) -> int:
        return 70 if path is None else 7

    def keep(self, path: str, request: SendRequest, *, is_first: bool) -> Iterator[None]:
        self.kept.append((path, request))
        return iter((None,) if is_first else ())

    def disown(self) -> None:
        self.is_left = True


def spooling(**options: Any) -> tuple[Base, Spooled]:
    core, spool = Base(spool="the spool", **options), Spooled()
    core.spool.flow = spool  # type: ignore[assignment]
    return core, spool


def test_newer_messages_queue_behind_a_waiting_one() -> None:
    core, spool = spooling()
    spool.ahead["orders"] = 1
    assert (core.spool.waiting(None), core.spool.waiting("orders")) == (70, 7)
    flow = core.flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == SpoolStep(1050.0, is_first=True)
    flow = core.flow("invoices", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    attempt = next(flow)
    assert isinstance(attempt, Attempt)
    assert (attempt.until, attempt.open_by) == (pytest.approx(993.0), 994.0)


@pytest.mark.spec("F-19")
def test_a_forked_child_leaves_the_spool_to_its_parent_and_logs_it_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, spool = spooling()
    core.spool.leave()
    assert (spool.is_left, core.spool.flow) == (True, None)
    for _ in range(2):
        core.flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the spool the spool stays with the process that this one was forked from: here, what neither "
        "namespace takes is raised; a client that is made after the fork can have a spool of its own"
    )


@pytest.mark.spec("G-15", "F-88")
@pytest.mark.parametrize(("policy", "deadlines"), [("deadline", [4_990_000 + 60_000]), ("restart", None)])
def test_a_time_to_live_runs_from_the_first_attempt_by_the_wall_clock_of_now(
    policy: Any, deadlines: list[int] | None
) -> None:
    core = Base(ttl_policy=policy)
    core.spool.flow = None
    request = freeze(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
    core.flow("orders", request, Choice(), 990.0, 60.0, None)
    assert request.deadlines == deadlines
    assert wall_clock(NOW) == 5_000_000
    assert wall_clock(NOW - 0.25) == 4_999_750


@pytest.mark.spec("P-4", "R-2")
def test_a_replay_for_the_primary_only_waits_while_the_primary_is_not_used() -> None:
    core, _ = spooling(operation_timeout=timedelta(seconds=5))
    assert next(core.flow_again("orders", Cancellation([1]), Choice())) == Attempt(None, NOW + 5.0)
    core.by_hand(core.pair.fail_over, "orders")
    with pytest.raises(StopIteration) as landed:
        next(core.flow_again("orders", Cancellation([1]), Choice()))
    assert landed.value.value == Stranded(())
