"""The plan of a drill: its canaries, its steps and its cost. Pure.

An application recognises a canary by its content type or by the application property, and completes it without
processing the body.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from sbpair.data.audit.canary_ids import canary_id

CONTENT_TYPE = "application/vnd.sbpair.canary"
PROPERTY = "sbpair-canary"
"""An application property of every canary; its value is the id of the drill."""

TIME_TO_LIVE = timedelta(minutes=10)
MARGIN = timedelta(minutes=10)
"""How much later than the end of the drill a canary is due, where it is to be cancelled before."""


class Proof(StrEnum):
    """How the drill proves that a canary came home."""

    CANCEL = "cancel"  # scheduled, found by peeking, and cancelled before a consumer can receive it
    PEEK = "peek"  # found by peeking, or gone from the backlog; consumers receive and skip it
    RECEIVE = "receive"  # received and completed by the drill, on a scratch entity


class Fate(StrEnum):
    """The state of a canary."""

    UNSENT = "not sent"  # the drill ended before
    IN_DOUBT = "in doubt"  # the drill ended before the send was answered: it may be in a backlog queue
    REFUSED = "refused"  # no backlog queue accepted it
    PARKED = "parked"  # in its backlog queue
    HOME = "home"  # seen on the primary
    TAKEN = "taken"  # left the backlog and was received before it was seen
    DEAD_LETTERED = "dead-lettered"  # on its backlog queue, by the syphon
    MISSING = "missing"  # neither in its backlog nor on the primary


ARRIVED = (Fate.HOME, Fate.TAKEN)
AWAY = (Fate.PARKED, Fate.IN_DOUBT)


@dataclass(slots=True)
class Canary:
    """One canary; times in seconds since the entity was held."""

    number: int
    message_id: str
    fate: Fate = Fate.UNSENT
    backlog: int | None = None
    parked_after: float | None = None
    home_after: float | None = None
    why: str | None = None
    """Why it was refused or dead-lettered."""


def canaries(drill: str, count: int) -> list[Canary]:
    """Create ``count`` canaries for the drill with the id ``drill``."""
    return [Canary(number, canary_id(drill, number)) for number in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillPlan:
    """The options of a drill; ``wait`` in seconds."""

    entity: str
    subscription: str | None
    count: int
    proof: Proof
    with_syphon: bool
    wait: float
    backlogs: int
    primary_namespace_name: str | None
    ca_file: str | None

    @property
    def arrival_path(self) -> str:
        """The path where arriving messages can be peeked and received."""
        if self.subscription is None:
            return self.entity
        return f"{self.entity}/Subscriptions/{self.subscription}"


def steps(plan: DrillPlan) -> list[str]:
    """Return the steps of the drill, one line each."""
    home = {
        Proof.CANCEL: f"peek {plan.arrival_path} for them; cancel each before it is due, unseen by consumers",
        Proof.PEEK: f"peek {plan.arrival_path} for them; consumers receive them and skip {CONTENT_TYPE}",
        Proof.RECEIVE: f"receive and complete them from {plan.arrival_path}, which must be empty before",
    }
    syphon = "run a syphon in this process" if plan.with_syphon else "rely on the running syphon"
    minutes = int((MARGIN if plan.proof is Proof.CANCEL else TIME_TO_LIVE).total_seconds() // 60)
    left = f"due {minutes} min later" if plan.proof is Proof.CANCEL else f"gone after {minutes} min"
    return [
        f"schedule one message on {plan.entity} and cancel it, to check that the entity accepts messages",
        f"hold {plan.entity} in failover, in this process only: your senders are not affected",
        f"send {plan.count} canaries, which go to the backlog queues",
        f"release {plan.entity}: one ping has to bring it home",
        f"{syphon} to bring the canaries home, for at most {plan.wait:g} s",
        home[plan.proof],
        f"leave the remaining canaries in the backlog: each comes home later, marked, and is {left}",
    ]


def operations(plan: DrillPlan) -> dict[str, int]:
    """Return the operations of the plan by kind, without peeks: one operation per peek of up to 100 messages."""
    last = "cancellations" if plan.proof is Proof.CANCEL else "receives from the primary"
    return {
        "one message scheduled directly, and cancelled": 2,
        "sends to the backlog": plan.count,
        "receives by the syphon": plan.count,
        "sends to the primary by the syphon": plan.count,
        last: plan.count,
        "ping": 1,
    }
