"""The fence of ordered sessions: which may be sent to the primary, and which must still be parked.

    a client starts          every session is fenced: a predecessor may have parked messages
    a message is parked      its session is fenced
    an empty peek            no message parked before the peek is left: the session, or the whole queue, is open

A parked message leaves its ordered backlog queue only after the primary accepted it. So if the queue, or the session in
it, is empty, all messages parked there earlier have arrived, and the next message may go to the primary without
overtaking any. A park attempt that overlaps the peek proves nothing: its session stays fenced.

Pure: times are seconds of a monotonic clock, passed as arguments. Not thread-safe.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

from sbpair.pair.envelope.ordering import SessionPlace

PEEK_EVERY = 1.0  # minimum seconds between two peeks of a session, and between two of a whole queue
MAX_SESSIONS = 100_000  # remembered per queue; beyond, the queue counts as unknown


class PeekRequest(NamedTuple):
    """A request to peek at an ordered backlog queue: at the session ``parked_id``, or at the whole queue if it is None.

    ``began`` is the number of attempts that the fence had counted when the peek started. Those attempts were parked
    before the peek, so it sees their messages.
    """

    queue: int
    parked_id: str | None
    began: int


@dataclass(slots=True)
class _Session:
    """A fenced session. ``parked_at`` is a count of the fence; ``attempts`` is how many are in progress."""

    parked_at: int = 0
    attempts: set[object] = field(default_factory=set)
    peeked_at: float = -math.inf


@dataclass(slots=True)
class _Queue:
    """The state of one ordered backlog queue, as far as this client knows it."""

    forgotten_at: int = (
        0  # when sessions were forgotten, by the count: a peek that began before proves nothing
    )
    is_known: bool = False  # it was found empty since this client started
    peeked_at: float = -math.inf
    fenced: dict[str, _Session] = field(default_factory=dict)
    cleared: set[str] = field(default_factory=set)  # sessions found empty while the queue is not known


class Fence:
    """The fences of all sessions of one client, over ``count`` ordered backlog queues."""

    def __init__(self, count: int) -> None:
        self._queues = [_Queue() for _ in range(count)]
        self._count = 0
        self.is_open = False
        """Whether no session is fenced."""

    def __len__(self) -> int:
        """The number of ordered backlog queues."""
        return len(self._queues)

    @property
    def fenced(self) -> int:
        """The number of sessions known to be fenced."""
        return sum(len(queue.fenced) for queue in self._queues)

    def lets_pass(self, place: SessionPlace) -> bool:
        """Whether the next message of this session may go to the primary."""
        queue = self._queues[place.queue]
        if place.parked_id in queue.fenced:
            return False
        return queue.is_known or place.parked_id in queue.cleared

    def park_began(self, place: SessionPlace, by: object = None) -> None:
        """Record that ``by`` is about to park a message of this session. Call :meth:`park_ended` in any case."""
        self.is_open = False
        queue = self._queues[place.queue]
        self._make_room(queue)
        session = queue.fenced.setdefault(place.parked_id, _Session())
        queue.cleared.discard(place.parked_id)
        session.attempts.add(by)

    def park_ended(self, place: SessionPlace, by: object = None) -> None:
        """Record that an attempt to park ended, with any result. Later peeks can prove that its message is gone."""
        session = self._queues[place.queue].fenced.get(place.parked_id)
        if session is not None:  # else :meth:`forget` was called meanwhile
            session.parked_at = self._next()  # first: without an attempt, only this keeps it fenced
            session.attempts.discard(by)

    def next_peek(self, place: SessionPlace, now: float) -> PeekRequest | None:
        """Return the peek that may open a fenced session now; None if the session is open, or if it is too early.

        The whole queue is peeked first, since one empty answer opens all of its sessions; then the session.
        """
        if self.lets_pass(place):
            self._see()  # apply the last peek, if that was interrupted
            return None
        queue = self._queues[place.queue]
        if now >= queue.peeked_at + PEEK_EVERY:
            queue.peeked_at = now
            return PeekRequest(place.queue, None, self._next())
        session = queue.fenced.get(place.parked_id)
        if session is None:
            self._make_room(queue)
            session = queue.fenced[place.parked_id] = _Session(queue.forgotten_at)
        if now < session.peeked_at + PEEK_EVERY:
            return None
        session.peeked_at = now
        return PeekRequest(place.queue, place.parked_id, self._next())

    def note_empty_peek(self, peek: PeekRequest) -> int:
        """Record a peek that found no message. Returns the number of fenced sessions that it opened."""
        queue = self._queues[peek.queue]
        asked = queue.fenced if peek.parked_id is None else (peek.parked_id,)
        opened = [name for name in asked if _is_proved(queue.fenced.get(name), peek.began)]
        for name in opened:
            del queue.fenced[name]
        if peek.parked_id is None and queue.forgotten_at > peek.began:
            pass  # a session that was forgotten meanwhile may have been parked after the peek began
        elif peek.parked_id is None:
            queue.is_known = True
            queue.cleared.clear()
        elif opened and not queue.is_known:
            queue.cleared.add(peek.parked_id)
        self._see()
        return len(opened)

    def _see(self) -> None:
        self.is_open = all(each.is_known and not each.fenced for each in self._queues)

    def forget(self) -> None:
        """Start over in a forked child, which does not know what the parent parks."""
        self._queues = [_Queue(self._next()) for _ in self._queues]
        self.is_open = False

    def _next(self) -> int:
        self._count += 1
        return self._count

    def _make_room(self, queue: _Queue) -> None:
        """Bound the memory of a queue: forgotten sessions count as fenced until the queue is found empty."""
        if len(queue.fenced) + len(queue.cleared) < MAX_SESSIONS:
            return
        queue.is_known = self.is_open = False
        queue.forgotten_at = self._next()
        queue.cleared.clear()
        queue.fenced = {name: session for name, session in queue.fenced.items() if session.attempts}


def _is_proved(session: _Session | None, began: int) -> bool:
    return session is not None and not session.attempts and session.parked_at < began
