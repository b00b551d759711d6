"""Over which connection does a call go, and how does it end in time?

The SDK's senders are neither thread-safe nor bounded in time, so each call has one for itself, a *lane*.
A lane that did its work goes back into store; one that failed or overran is dropped. Opening runs on a
worker, for it can hang where no socket is in reach; sending runs in the caller's thread, and the watch
shuts the socket under it when it overruns.
"""

from __future__ import annotations

import logging
import math
import time
from collections import deque
from collections.abc import Callable

from azure.servicebus import ServiceBusSender
from azure.servicebus.exceptions import OperationTimeoutError

from .sdk import Wire
from .work import POLL, Watch, Workers

_logger = logging.getLogger("sbpair")

GRACE = 0.05  # seconds: a call that ends just in time is left alone
KEEP_ALIVE_SLEEP = 2.0  # seconds: twice what that thread of the SDK sleeps


class Lane:
    """One SDK sender and the socket under it."""

    __slots__ = ("has_overrun", "sender", "until", "was_reused", "wire")

    def __init__(self, sender: ServiceBusSender) -> None:
        self.sender = sender
        self.wire = Wire(sender)
        self.until = math.inf
        self.was_reused = False
        self.has_overrun = False

    @property
    def is_open(self) -> bool:
        """Whether the SDK keeps the link for another send."""
        return self.wire.is_open()

    def open(self) -> None:
        self.sender.__enter__()

    def overrun(self) -> None:
        self.has_overrun = True
        self.until = time.monotonic() + POLL  # again, for the socket may not have been there yet
        self.wire.shut()

    def close(self) -> None:
        """Say goodbye to the service, and wait a second or so for the SDK's keep-alive thread."""
        try:
            self.sender.close()
        except Exception as error:  # the SDK tells the peer; whether that works does not matter here
            _logger.debug("closing a sender: %s", type(error).__name__)
        finally:
            self.wire.release()
            self.wire.join(KEEP_ALIVE_SLEEP)

    def release(self) -> None:
        """After a fork: let go of the parent's connection without a word to the service."""
        self.wire.release()

    def discard(self) -> None:
        """End it at once; the peer is not asked."""
        self.wire.shut()
        self.close()


class Lanes:
    """The lanes to one entity."""

    def __init__(self, make: Callable[[], ServiceBusSender], watch: Watch, workers: Workers) -> None:
        self._is_closed = self._is_warming = False
        self._make = make
        self._watch = watch
        self._workers = workers
        self._stored: deque[Lane] = deque()

    def stored(self) -> Lane | None:
        """A lane from the store, if there is one."""
        while self._stored:
            try:
                lane = self._stored.pop()
            except IndexError:  # another thread was faster
                return None
            if lane.has_overrun:  # its socket was shut in the moment in which it came back
                self.drop(lane)
                continue
            lane.was_reused = True
            return lane
        return None

    def take(self, until: float, *, is_fresh: bool = False) -> Lane:
        """A lane for one call that must end by ``until``.

        Raises what the SDK raises, OperationTimeoutError when opening took too long.
        """
        if is_fresh:
            self._drop_stored()
        lane = self.stored() or self._open(until)
        lane.until = until + GRACE
        return lane

    def give(self, lane: Lane) -> None:
        """The call is over and the lane is good for another."""
        if lane.has_overrun:  # it ended well, but just as its socket was shut
            self.drop(lane)
            return
        lane.until = math.inf
        self._stored.append(lane)
        if self._is_closed:
            self.close()

    def drop(self, lane: Lane) -> None:
        """The call failed in a way that leaves the lane in doubt."""
        lane.until = math.inf
        self._watch.remove(lane)
        self._later(lane.discard)

    def warm(self, seconds: float) -> None:
        """Open a lane now, so that the first call finds one; at most one at a time."""
        if self._stored or self._is_warming:
            return
        self._is_warming = True
        try:
            self.give(self.take(time.monotonic() + seconds))
        finally:
            self._is_warming = False

    def try_out(self, until: float) -> None:
        """Open a link that nobody uses, and close it: whether that works. Raises as :meth:`take`."""
        lane = self._open(until)
        self._watch.remove(lane)
        self._later(lane.close)

    def close(self) -> None:
        """Close what is in store and what comes back, each on a worker: each can take a second."""
        self._is_closed = True
        for lane in self._emptied():
            self._watch.remove(lane)
            self._later(lane.close)

    def _open(self, until: float) -> Lane:
        lane = Lane(self._make())
        lane.until = until + GRACE
        self._watch.add(lane)
        is_done = False
        try:
            job = self._workers.start("sbpair-open", lane.open, until=until)
        except BaseException:  # it was never opened
            self._watch.remove(lane)
            raise
        try:
            is_done = job.wait(until - time.monotonic())
        finally:
            if not is_done:
                lane.overrun()  # the watch goes on until the worker has come back
                if not job.abandon(lambda: self._forget(lane, lane.discard)):
                    self.drop(lane)  # not in this thread: it can take seconds
        if not is_done:
            raise OperationTimeoutError(message="The link was not opened in time.")
        if job.error is not None:
            self._forget(lane, lane.wire.release)
            raise job.error
        return lane

    def _forget(self, lane: Lane, end: Callable[[], None]) -> None:
        self._watch.remove(lane)
        end()

    def _drop_stored(self) -> None:
        for lane in self._emptied():
            self.drop(lane)

    def _emptied(self) -> list[Lane]:
        taken: list[Lane] = []
        while self._stored:
            try:
                taken.append(self._stored.pop())
            except IndexError:
                break  # another thread took the last one
        return taken

    def _later(self, task: Callable[[], None]) -> None:
        try:
            self._workers.start("sbpair-close", task)
        except OperationTimeoutError:
            task()
