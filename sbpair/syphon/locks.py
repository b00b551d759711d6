"""Renewal of the locks of a backlog's unsettled deliveries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator

from sbpair.client.connection import NamespaceConnection
from sbpair.client.errors import ClientError
from sbpair.client.locks import LockClock, renew_locks

from .in_flight import InFlightMessage
from .overflow import LockedDelivery

logger = logging.getLogger("sbpair.syphon")

RENEWED_AT = 1 / 3  # of its span is left when a lock is renewed
LOCKS_AT_ONCE = 200  # in one renewal request


class LockRenewal:
    """Renews the locks of the unsettled deliveries of one backlog (F-62).

    A message whose lock may have ended is *doubtful*: it is sent only after its lock was renewed (F-66).
    """

    def __init__(
        self,
        backlog: str,
        deliveries: Callable[[], Iterator[InFlightMessage | LockedDelivery]],
        release: Callable[[Iterable[InFlightMessage]], None],
    ) -> None:
        """``deliveries`` lists those that are locked; ``release`` returns messages to the backlog."""
        self.clock = LockClock()
        self.locked_since = 0.0  # no lock of the current link is older; wall clock
        self.doubtful: set[InFlightMessage] = set()
        self._backlog = backlog
        self._deliveries = deliveries
        self._release = release
        self._loop = asyncio.get_running_loop()
        self._connection: NamespaceConnection | None = None
        self._renewing: asyncio.Task[None] | None = None

    def start(self, connection: NamespaceConnection) -> None:
        """Renew over ``connection``, whose link to the backlog was just attached."""
        self._connection = connection
        self.locked_since = time.time()

    def stop(self) -> None:
        """Stop renewing: the link is gone, and its locks end."""
        self.doubtful.clear()
        self._connection = None
        if self._renewing is not None:
            self._renewing.cancel()

    def doubt(self, message: InFlightMessage) -> None:
        """Renew the lock of ``message`` now, then post it again; without a lock it is released."""
        self.doubtful.add(message)
        self._loop.call_soon(self.renew_due)

    def renew_due(self) -> None:
        """Start renewing the locks that end soon, and the doubtful ones, unless a renewal is in progress."""
        if self._connection is None or (self._renewing is not None and not self._renewing.done()):
            return
        now = self._loop.time()
        due = [
            each
            for each in self._deliveries()
            if 0 < each.lock_ends - now < each.lock_span * RENEWED_AT or each in self.doubtful
        ]
        if due:
            self._renewing = asyncio.ensure_future(self._renew_all(self._connection, due))
            self._renewing.add_done_callback(self._renewal_ended)

    def _renewal_ended(self, renewing: asyncio.Task[None]) -> None:
        if self.doubtful:  # added meanwhile; locks that merely end soon can wait for the next tick
            self.renew_due()

    async def _renew_all(
        self, connection: NamespaceConnection, due: list[InFlightMessage | LockedDelivery]
    ) -> None:
        for first in range(0, len(due), LOCKS_AT_ONCE):
            await self._renew(connection, due[first : first + LOCKS_AT_ONCE])

    async def _renew(
        self, connection: NamespaceConnection, due: list[InFlightMessage | LockedDelivery]
    ) -> None:
        """Renew some locks; post the doubtful messages that still have one, and release the others."""
        try:
            ends = await renew_locks(connection, self._backlog, [each.tag for each in due])
        except (
            ClientError
        ) as error:  # doubtful messages are released, and no lock received from now on is older
            logger.info("%s", error)
            if self._connection is None:
                return  # the link is gone too, and its messages are delivered again
            self.clock.forget()
            self.locked_since = time.time()
            self._release(list(self.doubtful))
            return
        now, wall = self._loop.time(), time.time()
        for each, end in zip(due, ends, strict=True):
            each.lock_ends = now if end is None else now + self.clock.renewed(end, wall)
        doubtful = [each for each in due if isinstance(each, InFlightMessage) and each in self.doubtful]
        self._release([message for message in doubtful if message.lock_ends <= now])
        for message in doubtful:
            if message in self.doubtful:
                self.doubtful.remove(message)
                message.posted_at = now
                message.destination.post(message)
