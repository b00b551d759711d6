"""Pool of SDK senders to one entity, with a deadline for every call.

The SDK's senders are neither thread-safe nor bounded in time, so each call has a sender to itself. A sender
returns to the pool after a successful call and is discarded after a failed or overdue one. Opening runs on a
worker, because it can hang where no socket can be shut; it outlives the call that started it, and the next
call uses the link (R-8). Sending runs in the caller's thread; when it overruns, the watch shuts the socket.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import MessagingEntityNotFoundError, OperationTimeoutError

from .host_name import HostName
from .threads import POLL, Job, Watch, Workers
from .waiting import MAX_LATE_OPENINGS, MAX_OPENING_SECONDS, SignsOfLife, StillWaiting
from .wire import Wire

_logger = logging.getLogger("sbpair")

GRACE = 0.05  # seconds after the deadline before a call is ended
LOOK = 0.2  # seconds between two checks of an opening
IDLE = 60.0  # seconds after which unused senders are closed, except those kept
KEEP_ALIVE_SLEEP = 2.0  # seconds; twice the interval of the SDK's keep-alive thread


class PooledSender:
    """One SDK sender and the socket under it."""

    __slots__ = ("has_overrun", "opened_at", "sender", "until", "used_at", "wire")

    def __init__(self, sender: ServiceBusSender) -> None:
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
        """The error of an entity that was deleted under the link; None for any other."""
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

    def __init__(self, pooled: PooledSender, *, is_wanted: bool) -> None:
        self.pooled = pooled
        self.is_wanted = is_wanted
        self.is_outdated = False
        """Whether a renewal or the end of its call's time came first: no call adopts it, its failure says nothing."""
        self.is_over = False
        self.error: Exception | None = None
        self.job: Job | None = None
        self.progress = SignsOfLife(time.monotonic(), self._sign)

    def _sign(self) -> object:
        """A sign of life of the peer; waiting for a worker counts as one, since it is not the peer's fault."""
        is_waiting = self.job is None or not self.job.has_begun
        return time.monotonic() if is_waiting else self.pooled.wire.signs()


class SenderPool:
    """The SDK senders of one entity.

    ``workers`` open them and belong to one namespace, so that a side that hangs does not delay the other (R-6).
    ``closers`` close them. ``failed`` is called with the error of an opening for which no call waited. ``name`` is that
    of the host, which all pools of one namespace share.
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
        self._changed = threading.Condition()
        self._waiting = 0  # calls
        self._recalls = 0
        self._openings: set[_Opening] = set()

    def try_acquire(self) -> PooledSender | None:
        """An idle sender, if there is one."""
        while self._idle:
            try:
                pooled = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            if pooled.has_overrun:  # its socket was shut while it was being released
                self.discard(pooled)
                continue
            return pooled
        return None

    def acquire(self, until: float, *, is_fresh: bool = False) -> PooledSender:
        """A sender for one call that must end by ``until``.

        With ``is_fresh`` senders that were idle at the last failure are not used. Raises the SDK's exceptions,
        OperationTimeoutError when the peer does not open the link, and StillWaiting when the link was not open in time
        for another reason or :meth:`recall` was called.
        """
        if is_fresh:
            self._discard_idle(self._doubted_at)
        pooled = self.try_acquire() or self._awaited(until)
        pooled.until = until + GRACE
        return pooled

    def release(self, pooled: PooledSender) -> None:
        """Return a sender after a successful call."""
        if pooled.has_overrun:  # the call succeeded, but its socket was shut at the same time
            self.discard(pooled)
            return
        pooled.until = math.inf
        pooled.used_at = time.monotonic()
        self._idle.append(pooled)
        if self._waiting:
            with self._changed:
                self._changed.notify()
        if self._is_closed:
            self.close()

    def discard(self, pooled: PooledSender) -> None:
        """Drop a sender after a call that leaves it in doubt."""
        pooled.until = math.inf
        self._doubted_at = time.monotonic()
        self._watch.remove(pooled)
        self._closers.queue("sbpair-close", pooled.discard)

    def warm(self) -> None:
        """Open a sender in the background, so that the first call finds one."""
        with self._changed:
            if not (self._idle or self._openings or self._is_closed):
                self._begun(is_wanted=False)

    def warmed(self, until: float) -> None:
        """Wait until a sender is open, opening failed, or ``until``. Raises nothing."""
        try:
            self.warm()
        except ValueError:  # closed
            return
        with self._changed:
            while self._openings and not self._idle and time.monotonic() < until:
                self._changed.wait(LOOK)

    def try_out(self, until: float) -> None:
        """Open and close a separate link as a check. Raises as :meth:`acquire`."""
        pooled = self._opened_once(until)
        self._watch.remove(pooled)
        self._closers.queue("sbpair-close", pooled.close)

    def recall(self) -> None:
        """End the wait of every call with StillWaiting, so that its flow decides again."""
        with self._changed:
            self._recalls += 1
            self._changed.notify_all()

    def renew(self) -> None:
        """Give later calls only senders opened after this call."""
        self._discard_idle(time.monotonic())
        with self._changed:
            for opening in self._openings:
                opening.is_outdated = True

    def trim(self, now: float, keep: int = 1) -> float | None:
        """Close idle senders, all but ``keep``. Returns when to check again (R-13)."""
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

        Calls that wait still get a sender, and the last of them closes what is left; with ``now`` they get none.
        """
        self._is_closed = True
        with self._changed:
            if self._waiting and not now:
                return
            for opening in self._openings:
                opening.pooled.overrun()
        for pooled in self._emptied():
            self._watch.remove(pooled)
            self._closers.queue("sbpair-close", pooled.close)

    # -- opening

    def _awaited(self, until: float) -> PooledSender:
        """Wait for the next sender that opens or is released."""
        mine: _Opening | None = None
        with self._changed:
            self._waiting += 1
            recalls = self._recalls
            try:
                while True:
                    pooled = self.try_acquire()
                    if pooled is not None:
                        return pooled
                    if self._recalls != recalls:
                        raise StillWaiting(message="The entity failed over meanwhile.")
                    if mine is not None and mine.error is not None:
                        raise mine.error
                    if mine is None or mine.is_over:  # another call has taken the sender that it opened
                        mine = self._adopted() or self._begun(is_wanted=True)
                    now = time.monotonic()
                    if now >= until:
                        late = mine.progress.late(now)
                        if not isinstance(late, StillWaiting):
                            self._outdate(mine)
                        raise late
                    mine.progress.look(now)
                    self._changed.wait(min(until - now, LOOK))
                    self._workers.push()
            finally:
                self._waiting -= 1
                if mine is not None:
                    self._leave(mine)
                if self._is_closed:
                    self.close()

    def _adopted(self) -> _Opening | None:
        """An opening whose call has ended."""
        for opening in self._openings:
            if not (opening.is_wanted or opening.is_outdated):
                opening.is_wanted = True
                return opening
        return None

    def _outdate(self, opening: _Opening) -> None:
        """Its call gave up on a silent peer: the answer may be lost, so the next call opens a link of its own.

        The first MAX_LATE_OPENINGS continue, since a slow peer may answer them yet; others end.
        """
        if sum(each.is_outdated for each in self._openings) >= MAX_LATE_OPENINGS:
            opening.pooled.overrun()
        opening.is_outdated = True

    def _begun(self, *, is_wanted: bool) -> _Opening:
        pooled = PooledSender(self._make())
        # Set before it is watched, so that closing the watch ends it.
        pooled.until = time.monotonic() + MAX_OPENING_SECONDS
        opening = _Opening(pooled, is_wanted=is_wanted)
        self._watch.add(pooled)
        self._openings.add(opening)
        opening.job = self._workers.queue("sbpair-open", lambda: self._open(opening))
        return opening

    def _leave(self, opening: _Opening) -> None:
        """Stop waiting for an opening: it continues if it has begun, and is withdrawn otherwise."""
        if opening.is_over:
            return
        opening.is_wanted = False
        if opening.job is not None and self._workers.withdraw(opening.job):
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
            error = StillWaiting(message="The link was not opened in time.")
        elif pooled.has_overrun:  # the SDK's error only reflects that the watch shut the socket
            error = OperationTimeoutError(message="The link was not opened in time.", error=error)
        if error is None:
            pooled.used_at = pooled.opened_at = time.monotonic()
            self._idle.append(pooled)
        with self._changed:
            opening.error, opening.is_over = error, True
            self._openings.discard(opening)
            self._changed.notify_all()
            is_unreported = error is not None and not (opening.is_wanted or opening.is_outdated)
        if error is not None:
            self._watch.remove(pooled)
            pooled.wire.release()
            if is_unreported and self._failed is not None and not self._is_closed:
                self._failed(error)
        elif self._is_closed:
            self.close()

    def _opened_once(self, until: float) -> PooledSender:
        """Open a sender used by this call only, without adding it to the pool."""
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
        for pooled in self._emptied():
            if pooled.used_at <= before:
                self.discard(pooled)
            else:
                self._idle.append(pooled)

    def _emptied(self) -> list[PooledSender]:
        taken: list[PooledSender] = []
        while self._idle:
            try:
                taken.append(self._idle.pop())
            except IndexError:
                break  # another thread took the last one
        return taken
