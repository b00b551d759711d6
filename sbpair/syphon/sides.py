"""Has one of the two sides ended for the syphon? (P-50) The clock and the waiting for pairing/bond.py.

A side is faulted when ``$cbs`` or its credential refuses us, or its certificate is not to be trusted. A link
that is attached cures it. What one queue refuses is that queue's affair.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from sbpair.amqp.errors import UNAUTHORIZED_ACCESS
from sbpair.pairing.bond import Bond, PairFault, Role, SideChange, SideState

from .errors import SyphonError, SyphonFaulted, TokenRefused


class Sides:
    """The two sides of one run of a syphon; ``tell`` hears of each that is refused, or accepts again."""

    def __init__(self, tell: Callable[[SideChange], object]) -> None:
        self._bond = Bond()
        self._tell = tell
        self._stirred = asyncio.Event()

    def failed(self, role: Role, error: SyphonError) -> None:
        """A connection or a link to this side could not be had."""
        symbol = error.condition.symbol if error.condition is not None else None
        is_token = isinstance(error, TokenRefused) and symbol == UNAUTHORIZED_ACCESS
        if is_token or isinstance(error, SyphonFaulted):
            self._note(self._bond.refused(role, str(error), time.monotonic()))

    def accepted(self, role: Role) -> None:
        """A link to this side was attached."""
        if not self._bond.is_whole:
            self._note(self._bond.answered(role, time.monotonic()))

    async def wait_faulted(self) -> PairFault:
        """Wait until one side has been refused for five seconds (G-25)."""
        while True:
            self._stirred.clear()
            self._bond.handle_timer(time.monotonic())
            if self._bond.fault is not None:
                return self._bond.fault
            timer = self._bond.next_timer()
            try:
                async with asyncio.timeout(None if timer is None else max(timer - time.monotonic(), 0.0)):
                    await self._stirred.wait()
            except TimeoutError:
                pass

    def _note(self, changes: list[SideChange]) -> None:
        self._stirred.set()
        for change in changes:
            self._tell(change)


def is_refused(change: SideChange) -> bool:
    """Whether a side has just been refused, and not accepted again."""
    return change.after is SideState.FAULTED
