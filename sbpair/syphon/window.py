"""How much may a backlog deliver now, and when has a long poll come to its end?

    credit granted from zero = one billed receive (P-41)

         grant                    15 minutes without a message
    ZERO -------> WAITING -----------------------------------> drained, ZERO, and granted again
                  |    ^
          message |    | topped up before it runs out: no new receive
                  v    |
                 BUSY -'

The limit is the number of messages in our hands that can be settled well inside one lock (F-63): it starts
small, grows by one with each message that was forwarded quickly, and is halved by one that took a quarter of
its lock. Messages held back for destinations out of reach have a limit of their own. Pure: time is a float in
seconds, monotonic.
"""

from __future__ import annotations

RECEIVE_SPAN = 15 * 60.0  # seconds; one long poll (P-41, G-23)
FIRST_LIMIT = 64
SLOW_PART = 4  # a forward that takes a 4th of its lock is a slow one


class Window:
    """The credit of one backlog link; ``most_active`` and ``most_held`` are counts of messages."""

    def __init__(self, most_active: int, most_held: int) -> None:
        self.limit = min(FIRST_LIMIT, most_active)
        self.receives = 0
        self._most_active = most_active
        self._most_held = most_held
        self._poll_ends: float | None = None

    def room(self, active: int, held: int, settling: int = 0) -> int:
        """How many more messages may come."""
        return max(0, min(self.limit - active, 2 * self.limit - active - settling, self._most_held - held))

    def grant(self, credit: int, active: int, held: int, now: float, settling: int = 0) -> int | None:
        """The credit to set, or None when what the link has will do.

        ``credit`` is what is left on the link; ``active`` and ``held`` count what is in our hands, and
        ``settling`` what is forwarded and waits for its broker's word only: it has as much room again.
        """
        room = self.room(active, held, settling)
        if room == credit or room // 2 < credit < room:
            return None  # topped up by halves: a flow goes out for many messages, not for each
        if credit == 0:
            self.receive_began(now)
        return room

    def receive_began(self, now: float) -> None:
        """Credit was granted from zero."""
        self.receives += 1
        self._poll_ends = now + RECEIVE_SPAN

    def message_arrived(self, now: float) -> None:
        """What a receive brings makes the poll begin anew."""
        self._poll_ends = now + RECEIVE_SPAN

    def forwarded(self, took: float, lock_span: float) -> None:
        """A message was accepted ``took`` seconds after it came, with a lock of ``lock_span`` seconds."""
        if took * SLOW_PART > lock_span:
            self.limit = max(1, self.limit // 2)
        else:
            self.limit = min(self.limit + 1, self._most_active)

    def next_timer(self) -> float | None:
        """When the long poll ends; None while there is none."""
        return self._poll_ends

    def handle_timer(self, now: float) -> bool:
        """True when the poll has come to its end: take the credit back, then grant again."""
        if self._poll_ends is None or now < self._poll_ends:
            return False
        self._poll_ends = None
        return True
