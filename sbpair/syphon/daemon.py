"""The syphon: bring the parked messages home, for ever or until the backlogs are empty (P-40 .. P-44).

    CONNECTING --> RUNNING --(a side lost)--> CONNECTING       run(): until it is told to stop
        |             |
        |             '--(told to stop)--> DRAINING --> IDLE
        '--(refused)--> FAULTED --> CONNECTING                 drain(): until all backlogs were found empty

Several may run at once, in several processes, on the same backlogs: one of them locks each message (P-44).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from typing import TYPE_CHECKING, Self, TypeVar

from sbpair.pairing.bond import Role, SideChange
from sbpair.pairing.names import backlog_queue_name, label_of_backlogs

from . import events
from .connection import NamespaceConnection
from .connection_string import Namespace, at_host, parse
from .counters import SyphonCounters, SyphonState, SyphonStatus
from .credential import token_source
from .dial import connect
from .errors import ConnectionLost, SyphonError, SyphonFaulted
from .forward import Poison
from .options import SyphonOptions
from .relay import Relay
from .sides import Sides, is_refused
from .survey import Ages, Beyond

if TYPE_CHECKING:
    from .credential import AnyCredential

T = TypeVar("T")

logger = logging.getLogger("sbpair.syphon")

FIRST_RETRY = 0.5  # seconds between the first two attempts to reach a side
_LEVELS: dict[type[events.SyphonEvent], int] = {
    events.MessagesForwarded: logging.DEBUG  # one for each batch
}
SHORTEST_RELAY = 1.0  # seconds: one that was lost sooner is not followed by another at once


class Syphon:
    """Moves parked messages from the backlog queues on the secondary to their entities on the primary.

    At least once: a message is removed from its backlog only after its destination has accepted it. Use one
    object for one :meth:`run` or :meth:`drain` at a time, on one event loop.
    """

    def __init__(
        self,
        primary_namespace: str,
        secondary_namespace: str,
        credential: AnyCredential,
        *,
        secondary_credential: AnyCredential | None = None,
        options: SyphonOptions | None = None,
        use_tls: bool = True,
    ) -> None:
        """A syphon between two namespaces, each named by its host, ``contoso.servicebus.windows.net``.

        ``credential``: what the SDK takes, blocking or of asyncio; it needs Send on the primary and Listen on
        the secondary. ``secondary_credential`` is the same unless given. ``use_tls=False`` is for a broker on
        the loopback. Raises ConnectionStringError, TypeError, ValueError when the two are one.
        """
        own = credential if secondary_credential is None else secondary_credential
        self._set_up(
            at_host(primary_namespace, token_source(credential), uses_tls=use_tls),
            at_host(secondary_namespace, token_source(own), uses_tls=use_tls),
            options or SyphonOptions(),
        )

    def _set_up(self, primary: Namespace, secondary: Namespace, options: SyphonOptions) -> None:
        primary = _dialled(primary, options.primary_endpoint_address)
        secondary = _dialled(secondary, options.secondary_endpoint_address)
        self.options = options
        if (primary.name, primary.netloc) == (secondary.name, secondary.netloc):
            raise ValueError(f"primary and secondary are the same namespace: {primary.netloc}")
        self._primary = primary
        self._secondary = secondary
        self.status = SyphonStatus(SyphonState.IDLE)
        self.counters = SyphonCounters()
        label = label_of_backlogs(primary.netloc, secondary.netloc, self.options.primary_namespace_name)
        count = self.options.backlog_queue_count
        only = self.options.only_backlogs
        numbers = range(count) if only is None else dict.fromkeys(only)
        self.backlogs = tuple(backlog_queue_name(label, number) for number in numbers)
        self._callbacks: list[Callable[[events.SyphonEvent], None]] = []
        self._relay: Relay | None = None
        self._sides: Sides | None = None
        self._beyond = Beyond(label, count, self)
        self._looker: NamespaceConnection | None = None  # while no relay has a connection to lend
        self._fault: str | None = None
        self._is_clock_told = False

    @classmethod
    def from_connection_strings(
        cls, primary: str, secondary: str, *, options: SyphonOptions | None = None
    ) -> Self:
        """A syphon between two namespaces. Raises ConnectionStringError, ValueError when they are one."""
        syphon = cls.__new__(cls)
        syphon._set_up(parse(primary), parse(secondary), options or SyphonOptions())
        return syphon

    def on_event(self, callback: Callable[[events.SyphonEvent], None]) -> Callable[[], None]:
        """Call ``callback`` with each event from now on; returns what takes it off again."""
        self._callbacks.append(callback)
        return lambda: self._callbacks.remove(callback) if callback in self._callbacks else None

    async def run(self, shutdown: asyncio.Event) -> None:
        """Move messages until ``shutdown`` is set; then finish what is in flight, release the rest (G-27).

        Raises SyphonFaulted when one side has refused us for five seconds (P-50); nothing is settled then.
        """
        sides = self._sides = Sides(self._side_changed)
        running = asyncio.ensure_future(self._run(shutdown))
        faulted = asyncio.ensure_future(sides.wait_faulted())
        watching = asyncio.ensure_future(self._watch_ages())
        try:
            await asyncio.wait([running, faulted], return_when=asyncio.FIRST_COMPLETED)
            if faulted.done():
                self.abort()
        finally:
            for each in (running, faulted, watching):
                each.cancel()
            await asyncio.gather(running, faulted, watching, return_exceptions=True)
        if not running.cancelled():
            running.result()
        elif faulted.done() and not faulted.cancelled():
            fault = faulted.result()
            self._become(SyphonState.FAULTED, str(fault))
            raise SyphonFaulted(str(fault))

    def abort(self) -> None:
        """Drop both connections now: nothing more is settled, and what was in our hands comes again."""
        if self._relay is not None:
            self._relay.abort()

    async def _run(self, shutdown: asyncio.Event) -> None:
        try:
            while not shutdown.is_set():
                relay = await _unless(shutdown, self._connect(gives_up=False))
                if relay is not None:
                    await self._pump_until(relay, shutdown)
        finally:
            self._become(SyphonState.IDLE)

    async def drain(self) -> SyphonCounters:
        """Move messages until each of our backlogs was found empty, with nothing in our hands; the counters.

        While a side, or a destination, is out of reach it waits: bound it with ``asyncio.timeout``. Raises
        SyphonFaulted when a side refuses us for a reason that waiting does not cure.
        """
        try:
            while True:
                relay = await self._connect(gives_up=True)
                if await self._drain_once(relay):
                    return self.counters.snapshot()
        finally:
            self._become(SyphonState.IDLE)

    # One relay after another.

    async def _connect(self, *, gives_up: bool) -> Relay:
        """Reach both sides, the primary first: no credit is granted on a backlog while it is down."""
        from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

        def before_sleep(state: RetryCallState) -> None:
            error = state.outcome.exception() if state.outcome else None
            self._lost(str(error), state.upcoming_sleep, is_fault=isinstance(error, SyphonFaulted))

        self._become(SyphonState.CONNECTING)
        kinds = ConnectionLost if gives_up else (ConnectionLost, SyphonFaulted)
        most = self.options.retry_backoff_max.total_seconds()
        retrying = AsyncRetrying(
            retry=retry_if_exception_type(kinds),
            wait=wait_random_exponential(multiplier=FIRST_RETRY, max=most),
            before_sleep=before_sleep,
            reraise=True,
        )
        try:
            return await retrying(self._connect_once)
        except SyphonFaulted as error:
            self._become(SyphonState.FAULTED, str(error))
            raise

    async def _connect_once(self) -> Relay:
        primary = await self._reach(Role.PRIMARY, self._primary)
        try:
            secondary = await self._reach(Role.SECONDARY, self._secondary)
        except BaseException:
            primary.abort()
            raise
        self._relay = Relay(
            primary,
            secondary,
            self.backlogs,
            self.options,
            self.counters,
            self,
            lambda: self._reach(Role.PRIMARY, self._primary),
        )
        return self._relay

    async def _reach(self, role: Role, namespace: Namespace) -> NamespaceConnection:
        timeout = self.options.operation_timeout.total_seconds()
        try:
            return await connect(namespace, route=self.options.route, timeout=timeout)
        except SyphonFaulted as error:
            self.side_failed(role, error)
            raise

    async def _pump_until(self, relay: Relay, shutdown: asyncio.Event) -> None:
        self._connected(SyphonState.RUNNING)
        began = time.monotonic()
        looking = asyncio.ensure_future(self._beyond.keep_looking(relay.secondary))
        try:
            reason = await _unless(shutdown, relay.wait_broken())
            if reason is None:
                self._become(SyphonState.DRAINING)
        finally:
            looking.cancel()
            await relay.stop()
            await asyncio.gather(looking, return_exceptions=True)
        if reason is not None:
            pause = max(0.0, SHORTEST_RELAY - (time.monotonic() - began))
            self._lost(reason, pause, is_fault=False)
            await _unless(shutdown, asyncio.sleep(pause))

    async def _drain_once(self, relay: Relay) -> bool:
        """True when the backlogs were found empty, False when a side was lost before that."""
        self._connected(SyphonState.DRAINING)
        self._fault = None
        drained = asyncio.ensure_future(self._drain_and_look_beyond(relay))
        broken = asyncio.ensure_future(relay.wait_broken())
        try:
            await asyncio.wait([drained, broken], return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()
            broken.cancel()
            await relay.stop()
        if self._fault is not None:
            self._become(SyphonState.FAULTED, self._fault)
            raise SyphonFaulted(self._fault)
        if drained.done() and not drained.cancelled():
            if self.options.only_backlogs is None:  # said of all, or not at all: an audit builds on it
                self._emit(events.BacklogsDrained(time.time()))
            return True
        self._lost(broken.result(), SHORTEST_RELAY, is_fault=False)
        await asyncio.sleep(SHORTEST_RELAY)
        return False

    async def _drain_and_look_beyond(self, relay: Relay) -> None:
        await relay.drain()
        if self.options.only_backlogs is None:
            await self._beyond.look(relay.secondary)

    # What is looked at beside the pumps.

    async def _watch_ages(self) -> None:
        if self.options.overdue_after is None:
            return
        try:
            await Ages(self.options.overdue_after, self).keep_looking(self._maybe_waiting, self._lent)
        finally:
            if self._looker is not None:
                self._looker.abort()

    def _maybe_waiting(self) -> tuple[str, ...]:
        """The backlogs that may hold messages: all, but for those whose long poll waits for the next one."""
        relay = self._relay
        return self.backlogs if relay is None or not relay.is_whole else relay.busy_backlogs()

    async def _lent(self) -> NamespaceConnection:
        """A connection to the secondary: the relay's, or one of our own while the primary is away."""
        if self._relay is not None and self._relay.is_whole:
            return self._relay.secondary
        if self._looker is None or not self._looker.is_open:
            self._looker = await connect(self._secondary, route=self.options.route)
        return self._looker

    def backlog_stranded(self, backlog: str, holds_messages: bool) -> None:
        self._emit(events.BacklogStranded(time.time(), backlog, holds_messages))

    def backlog_overdue(self, backlog: str, age: float, threshold: float) -> None:
        self._emit(events.BacklogOverdue(time.time(), backlog, age, threshold))

    def backlog_caught_up(self, backlog: str) -> None:
        self._emit(events.BacklogCaughtUp(time.time(), backlog))

    # What the relay reports.

    def message_set_aside(self, backlog: str, path: str | None, poison: Poison, message_id: str) -> None:
        said = (poison.reason, poison.description, message_id)
        self._emit(events.MessageSetAside(time.time(), backlog, path, *said))

    def messages_forwarded(self, backlog: str, path: str, message_ids: tuple[str, ...]) -> None:
        self._emit(events.MessagesForwarded(time.time(), backlog, path, message_ids))

    def destination_held(self, path: str, reason: str, retry_in: float) -> None:
        self._emit(events.DestinationHeld(time.time(), path, reason, retry_in))

    def destination_resumed(self, path: str) -> None:
        self._emit(events.DestinationResumed(time.time(), path))

    def side_failed(self, role: Role, error: SyphonError) -> None:
        if self._sides is not None:
            self._sides.failed(role, error)

    def side_accepted(self, role: Role) -> None:
        if self._sides is not None:
            self._sides.accepted(role)

    def _side_changed(self, change: SideChange) -> None:
        kind = events.SideRefused if is_refused(change) else events.SideAccepted
        self._emit(kind(time.time(), change.role.value, change.cause))

    def backlog_attached(self, backlog: str) -> None:
        self.side_accepted(Role.SECONDARY)
        if self.status.state is SyphonState.FAULTED:
            self._become(SyphonState.RUNNING)  # the refusal has been cured

    def backlog_missing(self, backlog: str) -> None:
        self._emit(events.BacklogMissing(time.time(), backlog))

    def backlog_detached(self, backlog: str, reason: str, is_refusal: bool) -> None:
        self._emit(events.BacklogDetached(time.time(), backlog, reason))
        if is_refusal:
            self._fault = reason
            drains = self.status.state is SyphonState.DRAINING
            self._become(SyphonState.FAULTED, reason)
            if drains and self._relay is not None:
                self._relay.abort()

    def clock_differs(self, ahead: float) -> None:
        if not self._is_clock_told:
            self._is_clock_told = True
            self._emit(events.ClockDiffers(time.time(), ahead))

    def answer_overdue(self, what: str) -> None:
        if self._relay is not None:
            logger.warning("%s; connecting anew", what)
            self._relay.abort()

    # State and events.

    def _connected(self, state: SyphonState) -> None:
        self._become(state)
        self._emit(events.SyphonConnected(time.time()))

    def _lost(self, reason: str, retry_in: float, *, is_fault: bool) -> None:
        self._become(SyphonState.FAULTED if is_fault else SyphonState.CONNECTING, reason)
        self._emit(events.SyphonDisconnected(time.time(), reason, retry_in))

    def _become(self, state: SyphonState, reason: str | None = None) -> None:
        self.status = SyphonStatus(state, reason)

    def _emit(self, event: events.SyphonEvent) -> None:
        level = _LEVELS.get(type(event), logging.INFO)
        if logger.isEnabledFor(level):
            told = {name: value for name, value in asdict(event).items() if name != "at"}
            logger.log(level, "%s", event, extra={"event": type(event).__name__, **told})
        for callback in list(self._callbacks):
            try:
                callback(event)
            except Exception:  # a listener's fault must not stop the pumps
                logger.exception("an event callback of the syphon failed on %s", type(event).__name__)


def _dialled(namespace: Namespace, address: str | None) -> Namespace:
    return namespace if address is None else namespace.dialled_at(address)


async def _unless(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """The result of ``work``, or None when ``stop`` is set first; the work is then cancelled."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)
