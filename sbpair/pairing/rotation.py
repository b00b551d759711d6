"""Which backlog queue does a sender park in? (P-5, P-7)

Random once per sender, then sticky. A backlog that failed is in quarantine for every sender of the
pairing, for 5 s, 10 s, 20 s ... up to 5 minutes; one success ends the series. When all are in
quarantine, the one whose quarantine ends first is tried.

Pure: the randomness is handed in, and so is the time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

FIRST_QUARANTINE = 5.0
LONGEST_QUARANTINE = 300.0


@dataclass(slots=True)
class Choice:
    """The backlog one sender has settled on; None until it first needs one (P-7)."""

    backlog: int | None = None


@dataclass(slots=True)
class _Quarantine:
    until: float
    failures: int


class Rotation:
    """The backlog queues of one pairing, and which of them are out for now.

    It knows those below the count only; what else there is, is left alone (P-13).
    """

    def __init__(self, count: int, rng: Random) -> None:
        self._count = count
        self._rng = rng
        self._out: dict[int, _Quarantine] = {}

    def __len__(self) -> int:
        return self._count

    def available(self, now: float) -> list[int]:
        """The backlogs in rotation, in order of their number."""
        return [index for index in range(self._count) if not self._is_out(index, now)]

    def pick(self, choice: Choice, now: float, tried: frozenset[int] = frozenset()) -> int | None:
        """The backlog to try next; None when every one of them was tried.

        The sender's own choice stands while it is in rotation (P-7). A new one becomes its choice.
        """
        fresh = [index for index in self.available(now) if index not in tried]
        if choice.backlog in fresh:
            return choice.backlog
        if fresh:
            choice.backlog = self._rng.choice(fresh)
            return choice.backlog
        waiting = [index for index in range(self._count) if index not in tried]
        return min(waiting, key=lambda index: (self._out[index].until, index), default=None)

    def failed(self, backlog: int, now: float) -> float:
        """Take a backlog out of the rotation (P-5); until when.

        A failure reported while it is already out is the same failure seen by another sender.
        """
        record = self._out.setdefault(backlog, _Quarantine(until=now, failures=0))
        if record.until <= now:
            record.failures += 1
            record.until = now + min(FIRST_QUARANTINE * 2 ** (record.failures - 1), LONGEST_QUARANTINE)
        return record.until

    def succeeded(self, backlog: int) -> bool:
        """A message was accepted there; True when that ended a series of failures."""
        return self._out.pop(backlog, None) is not None

    def _is_out(self, backlog: int, now: float) -> bool:
        record = self._out.get(backlog)
        return record is not None and now < record.until
