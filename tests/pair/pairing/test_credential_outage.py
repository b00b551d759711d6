"""A managed identity that is away while tokens expire: the pair in virtual time, with what its credential remembers."""

from __future__ import annotations

import heapq
import itertools
import random
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from azure.core.exceptions import ClientAuthenticationError

from sbpair.pair.auth.token_memory import TokenMemory
from sbpair.pair.pairing.decide.pair import Attempt, Pair, Pause, Result, SendFlow, SpoolUse, Step
from sbpair.pair.pairing.decide.retry import RetryPolicy
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import EntityFailedOver
from sbpair.pair.pairing.outcome import Outcome, Stored
from sbpair.pair.pairing.request.classify import Phase, classify

AWAY_FROM, AWAY_FOR, LIFE = 10.0, 32.0, 12  # seconds
RUN, SENDS = 60.0, 5  # seconds, and sends in each
QUICK = 0.005  # seconds for an answer


class Given(NamedTuple):
    token: str
    expires_on: int


class CredentialUnavailableError(ClientAuthenticationError):
    """As that of azure-identity, which is optional."""


class Identity:
    """A managed identity, and what is remembered of it."""

    def __init__(self, *, is_away: bool) -> None:
        self._memory = TokenMemory(random.Random(5))
        self._is_away = is_away
        self.asked: list[float] = []

    def failure(self, now: float) -> Exception | None:
        """The error of a send at this time; None with a valid token."""
        found = self._memory.answer(now, now)
        if not found.is_due:
            return found.error
        self.asked.append(now)
        if self._is_away and AWAY_FROM <= now < AWAY_FROM + AWAY_FOR:
            error = self._memory.failed(CredentialUnavailableError("no response from the endpoint"), now)
            return None if found.token is not None else error
        self._memory.gained(Given("jwt", int(now) + LIFE), now)
        return None


@dataclass
class Course:
    """What happened: for each send when it began, and how it ended."""

    outcomes: list[tuple[float, Outcome]] = field(default_factory=list)
    failed_over: list[float] = field(default_factory=list)

    def raised_after(self, second: float) -> float:
        late = [outcome for began, outcome in self.outcomes if began >= second]
        return sum(not isinstance(each, Stored) for each in late) / len(late)


def live_through(primary: Identity, secondary: Identity, spool: SpoolUse) -> Course:
    pair = Pair(
        failover_interval=3.0,
        ping_interval=1.0,
        backlog_count=10,
        rng=random.Random(11),
        retry=RetryPolicy(),
        max_first_ping_delay=0.5,
    )
    course, order = Course(), itertools.count()
    due: list[tuple[float, int, float, SendFlow | None, Result | None]] = []
    for number in range(int(RUN * SENDS)):
        heapq.heappush(due, (number / SENDS, next(order), number / SENDS, None, None))

    def perform(step: Step, now: float) -> Result:
        if isinstance(step, Pause):
            return Result(max(now, step.until))
        if not isinstance(step, Attempt):
            return Result(now + QUICK)
        error = (primary if step.backlog is None else secondary).failure(now)
        return Result(now + QUICK, error, None if error is None else classify(error, Phase.OPENING))

    while due:
        now, _, began, flow, result = heapq.heappop(due)
        for path in pair.handle_timer(now):
            error = primary.failure(now)
            pair.ping_finished(path, None if error is None else classify(error, Phase.OPENING), now)
        try:
            if flow is None:
                flow = pair.send_flow("orders", 1, Choice(), now=now, deadline=now + 6.0, spool=spool)
                step = next(flow)
            else:
                assert result is not None
                step = flow.send(result)
        except StopIteration as ended:
            course.outcomes.append((began, ended.value))
        else:
            result = perform(step, now)
            heapq.heappush(due, (result.now, next(order), began, flow, result))
        course.failed_over += [each.at for each in pair.events() if isinstance(each, EntityFailedOver)]
    return course


@pytest.mark.spec("H-30", "H-31", "H-23")
def test_with_a_spool_hardly_a_send_raises_during_an_identity_outage_of_both_sides() -> None:
    identity = Identity(is_away=True)
    course = live_through(identity, identity, SpoolUse.LAST_RESORT)
    assert course.raised_after(20.0) <= 0.20
    assert len(course.failed_over) >= 1
    away = [at for at in identity.asked if AWAY_FROM <= at < AWAY_FROM + AWAY_FOR]
    assert 3 <= len(away) <= 8  # 160 sends began meanwhile


@pytest.mark.spec("H-30", "H-31")
def test_without_a_spool_an_identity_outage_of_one_side_fails_over_to_the_other() -> None:
    course = live_through(Identity(is_away=True), Identity(is_away=False), SpoolUse.NEVER)
    [failed_over] = course.failed_over
    assert AWAY_FROM < failed_over <= AWAY_FROM + LIFE + 3.0 + 6.0
    assert course.raised_after(failed_over) == 0.0
