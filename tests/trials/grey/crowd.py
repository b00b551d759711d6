"""Many clients in virtual time: each is a Pair with the default options, and a model stands for the primary.

The model says for a moment whether an attempt fails. Attempts take 20 ms; the backlog queues accept everything.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random

from sbpair.pairing.health import EntityState
from sbpair.pairing.options import PairedNamespaceOptions
from sbpair.pairing.outcome import Classification, Failure, Outcome, Stored
from sbpair.pairing.pair import Attempt, Pair, Pause, Result, SendFlow, Step
from sbpair.pairing.retry import RetryPolicy
from sbpair.pairing.rotation import Choice

ATTEMPT_SECONDS = 0.02
TICK_SECONDS = 0.5
REJECTED = Classification(Failure.UNAVAILABLE, "rejected by the model")

Fails = Callable[[float, Random], bool]
"""Whether an attempt at this second fails."""


@dataclass
class Figures:
    """What the callers got: the number of sends by result, their seconds, and when each client failed over first."""

    ended: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    failed_over_at: dict[int, float] = field(default_factory=dict)

    @property
    def goodput(self) -> float:
        """The share of the sends that were stored within five seconds."""
        return sum(each < 5.0 for each in self.seconds) / max(self.ended.total(), 1)


class Crowd:
    """The clients, and the heap of what happens next."""

    def __init__(self, fails: Fails, *, clients: int, redirects: bool, seed: int, rate: float) -> None:
        self.figures = Figures()
        self._fails, self._rate, self._rng = fails, rate, Random(seed)
        self._pairs = [_pair(redirects, seed * 1000 + number) for number in range(clients)]
        self._heap: list[tuple[float, int, Callable[[float], None]]] = []
        self._order = count()

    def run(self, seconds: float) -> Figures:
        """Let this many seconds pass, and the sends under way end."""
        for number, pair in enumerate(self._pairs):
            self._at(self._rng.random() / self._rate, self._sender(pair, seconds))
            self._at(self._rng.random(), self._timer(number, pair, seconds))
        while self._heap:
            now, _, act = heapq.heappop(self._heap)
            act(now)
        return self.figures

    def _at(self, when: float, act: Callable[[float], None]) -> None:
        heapq.heappush(self._heap, (when, next(self._order), act))

    def _sender(self, pair: Pair, end: float) -> Callable[[float], None]:
        def send(now: float) -> None:
            if now < end:
                self._at(now + self._rng.expovariate(self._rate), send)
            flow = pair.send_flow("orders", 1, Choice(), now=now, deadline=now + 60.0)
            self._feed(flow, None, now)

        return send

    def _timer(self, number: int, pair: Pair, end: float) -> Callable[[float], None]:
        def tick(now: float) -> None:
            if now < end:
                self._at(now + TICK_SECONDS, tick)
            for path in pair.handle_timer(now):
                pair.ping_left(path, now)
                pair.ping_finished(path, REJECTED if self._fails(now, self._rng) else None, now)
            pair.events()
            if pair.state_of("orders") is EntityState.FAILED_OVER:
                self.figures.failed_over_at.setdefault(number, now)

        return tick

    def _feed(self, flow: SendFlow, result: Result | None, began: float) -> None:
        try:
            step = next(flow) if result is None else flow.send(result)
        except StopIteration as ended:
            self._ended(ended.value, (began if result is None else result.now) - began)
            return
        self._carry_out(flow, step, began if result is None else result.now, began)

    def _carry_out(self, flow: SendFlow, step: Step, now: float, began: float) -> None:
        match step:
            case Attempt(backlog=backlog):
                failed = backlog is None and self._fails(now, self._rng)
                error = (ConnectionError("rejected"), REJECTED) if failed else (None, None)
                then = now + ATTEMPT_SECONDS
                self._at(then, lambda at: self._feed(flow, Result(at, *error), began))
            case Pause(until):
                self._at(until, lambda at: self._feed(flow, Result(at), began))
            case _:
                raise AssertionError(f"the model has no answer to {step}")

    def _ended(self, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Stored):
            self.figures.ended["primary" if outcome.backlog is None else "parked"] += 1
            self.figures.seconds.append(seconds)
        else:
            self.figures.ended["raised"] += 1


def _pair(redirects: bool, seed: int) -> Pair:
    options = PairedNamespaceOptions()
    return Pair(
        failover_interval=options.failover_interval.total_seconds(),
        ping_interval=options.ping_primary_interval.total_seconds(),
        backlog_count=options.backlog_queue_count,
        rng=Random(seed),
        redirects_suspects=redirects,
        retry=RetryPolicy(),
        policy=options.health_policy(),
        attempt_timeout=options.attempt_timeout.total_seconds(),
    )
