"""The entries of a spool: messages before, during and after writing. No I/O."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from ..errors import SpoolError

OVERHEAD = 64  # bytes counted per message besides its own
MAX_RECENT_BYTES = 4 * 2**20  # of messages kept in memory until they are sent


@dataclass(frozen=True, slots=True)
class Entry:
    """A message to spool, serialized by :mod:`.codec`."""

    message_id: str
    message: bytes

    @property
    def size(self) -> int:
        return len(self.message) + OVERHEAD


@dataclass(frozen=True, slots=True)
class Spooled:
    """A message in the spool. ``spooled_at``: milliseconds since the epoch."""

    number: int
    path: str
    message_id: str
    spooled_at: int
    message: bytes
    is_intact: bool


@dataclass(slots=True, eq=False)
class Ticket:
    """An append in progress. ``ended`` is called when it ends, with its error or None."""

    path: str
    entries: Sequence[Entry]
    now: int
    ended: Callable[[SpoolError | None], object] = lambda error: None
    is_done: bool = False
    error: SpoolError | None = None
    first: int = 0  # the number of its first message, once written

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def spooled(self) -> list[Spooled]:
        """Return the messages of the ticket as stored in the file."""
        return [
            Spooled(self.first + n, self.path, entry.message_id, self.now, entry.message, is_intact=True)
            for n, entry in enumerate(self.entries)
        ]


class Recent:
    """The messages that were written to the file most recently, for a replay that keeps up with the sends.

    It serves an entity only while it contains all of its waiting messages.
    """

    def __init__(self) -> None:
        self._lines: dict[str, deque[Spooled]] = {}
        self._bytes = 0

    def oldest(self, key: str, waiting: int, most: int, after: int) -> list[Spooled] | None:
        """Return the oldest messages of an entity that has ``waiting`` of them; None if they are not all here."""
        line = self._lines.get(key, ())
        if not line or len(line) != waiting:
            return None
        return list(islice((each for each in line if each.number > after), most))

    def written(self, key: str, messages: Sequence[Spooled], waiting: int) -> None:
        """Add messages that were written after ``waiting`` others."""
        line = self._lines.setdefault(key, deque())
        if len(line) != waiting:
            self._forget(key)
            return
        line.extend(messages)
        self._bytes += sum(len(each.message) for each in messages)
        if self._bytes > MAX_RECENT_BYTES:
            self.forget()

    def accepted(self, key: str, count: int) -> None:
        """Remove the oldest messages of an entity."""
        line = self._lines.get(key, deque())
        for _ in range(min(count, len(line))):
            self._bytes -= len(line.popleft().message)
        if not line:
            self._lines.pop(key, None)

    def forget(self) -> None:
        """Forget all messages, so that they are read from the file."""
        self._lines.clear()
        self._bytes = 0

    def _forget(self, key: str) -> None:
        self._bytes -= sum(len(each.message) for each in self._lines.pop(key))
