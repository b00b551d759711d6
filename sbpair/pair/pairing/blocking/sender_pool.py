"""Pool of SDK senders to one entity, with a deadline for every call.

The SDK's senders are neither thread-safe nor bounded in time, so each call has a sender to itself. A sender returns to
the pool after a successful call and is discarded after a failed or overdue one. Opening runs on a worker, because it
can hang before there is a socket to shut down; it continues after the call that started it, and the next call uses the
link. Sending runs in the caller's thread; when it overruns, the watch shuts the socket down.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError

from sbpair.pair.ground.interruptible import Waiter, Waiters, moving

from ..shared.address import HostName
from ..shared.threads import POLL, Job, Watch, Workers
from ..shared.waiting import MAX_LATE_OPENINGS, MAX_OPENING_SECONDS, SignsOfLife, StillWaitingError
from ..shared.wire import Wire

_logger = logging.getLogger("sbpair")

GRACE = 0.05  # seconds after the deadline before a call is ended
LOOK = 0.2  # seconds between two checks of an opening
IDLE = 60.0  # seconds after which unused senders are closed, except those kept
KEEP_ALIVE_SLEEP = 2.0  # seconds; twice the interval of the SDK's keep-alive thread


class PooledSender:
    """One SDK sender and the socket under it."""

    __slots__ = ("has_overrun", "held", "opened_at", "sender", "until", "used_at", "wire")

    def __init__(self, sender: ServiceBusSender) -> None:
        self.held: list[PooledSender] = [self]
        """The list of the call that has it; see :meth:`SenderPool.try_acquire`."""
        self.sender = sender
        self.wire = Wire(sender)
        self.until = math.inf
        self.opened_at = math.inf
        """When its link was open; a failure of a call that began later may mean that the link died while idle."""
        self.used_at = time.monotonic()
        self.has_overrun = False

    @property
    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return self.wire.is_open()

    def deletion(self) -> MessagingEntityNotFoundError | None:
        """The error if the link's entity was deleted; None otherwise."""
        return self.wire.deletion()

    def open(self) -> None:
        self.sender.__enter__()

    def overrun(self) -> None:
        self.has_overrun = True
        self.until = time.monotonic() + POLL  # once more, since the socket may not have existed yet
        self.wire.shut()

    def close(self) -> None:
        """Close the link, and wait up to two seconds for the SDK's keep-alive thread."""
        try:
            self.sender.close()
        except Exception as error:  # closing is best effort: the peer may be gone
            _logger.debug("closing a sender: %s", type(error).__name__)
        finally:
            self.wire.release()
            self.wire.join(KEEP_ALIVE_SLEEP)

    def release(self) -> None:
        """After a fork: release the parent's connection without sending anything."""
        self.wire.release()

    def cut(self) -> None:
        """End the connection now; :meth:`discard` frees it."""
        self.wire.shut()

    def discard(self) -> None:
        """Close at once, without waiting for the peer."""
        self.wire.shut()
        self.close()


class _Opening:
    """A sender being opened, perhaps by a call that has since ended."""

    def __init__(self, pooled: PooledSender, wanted_by: Waiter | None) -> None:
        self.pooled = pooled
        self.wanted_by = wanted_by
        self.is_outdated = False
        """Whether a renewal or the end of its call's time came first: no call adopts it, its failure says nothing."""
        self.is_over = False
        self.error: Exception | None = None
        self.job: Job | None = None
        self.progress = SignsOfLife(time.monotonic(), self._sign)

    def _sign(self) -> object:
        """Return a value that changes with each sign of life of the peer, and constantly while waiting for a worker."""
        is_waiting = self.job is None or not self.job.has_begun
        return time.monotonic() if is_waiting else self.pooled.wire.signs()


class SenderPool:
    """The SDK senders of one entity.

    ``workers`` open them; each namespace has its own, so that a hanging side does not delay the other. ``closers``
    close them. ``failed`` is called with the error of an opening for which no call waited. ``name`` is the host's, the
    same for all pools of one namespace.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusSender],
        watch: Watch,
        workers: Workers,
        closers: Workers | None = None,
        failed: Callable[[Exception], None] | None = None,
        name: HostName | None = None,
    ) -> None:
        self._is_closed = False
        self._name = name or HostName()
        self._make = make
        self._watch = watch
        self._workers = workers
        self._closers = closers or workers
        self._failed = failed
        self._doubted_at = -math.inf  # when a call last failed in a way that may be due to its link
        self._idle: deque[PooledSender] = deque()
        self._lock = threading.RLock()
        self._waiting = Waiters()  # calls
        self._recalls = 0
        self._openings: set[_Opening] = set()

    def try_acquire(self, held: list[PooledSender] | None = None) -> PooledSender | None:
        """Return an idle sender, or None.

        In the same instant in which the sender stops being idle, it is added to ``held``, where it stays until it is
        released or discarded: a caller interrupted by a signal discards the senders in ``held``.
        """
        held = [] if held is None else held
        while self._idle:
            try:
                held.extend(islice(iter(self._idle.pop, None), 1))  # as moving(), without a call
            except IndexError:  # another thread was faster
                return None
            pooled = held[-1]
            pooled.held = held
            if pooled.has_overrun:  # its socket was shut while it was being released
                self.discard(pooled)
                continue
            return pooled
        return None

    def acquire(
        self, until: float, held: list[PooledSender] | None = None, *, is_fresh: bool = False
    ) -> PooledSender:
        """Return a sender for one call that must end by ``until``; ``held`` as in :meth:`try_acquire`.

        With ``is_fresh``, senders that were idle at the last failure are not used. Raises the SDK's exceptions,
        OperationTimeoutError when the peer does not open the link, and StillWaitingError when the link was not open in
        time for another reason or :meth:`recall` was called.
        """
        if is_fresh:
            self._discard_idle(self._doubted_at)
        held = [] if held is None else held
        pooled = self.try_acquire(held) or self._wait(until, held)
        pooled.until = until + GRACE
        return pooled

    def release(self, pooled: PooledSender) -> None:
        """Return a sender after a successful call."""
        if pooled.has_overrun:  # the call succeeded, but its socket was shut at the same time
            self.discard(pooled)
            return
        pooled.until = math.inf
        pooled.used_at = time.monotonic()
        self._idle.extend(islice(iter(pooled.held.pop, None), 1))  # as moving(), without a call
        if self._waiting:
            self._waiting.wake_first()
        if self._is_closed:
            self.close()

    def discard(self, pooled: PooledSender) -> None:
        """Drop a sender after a call that leaves its state in doubt."""
        pooled.until, pooled.has_overrun = math.inf, True  # nobody uses it any more
        self._doubted_at = time.monotonic()
        self._watch.remove(pooled)
        self._closers.queue("sbpair-close", pooled.discard)
        pooled.held.clear()

    abandon = discard
    """For a call that was interrupted."""

    def warm(self) -> None:
        """Open a sender in the background for the first call; if that fails, the first call raises the error."""
        with self._lock, suppress(OSError):  # the SDK reads files for it
            if not (self._idle or self._openings or self._is_closed):
                self._begin(None)

    def warmed(self, until: float) -> None:
        """Wait until a sender is open, opening failed, or ``until``. Raises nothing."""
        try:
            self.warm()
        except ValueError:  # closed
            return
        while (job := self._first_opening()) is not None and (left := until - time.monotonic()) > 0:
            job.wait(min(left, LOOK))

    def try_out(self, until: float) -> None:
        """Open and close a separate link as a check. Raises as :meth:`acquire`."""
        pooled = self._open_once(until)
        self._watch.remove(pooled)
        self._closers.queue("sbpair-close", pooled.close)

    def recall(self) -> None:
        """End the wait of every call with StillWaitingError, so that its flow decides again."""
        with self._lock:
            self._recalls += 1
        self._waiting.wake_all()

    def renew(self) -> None:
        """Give later calls only senders opened after this call."""
        self._discard_idle(time.monotonic())
        with self._lock:
            for opening in self._openings:
                opening.is_outdated = True

    def trim(self, now: float, keep: int = 1) -> float | None:
        """Close idle senders, all but ``keep``. Returns when to check again."""
        while len(self._idle) > keep:
            try:
                pooled = self._idle.popleft()
            except IndexError:  # another thread took the last one
                break
            if now < pooled.used_at + IDLE:
                self._idle.appendleft(pooled)
                return pooled.used_at + IDLE
            self._watch.remove(pooled)
            self._closers.queue("sbpair-close", pooled.close)
        return None

    def close(self, *, now: bool = False) -> None:
        """Close idle senders now and the others when they return, each on a worker: it can take a second.

        Waiting calls still get a sender, and the last of them closes the rest; with ``now`` they get none.
        """
        self._is_closed = True
        with self._lock:
            if self._waiting and not now:
                return
            for opening in self._openings:
                opening.pooled.overrun()
        taken: list[PooledSender] = []
        try:
            self._take_idle(taken)
            while taken:
                self._watch.remove(taken[-1])
                self._closers.queue("sbpair-close", taken[-1].close)
                taken.pop()
        finally:  # a close that is interrupted can be repeated
            self._idle.extend(taken)

    # -- opening

    def _wait(self, until: float, held: list[PooledSender]) -> PooledSender:
        """Wait for the next sender that is opened or released, and return it."""
        me, recalls = Waiter(), self._recalls
        mine: _Opening | None = None
        try:
            self._waiting[me] = None
            while True:
                with self._lock:
                    pooled = self.try_acquire(held)
                    if pooled is not None:
                        return pooled
                    if self._recalls != recalls:
                        raise StillWaitingError(message="The entity failed over meanwhile.")
                    if mine is not None and mine.error is not None:
                        raise mine.error
                    if mine is None or mine.is_over:  # another call has taken the sender that it opened
                        mine = self._adopt(me) or self._begin(me)
                    now = time.monotonic()
                    if now >= until:
                        late = mine.progress.late(now)
                        if not isinstance(late, StillWaitingError):
                            self._outdate(mine)
                        raise late
                    mine.progress.probe(now)
                me.wait(min(until - now, LOOK))
                self._workers.push()
        finally:
            try:
                self._leave(me)
            except BaseException:  # a signal's: it must leave all the same
                self._leave(me)
                raise

    def _first_opening(self) -> Job | None:
        """Return the job of an opening, while no sender is idle."""
        with self._lock:
            return None if self._idle else next((each.job for each in self._openings), None)

    def _adopt(self, by: Waiter) -> _Opening | None:
        """Return an opening whose call has ended, or None; from now on ``by`` waits for it."""
        for opening in self._openings:
            if opening.wanted_by is None and not opening.is_outdated:
                opening.wanted_by = by
                return opening
        return None

    def _outdate(self, opening: _Opening) -> None:
        """Mark a link whose call gave up on a silent peer: the next call opens a new link.

        The first MAX_LATE_OPENINGS continue, since a slow peer may still answer them; others end.
        """
        if sum(each.is_outdated for each in self._openings) >= MAX_LATE_OPENINGS:
            opening.pooled.overrun()
        opening.is_outdated = True

    def _begin(self, by: Waiter | None) -> _Opening:
        pooled = PooledSender(self._make())
        # Set before it is watched, so that closing the watch ends it.
        pooled.until = time.monotonic() + MAX_OPENING_SECONDS
        opening = _Opening(pooled, by)
        job = opening.job = Job("sbpair-open", lambda: self._open(opening), self._workers.forget)
        try:
            self._watch.add(pooled)
            self._openings.add(opening)
            self._workers.enqueue(job)
        except BaseException:  # of a signal: no thread has begun it, or the next call finds it
            if job.withdraw():
                self._abandon(opening)
            raise
        return opening

    def _leave(self, call: Waiter) -> None:
        """End the wait of a call: its opening continues if it has begun, and is withdrawn otherwise."""
        self._waiting.pop(call, None)
        with self._lock:
            for opening in [each for each in self._openings if each.wanted_by is call]:
                opening.wanted_by = None
                if opening.job is not None and self._workers.withdraw(opening.job):
                    self._abandon(opening)
            if self._is_closed:
                self.close()
        if self._idle:
            self._waiting.wake_first()  # this call may have been woken for one that it did not take

    def _abandon(self, opening: _Opening) -> None:
        self._openings.discard(opening)
        self._watch.remove(opening.pooled)

    def _open(self, opening: _Opening) -> None:
        """Open the link; runs on a worker."""
        pooled = opening.pooled
        pooled.until = time.monotonic() + MAX_OPENING_SECONDS
        error: Exception | None = None
        is_late = pooled.has_overrun  # before it began: the watch may no longer be able to end it
        try:
            if not is_late:
                self._open_alone(pooled)
        except Exception as raised:
            error = raised
        pooled.until = math.inf
        if is_late:
            error = StillWaitingError(message="The link was not opened in time.")
        elif pooled.has_overrun:  # the SDK's error only reflects that the watch shut the socket
            error = OperationTimeoutError(message="The link was not opened in time.", error=error)
        if error is None:
            pooled.used_at = pooled.opened_at = time.monotonic()
            self._idle.extend(moving(pooled.held.pop))
        with self._lock:
            opening.error, opening.is_over = error, True
            self._openings.discard(opening)
            is_unreported = error is not None and opening.wanted_by is None and not opening.is_outdated
        self._waiting.wake_all()
        if error is not None:
            self._watch.remove(pooled)
            pooled.wire.release()
            if is_unreported and self._failed is not None and not self._is_closed:
                self._failed(error)
        elif self._is_closed:
            self.close()

    def _open_once(self, until: float) -> PooledSender:
        """Open a sender for this call only, without adding it to the pool."""
        pooled = PooledSender(self._make())
        pooled.until = until + GRACE
        self._watch.add(pooled)
        is_done = False
        try:
            job = self._workers.start("sbpair-open", lambda: self._open_alone(pooled), until=until)
        except BaseException:  # it was never opened
            self._watch.remove(pooled)
            raise
        try:
            is_done = job.wait(until - time.monotonic())
        finally:
            if not is_done:
                pooled.overrun()  # the watch keeps shutting the socket until the worker returns
                if not job.abandon(lambda: self._forget(pooled, pooled.discard)):
                    self.discard(pooled)  # on a closer, since it can take seconds
        if not is_done:
            raise OperationTimeoutError(message="The link was not opened in time.")
        if job.error is not None:
            self._forget(pooled, pooled.wire.release)
            raise job.error
        return pooled

    def _open_alone(self, pooled: PooledSender) -> None:
        with self._name.opening():
            pooled.open()

    def _forget(self, pooled: PooledSender, end: Callable[[], None]) -> None:
        self._watch.remove(pooled)
        end()

    def _discard_idle(self, before: float) -> None:
        taken: list[PooledSender] = []
        try:
            self._take_idle(taken)
            for pooled in [each for each in taken if each.used_at <= before]:
                self.discard(pooled)
                taken.remove(pooled)
        finally:
            self._idle.extend(taken)

    def _take_idle(self, taken: list[PooledSender]) -> None:
        with suppress(IndexError):  # all are taken
            taken.extend(moving(self._idle.popleft, sys.maxsize))
