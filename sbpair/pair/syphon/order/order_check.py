"""Checks, by the senders' stamps, that messages leave the ordered backlogs in order. Pure."""

from __future__ import annotations

from collections import OrderedDict

from sbpair.pair.envelope.ordering import OrderStamp

MAX_CLIENTS = 10_000  # clients remembered, over all sessions


class OrderCheck:
    """Remembers the largest completed ordinal of each client and session; the least recently used are forgotten.

    A message that was forwarded but not completed is redelivered, and may be forwarded again. A message with a smaller
    ordinal than a completed one is out of order. Equal ordinals belong to copies of one message.
    """

    def __init__(self) -> None:
        self._largest: OrderedDict[tuple[str, str, int], int] = OrderedDict()

    def larger(self, session: str, stamp: OrderStamp) -> int | None:
        """Return the ordinal of a later message of this session that is already completed; None if there is none."""
        largest = self._largest.get((session, stamp.client, stamp.epoch), 0)
        return largest if largest > stamp.ordinal else None

    def completed(self, session: str, stamp: OrderStamp) -> None:
        """Record that a message was removed from its backlog after its destination accepted it."""
        key = (session, stamp.client, stamp.epoch)
        self._largest[key] = max(self._largest.get(key, 0), stamp.ordinal)
        self._largest.move_to_end(key)
        if len(self._largest) > MAX_CLIENTS:
            self._largest.popitem(last=False)
