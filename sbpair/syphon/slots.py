"""Slots: a limit on the links to destinations that are open at a time."""

from __future__ import annotations

import asyncio
from collections import deque

from .delivery import Destination


class LinkSlots:
    """Limits the number of open links to destinations to ``most``.

    The destination that has been idle for longest yields its slot to the next one. While all are busy, the next one
    waits.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: dict[Destination, None] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, destination: Destination) -> None:
        """Wait for a slot for ``destination``; returns at once if it has one."""
        while destination not in self._holders and not self._free_one():
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            try:
                await slot
            except asyncio.CancelledError:
                self._wake_next()  # the slot may have been granted to the cancelled call
                raise
        self._holders[destination] = None

    def free(self, destination: Destination) -> None:
        """Give up the slot of ``destination``, whose link is closed."""
        if self._holders.pop(destination, self) is not self:
            self._wake_next()

    def offer(self, destination: Destination) -> None:
        """Let a waiting destination take the slot of an idle one."""
        if self._waiting and destination in self._holders:
            self._wake_next()

    def _free_one(self) -> bool:
        if len(self._holders) < self._most:
            return True
        idle = [each for each in self._holders if each.is_open and not each.in_flight]
        if not idle:
            return False
        first = min(idle, key=lambda each: each.used_at)
        del self._holders[first]
        first.release_link()
        return True

    def _wake_next(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
