"""What both runtimes spool and replay, with a played spool; nothing is sent."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import (
    Failure,
    SpoolError,
)
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.decide.pair import SpoolMessages as SpoolStep
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.rotation import Choice
from sbpair.pair.pairing.outcome import Classification, Stored, Stranded
from sbpair.pair.pairing.request.request import Cancellation, SendRequest, SpooledRequest, freeze
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


def spooled_request(*messages: ServiceBusMessage) -> SpooledRequest:
    request = freeze(list(messages))
    return SpooledRequest(request.outgoing, request.messages, stored_bytes=0)


def spooling(**options: Any) -> tuple[Base, Spooled]:
    core, spool = Base(spool="the spool", **options), Spooled()
    core._spooling = spool  # type: ignore[assignment]
    return core, spool


def test_who_has_no_spool_spools_nothing() -> None:
    core = Base()
    core._spooling = None
    assert (core.is_spooling("orders"), core.count_spooled(None), core.count_spooled("orders")) == (
        False,
        0,
        0,
    )
    core._leave_spool()
    assert core._has_left_spool is False
    with pytest.raises(SpoolError, match="belongs to the process that this one was forked from"):
        core._writes("orders", freeze(ServiceBusMessage("x")), SpoolStep(0.0))


def test_newer_messages_queue_behind_one_that_waits() -> None:
    core, spool = spooling()
    assert not core.is_spooling("orders")
    spool.ahead["orders"] = 1
    assert core.is_spooling("orders")
    assert not core.is_spooling("invoices")
    assert (core.count_spooled(None), core.count_spooled("orders")) == (70, 7)
    flow = core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == SpoolStep(1050.0, is_first=True)
    flow = core._flow("invoices", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    attempt = next(flow)
    assert isinstance(attempt, Attempt)
    assert (attempt.until, attempt.open_by) == (pytest.approx(993.0), 994.0)


def test_the_spool_is_told_whether_nothing_else_was_tried() -> None:
    core, spool = spooling()
    request = freeze(ServiceBusMessage("x"))
    assert list(core._writes("orders", request, SpoolStep(0.0))) == []
    assert list(core._writes("orders", request, SpoolStep(0.0, is_first=True))) == [None]
    assert spool.kept == [("orders", request)] * 2


@pytest.mark.spec("F-19")
def test_a_forked_child_leaves_the_spool_to_its_parent_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, spool = spooling()
    core._leave_spool()
    assert (spool.is_left, core._spooling) == (True, None)
    for _ in range(2):
        core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
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
    core._spooling = None
    request = freeze(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
    core._flow("orders", request, Choice(), 990.0, 60.0, None)
    assert request.deadlines == deadlines
    assert wall_clock(NOW) == 5_000_000
    assert wall_clock(NOW - 0.25) == 4_999_750


def test_the_flow_of_a_send_has_its_first_attempt_its_count_and_its_ids() -> None:
    core = Base(failover_interval=timedelta(0))
    core._spooling = None
    request = freeze([ServiceBusMessage("x", message_id=each) for each in "ab"])
    first = Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down"))
    flow = core._flow("orders", request, Choice(backlog=3), 990.0, 60.0, first)
    step = next(flow)
    assert isinstance(step, Attempt)
    assert step.backlog == 3  # the choice is the sender's
    with pytest.raises(StopIteration) as landed:
        flow.send(Result(NOW))
    assert landed.value.value == Stored(3, is_ambiguous=False)
    parked = core._happened()[-1]
    assert (parked.path, parked.count, parked.message_ids) == ("orders", 2, ("a", "b"))  # type: ignore[attr-defined]


def test_what_only_the_primary_can_do_goes_nowhere_else_with_its_retries() -> None:
    core = Base(retry=RetryPolicy(1, 0.0))
    core._spooling = None
    flow = core._flow("orders", Cancellation([1]), Choice(), NOW, 60.0, None)
    down = Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down"))
    steps = [next(flow), flow.send(down)]
    assert Attempt(None, NOW + 60.0) in steps
    flow = core._flow("orders", Cancellation([1]), Choice(), NOW, 60.0, Result(NOW))
    with pytest.raises(StopIteration):
        next(flow)


def test_a_replay_goes_the_same_way_but_not_into_the_spool_again() -> None:
    core, _ = spooling(operation_timeout=timedelta(seconds=20), failover_interval=timedelta(0))
    request = spooled_request(*[ServiceBusMessage("x", message_id=each) for each in "ab"])
    flow = core._flow_again("orders", request, Choice(backlog=3))
    assert next(flow) == Attempt(None, NOW + 3.0, open_by=NOW + 4.0)  # a backlog is to have time too
    step = flow.send(Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down")))
    assert isinstance(step, Attempt)
    assert step.backlog == 3
    with pytest.raises(StopIteration):
        flow.send(Result(NOW))
    parked = core._happened()[-1]
    assert (parked.path, parked.count, parked.message_ids) == ("orders", 2, ("a", "b"))  # type: ignore[attr-defined]


@pytest.mark.spec("P-4", "R-2")
def test_a_replay_for_the_primary_alone_waits_while_nothing_is_sent_there() -> None:
    core, _ = spooling(operation_timeout=timedelta(seconds=5))
    assert next(core._flow_again("orders", Cancellation([1]), Choice())) == Attempt(None, NOW + 5.0)
    core.by_hand(core.pair.fail_over, "orders")
    with pytest.raises(StopIteration) as landed:
        next(core._flow_again("orders", Cancellation([1]), Choice()))
    assert landed.value.value == Stranded(())
