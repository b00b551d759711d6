"""Runs of a system: stretches of time in which at least one of its journals was written.

    sender 1 |-----|            sender 2  |----|
    syphon 1   |-----|          syphon 2    |-----|
             run 0                      run 1

Two runs may use the same message ids, when a test is repeated, for example. An arrival in one run says nothing about a
message of the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from .writers import WriterFacts


def separate_runs(writers: Iterable[WriterFacts]) -> dict[str, int]:
    """The run of each writer, numbered from 0 for each primary; writers without times or a primary have none."""
    spans: defaultdict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for each in writers:
        if each.primary is not None and each.first_at is not None and each.last_at is not None:
            spans[each.primary].append((each.first_at, each.last_at, each.writer))
    found = {}
    for of_primary in spans.values():
        run, until = -1, None
        for first, last, writer in sorted(of_primary):
            if until is None or first > until:
                run, until = run + 1, last
            until = max(until, last)
            found[writer] = run
    return found
