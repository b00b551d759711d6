"""The messages of an entity that a settlement receives, and those of them that it completes. Performs no I/O.

    add        numbers were peeked: active, and already read and committed
    credit     how many to receive next: never more than are known to wait
    take       a message has arrived: complete it, or give it back

Messages arrive in the order of their numbers within a partition. A known message that is skipped is locked by another
consumer. The settlement does not wait for it, and makes the next request small again: it would otherwise take messages
that others should get. When a message arrives that is not to be completed, no further known message of that partition
can be received, and the settlement of the partition ends. Giving a message back counts as a delivery, and an entity
dead-letters it after a number of deliveries: a settlement stops at a message that was given back ``MAX_RETURNS`` times.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from .ranges import Mark, lane_of

# Messages requested at a time: few enough for the shortest lock duration.
FIRST, GROWTH, MAX_REQUESTED = 1, 4, 500
MAX_RETURNS = 3


class EntityRenewedError(Exception):
    """The entity was deleted and recreated, so sequence numbers of the checkpoint denote other messages."""

    def __init__(self, path: str, upto: int) -> None:
        super().__init__(
            f"sbpair: {path} was deleted and created again since this checkpoint was written: a message with a "
            f"number up to {upto} was enqueued after all messages read. Start a new checkpoint; the message was "
            "not completed"
        )


class Arrived(Protocol):
    """A message that has arrived."""

    @property
    def number(self) -> int | None: ...

    @property
    def enqueued_at(self) -> int | None: ...

    @property
    def deliveries(self) -> int: ...


class Claim:
    """The messages of ``path`` up to ``marks`` that are to be completed; ``known`` are those known by number."""

    def __init__(self, path: str, marks: Sequence[Mark], known: Iterable[int] = ()) -> None:
        self._path = path
        self._marks = {mark.lane: mark for mark in marks}
        self._waiting: dict[str, deque[int]] = {mark.lane: deque() for mark in marks}
        self._window = FIRST
        self._is_smooth = True
        self.passed_over = 0
        """The known messages that cannot be received now."""

        self.add(known)

    def add(self, known: Iterable[int]) -> None:
        """Add known messages, whose numbers are higher than the earlier ones of their partition."""
        for number in sorted(known):
            waiting = self._waiting.get(lane_of(self._path, number))
            if waiting is None:
                self.passed_over += 1
            else:
                waiting.append(number)

    @property
    def credit(self) -> int:
        """The number of messages to request next; 0 when none is left to receive."""
        return min(self._window, sum(map(len, self._waiting.values())))

    def take(self, arrived: Arrived) -> bool:
        """Whether to complete the message that has arrived; if False, give it back.

        Raises EntityRenewedError for a number that was read if the message was enqueued later than all messages read.
        """
        number, enqueued_at = arrived.number, arrived.enqueued_at
        lane = None if number is None else lane_of(self._path, number)
        mark = None if lane is None else self._marks.get(lane)
        if lane is None or number is None or mark is None or number > mark.upto:
            self._is_smooth = False
            self._pass_over(None if lane is None or arrived.deliveries >= MAX_RETURNS else lane)
            return False
        check_age(self._path, mark, enqueued_at)
        waiting = self._waiting.get(lane, deque())
        while waiting and waiting[0] < number:
            waiting.popleft()
            self.passed_over += 1
            self._is_smooth = False
        if waiting and waiting[0] == number:
            waiting.popleft()
        return mark.until is None or enqueued_at is not None

    def end_round(self, arrived: int) -> None:
        """Record that a request is answered, with ``arrived`` messages."""
        if not arrived:
            self._pass_over(None)
        self._window = min(self._window * GROWTH, MAX_REQUESTED) if self._is_smooth else FIRST
        self._is_smooth = True

    def _pass_over(self, lane: str | None) -> None:
        """End the settlement of ``lane``; None for all lanes."""
        for each in [*self._waiting] if lane is None else [lane]:
            self.passed_over += len(self._waiting.pop(each, ()))


def check_age(path: str, mark: Mark, enqueued_at: int | None) -> None:
    """Raise EntityRenewedError if a message up to ``mark`` was enqueued after all messages read."""
    if mark.until is not None and enqueued_at is not None and enqueued_at > mark.until:
        raise EntityRenewedError(path, mark.upto)
