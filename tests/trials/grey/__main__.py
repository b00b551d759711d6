"""A table of what callers get while the primary is only half down: ``python -m tests.trials.grey``."""

from __future__ import annotations

import argparse
from statistics import median, quantiles

from rich.console import Console
from rich.table import Table

from .crowd import Crowd, Fails, Figures


def rejecting(share: float) -> Fails:
    """A primary that rejects this share of all attempts."""
    return lambda _, rng: rng.random() < share


def flapping(up: float, down: float) -> Fails:
    """A primary that is up and down in turn, for these seconds."""
    return lambda now, _: now % (up + down) >= up


SCENARIOS: dict[str, Fails] = {
    **{f"{share:.0%} rejected": rejecting(share) for share in (0.05, 0.2, 0.5, 0.8, 0.95, 1.0)},
    "up 10 s, down 60 s": flapping(10, 60),
    "up 30 s, down 30 s": flapping(30, 30),
}


def measure(name: str, *, clients: int, redirects: bool, minutes: float, seed: int = 1) -> Figures:
    """Run one scenario."""
    crowd = Crowd(SCENARIOS[name], clients=clients, redirects=redirects, seed=seed, rate=0.5)
    return crowd.run(minutes * 60)


def _row(name: str, policy: str, figures: Figures, clients: int) -> list[str]:
    first = figures.failed_over_at.values()
    total = figures.ended.total()
    return [
        name,
        policy,
        f"{figures.goodput:.1%}",
        f"{figures.ended['raised'] / total:.1%}",
        f"{figures.ended['parked'] / total:.1%}",
        f"{quantiles(figures.seconds, n=100)[98]:.2f} s",
        f"{len(first)} of {clients}",
        f"{median(first):.0f} s" if first else "-",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=500, help="clients, each with half a send a second")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual minutes of each scenario")
    given = parser.parse_args()
    columns = ("primary", "policy", "stored in 5 s", "raised", "parked", "p99", "failed over", "median")
    table = Table(*columns, title=f"{given.clients} clients, {given.minutes:g} minutes, default options")
    for name in SCENARIOS:
        for policy in ("raise", "redirect"):
            redirects = policy == "redirect"
            figures = measure(name, clients=given.clients, redirects=redirects, minutes=given.minutes)
            table.add_row(*_row(name, policy, figures, given.clients))
    Console().print(table)


if __name__ == "__main__":
    main()
