"""The completeness of each writer's journal: only a complete journal proves that something did not happen.

A journal is complete if its ordinals run from 0 without a gap to a final ``journal_closed``, no events were lost,
and all lines are readable. The records of an incomplete journal are still true.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

import numpy as np

from ..judge.grouping import Ints
from .clocks import MICROS

Known = TypeVar("Known", int, str)
Run: TypeAlias = "tuple[int, int]"  # the first and the last of ordinals without a gap


@dataclass
class WriterFacts:
    """The facts about one writer, added up over the parts of its journal. Times are in microseconds."""

    writer: str
    role: str | None = None
    primary: str | None = None
    first_at: int | None = None
    last_at: int | None = None
    runs: list[Run] = field(default_factory=list)
    lines: int = 0  # with an ordinal
    sends: int = 0
    unread: int = 0
    unreadable: int = 0
    unknown: int = 0  # events that this version does not know
    altered: int = 0  # files whose lines differ from the written ones
    cut: int = 0  # files with the name of a closed one, without a closing record
    continued: int = 0  # files with something after their closing record
    announced: int | None = None  # the last closing record that says that another file follows
    pardoned: str = ""  # why a file of it was forgotten
    nameless: int = 0  # messages without an id
    offsets: tuple[int, int] | None = None  # least and greatest difference of its two clocks
    closing_lost: int = 0
    gap_lost: int = 0
    has_end: bool = False
    file: str | None = None  # the first of its journal, as a path below the audited directory

    def add(self, other: WriterFacts) -> None:
        self.role = greatest((self.role, other.role))
        self.primary = greatest((self.primary, other.primary))
        self.first_at = smallest((self.first_at, other.first_at))
        self.last_at = greatest((self.last_at, other.last_at))
        self.runs = merge_runs((*self.runs, *other.runs))
        self.lines += other.lines
        self.sends += other.sends
        self.unread += other.unread
        self.unreadable += other.unreadable
        self.unknown += other.unknown
        self.altered += other.altered
        self.cut += other.cut
        self.continued += other.continued
        self.announced = greatest((self.announced, other.announced))
        self.pardoned = self.pardoned or other.pardoned
        self.nameless += other.nameless
        self.offsets = span(self.offsets, other.offsets)
        self.closing_lost = max(self.closing_lost, other.closing_lost)
        self.gap_lost += other.gap_lost
        self.has_end = self.has_end or other.has_end
        self.file = smallest((self.file, other.file))

    def shifted(self, micros: int) -> None:
        """Correct the times."""
        self.first_at = None if self.first_at is None else self.first_at + micros
        self.last_at = None if self.last_at is None else self.last_at + micros

    @property
    def records(self) -> int:
        return sum(last - first + 1 for first, last in self.runs)

    @property
    def missing(self) -> int | None:
        """The number of records between the first and the last that were not read; None if none was read."""
        return self.runs[-1][1] - self.runs[0][0] + 1 - self.records if self.runs else None

    @property
    def surplus(self) -> int:
        return self.lines - self.records

    @property
    def lost(self) -> int:
        return max(self.closing_lost, self.gap_lost)

    @property
    def lacks_next_file(self) -> bool:
        """Whether its last file says that another one follows."""
        return bool(self.runs) and self.announced == self.runs[-1][1] and not self.has_end

    @property
    def moved(self) -> float:
        """By how many seconds the wall clock moved relative to the monotonic one."""
        return 0.0 if self.offsets is None else (self.offsets[1] - self.offsets[0]) / MICROS

    @property
    def reason(self) -> str | None:
        """Why the journal is incomplete; None if it is complete."""
        return next((reason for is_so, reason in REASONS if is_so(self)), None)

    @property
    def is_whole(self) -> bool:
        return self.reason is None


UNREAD = "it was not read"
FORGOTTEN = "a file of it was forgotten"
LACKS_NEXT = "its next file is missing: the last one says that another follows"
KILLED = "it has no closing record: killed, or still writing"
REASONS: tuple[tuple[Callable[[WriterFacts], bool], str], ...] = (
    (lambda found: found.unread > 0, UNREAD),
    (lambda found: found.unreadable > 0, "it has unreadable lines"),
    (lambda found: found.unknown > 0, "it has events that this version does not know"),
    (lambda found: found.nameless > 0, "it has messages without an id"),
    (
        lambda found: not found.pardoned and bool(found.runs) and found.runs[0][0] > 0,
        "its beginning is missing",
    ),
    (lambda found: not found.pardoned and (found.missing or 0) > 0, "records are missing"),
    (lambda found: found.lost > 0, "events could not be written"),
    (lambda found: found.surplus > 0, "records occur twice: was a file copied?"),
    (lambda found: found.cut > 0, "a file was cut: it has the name of a closed one, and no closing record"),
    (lambda found: found.continued > 0, "a file goes on after its closing record"),
    (lambda found: found.altered > 0, "its lines are not those that were written: the checksum differs"),
    (lambda found: found.lacks_next_file, LACKS_NEXT),
    (lambda found: bool(found.pardoned), FORGOTTEN),
    (lambda found: not found.has_end, KILLED),
)
"""Conditions and reasons for incompleteness, the gravest first; a writer without any has a complete journal."""

SHORT = 8  # characters of a writer's UUID, enough to find its files
GAPS = frozenset(reason for _, reason in REASONS) - {UNREAD, LACKS_NEXT, FORGOTTEN, KILLED}
"""The reasons for which a journal may have recorded messages that the audit does not know."""


NOT_MENDED = GAPS - {"events could not be written"}
"""The reasons that end when a damaged file is replaced by its right copy."""


def span(one: tuple[int, int] | None, other: tuple[int, int] | None) -> tuple[int, int] | None:
    """The least and the greatest of two ranges."""
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1])


def runs(ordinals: Ints) -> list[Run]:
    """``ordinals`` as runs without gaps."""
    ordered = np.sort(ordinals)
    ends = np.flatnonzero(np.diff(ordered) > 1)
    firsts = ordered[np.concatenate([[0], ends + 1])] if len(ordered) else ordered
    lasts = ordered[np.concatenate([ends, [len(ordered) - 1]])] if len(ordered) else ordered
    return list(zip(firsts.tolist(), lasts.tolist(), strict=True))


def merge_runs(several: Iterable[Run]) -> list[Run]:
    """The union of runs, with adjacent ones joined."""
    found: list[Run] = []
    for first, last in sorted(several):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return found


def greatest(values: Iterable[Known | None]) -> Known | None:
    """The maximum of the values that are not None; None if there are none."""
    return max((value for value in values if value is not None), default=None)


def smallest(values: Iterable[Known | None]) -> Known | None:
    """The minimum of the values that are not None; None if there are none."""
    return min((value for value in values if value is not None), default=None)
