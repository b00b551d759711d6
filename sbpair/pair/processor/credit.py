"""Credit of a processor: how many messages may be in flight, given the duration of handlers and of locks. Pure.

    in flight = being handled (max_concurrent_calls) + waiting for a handler

A message that waits behind ``n`` others starts after ``n * t / c`` seconds, with ``t`` seconds for each handler and
``c`` handlers at a time. As many may wait as will start within a quarter of the lock duration; none may wait until a
handler has been timed.
"""

from __future__ import annotations

MAX_WAITING = 2000  # messages that wait for a handler: one second of them at a round trip of 20 ms
MAX_SETTLING = 8000  # settlements without their confirmation
MAX_BYTES = 64 * 1024 * 1024  # of messages in flight
INITIAL_SIZE = 64 * 1024  # bytes assumed for a message before the first has arrived
MIN_CALL_SECONDS = 1e-6  # seconds
WAIT_PART = 1 / 4  # of the lock duration, within which the last waiting message should start
PATIENT_PART = 1 / 2  # of the lock duration, after which a message that still waits is given back
MEMORY = 1 / 16  # weight of the latest call in the mean


class ProcessorWindow:
    """The number of messages that a processor may have in flight, over all its links.

    ``calls``: how many handlers run at a time. Times are in seconds, sizes in bytes.
    """

    def __init__(self, calls: int) -> None:
        self._calls = calls
        self._call_time: float | None = None
        self._size = float(INITIAL_SIZE)
        self.lock_span = 60.0
        """The lock duration: the shortest one of the links."""

    @property
    def limit(self) -> int:
        """How many messages may be in flight."""
        return self._calls + self._may_wait()

    def _may_wait(self) -> int:
        if self._call_time is None:
            return 0
        in_time = self._calls * self.lock_span * WAIT_PART / max(self._call_time, MIN_CALL_SECONDS)
        return int(min(MAX_WAITING, in_time, MAX_BYTES / max(self._size, 1.0)))

    def handled(self, took: float, size: int) -> None:
        """Record that a handler took ``took`` seconds for a message of ``size`` bytes."""
        mean = self._call_time
        self._call_time = took if mean is None else mean + (took - mean) * MEMORY
        self._size = size if size > self._size else self._size + (size - self._size) * MEMORY

    def running_for(self, seconds: float) -> None:
        """Record that all handlers have been running for ``seconds``, so that a call takes at least that long."""
        if self._call_time is not None and seconds > self._call_time:
            self._call_time = seconds

    def grant(self, credit: int, in_hand: int, settling: int) -> int | None:
        """Return the credit to set on a link that has ``credit``, or None to leave it.

        Credit is topped up when half of it is used, so that one flow serves many messages. Each link may use all of the
        room, so arrivals can exceed it by the credit of the other links. Without room, credit is withdrawn.
        """
        room = max(0, min(self.limit - in_hand, MAX_SETTLING - settling))
        if room == 0:
            return 0 if credit else None
        return room if credit <= room // 2 else None
