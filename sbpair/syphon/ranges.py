"""Which runs of consecutive delivery ids are there? One disposition then settles a whole run (2.7.6)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def runs(delivery_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """``(first, last)`` of each run, ascending; none reaches across the wrap of the serial numbers."""
    first = last = -1
    for delivery_id in sorted(delivery_ids):
        if delivery_id == last + 1 and first >= 0:
            last = delivery_id
            continue
        if first >= 0:
            yield first, last
        first = last = delivery_id
    if first >= 0:
        yield first, last
