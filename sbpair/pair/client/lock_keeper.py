"""Keeps the locks of an entity's deliveries: renews those that end soon, many with one request.

few seconds are left --> asked --granted--> lasts for another span
                           |---denied-----> lost: it has ended
                           '---neither----> its owner asks again while it lasts
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Generic, Protocol, TypeVar

from .connection import NamespaceConnection
from .errors import ClientError
from .locks import LockClock, renew_locks, renewal_margin

logger = logging.getLogger("sbpair.client")

LOCKS_AT_ONCE = 200  # in one request
REQUESTS_AT_ONCE = 8  # far away a request takes seconds, and many locks may end in the next few


class LockedDelivery(Protocol):
    """A delivery whose lock is kept."""

    lock_ends: float  # seconds, monotonic

    @property
    def tag(self) -> bytes:
        """The token of its lock."""


L = TypeVar("L", bound=LockedDelivery)


class LockKeeper(Generic[L]):
    """Renews the locks of one entity's deliveries; one renewal at a time."""

    def __init__(
        self,
        path: str,
        clock: LockClock,
        local: Callable[[], float],
        renewed: Callable[[Sequence[L], Sequence[float | None]], None],
        failed: Callable[[], None] = lambda: None,
    ) -> None:
        """``local`` reads the clock that ``clock`` measures locks against.

        ``renewed`` is called with deliveries whose ``lock_ends`` is set, and the ends by the broker's clock: None for a
        lock that is lost. ``failed`` is called after a request without such an answer.
        """
        self._path, self._clock, self._local = path, clock, local
        self._renewed, self._failed = renewed, failed
        self._loop = asyncio.get_running_loop()
        self._renewing: asyncio.Task[None] | None = None

    def renew_due(
        self, connection: NamespaceConnection, locked: Iterable[L], doubtful: Container[L] = ()
    ) -> asyncio.Task[None] | None:
        """Start to renew the locks that end soon, and the doubtful ones; None if none is due, or others are renewed."""
        if self._renewing is not None and not self._renewing.done():
            return None
        now = self._loop.time()
        until = now + renewal_margin(self._clock.span)
        due = [each for each in locked if now < each.lock_ends < until or each in doubtful]
        if not due:
            return None
        self._renewing = asyncio.ensure_future(self._renew_all(connection, due))
        return self._renewing

    def stop(self) -> None:
        """Stop renewing; answers that are still to come are ignored."""
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None

    async def _renew_all(self, connection: NamespaceConnection, due: Sequence[L]) -> None:
        parts = [due[first : first + LOCKS_AT_ONCE] for first in range(0, len(due), LOCKS_AT_ONCE)]
        for first in range(0, len(parts), REQUESTS_AT_ONCE):
            async with asyncio.TaskGroup() as requests:
                for part in parts[first : first + REQUESTS_AT_ONCE]:
                    requests.create_task(self._renew(connection, part, self._renewing))

    async def _renew(
        self, connection: NamespaceConnection, part: Sequence[L], renewing: asyncio.Task[None] | None
    ) -> None:
        try:
            ends = await renew_locks(connection, self._path, [each.tag for each in part])
        except ClientError as error:
            logger.info("locks of %s were not renewed: %s", self._path, error)
            if renewing is self._renewing:
                self._failed()
            return
        if renewing is not self._renewing:
            return  # stopped: the requests of a group are cancelled a turn after the group
        now, local = self._loop.time(), self._local()
        for each, end in zip(part, ends, strict=True):
            each.lock_ends = now if end is None else now + self._clock.renewed(end, local)
        self._renewed(part, ends)
