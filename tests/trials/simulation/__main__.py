"""Runs many seeds: ``python -m tests.trials.simulation --seeds 5000``; one again: ``--seed 17``.

Exits with 1 when a run broke a promise, or when the runs did not reach a required situation. Prints each violation with
its seed, plan and history, then one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

from .batch import play, shrunk
from .reached import MUST_REACH, missed
from .run import Outcome, run

console = Console(stderr=True)
FEW = 1000  # seeds: with fewer, nothing must be reached


def show(outcome: Outcome, *, with_history: bool) -> None:
    print(f"seed {outcome.seed}\n{outcome.shape}\nfaults:")
    for fault in outcome.plan:
        print(f"  {fault}")
    if with_history:
        print("history:")
        for entry in outcome.history.entries:
            print(f"  {entry}")
    for violation in outcome.history.violations:
        print(f"VIOLATION {violation}")


def many(first: int, count: int, jobs: int, *, has_fence: bool) -> int:
    reached: Counter[str] = Counter()
    broken: list[int] = []
    began = time.perf_counter()
    columns = (*Progress.get_default_columns()[:2], MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("seeds", total=count)
        for seed, violations, seen in play(range(first, first + count), jobs, has_fence=has_fence):
            reached.update(seen)
            if violations:
                broken.append(seed)
                console.print(f"seed {seed}: {violations[0]}", markup=False)
            progress.update(task, advance=1, description=f"seeds, {len(broken)} broken")
    seconds = time.perf_counter() - began
    if broken and has_fence:
        show(shrunk(min(broken)), with_history=True)
    unreached = missed(reached) if count >= FEW else []
    print(
        json.dumps(
            {
                "seeds": count,
                "broken": sorted(broken),
                "not_reached": unreached,
                "seeds_per_second": round(count / seconds, 1),
                "reached": {name: reached[name] for name in sorted({*MUST_REACH, *reached})},
            }
        )
    )
    return 1 if broken or unreached else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes (one a core)")
    parser.add_argument("--seed", type=int, help="play this one alone, and print its history")
    parser.add_argument(
        "--shrink", action="store_true", help="with --seed: leave out the faults it does not need"
    )
    parser.add_argument(
        "--without-fence", action="store_true", help="let ordered sessions overtake: runs must break"
    )
    given = parser.parse_args()
    if given.seed is None:
        return many(given.first, given.seeds, given.jobs, has_fence=not given.without_fence)
    outcome = shrunk(given.seed) if given.shrink else run(given.seed)
    show(outcome, with_history=True)
    print(f"digest {outcome.digest}")
    return 1 if outcome.history.violations else 0


if __name__ == "__main__":
    sys.exit(main())
