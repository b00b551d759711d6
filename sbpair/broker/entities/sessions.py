"""Message sessions of a queue, plain or partitioned: messages by session id, locks and state.

    (absent) --- first message, state, or accept by name ---> free <--- released, lapsed ---.
                                                               |                            |
                                                               '-------- accepted -----> locked

A free session with a deliverable message is available to a receiver that accepts the next session. Available
sessions are handed out in the order in which they became available. A session without messages, state or
lock does not exist. Pings belong to no session (P-31), so queues do not report them here.

On a partitioned entity, each session lives in the partition that its id selects (Q-12).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

from ..errors import QuotaExceeded, SessionCannotBeLocked, SessionLockLost, StateTooLarge
from .indexes import Deadlines
from .partition import Health, index_of
from .stored_message import Instant, LockToken, MessageState, StoredMessage

if TYPE_CHECKING:
    from .queue import Queue

ACTIVE = MessageState.ACTIVE


@dataclass(slots=True, eq=False)
class SessionLock:
    """One receiver's hold on a session, from accept to close or lapse; it covers its messages' locks.

    ``is_lost``: it lapsed, and its receiver must be notified. ``is_kept``: it does not lapse.
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

    put_back = add

    def pop(self) -> StoredMessage | None:
        """Remove and return the first waiting message, or None."""
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


class MessageSessions:
    """What a queue that requires sessions has beside its messages, which it keeps itself."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._sessions: dict[str, MessageSession] = {}
        self._available: OrderedDict[str, MessageSession] = OrderedDict()
        self._lapses = Deadlines[SessionLock]()
        self._listing = SessionListing()

    def __len__(self) -> int:
        return len(self._sessions)

    # -- who has which

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock a session: the one of that name, there or not yet, or the next available, if there is one.

        Raises SessionCannotBeLocked, EntityDisabled.
        """
        self._queue.prepare_receive(now)
        session = self._next_available(now) if session_id is None else self._there(session_id)
        if session is None:
            return None
        if session.lock is not None:
            raise SessionCannotBeLocked(session.id)
        self._available.pop(session.id, None)
        lock = SessionLock(self._queue, session.id, now + self._queue.description.lock_duration)
        session.lock = lock
        self._lapses.set(lock, lock.locked_until)
        self._queue.timers_moved()
        return lock

    def _next_available(self, now: Instant) -> MessageSession | None:
        while self._available:
            session = next(iter(self._available.values()))
            message = self._queue.first_of(session, now)
            if message is not None:
                session.put_back(message)
                return session
            self._available.pop(session.id, None)  # expired, all of it
            self._drop_unneeded(session)
        return None

    def keep(self, lock: SessionLock) -> None:
        """Keep the lock until it is released: a receive-and-delete receiver has nothing that expires."""
        lock.is_kept = True
        self._lapses.drop(lock)
        self._queue.timers_moved()

    def pop(self, now: Instant) -> StoredMessage | None:
        """The first message of the next available session; it waits no longer. For one that forwards."""
        session = self._next_available(now)
        return None if session is None else self._queue.first_of(session, now)

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns its new end. Raises SessionLockLost."""
        self.check(lock, now)
        lock.locked_until = until = now + self._queue.description.lock_duration
        if not lock.is_kept:
            self._lapses.set(lock, until)
        for message in self._queue.messages_under(lock):
            message.locked_until = until
        self._queue.timers_moved()
        self._queue.accessed_at = now
        return until

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raises SessionLockLost unless ``lock`` still holds its session."""
        self._queue.handle_timer(now)
        self._queue.check_up()
        if lock.is_lost:
            raise SessionLockLost

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery; does nothing on a lost lock."""
        self._queue.handle_timer(now)
        if not lock.is_lost:
            self._lapses.drop(lock)
            self._end(lock, now, has_failed=False)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The lock on that session, or None."""
        session = self._sessions.get(session_id)
        return None if session is None else session.lock

    def notify_holders(self) -> None:
        """Notify every session holder: the entity's status may have changed."""
        for session in self._sessions.values():
            if session.lock is not None:
                self._queue.notify(session.lock)

    def next_lapse(self) -> Instant | None:
        """When the first hold lapses; None for never."""
        return self._lapses.next()

    def lapse(self, now: Instant, due: Instant | None = None) -> None:
        """End the holds that are due up to ``now``, or ``due``; each message under one costs a delivery."""
        for lock in self._lapses.pop_due(now if due is None else due):
            self._end(lock, now, has_failed=True)
            self._queue.notify(lock)

    def _end(self, lock: SessionLock, now: Instant, *, has_failed: bool) -> None:
        session = self._sessions[lock.session_id]
        held = self._queue.messages_under(lock)
        lock.is_lost = True
        lock.tokens.clear()
        session.lock = None
        for message in held:
            self._queue.give_back(message, now, has_failed=has_failed)
        self._free(session)

    # -- what is in them; told by the queue

    def arrived(self, message: StoredMessage) -> None:
        """The queue keeps a message of some session from now on, in whatever state."""
        self._session_of(message).remember(message.sequence_number)

    def gone(self, message: StoredMessage) -> None:
        """The queue keeps the message no longer."""
        session = self._session_of(message)
        session.forget(self._queue.message)
        self._drop_unneeded(session)

    def offer(self, message: StoredMessage) -> None:
        """A message waits, new or come back: for who has its session, else it makes the session available."""
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
        """Where the messages wait for who has ``lock``, which holds."""
        return self._sessions[lock.session_id]

    def numbers(self, session_id: str, start: int) -> Iterator[int]:
        """The sequence numbers of a session's messages from ``start`` on, in order; some may be gone."""
        session = self._sessions.get(session_id)
        return iter(()) if session is None else session.numbers_from(start)

    def _session_of(self, message: StoredMessage) -> MessageSession:
        assert message.session_id is not None  # noqa: S101 - enqueue looked
        return self._there(message.session_id)

    def _there(self, session_id: str) -> MessageSession:
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
        """The state of the session, or None. Raises SessionLockLost."""
        self.check(lock, now)
        self._queue.accessed_at = now
        return self._sessions[lock.session_id].state

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state, which outlives its messages; None clears it.

        Raises SessionLockLost, StateTooLarge, QuotaExceeded.
        """
        self.check(lock, now)
        queue, session = self._queue, self._sessions[lock.session_id]
        limit, size = queue.description.max_message_size, len(state or b"")
        if size > limit:
            raise StateTooLarge(size, limit)
        grown = size - len(session.state or b"")
        if grown > 0 and queue.size_in_bytes + grown > queue.description.quota_in_bytes:
            raise QuotaExceeded(queue.path, queue.size_in_bytes, queue.description.quota_in_bytes)
        queue.size += grown
        queue.accessed_at = session.state_set_at = now
        session.state = state
        queue.session_state_changed(session)

    def restore(self, session_id: str, state: bytes, set_at: Instant) -> None:
        """Restore the state of a session from a store."""
        session = self._there(session_id)
        session.state, session.state_set_at = state, set_at
        self._queue.size += len(state)

    def browse(self) -> Iterator[MessageSession]:
        """Every session, in no particular order; changes nothing."""
        return iter(self._sessions.values())

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state; with ``set_after``, those whose state was set after it."""
        return self._listing.page(skip, most, set_after, lambda: self.listed(set_after))

    def listed(self, set_after: Instant | None) -> Iterator[str]:
        """All that :meth:`ids` lists, as they are now."""
        for session in self._sessions.values():
            if set_after is None:
                is_asked_for = _is_listed(session)
            else:
                is_asked_for = session.state is not None and session.state_set_at > set_after
            if is_asked_for:
                yield session.id


def _is_listed(session: MessageSession) -> bool:
    return session.state is not None or session.has_active


class SessionListing:
    """The sessions of one entity, as they were when somebody last began to list them."""

    __slots__ = ("_ids", "_set_after")

    def __init__(self) -> None:
        self._ids: list[str] = []
        self._set_after: Instant | None = None

    def page(
        self, skip: int, most: int, set_after: Instant | None, collect: Callable[[], Iterable[str]]
    ) -> list[str]:
        """Up to ``most`` ids behind the first ``skip``; ``collect`` gives all of them, as they are now."""
        if skip == 0 or not self._ids or set_after != self._set_after:
            self._ids, self._set_after = list(collect()), set_after
        page = self._ids[skip : skip + most]
        if skip + most >= len(self._ids):
            self._ids = []  # that was the last one
        return page


class PartitionedSessions:
    """As :class:`MessageSessions`, over several partitions."""

    def __init__(self, partitions: Sequence[Queue]) -> None:
        self._partitions = partitions
        self._turn = 0
        self._listing = SessionListing()

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
        """Restart the lock's full duration; returns its new end. Raises SessionLockLost."""
        return _of(lock.queue).renew(lock, now)

    def check(self, lock: SessionLock, now: Instant) -> None:
        """Raises SessionLockLost unless ``lock`` still holds its session."""
        _of(lock.queue).check(lock, now)

    def release(self, lock: SessionLock, now: Instant) -> None:
        """Release the session and its locked messages, without counting a delivery."""
        _of(lock.queue).release(lock, now)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The lock on that session, or None."""
        return self._of_id(session_id).lock_of(session_id)

    def state(self, lock: SessionLock, now: Instant) -> bytes | None:
        """The state of the session, or None. Raises SessionLockLost."""
        return _of(lock.queue).state(lock, now)

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Set the session's state. Raises SessionLockLost, StateTooLarge, QuotaExceeded."""
        _of(lock.queue).set_state(lock, state, now)

    def browse(self) -> Iterator[MessageSession]:
        """Every session, partition by partition; changes nothing."""
        return chain.from_iterable(_of(partition).browse() for partition in self._partitions)

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state, partition by partition."""
        return self._listing.page(skip, most, set_after, lambda: self._listed(set_after))

    def _listed(self, set_after: Instant | None) -> Iterator[str]:
        for partition in self._partitions:
            if partition.health is not Health.DOWN:
                yield from _of(partition).listed(set_after)

    def _of_id(self, session_id: str) -> MessageSessions:
        return _of(self._partitions[index_of(session_id, len(self._partitions))])


def _of(partition: Queue) -> MessageSessions:
    assert partition.sessions is not None  # noqa: S101 - all of them have sessions, or none
    return partition.sessions
