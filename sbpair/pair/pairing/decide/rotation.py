"""Rotation of the backlog queues: the choice of the queue in which a sender parks, and whether it may try any.

Each sender picks its own queue at random, regardless of quarantines, and keeps it. A queue that fails is quarantined
for all senders of the pairing, for 5 s, 10 s, 20 s ... up to 5 minutes; one success ends the series. During the
quarantine, the queue's senders park in another queue. Later they return to their own, which restores the even
distribution.

After a quarantine, one sender at a time tries the queue while the others avoid it. If all queues have failed, the one
whose quarantine ends first is tried; once any accepts, all quarantines end, because the namespace is available again.

Performs no I/O: time and randomness are arguments.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..outcome import RememberedFailure

if TYPE_CHECKING:
    from random import Random


FIRST_QUARANTINE = 5.0
EVIDENCE = 60.0  # seconds for which a failure of the secondary says something about it
MAX_QUARANTINE_SECONDS = 300.0
TRIAL_INTERVAL = 1.0  # seconds between two trials, with a jitter of a quarter
SPAN = 10.0  # seconds in which two queues must have failed
QUIET = 1.0  # seconds in which no queue accepted a message
TRIAL_JITTER = 0.25
MIN_QUEUES = 2


@dataclass(slots=True)
class Choice:
    """A sender's own backlog queue, None until it first needs one, and its substitute."""

    backlog: int | None = None
    stand_in: int | None = None


@dataclass(slots=True)
class _Quarantine:
    until: float
    failures: int
    tried_until: float = -math.inf  # until then a sender may be trying it

    @property
    def ends(self) -> float:
        return max(self.until, self.tried_until)


class Rotation:
    """The backlog queues of one pairing, and which of them are quarantined.

    Queues with an index of ``count`` or more do not belong to it.
    """

    def __init__(self, count: int, rng: Random) -> None:
        self._count = count
        self._rng = rng
        self._out: dict[int, _Quarantine] = {}
        self._accepted_at: dict[int, float] = {}

    def __len__(self) -> int:
        return self._count

    def available(self, now: float) -> list[int]:
        """Return the indexes of the queues that are not quarantined, in ascending order."""
        return [index for index in range(self._count) if not self._is_out(index, now)]

    def pick(self, choice: Choice, now: float, tried: frozenset[int] = frozenset()) -> int | None:
        """Return the queue to try next; None when all are in ``tried``.

        The sender's own queue if available, else its substitute if available, else another one, chosen at random.
        """
        if choice.backlog is None:
            choice.backlog = self._rng.randrange(self._count)
        if choice.backlog not in tried and not self._is_out(choice.backlog, now):
            return choice.backlog
        fresh = [index for index in self.available(now) if index not in tried]
        if fresh and choice.stand_in not in fresh:
            choice.stand_in = self._rng.choice(fresh)
        if fresh:
            return choice.stand_in
        waiting = [index for index in range(self._count) if index not in tried]
        return min(waiting, key=lambda index: (self._out[index].ends, index), default=None)

    def begun(self, backlog: int, until: float) -> None:
        """Record that a sender tries this queue until ``until``; meanwhile others avoid it if it has failed before."""
        record = self._out.get(backlog)
        if record is not None:
            record.tried_until = until

    def failed(self, backlog: int, now: float) -> float:
        """Quarantine a queue and return the end of the quarantine.

        A failure reported during a quarantine is the same failure seen by another sender, and does not extend it.
        """
        record = self._out.setdefault(backlog, _Quarantine(until=now, failures=0))
        record.tried_until = -math.inf
        if record.until <= now:
            record.failures += 1
            span = FIRST_QUARANTINE * 2.0 ** min(record.failures - 1, 16)  # bounded against overflow
            record.until = now + min(span, MAX_QUARANTINE_SECONDS)
        return record.until

    def succeeded(self, backlog: int, now: float) -> bool:
        """Record that a queue accepted a message; return whether that ended a series of failures."""
        self._accepted_at[backlog] = now
        if len(self._out) == self._count:
            for record in self._out.values():
                record.until = min(record.until, now)
        return self._out.pop(backlog, None) is not None

    def accepts(self, backlog: int, now: float) -> bool:
        """Whether a queue accepted a message within the last five seconds."""
        return now - self._accepted_at.get(backlog, -math.inf) <= FIRST_QUARANTINE

    def _is_out(self, backlog: int, now: float) -> bool:
        record = self._out.get(backlog)
        return record is not None and now < record.ends


class SideBreaker:
    """The breaker of the secondary: while it fails as a whole, only one send a second tries it.

    CLOSED ---two queues (or a send's only queue, twice) failed by a fault of the side, and none accepted---> OPEN
      ^                                                                         |  one trial a second
      '-----------------------------a queue accepted----------------------------'

    ``cause`` is its last failure while it is open.
    """

    def __init__(self, rng: Random) -> None:
        self.cause: RememberedFailure | None = None
        self._rng = rng
        self._failed: dict[int, float] = {}  # when each queue failed last, since the last success
        self._failures = 0  # of queues that were the only one of their send, since then
        self._accepted_at = -math.inf
        self._trial_at = -math.inf

    @property
    def is_open(self) -> bool:
        """Whether the secondary counts as failing as a whole."""
        return self.cause is not None

    def was_silent(self, now: float) -> bool:
        """Whether the secondary fails as a whole, as far as known: a failure counts for a minute even without sends."""
        return self.cause is not None and now - max(self._failed.values(), default=-math.inf) <= EVIDENCE

    def may_ask(self, now: float) -> bool:
        """Whether a send may try the secondary now; while open, True for one send per trial."""
        if self.cause is None:
            return True
        if now < self._trial_at:
            return False
        self._schedule(now)
        return True

    def failed(self, backlog: int, cause: Exception | None, now: float, *, is_only: bool = False) -> None:
        """Record that a queue failed with an error of its side: connection, token, name or busy.

        ``is_only``: the send has no other queue to choose, or tries none because a spool takes the message.
        """
        self._failed[backlog] = now
        self._failures += is_only
        recent = max(sum(now - at <= SPAN for at in self._failed.values()), self._failures)
        if cause is not None and (self.cause is not None or self._is_silent(recent, now)):
            self.cause = RememberedFailure.of(cause)
            self._schedule(now)

    def succeeded(self, now: float) -> None:
        """Record that a queue accepted a message: the side is available."""
        self._failed.clear()
        self._failures = 0
        self.cause, self._accepted_at = None, now

    def _is_silent(self, recent: int, now: float) -> bool:
        return recent >= MIN_QUEUES and now - self._accepted_at > QUIET

    def _schedule(self, now: float) -> None:
        self._trial_at = now + TRIAL_INTERVAL * (1 + self._rng.uniform(-TRIAL_JITTER, TRIAL_JITTER))
