"""Many seeds, on all cores; and one seed with fewer faults."""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from .run import Outcome, run

CHUNK = 5  # seeds that a process takes at a time


def brief(seed: int, *, has_fence: bool = True) -> tuple[int, list[str], Counter[str]]:
    """What is worth sending from one process to another."""
    history = run(seed, has_fence=has_fence).history
    return seed, history.violations, history.reached


def shrunk(seed: int) -> Outcome:
    """The same seed with as few of its faults as still break something: each is left out in turn."""
    outcome = run(seed)
    keep = list(range(len(outcome.plan)))
    for index in list(keep):
        fewer = [each for each in keep if each != index]
        tried = run(seed, fewer)
        if tried.history.violations:
            keep, outcome = fewer, tried
    return outcome


def play(seeds: range, jobs: int, *, has_fence: bool = True) -> Iterator[tuple[int, list[str], Counter[str]]]:
    """Every seed, in order."""
    played = partial(brief, has_fence=has_fence)
    if jobs == 1:
        yield from map(played, seeds)
        return
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("spawn")) as pool:
        yield from pool.map(played, seeds, chunksize=CHUNK)
