"""Many clients in virtual time: each is a Pair with its options, and a model stands for the primary.

The model says how the primary answers an attempt, and when; the backlog queues accept everything at once. An answer
that comes after its attempt was given up is told to the pair when it comes.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from math import inf
from random import Random

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair import Attempt, Pair, Pause, Result, SendFlow, Step
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.options import PairedNamespaceOptions
from sbpair.pair.pairing.outcome import Outcome, Stored

from .answers import ACCEPTED, SILENT, Answer, Answers

ENTITY = "orders"
GOOD = 5.0  # seconds within which a message is stored, to count as goodput
TICK_SECONDS = 0.5
PING_TIMEOUT = 30.0  # seconds


@dataclass
class Figures:
    """What the callers got: the number of sends by result, their seconds, and when each client failed over first.

    ``copies`` were stored twice because the first answer, a good one, was not waited for. ``needless`` are the sends
    that were parked although the primary stored them, or would have, had it been asked, within GOOD seconds.
    """

    ended: Counter[str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    longest: float = 0.0
    copies: int = 0
    needless: int = 0
    failed_over_at: dict[int, float] = field(default_factory=dict)

    @property
    def goodput(self) -> float:
        """The share of the sends that were stored within five seconds."""
        return sum(each <= GOOD for each in self.seconds) / max(self.ended.total(), 1)

    def share(self, sends: int) -> float:
        """So many of all sends."""
        return sends / max(self.ended.total(), 1)

    def quantile(self, share: float) -> float:
        """The seconds in which this share of the stored messages was stored."""
        ranked = sorted(self.seconds)
        return ranked[min(int(len(ranked) * share), len(ranked) - 1)] if ranked else inf


@dataclass(slots=True, eq=False)
class _Send:
    """One send under way; ``would_take`` is how long the primary's answer would take if it was never asked."""

    pair: Pair
    began: float
    key: str | None
    would_take: float
    is_asked: bool = False
    was_left_early: bool = False  # by an attempt whose message the primary stored


class Crowd:
    """The clients, and the heap of what happens next."""

    def __init__(
        self,
        answers: Answers,
        *,
        clients: int,
        options: PairedNamespaceOptions,
        seed: int,
        rate: float,
        keys: int = 0,
    ) -> None:
        self.figures = Figures()
        self._answers, self._rate, self._keys = answers, rate, keys
        self._rng, self._unasked = Random(seed), Random(seed + 1)
        self._timeout = options.operation_timeout.total_seconds()
        self._pairs = [_pair(options, seed * 1000 + number) for number in range(clients)]
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
            unasked = self._answers(now, key, self._unasked)
            would_take = inf if unasked.refusal is not None else unasked.after
            flow = pair.send_flow(ENTITY, 1, Choice(), now=now, deadline=now + self._timeout, key=lambda: key)
            self._feed(flow, None, now, _Send(pair, now, key, would_take))

        return send

    def _timer(self, number: int, pair: Pair, end: float) -> Callable[[float], None]:
        def tick(now: float) -> None:
            if now < end:
                self._at(now + TICK_SECONDS, tick)
            for path in pair.handle_timer(now):
                pair.ping_left(path, now)
                self._ping(pair, path, now)
            pair.events()
            if pair.state_of(ENTITY) is EntityState.FAILED_OVER:
                self.figures.failed_over_at.setdefault(number, now)

        return tick

    def _ping(self, pair: Pair, path: str, now: float) -> None:
        answer = self._answers(now, None, self._rng)
        after, refusal = answer.after, answer.refusal
        if after > PING_TIMEOUT:
            after, refusal = PING_TIMEOUT, SILENT
        self._at(now + after, lambda at: pair.ping_finished(path, refusal, at))

    def _feed(self, flow: SendFlow, result: Result | None, now: float, send: _Send) -> None:
        try:
            step = next(flow) if result is None else flow.send(result)
        except StopIteration as ended:
            self._ended(ended.value, now, send)
            return
        self._carry_out(flow, step, now, send)

    def _carry_out(self, flow: SendFlow, step: Step, now: float, send: _Send) -> None:
        match step:
            case Attempt(backlog=None, until=until):
                answer = self._asked(now, until, send)
            case Attempt():
                answer = ACCEPTED
            case Pause(until):
                self._at(until, lambda at: self._feed(flow, Result(at), at, send))
                return
            case _:
                raise AssertionError(f"the model has no answer to {step}")
        refusal = answer.refusal
        error = None if refusal is None else ConnectionError(refusal.why)

        def answered(at: float) -> None:
            self._feed(flow, Result(at, error=error, classification=refusal), at, send)

        self._at(now + answer.after, answered)

    def _asked(self, now: float, until: float, send: _Send) -> Answer:
        """What the sender sees of the primary's answer, if it does not wait longer than ``until``."""
        send.is_asked = True
        answer = self._answers(now, send.key, self._rng)
        if now + answer.after <= until:
            return answer
        send.was_left_early |= answer.refusal is None
        return Answer(SILENT, max(until - now, 0.0))

    def _ended(self, outcome: Outcome, now: float, send: _Send) -> None:
        seconds, figures = now - send.began, self.figures
        figures.longest = max(figures.longest, seconds)
        if not isinstance(outcome, Stored):
            figures.ended["raised"] += 1
            return
        is_parked = outcome.backlog is not None
        figures.ended["parked" if is_parked else "primary"] += 1
        figures.seconds.append(seconds)
        figures.copies += send.was_left_early
        is_taken = not send.is_asked and send.would_take <= GOOD
        figures.needless += is_parked and (send.was_left_early or is_taken)


def _pair(options: PairedNamespaceOptions, seed: int) -> Pair:
    return Pair(
        failover_interval=options.failover_interval.total_seconds(),
        ping_interval=options.ping_primary_interval.total_seconds(),
        backlog_count=options.backlog_queue_count,
        rng=Random(seed),
        redirects_suspects=options.suspect_policy == "redirect",
        busy_limit=options.busy_limit(),
        retry=RetryPolicy(),
        policy=options.health_policy(),
        attempt_timeout=options.attempt_timeout.total_seconds(),
    )
