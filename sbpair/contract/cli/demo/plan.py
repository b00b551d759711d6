"""The plan of the demo: which messages each send call carries, and when.

    BEFORE            DURING                     AFTER
    as fast as        spread over the outage     spread over the time in which
    possible          of `outage` seconds        the entity comes home

Each act sends a third of the messages. Pure: the same arguments give the same plan.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Literal

MIN_OUTAGE, MAX_OUTAGE = 0.5, 600.0  # seconds
PING_INTERVAL = timedelta(seconds=1)  # the minimum
MAX_LISTED = 20
Ordering = Literal["none", "session"]
SINGLES = 0.8  # the share of calls that send one message


class Act(Enum):
    """The three parts of the demo, relative to the outage."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class SendCall:
    """The messages of one send call, one or a list, and when it is due: seconds after its act began."""

    act: Act
    due: float
    message_ids: tuple[str, ...]
    session: str | None = None


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """All the send calls of one demo."""

    messages: int
    outage: float  # seconds the primary is down
    seed: int
    calls: tuple[SendCall, ...]
    sessions: int = 0  # 0: a queue without sessions
    ordering: Ordering = "none"

    @property
    def failover_interval(self) -> timedelta:
        """The failover interval of the client: short, so that the failover happens well inside the outage."""
        return timedelta(seconds=min(1.0, self.outage / 4))

    def messages_of(self, act: Act) -> int:
        return sum(len(call.message_ids) for call in self.calls if call.act is act)


def make_plan(
    messages: int, outage: float, seed: int, sessions: int = 0, ordering: Ordering = "none"
) -> DemoPlan:
    """Group ``messages`` into send calls and spread them over the three acts; each call is of one session, if any.

    Raises ValueError when ``messages``, ``outage`` (seconds) or ``sessions`` is out of range, or there are no sessions
    to order.
    """
    if messages < 1:
        raise ValueError(f"messages must be 1 or more, not {messages}")
    if not MIN_OUTAGE <= outage <= MAX_OUTAGE:
        raise ValueError(f"outage must be from {MIN_OUTAGE} to {MAX_OUTAGE} seconds, not {outage}")
    if sessions < 0:
        raise ValueError(f"sessions must be 0 or more, not {sessions}")
    if ordering == "session" and not sessions:
        raise ValueError("ordering='session' needs sessions")
    rng = random.Random(seed)
    third = messages // 3
    shares = {Act.BEFORE: third, Act.DURING: messages - 2 * third, Act.AFTER: third}
    spans = {Act.BEFORE: 0.0, Act.DURING: outage, Act.AFTER: 2 * PING_INTERVAL.total_seconds()}
    calls: list[SendCall] = []
    for act, share in shares.items():
        calls += _spread(act, share, spans[act], sum(shares[a] for a in _until(act)), rng)
    if sessions:
        calls = [replace(call, session=f"customer-{rng.randrange(sessions):03}") for call in calls]
    return DemoPlan(messages, outage, seed, tuple(calls), sessions, ordering)


def _until(act: Act) -> list[Act]:
    acts = list(Act)
    return acts[: acts.index(act)]


def _spread(act: Act, share: int, span: float, first: int, rng: random.Random) -> list[SendCall]:
    calls, done = [], 0
    while done < share:
        size = 1 if rng.random() < SINGLES else rng.randint(2, MAX_LISTED)
        size = min(size, share - done)
        ids = tuple(f"order-{first + done + n:05}" for n in range(size))
        calls.append(SendCall(act, span * done / share, ids))
        done += size
    return calls


def sizes(plan: DemoPlan) -> Counter[str]:
    """Return the number of calls that send one message, and of those that send a list."""
    return Counter("single" if len(call.message_ids) == 1 else "list" for call in plan.calls)
