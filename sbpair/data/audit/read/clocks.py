"""Differences between the clocks of the journals' writers, and conversions of times.

A syphon measures the difference between the secondary's clock and its own and records it (``clock_differs``); its times
are shifted accordingly. A message that was received before it was sent, or forwarded before it was parked, shows that
clocks still differ: the times of each pair of writers are compared (:data:`CHECKS`). If they differ by more than the
audit's ``skew``, the audit is unproven, and no time proves a loss that the difference could explain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

import numpy as np

from ..judge.fold import Messages
from ..judge.grouping import NULL, Bools, Ints

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROS = 1_000_000  # per second


@dataclass(frozen=True, slots=True)
class ClockCorrection:
    """A correction: ``shift`` seconds are added to the times of a writer."""

    writer: str
    shift: float

    @property
    def micros(self) -> int:
        return round(self.shift * MICROS)


def moment(micros: int) -> datetime:
    """The UTC time of ``micros`` since the epoch."""
    return EPOCH + timedelta(microseconds=micros)


Apart: TypeAlias = "Mapping[tuple[str, str], int]"
"""By how many microseconds an event precedes its cause, at most, by the writers of cause and event."""
# A cause and its writer, an effect that cannot precede it and its writer, and the messages for which this is certain.
CHECKS = (
    ("sent_at", "sender", "received_at", "receiver", "direct"),
    ("stored_at", "broker", "sent_at", "sender", "direct"),
    ("stored_at", "broker", "received_at", "receiver", "direct"),
    ("parked_at", "sender", "forwarded_at", "syphon", "any"),
    ("backlogged_at", "other broker", "parked_at", "sender", "parked"),
    ("backlogged_at", "other broker", "forwarded_at", "syphon", "any"),
    ("stored_at", "broker", "forwarded_at", "syphon", "one way"),
)
# The primary's own clock, read from messages by receivers, cannot be later than any of these.
OF_NAMESPACE = (("sent_at", "sender", "direct"), ("received_at", "receiver", "any"))
ONE_WAY = ("forwarded_at", "syphon", "received_at", "receiver")  # where the journals record the whole way


def differences(messages: Messages) -> dict[tuple[str, str], int]:
    """Return the differences visible in ``messages``, regardless of missing journals."""
    kinds = _kinds(messages)
    found: dict[tuple[str, str], int] = {}
    for cause, by, effect, then_by, kind in CHECKS:
        for pair, micros in _apart(messages, (cause, by, effect, then_by), kinds[kind]).items():
            found[pair] = max(micros, found.get(pair, micros))
    return found


def _kinds(messages: Messages) -> dict[str, Bools]:
    return {"any": np.ones(len(messages), bool), "direct": _is_direct(messages), "parked": _is_parked(messages),
            "one way": _is_one_way(messages)}  # fmt: skip


def behind_namespaces(messages: Messages) -> dict[tuple[str, str], int]:
    """Return by how many microseconds, at least, each writer is behind a primary's clock; negative if it is ahead.

    The primary's clock may itself be off, so only a difference between two writers counts (:func:`between_writers`).
    """
    found: dict[tuple[str, str], int] = {}
    kinds, enqueued = _kinds(messages), messages.numbers["enqueued_at"]
    names = [primary or "" for primary, _ in messages.entities]
    for effect, by, kind in OF_NAMESPACE:
        after = messages.numbers[effect]
        rows = np.flatnonzero(
            kinds[kind] & (enqueued != NULL) & (after != NULL) & (messages.hands[by] != NULL)
        )
        pairs, index = np.unique(
            messages.entity[rows] * len(messages.senders) + messages.hands[by][rows], return_inverse=True
        )
        most = np.full(len(pairs), np.iinfo(np.int64).min)
        np.maximum.at(most, index.ravel(), (enqueued - after)[rows])
        for code, micros in zip(pairs.tolist(), most.tolist(), strict=True):
            entity, writer = divmod(code, len(messages.senders))
            pair = names[entity], messages.senders[writer]
            found[pair] = max(micros, found.get(pair, micros))
    return found


def between_writers(behind: Apart) -> dict[tuple[str, str], int]:
    """Return the result of :func:`behind_namespaces` minus the offset common to all writers of a primary."""
    least: dict[str, int] = {}
    for (primary, _), micros in behind.items():
        least[primary] = min(micros, least.get(primary, micros))
    return {
        (primary, writer): more
        for (primary, writer), micros in behind.items()
        if (more := micros - max(0, least[primary])) > 0
    }


def one_way_differences(messages: Messages, traced: Bools) -> dict[tuple[str, str], int]:
    """Return the differences shown by messages that were received before they were forwarded, and took no other way."""
    return _apart(messages, ONE_WAY, traced & _is_one_way(messages))


def _is_direct(messages: Messages) -> Bools:
    """Return whether the primary accepted the message once, at the first attempt, and it took no other way."""
    numbers = messages.numbers
    others = sum((numbers[name] for name in ("parked", "spooled", "raised", "forwarded", "landed", "handed_on")),
                 numbers["ambiguities"])  # fmt: skip
    found: Bools = (numbers["accepted_by_primary"] == 1) & (others == 0) & (numbers["copies"] <= 1)
    return found


def _is_parked(messages: Messages) -> Bools:
    numbers = messages.numbers
    found: Bools = (numbers["parked"] == 1) & (numbers["ambiguities"] == 0) & (numbers["spooled"] == 0)
    return found


def _is_one_way(messages: Messages) -> Bools:
    """Return whether the message was parked and forwarded once, and took no other way."""
    numbers = messages.numbers
    others = sum(numbers[name] for name in ("accepted_by_primary", "spooled", "raised", "ambiguities"))
    found: Bools = (numbers["parked"] == 1) & (numbers["forwarded"] == 1) & (others == 0)
    return found


def _apart(messages: Messages, check: tuple[str, str, str, str], which: Bools) -> dict[tuple[str, str], int]:
    cause, by, effect, then_by = check
    before, after = messages.numbers[cause], messages.numbers[effect]
    rows = np.flatnonzero(which & (before != NULL) & (after != NULL) & (after < before))
    if not len(rows):
        return {}
    size = len(messages.senders) + 1
    one, other = (_hand(messages, name, rows) for name in (by, then_by))
    pairs, index = np.unique(one * size + other, return_inverse=True)
    most = np.zeros(len(pairs), np.int64)
    np.maximum.at(most, index.ravel(), (before - after)[rows])
    names = [*messages.senders, ""]
    return {
        (names[pair // size], names[pair % size]): int(micros)
        for pair, micros in zip(pairs.tolist(), most, strict=True)
    }


def _hand(messages: Messages, name: str, rows: Ints) -> Ints:
    hand = messages.hands[name][rows]
    return np.where(hand == NULL, len(messages.senders), hand)
