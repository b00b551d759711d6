"""Turns of the sends of one entity: one send of a session at a time, in the order of the calls.

    free --take--> taken --leave, none waits----> free
                     |
                     '--leave, a send waits-----> taken, by the send that has waited longest

Sessions do not delay each other. :class:`Turns` is pure; :class:`ThreadTurns` and :class:`TaskTurns` wait for it.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from sbpair.pair.ground.interruptible import Waiter

if TYPE_CHECKING:
    import asyncio

WaiterT = TypeVar("WaiterT")


class Turns(Generic[WaiterT]):
    """The turns of all sessions of one entity.

    :meth:`take` may be called by any thread at any time; the other methods under one lock.
    """

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[str, deque[WaiterT]] = {}
        """The waiters of each session whose turn is taken, the longest first."""

    def __len__(self) -> int:
        """The number of sessions whose turn is taken."""
        return len(self.lines)

    def take(self, session: str) -> bool:
        """Take the turn if it is free. Atomic: one operation of a dict."""
        line: deque[WaiterT] = deque()
        return self.lines.setdefault(session, line) is line

    def join(self, session: str, waiter: WaiterT) -> bool:
        """Queue for the turn; return False if it was free, and is now taken."""
        if self.take(session):
            return False
        self.lines[session].append(waiter)
        return True

    def give_up(self, session: str, waiter: WaiterT) -> bool:
        """Stop waiting; return False if the turn has already been passed to ``waiter``."""
        line = self.lines.get(session)
        if line is None or waiter not in line:
            return False
        line.remove(waiter)
        return True

    def leave(self, session: str) -> WaiterT | None:
        """End the turn. Returns the waiter that has it now, to be woken; None if it is free."""
        line = self.lines[session]
        if line:
            return line.popleft()
        del self.lines[session]
        return None


class Turn:
    """One thread's turn of a session, or its place in the line."""

    __slots__ = ("has_come", "thread")

    def __init__(self) -> None:
        self.has_come: Waiter | None = None
        self.thread = threading.get_ident()


class ThreadTurns:
    """Turns of threads.

    A signal may raise at any point: each caller makes a :class:`Turn` before it asks for the turn, and leaves with it
    in any case. Leaving twice, or without the turn, is harmless, so an interrupted call can be repeated.
    """

    __slots__ = ("_lock", "lines")

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Free all turns: after a fork, in the child, since the threads that took them are the parent's."""
        self._lock = threading.Lock()
        self.lines: dict[str, deque[Turn]] = {}
        """For each session whose turn is taken: who has it, then those who wait, the longest first."""

    def __len__(self) -> int:
        """The number of sessions whose turn is taken."""
        return len(self.lines)

    def take(self, session: str, turn: Turn) -> bool:
        """Take the turn if it is free. Atomic: one operation of a dict."""
        line = deque((turn,))
        return self.lines.setdefault(session, line) is line

    def wait(self, session: str, turn: Turn, seconds: float) -> bool:
        """Wait for the turn; return False if it did not come in time. Leave with it in both cases.

        Raises RuntimeError when this thread has the turn: a callback sends while its own send is in progress.
        """
        turn.has_come = Waiter()
        with self._lock:
            if self.take(session, turn):
                return True
            line = self.lines[session]
            if line[0].thread == turn.thread:
                raise RuntimeError(
                    f"a callback cannot send to session {session!r} while a send of this thread to it is under way: "
                    "send in another thread"
                )
            line.append(turn)
        turn.has_come.wait(seconds)
        return line[0] is turn

    def leave(self, session: str, turn: Turn) -> None:
        """End the turn, or the wait for it, and wake the longest waiter."""
        with self._lock:
            line = self.lines.get(session)
            if line is None:  # left before, or a callback of this send forked the process
                return
            if turn in line:
                line.remove(turn)
            if not line:
                del self.lines[session]
            elif line[0].has_come is not None:
                line[0].has_come.wake()


class TaskTurns:
    """Turns of the tasks of one event loop."""

    __slots__ = ("_turns", "take")

    def __init__(self) -> None:
        self._turns: Turns[asyncio.Future[None]] = Turns()
        self.take = self._turns.take

    def __len__(self) -> int:
        """The number of sessions whose turn is taken."""
        return len(self._turns)

    async def wait(self, session: str, seconds: float) -> bool:
        """Wait for the turn; return False if it did not come in time."""
        import asyncio  # late: threads do without

        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._turns.join(session, waiter):
            return True
        try:
            await asyncio.wait((waiter,), timeout=max(seconds, 0.0))
        except asyncio.CancelledError:
            if not self._turns.give_up(session, waiter):
                self.leave(session)
            raise
        return waiter.done() or not self._turns.give_up(session, waiter)

    def leave(self, session: str) -> None:
        """End the turn, and wake the longest waiter."""
        following = self._turns.leave(session)
        if following is not None:
            following.set_result(None)
