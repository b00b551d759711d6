"""The processor: both sides of one entity, and the handlers of its messages, in one event loop.

    ProcessorSide (primary)   --> QueueLink --.
                                               Dispatcher --> Invoker --> handler
    ProcessorSide (secondary) --> QueueLink --'

The asyncio and the blocking processor drive this one; only how a handler is called differs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping

from azure.servicebus.exceptions import SessionLockLostError

from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.ground.side import Side

from . import events
from .context import Context
from .deduplication import Deduplication
from .delivery import Delivery, message_id_of
from .dispatcher import Dispatcher, Invoker
from .message import ReceivedMessage
from .options import ProcessorOptions
from .queue_link import QueueLink
from .session_link import SessionLink
from .sessions import Sessions, SideTurns
from .side import ProcessorSide
from .status import ProcessorCounters

logger = logging.getLogger("sbpair.processor")

TICK = 1.0  # seconds between checks while anything is in flight
MIN_TICK_SECONDS = 0.05  # seconds until the next check, at least
SIDES: dict[str, tuple[Side, ...]] = {
    "auto": (Side.PRIMARY, Side.SECONDARY),
    "never": (Side.PRIMARY,),
    "only": (Side.SECONDARY,),
}


class Processor:
    """Receives from one entity, on the sides named in the options, until :meth:`stop`. Used once, in one loop."""

    def __init__(
        self,
        path: str,
        addresses: Mapping[Side, NamespaceAccess],
        invoker: Invoker,
        options: ProcessorOptions,
        *,
        counters: ProcessorCounters,
        emit: Callable[[events.ProcessorEvent], None],
        reports_messages: Callable[[], bool],
    ) -> None:
        self._path = path
        self._options = options
        self._emit = emit
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        span = options.deduplicate
        self.dispatcher = Dispatcher(
            invoker,
            calls=options.calls,
            autosettle=options.autosettle,
            memory=None if span is None else Deduplication(span.total_seconds()),
            counters=counters,
            failed=self._failed,
            duplicate=self._duplicate,
            changed=self._changed,
        )
        context = Context(
            path,
            self.dispatcher,
            counters,
            emit,
            options.max_lock_renewal.total_seconds(),
            options.session_idle_timeout.total_seconds(),
            reports_messages,
            self._changed,
        )
        turns, most = SideTurns(), options.max_concurrent_sessions
        self.links: dict[Side, QueueLink | Sessions] = {
            role: QueueLink(context, role) if most is None else Sessions(context, role, most, turns)
            for role in SIDES[options.secondary]
        }
        self._sides = [
            ProcessorSide(role, addresses[role], link, context, options) for role, link in self.links.items()
        ]
        self._running: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to receive."""
        self._running = [
            self._loop.create_task(side.run(), name=f"sbpair-{side.role}") for side in self._sides
        ]

    async def stop(self) -> None:
        """Stop receiving, let handlers finish within ``stop_timeout``, and give back the rest."""
        links = self.links.values()
        await asyncio.gather(*(link.stop_receiving() for link in links))
        self.dispatcher.give_back_waiting()
        try:
            async with asyncio.timeout(self._options.stop_timeout.total_seconds()):
                await self.dispatcher.is_idle.wait()
        except TimeoutError:
            self.dispatcher.cancel_running(Exception("the processor is stopping"))
        await asyncio.gather(*(link.close() for link in links))
        await asyncio.gather(*(side.close() for side in self._sides))
        await self.abort()

    async def abort(self) -> None:
        """Drop the connections at once, without settling anything more."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        for side in self._sides:
            side.abort()
        if self._timer is not None:
            self._timer.cancel()

    def find(self, message: ReceivedMessage) -> Delivery | None:
        """Return the delivery of a message if it can still be settled, or None."""
        token = message.lock_token
        link = self.links.get(message.side)
        return None if token is None or link is None else link.find(token.bytes_le)

    def session_of(self, message: ReceivedMessage) -> SessionLink:
        """Return the session of a message. Raises SessionLockLostError when it is no longer held."""
        sessions = self.links.get(message.side)
        found = sessions.session(message.session_id or "") if isinstance(sessions, Sessions) else None
        if found is None:
            raise SessionLockLostError(message="The message has no session, or its lock is lost.")
        return found

    # Events of the dispatcher

    def _failed(self, delivery: Delivery, error: Exception) -> None:
        side, name = delivery.message.side.value, message_id_of(delivery.message)
        logger.debug("a handler of %s failed", self._path, exc_info=error)
        self._emit(
            events.HandlerFailed(time.time(), self._path, side, name, f"{type(error).__name__}: {error}")
        )

    def _duplicate(self, delivery: Delivery) -> None:
        side, name = delivery.message.side.value, message_id_of(delivery.message)
        self._emit(events.DuplicatesCompleted(time.time(), self._path, side, (name,)))

    # Credit and timers, once a turn of the loop

    def _changed(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_due = False
        for link in self.links.values():
            link.top_up()
        self._arm()

    def _arm(self) -> None:
        """Check within a TICK while anything is unsettled, otherwise when the watchdogs are due."""
        soon, timer = self._loop.time() + TICK, self._timer
        if timer is not None and timer.when() <= soon:
            return
        links = self.links.values()
        if any(link.unsettled for link in links):
            when = soon
        else:
            when = min((at for link in links if (at := link.next_timer()) is not None), default=0.0)
        if when:
            if timer is not None:
                timer.cancel()
            self._timer = self._loop.call_at(max(when, soon - TICK + MIN_TICK_SECONDS), self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = self._loop.time()
        self.dispatcher.handle_timer(now)
        for link in self.links.values():
            link.handle_timer(now)
        self._turn()
