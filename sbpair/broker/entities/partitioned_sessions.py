"""The sessions of a partitioned entity: each lives in the one partition its id belongs to (Q-12).

A lock knows its partition, so what is asked with one is asked there; only who wants the next available
session is led round all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from .message_session import SessionLock
from .message_sessions import MessageSessions
from .partition import Health, index_of
from .queue import Queue
from .stored_message import Instant


class PartitionedSessions:
    """As :class:`~.message_sessions.MessageSessions`, over several partitions."""

    def __init__(self, partitions: Sequence[Queue]) -> None:
        self._partitions = partitions
        self._turn = 0

    def __len__(self) -> int:
        return sum(len(_of(partition)) for partition in self._partitions)

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock a session, by name or the next available; of those from the partitions that are up."""
        if session_id is not None:
            return self._of_id(session_id).accept(session_id, now)
        count = len(self._partitions)
        for step in range(count):
            index = (self._turn + step) % count
            partition = self._partitions[index]
            if partition.health is Health.DOWN:
                continue
            lock = _of(partition).accept(None, now)
            if lock is not None:
                self._turn = index + 1
                return lock
        return None

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds. Raises SessionLockLost."""
        return _of(lock.queue).renew(lock, now)

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raises SessionLockLost unless ``lock`` still holds its session."""
        _of(lock.queue).check(lock, now)

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Give the session back, and what is locked under it, unharmed."""
        _of(lock.queue).release(lock, now)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The hold on that session, or None."""
        return self._of_id(session_id).lock_of(session_id)

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """What was noted on the session, or None. Raises SessionLockLost."""
        return _of(lock.queue).state(lock, now)

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Note ``state`` on the session. Raises SessionLockLost, StateTooLarge, QuotaExceeded."""
        _of(lock.queue).set_state(lock, state, now)

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state, partition by partition."""
        found = (
            session_id
            for partition in self._partitions
            if partition.health is not Health.DOWN
            for session_id in _of(partition).ids(0, skip + most, set_after)
        )
        return list(islice(found, skip, skip + most))

    def _of_id(self, session_id: str) -> MessageSessions:
        return _of(self._partitions[index_of(session_id, len(self._partitions))])


def _of(partition: Queue) -> MessageSessions:
    assert partition.sessions is not None  # noqa: S101 - all of them have sessions, or none
    return partition.sessions
