"""The scenarios in virtual time, as a table, what must come of each, and the run of one of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from statistics import median
from typing import Any

from sbpair import PairedNamespaceOptions

from .answers import (
    BUSY,
    REJECTED,
    Answers,
    busy,
    failing_in,
    flapping,
    one_partition,
    pausing,
    rejecting,
    silent,
    slow,
    uneven,
)
from .crowd import GOOD, Crowd, Figures

CLIENTS, RATE, MINUTES = 500, 0.5, 10.0
POLICIES: Mapping[str, PairedNamespaceOptions] = {
    "default": PairedNamespaceOptions(),
    "raise": PairedNamespaceOptions(suspect_policy="raise"),
}
STORED = 0.99  # the least share of the sends that is stored within GOOD seconds, with the default options
QUIET_RATE, QUIET_COPIES = (
    1.0,
    0.05,
)  # sends a second, below which each pause costs one of the few sends a copy
HEALTHY_COPIES = 0.01  # the largest share of the sends that a healthy primary stores and a backlog queue too
OLD_FAILURES = tuple((float(at), at + 2.0) for at in range(15, 500, 45))


@dataclass(frozen=True, slots=True)
class VirtualScenario:
    """What the primary does, and what differs from the default options; ``keys`` is the number of partition keys.

    With the default options at most ``parked`` of the sends may be parked. ``is_healthy`` says that nothing is wrong
    with the primary: it is not left, and copies are few. ``stays`` says that it is not left, though much fails.
    """

    title: str
    answers: Answers
    busy_after: float | None = None
    keys: int = 0
    parked: float = 1.0
    is_healthy: bool = False
    stays: bool = False


def _rejected(share: float, parked: float = 1.0, *, keys: int = 0) -> VirtualScenario:
    title = f"{share:.0%} rejected" + (", with keys" if keys else "")
    return VirtualScenario(title, rejecting(share), keys=keys, parked=parked, stays=share <= 0.2)


def _unanswered(share: float, parked: float = 1.0) -> VirtualScenario:
    return VirtualScenario(f"{share:.0%} unanswered", silent(share), parked=parked, stays=share <= 0.05)


def _busy(share: float) -> tuple[VirtualScenario, VirtualScenario]:
    title = f"{share:.0%} busy"
    return (
        VirtualScenario(title, busy(share), stays=True),
        VirtualScenario(f"{title}, without a hint", busy(share, None), stays=True),
    )


SCENARIOS = {
    each.title: each
    for each in (
        _rejected(0.05, parked=0.1),
        *(_rejected(share) for share in (0.2, 0.5, 0.8, 0.95, 1.0)),
        *(_rejected(share, keys=20) for share in (0.2, 0.3, 0.4, 0.45)),
        VirtualScenario("up 10 s, down 60 s", flapping(10, 60)),
        VirtualScenario("up 30 s, down 30 s", flapping(30, 30)),
        VirtualScenario("up 5 s, down 5 s", flapping(5, 5)),
        VirtualScenario("up 20 s, down 2 s", flapping(20, 2), stays=True),
        VirtualScenario(
            "two bad seconds of 45, then 20 bad ones", failing_in((*OLD_FAILURES, (520, 540))), stays=True
        ),
        _unanswered(0.05, parked=0.2),
        *(_unanswered(share) for share in (0.2, 0.5, 0.95, 1.0)),
        VirtualScenario("each answer after 40 s", slow(40)),
        VirtualScenario("each answer after 4 s", slow(4)),
        *(scenario for share in (0.2, 0.67, 0.8) for scenario in _busy(share)),
        VirtualScenario("80% busy, failover_on_busy_after 60 s", busy(0.8), busy_after=60.0),
        VirtualScenario(
            "one partition of 16 down, with keys", one_partition(REJECTED), keys=1000, parked=0.1
        ),
        VirtualScenario(
            "one partition of 16 throttled, with keys", one_partition(BUSY), keys=1000, parked=0.1
        ),
        VirtualScenario("healthy", uneven(0.02, 0.2), is_healthy=True),
        VirtualScenario("healthy, answers of 20 ms, p99 2 s", uneven(0.02, 2.0), is_healthy=True),
        VirtualScenario("healthy, a pause of 5 s each minute", pausing(60, 5), is_healthy=True),
    )
}


def measure(
    name: str,
    *,
    options: PairedNamespaceOptions = POLICIES["default"],
    clients: int = CLIENTS,
    minutes: float = MINUTES,
    rate: float = RATE,
    seed: int = 1,
) -> Figures:
    """Run one scenario."""
    scenario = SCENARIOS[name]
    if scenario.busy_after is not None:
        options = replace(options, failover_on_busy_after=timedelta(seconds=scenario.busy_after))
    crowd = Crowd(
        scenario.answers, clients=clients, options=options, seed=seed, rate=rate, keys=scenario.keys
    )
    return crowd.run(minutes * 60)


def broken(name: str, figures: Figures, rate: float) -> list[str]:
    """What the default options promise for a scenario, and these figures of so many sends a second do not hold."""
    most_copies = QUIET_COPIES if rate < QUIET_RATE else HEALTHY_COPIES
    scenario = SCENARIOS[name]
    parked, copies = figures.share(figures.ended["parked"]), figures.share(figures.copies)
    p99, left = figures.quantile(0.99), len(figures.failed_over_at)
    promises = (
        (not figures.ended["raised"], f"{figures.ended['raised']} sends raised"),
        (figures.goodput >= STORED, f"only {figures.goodput:.2%} stored within {GOOD:g} s"),
        (p99 <= GOOD, f"p99 of {p99:.2f} s"),
        (parked <= scenario.parked, f"{parked:.1%} parked, more than {scenario.parked:.0%}"),
        (not scenario.is_healthy or copies <= most_copies, f"{copies:.2%} needless copies"),
        (not (scenario.is_healthy or scenario.stays) or not left, f"{left} clients failed over"),
    )
    return [what for holds, what in promises if not holds]


def row(
    name: str, policy: str, *, clients: int = CLIENTS, minutes: float = MINUTES, rate: float = RATE
) -> dict[str, Any]:
    """The figures of one scenario, as they are stored."""
    figures = measure(name, options=POLICIES[policy], clients=clients, minutes=minutes, rate=rate)
    first = figures.failed_over_at.values()
    return {
        "scenario": name,
        "policy": policy,
        "goodput": round(figures.goodput, 4),
        "p50": round(figures.quantile(0.5), 2),
        "p99": round(figures.quantile(0.99), 2),
        "longest": round(figures.longest, 2),
        "raised": round(figures.share(figures.ended["raised"]), 4),
        "parked": round(figures.share(figures.ended["parked"]), 4),
        "needless": round(figures.share(figures.needless), 4),
        "copies": round(figures.share(figures.copies), 4),
        "failed_over": len(first),
        "median": round(median(first)) if first else None,
        "broken": broken(name, figures, rate) if policy == "default" else [],
    }


def line(row: Mapping[str, Any], clients: int) -> str:
    """One row of the table, for a reader at a terminal."""
    return (
        f"{row['scenario']:<42} {row['policy']:<8} {row['goodput']:>7.2%} {row['p50']:>6.2f} {row['p99']:>6.2f} "
        f"{row['longest']:>7.2f} {row['raised']:>7.2%} {row['parked']:>7.2%} {row['needless']:>8.2%} "
        f"{row['copies']:>7.2%} {row['failed_over'] / clients:>5.0%}  {'; '.join(row['broken'])}"
    )


HEAD = (
    f"{'the primary':<42} {'policy':<8} {'in 5 s':>7} {'p50':>6} {'p99':>6} {'longest':>7} {'raised':>7} {'parked':>7} "
    f"{'needless':>8} {'copies':>7} {'left':>5}  broken promises"
)
