"""Copies explained by a killed syphon: the primary accepted a message from it, and it died before recording that.

    parked ----> the killed syphon's last record ----> forwarded by another, recorded
                    '--> its successor starts: it is dead by now

The journal of a killed syphon lacks only its closing record. The syphon may have forwarded each message of its pair
once more, without a record, if the message was parked before the next syphon of the pair started, and if the syphon's
last record is not later than the last record that the message was forwarded. If it recorded a forward of the message
itself, it explains no further copy: that one is counted already.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from .evidence import Evidence, KilledSyphon
from .fold import Messages, times_accepted
from .grouping import NULL, Bools, Ints, group_max


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """How many killed syphons may have forwarded each message without a record, and which, by the message's index."""

    count: Ints
    writers: Mapping[int, list[str]] = field(default_factory=dict)


def count_explained(numbers: Mapping[str, Ints], again: Ints) -> Ints:
    """Return how many extra copies of each message can be explained; of these, ``again`` are second forwards."""
    sent_again = np.maximum(times_accepted(numbers) - 1, 0)
    found: Ints = numbers["ambiguities"] + sent_again + again
    return found


def times_forwarded_again(numbers: Mapping[str, Ints], unrecorded: Ints | int = 0) -> Ints:
    """Return how often each message was forwarded after the first time, given the number of unrecorded forwards."""
    found: Ints = np.maximum(numbers["forwarded"] + numbers["landed"] + unrecorded - numbers["parked"], 0)
    return found


def needs_killed(numbers: Mapping[str, Ints]) -> Bools:
    """Return which parked messages have unexplained copies, which a killed syphon may explain."""
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
    forwarded_at = group_max(messages.forwards.group, messages.forwards.at, len(messages))
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
    """Return whether ``syphon`` may have forwarded each of ``rows`` without a record."""
    last, parked = forwarded_at[rows], messages.numbers["parked_at"][rows]
    found: Bools = (last == NULL) | (syphon.last_at <= last + skew)
    found &= parked != NULL
    if syphon.dead_by is not None:
        found &= parked <= syphon.dead_by + skew
    if syphon.writer in messages.senders:
        own = messages.forwards.writer == messages.senders.index(syphon.writer)
        found &= ~np.isin(rows, messages.forwards.group[own])
    return found
