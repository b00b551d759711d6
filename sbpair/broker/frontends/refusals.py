"""Refusals: their wording, and the record of recent ones.

Every error text ends with a tracking id, the entity and the time, as in the cloud, because clients show them and
support scripts parse them. The record is bounded, contains neither keys nor bodies, and is shown on the dashboard.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from dataclasses import dataclass
from datetime import UTC, datetime

from sbpair.pair.amqp.performatives import Condition

from ..errors import BrokerError, UnauthorizedError


def tracked(text: str, tracker: str, now: int) -> str:
    """Return ``text`` with TrackingId, SystemTracker and Timestamp; ``now`` in milliseconds since the epoch."""
    at = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{uuid.uuid4()}_B0, SystemTracker:{tracker}, Timestamp:{at}"


def tracked_by_gateway(text: str, now: int) -> str:
    """Return ``text`` with the tracker of a gateway, which knows no entity; ``now`` as in :func:`tracked`."""
    at = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{uuid.uuid4().hex}_G0, SystemTracker:gateway5, Timestamp:{at}"


def attach_refusal(error: BrokerError, host: str, tracker: str, now: int) -> Condition:
    """Return the AMQP error that refuses an attach, with the tracking id of a gateway, or of a broker and a gateway."""
    text = error.text_at(host)
    if not isinstance(error, UnauthorizedError):
        text = tracked(text, tracker, now)
    return Condition(error.condition, tracked_by_gateway(text, now))


def condition_of(error: BrokerError, host: str, tracker: str, now: int) -> Condition:
    """Return the AMQP error that reports ``error`` to a client of the namespace at ``host``."""
    return Condition(error.condition, tracked(error.text_at(host), tracker, now))


KEPT = 200
MAX_TEXT = 300  # characters: paths and texts may come from unauthenticated clients
MAX_CONDITIONS = 100  # all others count as "other"


@dataclass(frozen=True, slots=True)
class Rejection:
    """One refusal: ``at`` in milliseconds of entity time, the requested path, the condition and its text."""

    at: int
    path: str
    condition: str
    text: str


class Rejections:
    """The most recent refusals of a namespace, and a count by condition."""

    __slots__ = ("by_condition", "recent")

    def __init__(self) -> None:
        self.recent: deque[Rejection] = deque(maxlen=KEPT)
        self.by_condition: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """The number of refusals since the namespace was opened."""
        return self.by_condition.total()

    def since(self, instant: int) -> int:
        """Return how many of the recorded refusals are later than ``instant``, in milliseconds of entity time."""
        return sum(each.at > instant for each in self.recent)

    def note(self, at: int, path: str, condition: str, text: str) -> None:
        """Count and record a refusal; beyond KEPT records, the oldest one is dropped."""
        cut = [each[:MAX_TEXT] for each in (path, condition, text)]
        is_new = cut[1] not in self.by_condition
        self.by_condition["other" if is_new and len(self.by_condition) >= MAX_CONDITIONS else cut[1]] += 1
        self.recent.append(Rejection(at, *cut))
