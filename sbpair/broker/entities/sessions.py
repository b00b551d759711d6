"""Message sessions of a queue: messages by session id, locks and state.

    (absent) --- first message, state, or accept by name ---> free <--- released, expired ---.
                                                               |                            |
                                                               '-------- accepted -----> locked

A free session with a deliverable message is available to a receiver that accepts the next session. Available
sessions are handed out in the order in which they became available. A session without messages, state or
lock does not exist. Pings belong to no session, so queues do not report them here.

Each session lives in the partition that its id selects.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

from ..errors import QuotaExceededError, SessionLockedError, SessionLostError, StateTooLargeError
from .indexes import Deadlines
from .partition import Health, index_of
from .stored_message import Instant, LockToken, MessageState, StoredMessage

if TYPE_CHECKING:
    from .queue_partition import QueuePartition

ACTIVE = MessageState.ACTIVE


@dataclass(slots=True, eq=False)
class SessionLock:
    """A receiver's lock on a session, with the message locks taken under it.

    ``is_lost``: the lock has ended. ``never_expires``: it ends only when it is released.
    """

    queue: QueuePartition
    session_id: str
    locked_until: Instant
    is_lost: bool = False
    never_expires: bool = False
    tokens: dict[LockToken, None] = field(default_factory=dict)


class MessageSession:
    """The messages of one session id, in order, and its state.

    Kept small, since a queue may have a hundred thousand sessions: a heap of waiting messages, and the
    sequence numbers of its messages in any state.
    """

    __slots__ = ("_numbers", "_waiting", "count", "id", "lock", "state", "state_set_at")

    def __init__(self, session_id: str) -> None:
        self.id = session_id
        self.lock: SessionLock | None = None
        self.state: bytes | None = None
        self.state_set_at: Instant = 0
        self.count = 0  # messages in any state
        self._numbers: list[int] = []  # ascending; may include removed ones
        self._waiting: list[tuple[int, StoredMessage]] = []

    @property
    def is_needed(self) -> bool:
        """Whether the session has messages, state or a lock."""
        return self.count > 0 or self.state is not None or self.lock is not None

    @property
    def has_active(self) -> bool:
        """Whether a message is waiting, or is locked under the session lock."""
        return self.has_waiting or (self.lock is not None and len(self.lock.tokens) > 0)

    @property
    def has_waiting(self) -> bool:
        """Whether a message is waiting, expired or not."""
        waiting = self._waiting
        while waiting and waiting[0][1].state is not ACTIVE:
            heappop(waiting)
        return bool(waiting)

    def add(self, message: StoredMessage) -> None:
        """Add a waiting message, new or returned."""
        heappush(self._waiting, (message.sequence_number, message))

    put_back = add

    def pop(self) -> StoredMessage | None:
        """Remove and return the first waiting message, or None."""
        return heappop(self._waiting)[1] if self.has_waiting else None

    def remember(self, number: int) -> None:
        """Record a message whose number is higher than any before."""
        self.count += 1
        self._numbers.append(number)

    def forget(self, is_stored: Callable[[int], object]) -> None:
        """Record that a message was removed; ``is_stored`` says which numbers still have one."""
        self.count -= 1
        if len(self._numbers) > 2 * self.count + 64:
            self._numbers = [number for number in self._numbers if is_stored(number)]

    def numbers_from(self, start: int) -> Iterator[int]:
        """Iterate over the numbers from ``start`` on, ascending; may include removed ones."""
        numbers = self._numbers
        return (numbers[index] for index in range(bisect_left(numbers, start), len(numbers)))


class MessageSessions:
    """The sessions of one partition; the messages themselves are stored in the partition."""

    def __init__(self, queue: QueuePartition) -> None:
        self._queue = queue
        self._sessions: dict[str, MessageSession] = {}
        self._available: OrderedDict[str, MessageSession] = OrderedDict()
        self._deadlines = Deadlines[SessionLock]()

    def __len__(self) -> int:
        return len(self._sessions)

    # -- locks

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock the session ``session_id``, created if missing, or for None the next available one.

        Returns None when no session is available. Raises SessionLockedError when the session is locked,
        EntityDisabledError and ForwardingEntityError as for a receive.
        """
        self._queue.prepare_receive(now)
        session = self._next_available(now) if session_id is None else self._get_or_create(session_id)
        if session is None:
            return None
        if session.lock is not None:
            raise SessionLockedError(session.id)
        self._available.pop(session.id, None)
        lock = SessionLock(self._queue, session.id, now + self._queue.description.lock_duration)
        session.lock = lock
        self._deadlines.set(lock, lock.locked_until)
        self._queue.timers_moved()
        return lock

    def _next_available(self, now: Instant) -> MessageSession | None:
        while self._available:
            session = next(iter(self._available.values()))
            message = self._queue.first_of(session, now)
            if message is not None:
                session.put_back(message)
                return session
            self._available.pop(session.id, None)  # all of its messages expired
            self._drop_unneeded(session)
        return None

    def keep_until_released(self, lock: SessionLock) -> None:
        """Let the lock never expire: for receive-and-delete receivers, which lock no messages."""
        lock.never_expires = True
        self._deadlines.drop(lock)
        self._queue.timers_moved()

    def pop(self, now: Instant) -> StoredMessage | None:
        """Pop the first message of the next available session, or None; for auto-forwarding."""
        session = self._next_available(now)
        return None if session is None else self._queue.first_of(session, now)

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; return its new end. Raises SessionLostError."""
        self.check(lock, now)
        lock.locked_until = until = now + self._queue.description.lock_duration
        if not lock.never_expires:
            self._deadlines.set(lock, until)
        for message in self._queue.messages_under(lock):
            message.locked_until = until
        self._queue.timers_moved()
        self._queue.accessed_at = now
        return until

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raise SessionLostError if ``lock`` has ended."""
        self._queue.handle_timer(now)
        self._queue.check_up()
        if lock.is_lost:
            raise SessionLostError

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery.

        Does nothing on a lost lock.
        """
        self._queue.handle_timer(now)
        if not lock.is_lost:
            self._deadlines.drop(lock)
            self._end(lock, now, has_failed=False)

    def lapse(self, lock: SessionLock, now: Instant) -> None:
        """End the lock as if it had expired; does nothing on a lost one."""
        if not lock.is_lost:
            self._deadlines.drop(lock)
            self._end(lock, now, has_failed=True)
            self._queue.notify(lock)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """Return the current lock on a session, or None."""
        session = self._sessions.get(session_id)
        return None if session is None else session.lock

    def notify_holders(self) -> None:
        """Notify every session holder: the entity's status may have changed."""
        for session in self._sessions.values():
            if session.lock is not None:
                self._queue.notify(session.lock)

    def next_expiry(self) -> Instant | None:
        """Return when the first lock expires, or None."""
        return self._deadlines.next()

    def expire_locks(self, now: Instant, due: Instant | None = None) -> None:
        """End the locks that expire by ``due`` (None: ``now``); their messages count a failed delivery."""
        for lock in self._deadlines.pop_due(now if due is None else due):
            self._end(lock, now, has_failed=True)
            self._queue.notify(lock)

    def _end(self, lock: SessionLock, now: Instant, *, has_failed: bool) -> None:
        session = self._sessions[lock.session_id]
        held = self._queue.messages_under(lock)
        lock.is_lost = True
        lock.tokens.clear()
        session.lock = None
        for message in held:
            self._queue.return_message(message, now, has_failed=has_failed)
        self._free(session)

    # -- messages; called by the queue

    def message_stored(self, message: StoredMessage) -> None:
        """Record a message stored in the queue, in any state."""
        self._session_of(message).remember(message.sequence_number)

    def message_removed(self, message: StoredMessage) -> None:
        """Record a message removed from the queue."""
        session = self._session_of(message)
        session.forget(self._queue.message)
        if not session.count:
            self._drop_unneeded(session)

    def offer(self, message: StoredMessage) -> None:
        """Add a waiting message: notify the holder of its session, or make the session available."""
        session = self._session_of(message)
        session.add(message)
        if session.lock is None:
            self._free(session)
        else:
            self._queue.notify(session.lock)

    def _free(self, session: MessageSession) -> None:
        if session.has_waiting:
            self._available.setdefault(session.id, session)
            self._queue.notify()
        self._drop_unneeded(session)

    def line_of(self, lock: SessionLock) -> MessageSession:
        """Return the session, and so the waiting line, that a valid ``lock`` holds."""
        return self._sessions[lock.session_id]

    def numbers(self, session_id: str, start: int) -> Iterator[int]:
        """Iterate over the numbers of a session's messages from ``start`` on; may include removed ones."""
        session = self._sessions.get(session_id)
        return iter(()) if session is None else session.numbers_from(start)

    def _session_of(self, message: StoredMessage) -> MessageSession:
        assert message.session_id is not None  # noqa: S101 - checked by enqueue
        return self._get_or_create(message.session_id)

    def _get_or_create(self, session_id: str) -> MessageSession:
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = MessageSession(session_id)
        return session

    def _drop_unneeded(self, session: MessageSession) -> None:
        if not session.is_needed:
            self._sessions.pop(session.id, None)
            self._available.pop(session.id, None)

    # -- state

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """Return the session's state, or None. Raises SessionLostError."""
        self.check(lock, now)
        self._queue.accessed_at = now
        return self._sessions[lock.session_id].state

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state, which remains without messages; None and b"" clear it.

        Raises SessionLostError, StateTooLargeError, QuotaExceededError.
        """
        self.check(lock, now)
        state = state or None
        queue, session = self._queue, self._sessions[lock.session_id]
        limit, size = queue.description.max_message_size, len(state or b"")
        if size > limit:
            raise StateTooLargeError(size, limit)
        grown = size - len(session.state or b"")
        if grown > 0 and queue.size_in_bytes + grown > queue.description.quota_in_bytes:
            raise QuotaExceededError(queue.path, queue.size_in_bytes, queue.description.quota_in_bytes)
        queue.size += grown
        queue.accessed_at = session.state_set_at = now
        session.state = state
        queue.session_state_changed(session)

    def restore(self, session_id: str, state: bytes, set_at: Instant) -> None:
        """Restore the state of a session from a store."""
        session = self._get_or_create(session_id)
        session.state, session.state_set_at = state, set_at
        self._queue.size += len(state)

    def browse(self) -> Iterator[MessageSession]:
        """Iterate over all sessions, in no particular order, without changing anything."""
        return iter(self._sessions.values())

    def current_ids(self, set_after: Instant | None) -> Iterator[str]:
        """Iterate over the current ids that :meth:`QueueSessions.ids` pages through."""
        for session in self._sessions.values():
            if set_after is None:
                is_listed = _is_listed(session)
            else:
                is_listed = session.state is not None and session.state_set_at > set_after
            if is_listed:
                yield session.id


def _is_listed(session: MessageSession) -> bool:
    return session.state is not None or session.has_active


class SessionListing:
    """A snapshot of the session ids of one entity, taken when a client requests the first page."""

    __slots__ = ("_ids", "_set_after")

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._set_after: Instant | None = None

    def page(
        self, skip: int, limit: int, set_after: Instant | None, collect: Callable[[], Iterable[str]]
    ) -> list[str]:
        """Return up to ``limit`` ids after the first ``skip``; ``collect`` returns all current ids."""
        if skip == 0 or not self._ids or set_after != self._set_after:
            self._ids, self._set_after = list(collect()), set_after
        page = self._ids[skip : skip + limit]
        if skip + limit >= len(self._ids):
            self._ids = []  # the last page: discard the snapshot
        return page


class QueueSessions:
    """The sessions of a queue, in all of its partitions."""

    def __init__(self, partitions: Sequence[QueuePartition]) -> None:
        self._partitions = partitions
        self._turn = 0
        self._listing = SessionListing()

    def __len__(self) -> int:
        """Return the number of sessions that have messages, state or a lock."""
        return sum(len(_sessions_of(partition)) for partition in self._partitions)

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock the session ``session_id``, created if missing, or for None the next available one.

        Skips partitions that are down. Returns None when no session is available. Raises SessionLockedError when
        the session is locked, EntityDisabledError and ForwardingEntityError as for a receive.
        """
        if session_id is not None:
            return self._for_id(session_id).accept(session_id, now)
        count = len(self._partitions)
        for step in range(count):
            index = (self._turn + step) % count
            partition = self._partitions[index]
            if partition.health is Health.DOWN:
                continue
            lock = _sessions_of(partition).accept(None, now)
            if lock is not None:
                self._turn = index + 1
                return lock
        return None

    def keep_until_released(self, lock: SessionLock) -> None:
        """Let the lock never expire: for receive-and-delete receivers, which lock no messages."""
        _sessions_of(lock.queue).keep_until_released(lock)

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; return its new end. Raises SessionLostError."""
        return _sessions_of(lock.queue).renew(lock, now)

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raise SessionLostError if ``lock`` has ended."""
        _sessions_of(lock.queue).check(lock, now)

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery; does nothing on a lost lock."""
        _sessions_of(lock.queue).release(lock, now)

    def lapse(self, lock: SessionLock, now: Instant) -> None:
        """End the lock as if it had expired; does nothing on a lost one."""
        _sessions_of(lock.queue).lapse(lock, now)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """Return the current lock on a session, or None."""
        return self._for_id(session_id).lock_of(session_id)

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """Return the session's state, or None. Raises SessionLostError."""
        return _sessions_of(lock.queue).state(lock, now)

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state; None clears it. Raises SessionLostError, StateTooLargeError, QuotaExceededError."""
        _sessions_of(lock.queue).set_state(lock, state, now)

    def browse(self) -> Iterator[MessageSession]:
        """Iterate over all sessions, partition by partition, without changing anything."""
        return chain.from_iterable(_sessions_of(partition).browse() for partition in self._partitions)

    def ids(self, skip: int, limit: int, set_after: Instant | None = None) -> list[str]:
        """Page through session ids, partition by partition: skip ``skip`` of them and return at most ``limit``.

        Lists sessions with active messages or state; with ``set_after``, those whose state was set after it.
        """
        return self._listing.page(skip, limit, set_after, lambda: self._current_ids(set_after))

    def _current_ids(self, set_after: Instant | None) -> Iterator[str]:
        for partition in self._partitions:
            if partition.health is not Health.DOWN:
                yield from _sessions_of(partition).current_ids(set_after)

    def _for_id(self, session_id: str) -> MessageSessions:
        return _sessions_of(self._partitions[index_of(session_id, len(self._partitions))])


def _sessions_of(partition: QueuePartition) -> MessageSessions:
    assert partition.sessions is not None  # noqa: S101 - all partitions have sessions, or none
    return partition.sessions
