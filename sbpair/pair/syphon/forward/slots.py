"""Slots: a limit on the links to destinations that are open at a time."""

from __future__ import annotations

import asyncio
from collections import deque

from .delivery import Destination


class Slot:
    """The slot of one link."""

    __slots__ = ()


class LinkSlots:
    """Limits the number of open links to destinations to ``most``.

    A slot belongs to a link, not to its destination: the late end of an old link does not free the slot of its
    successor.

    The destination that has been idle for longest yields its slot to the next one. While all are busy, the next one
    waits.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._holders: dict[Destination, Slot] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self, destination: Destination) -> Slot:
        """Wait for a slot for the next link of ``destination``, or take over the slot of its previous link."""
        while destination not in self._holders and not self._free_one():
            slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(slot)
            try:
                await slot
            except asyncio.CancelledError:
                self._wake_next()  # the slot may have been granted to the cancelled call
                raise
        slot_taken = self._holders[destination] = Slot()
        if self._waiting and self._idle():  # the one that was offered, where an older one was taken
            self._wake_next()
        return slot_taken

    def free(self, destination: Destination, slot: Slot) -> None:
        """Give up the slot of a link of ``destination`` that is closed, unless another link has taken it over."""
        if self._holders.get(destination) is slot:
            del self._holders[destination]
            self._wake_next()

    def offer(self, destination: Destination) -> None:
        """Let a waiting destination take the slot of an idle one."""
        if self._waiting and destination in self._holders:
            self._wake_next()

    def _free_one(self) -> bool:
        if len(self._holders) < self._most:
            return True
        idle = self._idle()
        if not idle:
            return False
        first = min(idle, key=lambda each: each.used_at)
        del self._holders[first]
        first.release_link()
        return True

    def _idle(self) -> list[Destination]:
        return [each for each in self._holders if each.is_open and not each.in_flight]

    def _wake_next(self) -> None:
        while self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                return
