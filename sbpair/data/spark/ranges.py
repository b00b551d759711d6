"""Offsets and ranges of sequence numbers: which messages belong to a batch. Performs no I/O.

    offset   {"orders": 41}                      read up to number 41
             {"parts": 7, "parts#1": 3}          a partitioned entity: one lane per partition
             {"orders@until": 1795262400000}     with settlement: the messages read were enqueued by then (ms)
    {"orders@peeked": 1795262400000}    the same without: a query that settles must not go on from it
    {"orders@since": 1795262400000}     the entity was recreated, with this first message; read again from there

The top 16 bits of a sequence number are the index of the partition; an entity without partitions has only lane 0.
Numbers grow in the order in which messages are stored, so a range can be read again, by any process, in any number
of pieces. An entity that was deleted and recreated reuses the numbers; its messages are detected by an enqueued
time later than ``@until``.

The searches are generators: they yield the number to peek at, and are sent the first message at or after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass, replace

LANE_BITS = 48
LAST = 2**63 - 1
UNTIL, PEEKED, SINCE = "@until", "@peeked", "@since"  # entity paths cannot contain "@"
ACTIVE = 0  # x-opt-message-state


@dataclass(frozen=True, slots=True)
class Seen:
    """A peeked message: its sequence number, enqueued time (ms since the epoch) and state."""

    number: int
    enqueued_at: int
    state: int = ACTIVE


@dataclass(frozen=True, slots=True)
class Span:
    """A range of messages in one lane, ``first`` to ``last`` inclusive."""

    lane: str
    first: int
    last: int
    since: int | None = None
    """The enqueued time (ms) of the first message if the entity was recreated since the last read."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The messages of ``lane`` up to number ``upto`` were read, and are committed."""

    lane: str
    upto: int
    until: int | None = None
    """Messages enqueued after this time (ms) were not read, whatever their number."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The range that one task reads, ``first`` to ``last`` inclusive.

    After reading, the task completes the messages of the entity up to ``marks``.
    """

    path: str
    first: int
    last: int
    marks: tuple[Mark, ...] = ()


Search = Generator[int, Seen | None, "int | None"]


def lane_of(path: str, number: int) -> str:
    """The lane, a key of offsets, of the message ``number`` of the entity ``path``."""
    index = number >> LANE_BITS
    return f"{path}#{index}" if index else path


def path_of(lane: str) -> str:
    """The entity of a lane; entity paths cannot contain ``#``."""
    return lane.split("#", 1)[0]


def index_of(lane: str) -> int:
    """The partition index of a lane."""
    return int(lane.split("#", 1)[1]) if "#" in lane else 0


def before_lane(lane: str) -> int:
    """The number before the lowest possible one of the lane."""
    return max(0, (index_of(lane) << LANE_BITS) - 1)


def heads(path: str) -> Generator[int, Seen | None, dict[str, Seen]]:
    """Search the first message of each non-empty lane of an entity, with one peek per lane and one more."""
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
    """Whether the first message of a lane shows that the entity was recreated since ``start``.

    That is an active message with a number already read that was enqueued after all messages read.
    """
    until = start.get(lane + UNTIL, start.get(lane + PEEKED))
    is_young = until is not None and head.enqueued_at > until
    return is_young and head.state == ACTIVE and head.number <= start.get(lane, 0)


def span(lane: str, after: int, cutoff: int, hint: int = 0) -> Generator[int, Seen | None, Span | None]:
    """Search the messages of ``lane`` after number ``after`` that were enqueued by ``cutoff`` (ms).

    An exponential, then a binary search, with about 2 log2(n) peeks of one message each. It begins at the message
    ``hint``, the last one of an earlier search, if that still waits: n are then the messages behind it. The span
    ends before the first active message enqueued after ``cutoff``: a message that is stored late under a lower
    number would otherwise be skipped. Scheduled messages do not end it, since they get a new number when they become
    active.
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
    if known < hint <= end:
        seen = yield hint
        if seen is not None and seen.number == hint and counts(seen):
            known = hint
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
    """Shorten ``spans`` to ``most`` numbers in total, at least one each; the shortest get their share first."""
    waiting = sorted(spans, key=lambda each: each.last - each.first)
    if most is None:
        return waiting
    granted = []
    for place, each in enumerate(waiting):
        share = max(1, most // (len(waiting) - place))
        last = min(each.last, each.first + share - 1)
        most = max(0, most - (last - each.first + 1))
        granted.append(replace(each, last=last))
    return granted


def weigh(span: Span, most: int) -> Generator[int, list[tuple[int, int]], tuple[int, int]]:
    """Search the end of the first ``most`` bytes of a span, at least one message: the last number, and the bytes.

    Yields the number to peek from, and is sent the numbers and sizes of the messages found.
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
    """The position of each lane, without times."""
    return {lane: number for lane, number in offset.items() if "@" not in lane}


def advance(
    start: Mapping[str, int], spans: Iterable[Span], until: int | None = None, name: str = UNTIL
) -> dict[str, int]:
    """The offset after ``spans``, whose messages were enqueued by ``until`` (ms); other lanes are unchanged.

    ``name`` is UNTIL or PEEKED. Without ``until`` the time of each advanced lane is removed, since it no longer
    covers all messages read.
    """
    end = dict(start)
    for each in spans:
        end[each.lane] = each.last
        for known in (UNTIL, PEEKED):
            end.pop(each.lane + known, None)
        if until is not None:
            end[each.lane + name] = until
        if each.since is not None:
            end[each.lane + SINCE] = each.since
    return end


def marks(start: Mapping[str, int], end: Mapping[str, int] | None = None) -> dict[str, tuple[Mark, ...]]:
    """The marks committed with ``start``, the end of a batch, by entity.

    Lanes that were recreated by ``end`` are left out: their committed messages are gone.
    """
    found: dict[str, tuple[Mark, ...]] = {}
    for lane, upto in sorted(numbers(start).items()):
        if upto > before_lane(lane) and not _restarts(lane, start, start if end is None else end):
            found[path_of(lane)] = (*found.get(path_of(lane), ()), Mark(lane, upto, start.get(lane + UNTIL)))
    return found


def _restarts(lane: str, start: Mapping[str, int], end: Mapping[str, int]) -> bool:
    return start.get(lane + SINCE) != end.get(lane + SINCE)


def pieces(start: Mapping[str, int], end: Mapping[str, int], least: int, *, settles: bool) -> list[Piece]:
    """Divide the range (start, end] of each lane into pieces, about ``least`` in total if there are that many numbers.

    With ``settles`` the first piece of an entity also completes its messages up to ``start``, which is the end of
    a committed batch.
    """
    begin = {lane: 0 if _restarts(lane, start, end) else start.get(lane, 0) for lane in numbers(end)}
    moved = {
        lane: (max(begin[lane], before_lane(lane)), last)
        for lane, last in sorted(numbers(end).items())
        if last > begin[lane]
    }
    total = sum(last - after for after, last in moved.values())
    made = []
    due = marks(start, end) if settles else {}
    for lane, (after, last) in moved.items():
        share = max(1, round(least * (last - after) / total)) if total else 1
        cut = _cut(path_of(lane), after, last, min(share, last - after))
        cut[0] = replace(cut[0], marks=due.pop(path_of(lane), ()))
        made += cut
    return made


def _cut(path: str, after: int, last: int, count: int) -> list[Piece]:
    bounds = [after + (last - after) * index // count for index in range(count + 1)]
    return [Piece(path, low + 1, high) for low, high in itertools.pairwise(bounds)]
