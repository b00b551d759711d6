"""Copies that a killed syphon explains: the primary accepted a message from it, and it died before it recorded that.

    parked ----> the killed syphon's last record ----> forwarded by another, recorded
                    '--> its successor starts: it is dead by now

The journal of a syphon that was killed lacks its closing record, and nothing else. It may have forwarded once, without
a record, each message of its pair that was parked before the next syphon of the pair started, if its own last record
is not later than the last one that says that the message was forwarded. One that recorded that it forwarded the
message explains nothing more: that copy is counted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .evidence import Evidence, KilledSyphon
from .fold import Messages, times_accepted
from .grouping import NULL, Bools, Ints, most


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """How many killed syphons may have forwarded each message without a record, and which, by the message's index."""

    count: Ints
    writers: Mapping[int, list[str]] = field(default_factory=dict)


def count_explained(numbers: Mapping[str, Ints], again: Ints) -> Ints:
    """How many extra copies of each message have an explanation, of which ``again`` are second forwards (G-4)."""
    sent_again = np.maximum(times_accepted(numbers) - 1, 0)
    found: Ints = numbers["ambiguities"] + sent_again + again
    return found


def times_forwarded_again(numbers: Mapping[str, Ints], unrecorded: Ints | int = 0) -> Ints:
    """How often each message was forwarded after the first time, if so many forwards were not recorded."""
    found: Ints = np.maximum(numbers["forwarded"] + numbers["landed"] + unrecorded - numbers["parked"], 0)
    return found


def needs_killed(numbers: Mapping[str, Ints]) -> Bools:
    """Which messages have copies that no record explains, and were parked: a killed syphon may explain them."""
    again = times_forwarded_again(numbers)
    found: Bools = (numbers["parked"] > 0) & (numbers["copies"] - 1 > count_explained(numbers, again))
    return found


def find_unrecorded(messages: Messages, evidence: Evidence) -> Unrecorded:
    """The forwards of ``messages`` that killed syphons may not have recorded."""
    count = np.zeros(len(messages), np.int64)
    writers: dict[int, list[str]] = {}
    rows = np.flatnonzero(needs_killed(messages.numbers))
    if not len(rows):
        return Unrecorded(count)
    forwarded_at = most(messages.forwards.group, messages.forwards.at, len(messages))
    for pair_rows, syphons in _by_pair(messages, rows, evidence):
        for syphon in syphons:
            held = pair_rows[_may_have_held(messages, pair_rows, forwarded_at, syphon, evidence.skew)]
            count[held] += 1
            for row in held.tolist():
                writers.setdefault(row, []).append(syphon.writer)
    return Unrecorded(count, writers)


def _by_pair(
    messages: Messages, rows: Ints, evidence: Evidence
) -> Iterator[tuple[Ints, tuple[KilledSyphon, ...]]]:
    """The rows of each pair whose secondary is known, and its killed syphons."""
    size = len(messages.secondaries) + 1
    code = messages.entity * size + np.where(messages.secondary == NULL, size - 1, messages.secondary)
    for each in np.unique(code[rows]).tolist():
        entity, secondary = divmod(each, size)
        if secondary < len(messages.secondaries):
            primary, _ = messages.entities[entity]
            yield rows[code[rows] == each], evidence.find_killed(primary, messages.secondaries[secondary])


def _may_have_held(
    messages: Messages, rows: Ints, forwarded_at: Ints, syphon: KilledSyphon, skew: int
) -> Bools:
    """Whether ``syphon`` may have forwarded each of ``rows`` and recorded nothing."""
    last, parked = forwarded_at[rows], messages.numbers["parked_at"][rows]
    found: Bools = (last == NULL) | (syphon.last_at <= last + skew)
    found &= parked != NULL
    if syphon.dead_by is not None:
        found &= parked <= syphon.dead_by + skew
    if syphon.writer in messages.senders:
        own = messages.forwards.writer == messages.senders.index(syphon.writer)
        found &= ~np.isin(rows, messages.forwards.group[own])
    return found
