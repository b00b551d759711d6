"""What will be sent, and when, so that the outage falls into the middle of it?

    BEFORE            DURING                     AFTER
    as fast as        spread over the outage     spread over the time in which
    it goes           of `outage` seconds        the entity comes home

A third of the messages each. A parcel is what one call sends: a single message or a list.
Pure: the same messages, outage and seed give the same plan.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum

SHORTEST_OUTAGE, LONGEST_OUTAGE = 0.5, 600.0  # seconds
PING_INTERVAL = timedelta(seconds=1)  # the least there is (P-32)
MOST_IN_A_LIST = 20
SINGLES = 0.8  # the share of calls that send one message


class Act(Enum):
    """Where the primary is in the story."""

    BEFORE = "before"
    DURING = "during"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class Parcel:
    """The messages of one send call, and when it is due: seconds after its act began."""

    act: Act
    due: float
    message_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """The whole of what the demo will do."""

    messages: int
    outage: float  # seconds the primary is down
    seed: int
    parcels: tuple[Parcel, ...]

    @property
    def failover_interval(self) -> timedelta:
        """Short enough that the failover happens well inside the outage (P-3)."""
        return timedelta(seconds=min(1.0, self.outage / 4))

    def messages_of(self, act: Act) -> int:
        return sum(len(parcel.message_ids) for parcel in self.parcels if parcel.act is act)


def make_plan(messages: int, outage: float, seed: int) -> Plan:
    """Cut ``messages`` into parcels and spread them over the three acts. Raises ValueError out of range."""
    if messages < 1:
        raise ValueError(f"messages must be 1 or more, not {messages}")
    if not SHORTEST_OUTAGE <= outage <= LONGEST_OUTAGE:
        raise ValueError(f"outage must be from {SHORTEST_OUTAGE} to {LONGEST_OUTAGE} seconds, not {outage}")
    rng = random.Random(seed)
    third = messages // 3
    shares = {Act.BEFORE: third, Act.DURING: messages - 2 * third, Act.AFTER: third}
    spans = {Act.BEFORE: 0.0, Act.DURING: outage, Act.AFTER: 2 * PING_INTERVAL.total_seconds()}
    parcels: list[Parcel] = []
    for act, share in shares.items():
        parcels += _spread(act, share, spans[act], sum(shares[a] for a in _until(act)), rng)
    return Plan(messages, outage, seed, tuple(parcels))


def _until(act: Act) -> list[Act]:
    acts = list(Act)
    return acts[: acts.index(act)]


def _spread(act: Act, share: int, span: float, first: int, rng: random.Random) -> list[Parcel]:
    parcels, done = [], 0
    while done < share:
        size = 1 if rng.random() < SINGLES else rng.randint(2, MOST_IN_A_LIST)
        size = min(size, share - done)
        ids = tuple(f"order-{first + done + n:05}" for n in range(size))
        parcels.append(Parcel(act, span * done / share, ids))
        done += size
    return parcels


def sizes(plan: Plan) -> Counter[str]:
    """How many calls send one message, and how many a list."""
    return Counter("single" if len(parcel.message_ids) == 1 else "list" for parcel in plan.parcels)
