"""Credit: how many messages a backlog may deliver, limited by the lock duration and by memory. Pure."""

from __future__ import annotations

from collections.abc import Callable

RECEIVE_SPAN = 15 * 60.0  # seconds; one long poll
FIRST_LIMIT = 256  # messages
UNBOUNDED = 2**31 - 1
AFTER_LOSS = 64  # messages: at least the limit after a lost link
SLOW_PART = 4  # a forward is slow when it takes a quarter of the lock duration

INITIAL_SIZE = 256 * 1024  # bytes assumed for a message before the first: the maximum of the Standard tier
SMALLEST_SIZE = 1024  # bytes any message occupies, in objects and tables
DECAY_SHIFT = 2  # an estimate loses a quarter with each grant of credit after which all messages were smaller


class Window:
    """The credit of one backlog link; ``most_active`` and ``most_held`` are counts of messages.

        credit granted from zero = one billed receive

             grant                    15 minutes without a message
        ZERO -------> WAITING -----------------------------------> drained, ZERO, and granted again
                      |    ^
              message |    | topped up before it runs out: no new receive
                      v    |
                     BUSY -'

    ``limit`` is the number of active messages that can be settled well within one lock duration: it starts
    small, grows by one with each message that is forwarded quickly, and is halved by a slow one. Messages held for
    destinations that accept none have a limit of their own. Times are monotonic seconds.
    """

    def __init__(self, most_active: int, most_held: int) -> None:
        self.limit = min(FIRST_LIMIT, most_active)
        self.receives = 0
        self.heard_at = 0.0
        """When the last message arrived."""
        self._most_active = most_active
        self._most_held = most_held
        self._poll_ends: float | None = None

    def room(self, active: int, held: int, settling: int = 0) -> int:
        """Return how many more messages may be delivered."""
        return max(0, min(self.limit - active, 2 * self.limit - active - settling, self._most_held - held))

    def grant(
        self, credit: int, active: int, held: int, now: float, settling: int = 0, most: int = UNBOUNDED
    ) -> int | None:
        """Return the credit to set, or None when the current one suffices.

        ``credit``: the current credit of the link. ``active``, ``held``: unsettled messages of these kinds.
        ``settling``: forwarded messages whose completion is not confirmed, which have a limit of the same size.
        ``most``: the limit of the memory budget.
        """
        room = min(most, self.room(active, held, settling))
        if room == credit or room // 2 < credit < room:
            return None  # topped up when half is used, so that one flow serves many messages
        if credit == 0:
            self.receive_began(now)
        return room

    def receive_began(self, now: float) -> None:
        """Record that credit was granted from zero."""
        self.receives += 1
        self._poll_ends = now + RECEIVE_SPAN

    def message_arrived(self, now: float) -> None:
        """Record a delivery, which restarts the long poll."""
        self.heard_at = now
        self._poll_ends = now + RECEIVE_SPAN

    def forwarded(self, took: float, lock_span: float) -> None:
        """Record a message that was accepted ``took`` seconds after delivery, with a lock of ``lock_span`` seconds."""
        if took * SLOW_PART > lock_span:
            self.limit = max(1, self.limit // 2)
        else:
            self.limit = min(self.limit + 1, self._most_active)

    def link_lost(self, unsettled: int) -> None:
        """Record that the link ended with ``unsettled`` messages.

        This lowers the limit, so that fewer messages are repeated when a link ends again.
        """
        if unsettled:
            self.limit = max(min(AFTER_LOSS, self.limit), self.limit // 2)

    def next_timer(self) -> float | None:
        """Return when the long poll ends; None without one."""
        return self._poll_ends

    def handle_timer(self, now: float) -> bool:
        """Return True when the long poll has ended: drain the credit, then grant again."""
        if self._poll_ends is None or now < self._poll_ends:
            return False
        self._poll_ends = None
        return True


class MemoryBudget:
    """The bytes of messages in memory, at most ``total``, shared by a number of ``backlogs``.

    ``used``: bytes of all messages in memory. ``unfinished`` returns the bytes of messages that are still arriving.
    ``held``: bytes of messages that wait for their destination, at most half of the total, except that each destination
    may always hold one message. Free bytes are shared among the backlogs as credit, converted to messages of the recent
    size. Because sizes vary, more bytes may arrive than expected; the socket is then not read until bytes are free. One
    message is always accepted, regardless of its size.
    """

    def __init__(self, total: int, backlogs: int, unfinished: Callable[[], int] = lambda: 0) -> None:
        self.total = total
        self._unfinished = unfinished
        self.used = 0
        self.held = 0
        self._backlogs = max(1, backlogs)
        self.waiting: dict[Callable[[], None], None] = {}
        """The callbacks to call once half of the budget is free, or taken by held messages only."""

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing more may be read until enough bytes are free again."""
        return not self._is_roomy and self.used + self._unfinished() > self.total

    @property
    def _is_roomy(self) -> bool:
        """Whether half of the budget is free, or all messages in memory are held: these may stay for hours."""
        return self.used <= max(self.total // 2, self.held)

    def credit(self, size: int, wake: Callable[[], None]) -> int:
        """Return how many messages of ``size`` bytes one backlog may deliver; with 0, ``wake`` is called later."""
        free = self.total - self.used
        if free <= 0:
            self.wake_later(wake)
            return 0
        free = max(0, free - self._unfinished())  # nobody is called when those are finished
        return max(1, free // self._backlogs // max(size, SMALLEST_SIZE))

    def wake(self) -> None:
        """Call the registered ``wake`` callbacks if half of the budget is free, or all messages in memory are held.

        Waiting for the bytes of held messages would stop all other destinations.
        """
        if self._is_roomy:
            waiting, self.waiting = self.waiting, {}
            for wake in waiting:
                wake()

    def wake_later(self, wake: Callable[[], None]) -> None:
        """Call ``wake`` once :meth:`wake` finds enough bytes free."""
        self.waiting[wake] = None

    def may_hold(self, size: int) -> bool:
        """Return whether a message of ``size`` bytes that has to wait may stay in memory."""
        return self.held + size <= self.total // 2


class RecentSize:
    """The size of the largest recent message of one backlog, updated with each grant of credit."""

    def __init__(self) -> None:
        self.bytes = INITIAL_SIZE

    def update(self, largest: int) -> None:
        """Record the size in bytes of the largest message since the last grant."""
        if largest >= self.bytes:
            self.bytes = largest
        else:
            self.bytes -= (self.bytes - largest) >> DECAY_SHIFT
