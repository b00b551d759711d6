"""Offsets and ranges of sequence numbers: which messages belong to a batch. Pure.

    offset   {"orders": 41}                 read up to 41
             {"parts": 7, "parts#1": 3}     a partitioned entity: one lane for each partition
             {"orders@until": 1795262400000}     with settlement: the messages read were enqueued until then (ms)

A sequence number has the partition in its top 16 bits; a plain entity has lane 0 alone. Numbers grow in the order
in which messages are stored, so a range can be read again, by any process, in any number of pieces. An entity
that was deleted and created again reuses the numbers: its messages are younger than the offset.

The searches are generators: they yield the number to peek at and receive the first message at or after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace

LANE_BITS = 48
LAST = 2**63 - 1
UNTIL = "@until"  # no path has the sign in it
ACTIVE = 0  # x-opt-message-state


@dataclass(frozen=True, slots=True)
class Seen:
    """A message that was peeked at: its number, when it was enqueued (ms), and its state."""

    number: int
    enqueued_at: int
    state: int = ACTIVE


@dataclass(frozen=True, slots=True)
class Span:
    """The messages of one lane that are there to be read, from ``first`` to ``last``."""

    lane: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads of an entity; ``settle_upto`` is what it completes there when it has read."""

    path: str
    first: int
    last: int
    settle_upto: int | None = None
    settle_until: int | None = None
    """What was enqueued after this (ms) is not what was read, whatever its number."""


Search = Generator[int, Seen | None, "int | None"]


def lane_of(path: str, number: int) -> str:
    """The key of an offset."""
    index = number >> LANE_BITS
    return f"{path}#{index}" if index else path


def path_of(lane: str) -> str:
    """The entity of a lane: no path has the sign in it."""
    return lane.split("#", 1)[0]


def index_of(lane: str) -> int:
    return int(lane.split("#", 1)[1]) if "#" in lane else 0


def before_lane(lane: str) -> int:
    """The number before the first that the lane can have."""
    return max(0, (index_of(lane) << LANE_BITS) - 1)


def heads(path: str) -> Generator[int, Seen | None, dict[str, Seen]]:
    """The first message of each lane of an entity that has any: one peek for each, and one more."""
    found: dict[str, Seen] = {}
    probe = 1
    while probe <= LAST:
        seen = yield probe
        if seen is None:
            break
        found[lane_of(path, seen.number)] = seen
        probe = ((seen.number >> LANE_BITS) + 1) << LANE_BITS
    return found


def is_renewed(lane: str, head: Seen, start: Mapping[str, int]) -> bool:
    """Whether a lane begins with a message that came after all that was read, under a number read before."""
    until = start.get(lane + UNTIL)
    is_young = until is not None and head.enqueued_at > until
    return is_young and head.state == ACTIVE and head.number <= start.get(lane, 0)


def span(lane: str, after: int, cutoff: int) -> Generator[int, Seen | None, Span | None]:
    """The messages of ``lane`` behind number ``after`` that were enqueued until ``cutoff`` (ms).

    About 2 log2(n) peeks of one message each: by doubled steps beyond the end, and back by halves. What
    is too young, and what is behind it, waits for the next time: a message stored late under a lower number
    would otherwise be passed over. A scheduled one has a time to come, and gets another number then.
    """
    after = max(after, before_lane(lane))
    end = ((index_of(lane) + 1) << LANE_BITS) - 1

    def counts(seen: Seen | None) -> bool:
        return (
            seen is not None and seen.number <= end and (seen.enqueued_at <= cutoff or seen.state != ACTIVE)
        )

    head = yield after + 1
    if head is None or not counts(head):
        return None
    known, step, beyond = head.number, 1, end + 1
    while (probe := known + step) <= end:
        seen = yield probe
        if seen is None or not counts(seen):
            beyond = probe
            break
        known, step = seen.number, step * 2
    low = known + 1
    while low < beyond:
        middle = (low + beyond) // 2
        seen = yield middle
        if seen is not None and counts(seen):
            known, low = seen.number, seen.number + 1
        else:
            beyond = middle
    return Span(lane, head.number, known)


def allot(spans: Iterable[Span], most: int | None) -> list[Span]:
    """The same spans, shortened to ``most`` numbers in all but at least one each: small ones whole first."""
    waiting = sorted(spans, key=lambda each: each.last - each.first)
    if most is None:
        return waiting
    granted = []
    for place, each in enumerate(waiting):
        share = max(1, most // (len(waiting) - place))
        last = min(each.last, each.first + share - 1)
        most = max(0, most - (last - each.first + 1))
        granted.append(Span(each.lane, each.first, last))
    return granted


def weigh(span: Span, most: int) -> Generator[int, list[tuple[int, int]], tuple[int, int]]:
    """How far ``most`` bytes reach in a span, at least one message: the last number, and the bytes.

    Yields the number to look from, and is sent the numbers and sizes of the messages that stand there.
    """
    start, last, used = span.first, span.last, 0
    while start <= span.last:
        page = yield start
        for number, size in page:
            if number > span.last:
                return span.last, used
            if used and used + size > most:
                return last, used
            last, used = number, used + size
        if not page:
            break
        start = page[-1][0] + 1
    return span.last, used


def numbers(offset: Mapping[str, int]) -> dict[str, int]:
    """Up to which number each lane was read."""
    return {lane: number for lane, number in offset.items() if not lane.endswith(UNTIL)}


def advance(start: Mapping[str, int], spans: Iterable[Span], until: int | None = None) -> dict[str, int]:
    """The offset behind ``spans``, enqueued ``until`` then (ms); what has no span stays where it is.

    Without ``until``, a lane that moves has no time any more: an old one would not be that of what was read.
    """
    end = dict(start)
    for each in spans:
        end[each.lane] = each.last
        if until is None:
            end.pop(each.lane + UNTIL, None)
        else:
            end[each.lane + UNTIL] = until
    return end


def pieces(start: Mapping[str, int], end: Mapping[str, int], least: int, *, settles: bool) -> list[Piece]:
    """The tasks of a batch, at least ``least`` where there are so many numbers: (start, end] of each lane.

    With ``settles`` the first piece of a lane also completes what is up to ``start``: that offset is the
    end of a batch which the sink has, and whose commit was written.
    """
    moved = {
        lane: (max(start.get(lane, 0), before_lane(lane)), last)
        for lane, last in sorted(numbers(end).items())
        if last > start.get(lane, 0)
    }
    total = sum(last - after for after, last in moved.values())
    made = []
    for lane, (after, last) in moved.items():
        share = max(1, round(least * (last - after) / total)) if total else 1
        settled = start.get(lane, 0) if settles else 0
        cut = _cut(path_of(lane), after, last, min(share, last - after))
        if settled:
            cut[0] = replace(cut[0], settle_upto=settled, settle_until=start.get(lane + UNTIL))
        made += cut
    return made


def _cut(path: str, after: int, last: int, count: int) -> list[Piece]:
    bounds = [after + (last - after) * index // count for index in range(count + 1)]
    return [Piece(path, low + 1, high) for low, high in itertools.pairwise(bounds)]
