"""The link of a backlog that delivers nothing although messages wait: noticed, and replaced."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.types import Symbol
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError
from sbpair.pair.client.link import Receiver
from sbpair.pair.client.watchdog import Watchdog

from ..watch.peeking import has_more

logger = logging.getLogger("sbpair.syphon")

# Seconds: a peek is billed, so that a backlog that is idle for long is peeked as often as its long poll is renewed.
LONGEST_IDLE = 16 * 60.0
DETACHED_WITHIN = 5.0  # seconds for the peer to detach a silent link
SILENT = Condition(Symbol("sbpair:silent"), "messages wait, and its link delivers none: another is opened")


class SilenceWatch:
    """Peeks at a backlog without arrivals, as a processor does; times are monotonic seconds."""

    def __init__(
        self, backlog: str, changed: Callable[[], None], unresponsive: Callable[[str], None]
    ) -> None:
        """``changed`` is called when :meth:`next_check` returns another time.

        ``unresponsive`` is called with the reason when the peer does not end a silent link.
        """
        self.condition: Condition | None = None
        """Why the link ends, if it was silent."""
        self._unresponsive = unresponsive
        self._backlog = backlog
        self._changed = changed
        self._loop = asyncio.get_running_loop()
        self._watchdog = Watchdog(self._loop.time(), LONGEST_IDLE)
        self._connection: NamespaceConnection | None = None
        self._asking: asyncio.Task[None] | None = None

    def start(self, connection: NamespaceConnection) -> None:
        """Watch a link that was just attached over ``connection``."""
        self._connection, self.condition = connection, None
        self._watchdog.attached(self._loop.time())

    def stop(self) -> None:
        """Stop: the link is gone."""
        self._connection = None
        if self._asking is not None:
            self._asking.cancel()

    def next_check(self) -> float:
        """Return when to call :meth:`watch` while nothing is unsettled."""
        return self._watchdog.next_check()

    def watch(self, receiver: Receiver, now: float, heard_at: float) -> None:
        """Peek if that is due, or replace the link; its last message came at ``heard_at``, and all are settled."""
        if heard_at > self._watchdog.heard_at:
            self._watchdog.heard(heard_at)
        if not receiver.credit or receiver.detached.done():
            return
        if self._watchdog.should_replace(now):
            self.condition = SILENT
            receiver.let_go()
            self._loop.call_later(DETACHED_WITHIN, self._check_detached, receiver)
            return
        is_asking = self._asking is not None and not self._asking.done()
        if not is_asking and self._connection is not None and self._watchdog.is_due(now):
            self._asking = asyncio.ensure_future(self._ask(self._connection))

    def _check_detached(self, receiver: Receiver) -> None:
        if not receiver.detached.done():
            self._unresponsive(f"the link to {self._backlog} is silent and does not end")

    async def _ask(self, connection: NamespaceConnection) -> None:
        try:
            waits = await has_more(connection, self._backlog)
        except ClientError as error:
            logger.info("whether messages wait in %s cannot be seen: %s", self._backlog, error)
            return
        self._watchdog.peeked(self._loop.time(), waits=waits)
        self._changed()
