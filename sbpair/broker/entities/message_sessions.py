"""The sessions of a queue: who gets which, for how long, and what happens as a hold ends (3.5).

    accept (by name, or the next available) -> SessionLock -> renew ... release      what was held comes back
                                                           -> lapse                  and costs a delivery

Available sessions stand in line in the order in which they became so; accepting the next one looks at as many
as turn out to hold nothing any more, each of them once. A ping belongs to no session (P-31): it is not told
here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from ..errors import QuotaExceeded, SessionCannotBeLocked, SessionLockLost, StateTooLarge
from .deadlines import Deadlines
from .message_session import MessageSession, SessionLock
from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .queue import Queue


class MessageSessions:
    """What a queue that requires sessions has beside its messages, which it keeps itself."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._sessions: dict[str, MessageSession] = {}
        self._available: OrderedDict[str, MessageSession] = OrderedDict()
        self._lapses = Deadlines[SessionLock]()

    def __len__(self) -> int:
        return len(self._sessions)

    # -- who has which

    def accept(self, session_id: str | None, now: Instant) -> SessionLock | None:
        """Lock a session: the one of that name, there or not yet, or the next available, if there is one.

        Raises SessionCannotBeLocked, EntityDisabled.
        """
        self._queue.look(now)
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
                session.add_again(message)
                return session
            self._available.pop(session.id, None)  # expired, all of it
            self._drop_unneeded(session)
        return None

    def keep(self, lock: SessionLock) -> None:
        """Let the hold last until it is given back: who receives and deletes has nothing whose time is up."""
        lock.is_kept = True
        self._lapses.drop(lock)
        self._queue.timers_moved()

    def pop(self, now: Instant) -> StoredMessage | None:
        """The first message of the next available session; it waits no longer. For one that forwards."""
        session = self._next_available(now)
        return None if session is None else self._queue.first_of(session, now)

    def renew(self, lock: SessionLock, now: Instant) -> Instant:
        """Restart the lock's full duration; returns until when it holds. Raises SessionLockLost."""
        self.check(lock, now)
        lock.locked_until = until = now + self._queue.description.lock_duration
        if not lock.is_kept:
            self._lapses.set(lock, until)
        for message in self._queue.held_under(lock):
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
        """Give the session back, and what is locked under it, unharmed; nothing happens when it is lost."""
        self._queue.handle_timer(now)
        if not lock.is_lost:
            self._lapses.drop(lock)
            self._end(lock, now, has_failed=False)

    def lock_of(self, session_id: str) -> SessionLock | None:
        """The hold on that session, or None."""
        session = self._sessions.get(session_id)
        return None if session is None else session.lock

    def tell_holders(self) -> None:
        """Leave word for everybody who holds a session: what they may do has changed."""
        for session in self._sessions.values():
            if session.lock is not None:
                self._queue.tell(session.lock)

    def next_lapse(self) -> Instant | None:
        """When the first hold lapses; None for never."""
        return self._lapses.next()

    def lapse(self, now: Instant, due: Instant | None = None) -> None:
        """End the holds that are due up to ``now``, or ``due``; each message under one costs a delivery."""
        for lock in self._lapses.take_due(now if due is None else due):
            self._end(lock, now, has_failed=True)
            self._queue.tell(lock)

    def _end(self, lock: SessionLock, now: Instant, *, has_failed: bool) -> None:
        session = self._sessions[lock.session_id]
        held = self._queue.held_under(lock)
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
            self._queue.tell(session.lock)

    def _free(self, session: MessageSession) -> None:
        if session.has_waiting:
            self._available.setdefault(session.id, session)
            self._queue.tell()
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
        """What was noted on the session, or None. Raises SessionLockLost."""
        self.check(lock, now)
        self._queue.accessed_at = now
        return self._sessions[lock.session_id].state

    def set_state(self, lock: SessionLock, state: bytes | None, now: Instant) -> None:
        """Note ``state`` on the session; it outlives its messages, until None clears it.

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
        queue.state_noted(session)

    def restore(self, session_id: str, state: bytes, set_at: Instant) -> None:
        """Know again the state that was noted on a session."""
        session = self._there(session_id)
        session.state, session.state_set_at = state, set_at
        self._queue.size += len(state)

    def ids(self, skip: int, most: int, set_after: Instant | None = None) -> list[str]:
        """Sessions with active messages or state; with ``set_after``, those whose state was set after it."""
        if set_after is None:
            found = (session.id for session in self._sessions.values() if _is_listed(session))
        else:
            found = (
                session.id
                for session in self._sessions.values()
                if session.state is not None and session.state_set_at > set_after
            )
        return list(islice(found, skip, skip + most))


def _is_listed(session: MessageSession) -> bool:
    return session.state is not None or session.has_active
