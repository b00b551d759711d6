"""The scenarios in virtual time, as a table, and the run of one of them."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

from .answers import (
    BUSY,
    REJECTED,
    Answers,
    busy,
    flapping,
    one_partition,
    rejecting,
    silent,
    slow,
)
from .crowd import Crowd, Figures

CLIENTS, RATE, MINUTES = 500, 0.5, 10.0
POLICIES = ("raise", "redirect")


@dataclass(frozen=True, slots=True)
class VirtualScenario:
    """What the primary does, and what differs from the default options; ``keys`` is the number of partition keys."""

    title: str
    answers: Answers
    busy_after: float | None = None
    keys: int = 0


SCENARIOS = {
    each.title: each
    for each in (
        *(
            VirtualScenario(f"{share:.0%} rejected", rejecting(share))
            for share in (0.05, 0.2, 0.5, 0.8, 0.95, 1.0)
        ),
        VirtualScenario("up 10 s, down 60 s", flapping(10, 60)),
        VirtualScenario("up 30 s, down 30 s", flapping(30, 30)),
        *(VirtualScenario(f"{share:.0%} unanswered", silent(share)) for share in (0.2, 0.5, 0.95)),
        VirtualScenario("each answer after 40 s", slow(40)),
        VirtualScenario("80% busy", busy(0.8)),
        VirtualScenario("80% busy, failover_on_busy_after 60 s", busy(0.8), busy_after=60.0),
        VirtualScenario("one partition of 16 down, with keys", one_partition(REJECTED), keys=1000),
        VirtualScenario("one partition of 16 throttled, with keys", one_partition(BUSY), keys=1000),
    )
}


def measure(
    name: str, *, clients: int = CLIENTS, redirects: bool, minutes: float = MINUTES, seed: int = 1
) -> Figures:
    """Run one scenario."""
    scenario = SCENARIOS[name]
    crowd = Crowd(
        scenario.answers,
        clients=clients,
        redirects=redirects,
        seed=seed,
        rate=RATE,
        busy_limit=scenario.busy_after,
        keys=scenario.keys,
    )
    return crowd.run(minutes * 60)


def row(name: str, policy: str, *, clients: int = CLIENTS, minutes: float = MINUTES) -> dict[str, Any]:
    """The figures of one scenario, as they are stored."""
    figures = measure(name, clients=clients, redirects=policy == "redirect", minutes=minutes)
    first, total = figures.failed_over_at.values(), figures.ended.total()
    return {
        "scenario": name,
        "policy": policy,
        "goodput": round(figures.goodput, 4),
        "raised": round(figures.ended["raised"] / total, 4),
        "parked": round(figures.ended["parked"] / total, 4),
        "p99": round(quantiles(figures.seconds, n=100)[98], 2),
        "failed_over": len(first),
        "median": round(median(first)) if first else None,
    }
