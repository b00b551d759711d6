"""Many clients in virtual time: each is a Pair with the default options, and a model stands for the primary.

The model says how the primary answers an attempt, and when; the backlog queues accept everything at once.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from sbpair.pairing.health import EntityState
from sbpair.pairing.options import PairedNamespaceOptions
from sbpair.pairing.outcome import Outcome, Stored
from sbpair.pairing.pair import Attempt, Pair, Pause, Result, SendFlow, Step
from sbpair.pairing.retry import RetryPolicy
from sbpair.pairing.rotation import Choice

from .answers import ACCEPTED, SILENT, Answer, Answers

TICK_SECONDS = 0.5
TIMEOUT = 60.0  # seconds of a send
PING_TIMEOUT = 30.0  # seconds


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

    def __init__(
        self,
        answers: Answers,
        *,
        clients: int,
        redirects: bool,
        seed: int,
        rate: float,
        busy_limit: float | None = None,
        keys: int = 0,
    ) -> None:
        self.figures = Figures()
        self._answers, self._rate, self._rng, self._keys = answers, rate, Random(seed), keys
        self._pairs = [_pair(redirects, seed * 1000 + number, busy_limit) for number in range(clients)]
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
            key = str(self._rng.randrange(self._keys)) if self._keys else None
            deadline = now + TIMEOUT
            flow = pair.send_flow("orders", 1, Choice(), now=now, deadline=deadline, key=lambda: key)
            self._feed(flow, None, now, key)

        return send

    def _timer(self, number: int, pair: Pair, end: float) -> Callable[[float], None]:
        def tick(now: float) -> None:
            if now < end:
                self._at(now + TICK_SECONDS, tick)
            for path in pair.handle_timer(now):
                pair.ping_left(path, now)
                self._ping(pair, path, now)
            pair.events()
            if pair.state_of("orders") is EntityState.FAILED_OVER:
                self.figures.failed_over_at.setdefault(number, now)

        return tick

    def _ping(self, pair: Pair, path: str, now: float) -> None:
        answer = self._answers(now, None, self._rng)
        after, refusal = answer.after, answer.refusal
        if after > PING_TIMEOUT:
            after, refusal = PING_TIMEOUT, SILENT
        self._at(now + after, lambda at: pair.ping_finished(path, refusal, at))

    def _feed(self, flow: SendFlow, result: Result | None, began: float, key: str | None) -> None:
        try:
            step = next(flow) if result is None else flow.send(result)
        except StopIteration as ended:
            self._ended(ended.value, (began if result is None else result.now) - began)
            return
        self._carry_out(flow, step, began if result is None else result.now, began, key)

    def _carry_out(self, flow: SendFlow, step: Step, now: float, began: float, key: str | None) -> None:
        match step:
            case Attempt(backlog=backlog, until=until):
                answer = ACCEPTED if backlog is not None else self._answers(now, key, self._rng)
                if now + answer.after > until:
                    answer = Answer(SILENT, max(until - now, 0.0))
                refusal = answer.refusal
                error = None if refusal is None else ConnectionError(refusal.why)
                result = partial(Result, error=error, classification=refusal)
                self._at(now + answer.after, lambda at: self._feed(flow, result(at), began, key))
            case Pause(until):
                self._at(until, lambda at: self._feed(flow, Result(at), began, key))
            case _:
                raise AssertionError(f"the model has no answer to {step}")

    def _ended(self, outcome: Outcome, seconds: float) -> None:
        if isinstance(outcome, Stored):
            self.figures.ended["primary" if outcome.backlog is None else "parked"] += 1
            self.figures.seconds.append(seconds)
        else:
            self.figures.ended["raised"] += 1


def _pair(redirects: bool, seed: int, busy_limit: float | None) -> Pair:
    options = PairedNamespaceOptions()
    return Pair(
        failover_interval=options.failover_interval.total_seconds(),
        ping_interval=options.ping_primary_interval.total_seconds(),
        backlog_count=options.backlog_queue_count,
        rng=Random(seed),
        redirects_suspects=redirects,
        busy_limit=busy_limit,
        retry=RetryPolicy(),
        policy=options.health_policy(),
        attempt_timeout=options.attempt_timeout.total_seconds(),
    )
