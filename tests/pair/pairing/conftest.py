"""A pair in virtual time, and a driver that answers its flows."""

from __future__ import annotations

import random
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sbpair.pair.pairing.decide.health import HealthPolicy
from sbpair.pair.pairing.decide.pair import Attempt, Pair, Result, SendFlow, Step
from sbpair.pair.pairing.decide.retry import NO_RETRIES, RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.outcome import Classification, Failure, Outcome
from sbpair.pair.pairing.shared import base_runtime, failures, sides
from tests.pair.pairing.quiet_runtime import NOW

Answer = Callable[[Step], Result]


class UnreachableError(Exception):
    """The error that the fake transport raises."""


class Driver:
    """Run flows in virtual time, recording each step and answering it with ``answer``."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.now = 0.0
        self.steps: list[Step] = []

    def ok(self, after: float = 0.0) -> Result:
        self.now += after
        return Result(self.now)

    def fail(
        self,
        failure: Failure = Failure.UNAVAILABLE,
        after: float = 0.0,
        *,
        was_reused: bool = False,
        **classified: object,
    ) -> Result:
        self.now += after
        classification = Classification(failure, failure.value, **classified)  # type: ignore[arg-type]
        return Result(self.now, UnreachableError(failure.value), classification, was_reused)

    def flow(self, path: str = "orders", choice: Choice | None = None, budget: float = 60.0) -> SendFlow:
        return self.pair.send_flow(path, 1, choice or Choice(), now=self.now, deadline=self.now + budget)

    def send(
        self,
        answer: Answer,
        path: str = "orders",
        choice: Choice | None = None,
        budget: float = 60.0,
    ) -> Outcome:
        self.steps = []
        flow = self.flow(path, choice, budget)
        try:
            step = next(flow)
            while True:
                self.steps.append(step)
                step = flow.send(answer(step))
        except StopIteration as landed:
            outcome: Outcome = landed.value
            return outcome

    def primary(self, answer: Callable[[], Result], path: str = "orders", budget: float = 60.0) -> Outcome:
        """Run a send with working backlogs and this answer of the primary."""
        return self.send(lambda step: answer() if is_primary(step) else self.ok(), path, budget=budget)

    def advance(self, seconds: float) -> list[str]:
        """Advance the time; return the pings that become due."""
        until, due = self.now + seconds, []
        while (timer := self.pair.next_timer()) is not None and timer <= until:
            self.now = max(self.now, timer)
            due += self.pair.handle_timer(self.now)
        self.now = until
        return due

    def fail_over(self, path: str = "orders") -> None:
        self.pair.fail_over(path, self.now)


def is_primary(step: Step) -> bool:
    return isinstance(step, Attempt) and step.backlog is None


class Midway(random.Random):
    """Draws the middle of each range, so that the pauses of retries are those of the policy."""

    def uniform(self, a: float, b: float) -> float:
        return (a + b) / 2


def make_pair(
    interval: float = 60.0,
    ping: float = 60.0,
    backlogs: int = 10,
    seed: int = 7,
    redirects: bool = False,
    spills: bool = False,
    busy_limit: float | None = None,
    retry: RetryPolicy = NO_RETRIES,
    keeps_order: bool = False,
    policy: HealthPolicy | None = None,
) -> Pair:
    return Pair(
        failover_interval=interval,
        ping_interval=ping,
        backlog_count=backlogs,
        rng=Midway(seed) if retry.total else random.Random(seed),
        redirects_suspects=redirects,
        spills_on_quota=spills,
        busy_limit=busy_limit,
        retry=retry,
        keeps_order=keeps_order,
        policy=policy,
        max_first_ping_delay=0.25,
    )


@pytest.fixture
def driver() -> Driver:
    return Driver(make_pair())


@pytest.fixture
def at_once() -> Driver:
    """A driver over a pair that fails over at the first failure."""
    return Driver(make_pair(interval=0.0))


@pytest.fixture
def pair_of() -> Callable[..., Driver]:
    """Create a driver over a pair with other settings."""
    return lambda **settings: Driver(make_pair(**settings))


@pytest.fixture
def frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Freeze the runtimes' monotonic clock at 1000 s."""
    clock = SimpleNamespace(monotonic=lambda: NOW, time_ns=lambda: 5_000_000_999_999)
    for module in (base_runtime, failures, sides):
        monkeypatch.setattr(module, "time", clock)
    monkeypatch.delenv("SBPAIR_DISABLE", raising=False)


@pytest.fixture
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBPAIR_DISABLE", "1")
