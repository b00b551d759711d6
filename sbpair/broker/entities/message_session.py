"""A message session: what waits in it, who has it, and what was noted on it (3.5).

    (not there) --- first message, state, or an accept by name ---> free <--- closed, lapsed ---.
                                                                     |                          |
                                                                     '------- accepted -----> locked

A free session with something to deliver is available to who asks for the next one. A session with neither
messages nor state nor lock is not there.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from .stored_message import Instant, LockToken, MessageState, StoredMessage

if TYPE_CHECKING:
    from .queue import Queue

ACTIVE = MessageState.ACTIVE


@dataclass(slots=True, eq=False)
class SessionLock:
    """One receiver's hold on a session, from accept to close or lapse; it covers its messages' locks.

    ``is_lost`` once it lapsed: who holds it is to be told. ``is_kept`` where it does not lapse.
    """

    queue: Queue
    session_id: str
    locked_until: Instant
    is_lost: bool = False
    is_kept: bool = False
    tokens: dict[LockToken, None] = field(default_factory=dict)


class MessageSession:
    """The messages of one session id, in order, and its state.

    Small, for there may be a hundred thousand: a heap is its waiting line, and of its messages in whatever
    state it knows the numbers only.
    """

    __slots__ = ("_numbers", "_waiting", "count", "id", "lock", "state", "state_set_at")

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.lock: SessionLock | None = None
        self.state: bytes | None = None
        self.state_set_at: Instant = 0
        self.count = 0  # messages in any state
        self._numbers: list[int] = []  # ascending; may hold numbers that are gone
        self._waiting: list[tuple[int, StoredMessage]] = []

    @property
    def is_needed(self) -> bool:
        """Something is in it, noted on it, or somebody has it."""
        return self.count > 0 or self.state is not None or self.lock is not None

    @property
    def has_active(self) -> bool:
        """A message waits in it, or is in the hands of who has it."""
        return self.has_waiting or (self.lock is not None and len(self.lock.tokens) > 0)

    @property
    def has_waiting(self) -> bool:
        """A message waits in it, expired or not."""
        waiting = self._waiting
        while waiting and waiting[0][1].state is not ACTIVE:
            heappop(waiting)
        return bool(waiting)

    def add(self, message: StoredMessage) -> None:
        """Let a message wait, new or come back."""
        heappush(self._waiting, (message.sequence_number, message))

    add_again = add

    def pop(self) -> StoredMessage | None:
        """The first message that still waits, or None; it waits no longer."""
        return heappop(self._waiting)[1] if self.has_waiting else None

    def remember(self, number: int) -> None:
        """Know a message of this number, higher than any before."""
        self.count += 1
        self._numbers.append(number)

    def forget(self, is_there: Callable[[int], object]) -> None:
        """One message is gone; ``is_there`` tells which numbers are not."""
        self.count -= 1
        if len(self._numbers) > 2 * self.count + 64:
            self._numbers = [number for number in self._numbers if is_there(number)]

    def numbers_from(self, start: int) -> Iterator[int]:
        """The numbers from ``start`` on, some of which may be gone."""
        numbers = self._numbers
        return (numbers[index] for index in range(bisect_left(numbers, start), len(numbers)))
