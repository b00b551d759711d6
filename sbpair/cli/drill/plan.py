"""What is a drill to do, and what does it cost? Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .canary import CONTENT_TYPE, MARGIN, TIME_TO_LIVE, Proof


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for; ``wait`` in seconds."""

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
    def looked_at(self) -> str:
        """The path that messages can be peeked and received at."""
        if self.subscription is None:
            return self.entity
        return f"{self.entity}/Subscriptions/{self.subscription}"


def steps(plan: Plan) -> list[str]:
    """The drill in words, one line a step."""
    home = {
        Proof.CANCEL: f"peek {plan.looked_at} for them; cancel each before it is due, unseen by consumers",
        Proof.PEEK: f"peek {plan.looked_at} for them; consumers receive them and skip {CONTENT_TYPE}",
        Proof.RECEIVE: f"receive and complete them from {plan.looked_at}, which must be empty before",
    }
    syphon = "run a syphon in this process" if plan.with_syphon else "leave it to the syphon that runs"
    minutes = int((MARGIN if plan.proof is Proof.CANCEL else TIME_TO_LIVE).total_seconds() // 60)
    left = f"due {minutes} min later" if plan.proof is Proof.CANCEL else f"gone after {minutes} min"
    return [
        f"schedule one message on {plan.entity} and cancel it: the entity is there, and takes messages",
        f"hold {plan.entity} in failover, in this process only: your senders are not touched",
        f"send {plan.count} canaries, which go to the backlog queues",
        f"release {plan.entity}: one ping has to bring it home",
        f"{syphon} to bring the canaries home, for at most {plan.wait:g} s",
        home[plan.proof],
        f"what is not home then stays in the backlog; it comes home marked, and is {left}",
    ]


def operations(plan: Plan) -> dict[str, int]:
    """What the plan costs, beside peeks: each is one for up to 100 messages."""
    last = "cancellations" if plan.proof is Proof.CANCEL else "receives from the primary"
    return {
        "one message scheduled directly, and cancelled": 2,
        "sends to the backlog": plan.count,
        "receives by the syphon": plan.count,
        "sends to the primary by the syphon": plan.count,
        last: plan.count,
        "ping": 1,
    }
