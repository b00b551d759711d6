"""The syphon: forwards parked messages, continuously or until the backlogs are empty.

    CONNECTING --> RUNNING --(a side lost)--> CONNECTING       run(): until shutdown is set
        |             |
        |             '--(shutdown)--> DRAINING --> IDLE
        |                                                      drain(): until all backlogs are empty
        '-- REFUSED instead of any state but IDLE, while a side refuses the syphon

With ``land="either"`` there is one more state beside CONNECTING: LANDING, once the primary has been out of reach for
``land_after``. Messages then go to the secondary, while the primary is retried.

Nothing is received before both sides have accepted a claim; for landing, the secondary's is enough. A side that refuses
is retried with back-off, and nothing is settled meanwhile. Several syphons may work on the same backlogs at once,
because each message is locked by one of them.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

from sbpair.pair.auth.connection_string import NamespaceAccess, at_host, parse
from sbpair.pair.auth.credential import token_source
from sbpair.pair.auth.route import Route
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import (
    ClientError,
    ConnectionLostError,
    NamespaceUnusableError,
    OutOfReachError,
    TokenRefusedError,
)
from sbpair.pair.envelope.names import backlog_queue_name, label_of_backlogs, ordered_backlog_name
from sbpair.pair.ground.emitter import Emitter
from sbpair.pair.ground.shortage import came_of_shortage
from sbpair.pair.ground.side import Side

from . import events
from .events import LINES
from .forward.forwarding import ForwardingSession
from .forward.pace import Paces
from .land.landing import Landing
from .options import SyphonOptions
from .order.order_check import OrderCheck
from .status import BacklogLinks, SideRefusals, SyphonCounters, SyphonState, SyphonStatus
from .watch.claims import NAMESPACE, KeyClaims, OwnPaths, as_fault, refusal_of
from .watch.monitors import BacklogMonitors
from .watch.peeking import BacklogDepth, StrandedBacklogs

if TYPE_CHECKING:
    from sbpair.pair.auth.credential import AnyCredential


T = TypeVar("T")
Connections = tuple[NamespaceConnection, NamespaceConnection]
"""To the primary and the secondary."""

logger = logging.getLogger("sbpair.syphon")

FIRST_ATTEMPT = 5.0  # seconds that the first attempt to connect to the primary may take before messages land
LANDING_CHECK_INTERVAL = 1.0  # seconds between checks of whether messages may land
ASKED_EVERY = 2.0  # seconds between two attempts to reach a side that refuses connections, at most
CONNECT_WITHIN = 15.0  # seconds for an attempt: a peer that is silent for longer is asked anew
MIN_SESSION_SECONDS = 1.0  # seconds between the beginnings of two sessions, at least


class Syphon:
    """Forwards parked messages from the backlog queues on the secondary to their entities on the primary.

    At least once: a message is completed on its backlog only after its destination has accepted it. Call one of
    :meth:`run` and :meth:`drain` at a time, on one event loop.
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
        """Create a syphon between two namespaces, each named by its host, ``contoso.servicebus.windows.net``.

        ``credential`` is any credential that the SDK accepts, blocking or asyncio. It needs the Send right on the
        primary and, unless ``secondary_credential`` is given, Listen on the secondary. ``use_tls=False`` is for a
        broker on the loopback.

        Raises ConnectionStringError for an invalid host, TypeError for an unknown kind of credential, and ValueError
        when both are the same namespace.
        """
        own = credential if secondary_credential is None else secondary_credential
        self._set_up(
            at_host(primary_namespace, token_source(credential), uses_tls=use_tls),
            at_host(secondary_namespace, token_source(own), uses_tls=use_tls),
            options or SyphonOptions(),
        )

    def _set_up(self, primary: NamespaceAccess, secondary: NamespaceAccess, options: SyphonOptions) -> None:
        if not isinstance(options, SyphonOptions):
            raise TypeError(f"options must be SyphonOptions, not {type(options).__name__}")
        primary = _reach(primary, options.route, options.primary_endpoint_address)
        secondary = _reach(secondary, options.route, options.secondary_endpoint_address)
        self.options = options
        if (primary.name, primary.netloc) == (secondary.name, secondary.netloc):
            raise ValueError(f"primary and secondary are the same namespace: {primary.netloc}")
        self._primary = primary
        self._secondary = secondary
        self._state = SyphonState.IDLE
        self._reason: str | None = None
        self.counters = SyphonCounters()
        label = label_of_backlogs(primary.netloc, secondary.netloc, self.options.primary_namespace_name)
        count = self.options.backlog_queue_count
        only = self.options.only_backlogs
        numbers = range(count) if only is None else dict.fromkeys(only)
        self._plain = tuple(backlog_queue_name(label, number) for number in numbers)
        is_ordered = self.options.ordering == "session"
        self._ordered = tuple(ordered_backlog_name(label, number) for number in numbers if is_ordered)
        self.backlogs = self._plain + self._ordered
        self._order_check = OrderCheck()
        self._events = Emitter(logger, LINES)
        self._emit = self._events.emit
        self._session: ForwardingSession | None = None
        self._begun: ForwardingSession | None = None  # and nobody has taken it over yet
        after = self.options.land_after.total_seconds()
        self._paces = Paces(options.max_rate), Paces(options.max_rate)  # of the primary and of the secondary
        self._landing = Landing(after) if self.options.land == "either" else None
        self._connecting: asyncio.Task[Connections] | None = None  # to both sides, while messages land
        self._has_failed = False  # whether the primary has failed since that attempt began
        self._sides = SideRefusals(self._emit)
        self._own = OwnPaths()
        self._claims = KeyClaims(self._own, options.allowed_destinations, self.backlogs, self._open_primary)
        self._links = BacklogLinks(self._emit, self.backlogs)
        self._stranded = StrandedBacklogs(label, count, self._emit)
        self._monitors = BacklogMonitors(self.backlogs, options, self.counters, self._emit)
        self._monitor_connection: NamespaceConnection | None = None  # while no session has one to lend
        self._borrowing = asyncio.Lock()
        self._is_clock_reported = False
        self._pauses = Pauses()
        self._gives_up = False  # when a side refuses
        self._shutdown = asyncio.Event()
        self._running: asyncio.Future[None] | None = None
        self._reconnected_at = -math.inf

    @classmethod
    def from_connection_strings(
        cls,
        primary: str | Callable[[], str],
        secondary: str | Callable[[], str],
        *,
        options: SyphonOptions | None = None,
    ) -> Self:
        """Create a syphon from two connection strings, or callables that return one.

        A callable is called for each token, so that a rotated key is used. Raises ConnectionStringError for an
        invalid string, and ValueError when both name the same namespace.
        """
        return cls.between(parse(primary), parse(secondary), options=options)

    @classmethod
    def between(
        cls, primary: NamespaceAccess, secondary: NamespaceAccess, *, options: SyphonOptions | None = None
    ) -> Self:
        """Create a syphon between two namespaces, each with its own credential and route.

        A route or an address in ``options`` takes the place of theirs. Raises ValueError when both are the same.
        """
        syphon = cls.__new__(cls)
        syphon._set_up(primary, secondary, options or SyphonOptions())
        return syphon

    def on_event(self, callback: Callable[[events.SyphonEvent], None]) -> Callable[[], None]:
        """Call ``callback`` with each event; return a function that unsubscribes it."""
        return self._events.subscribe(callback)

    @property
    def namespaces(self) -> tuple[NamespaceAccess, NamespaceAccess]:
        """The primary and the secondary, as the syphon reaches them."""
        return self._primary, self._secondary

    @property
    def status(self) -> SyphonStatus:
        """The state: REFUSED while a side refuses the syphon, RUNNING while every existing backlog is attached."""
        refusal = None if self._state is SyphonState.IDLE else self._sides.reason
        if refusal is not None:
            return SyphonStatus(SyphonState.REFUSED, refusal)
        is_connected = self._state in (SyphonState.RUNNING, SyphonState.LANDING)
        return (is_connected and self._links.status) or SyphonStatus(self._state, self._reason)

    @property
    def refusals(self) -> dict[str, str]:
        """The cause for each side that refuses the syphon."""
        return {role.value: each.cause for role, each in self._sides.current.items()}

    @property
    def missing_backlogs(self) -> set[str]:
        """The backlog queues that did not exist at the last attempt to attach; a copy."""
        return set(self._links.missing)

    @property
    def levels(self) -> dict[str, BacklogDepth]:
        """The depth of each backlog and the age of its oldest message, where known; see ``measure_every``."""
        depths = self._monitors.depths
        return {} if depths is None else depths.current(self._busy_backlogs(), self.missing_backlogs)

    @property
    def dead_letters(self) -> dict[str, int]:
        """Dead letters of each backlog at the last check, where the depths are measured; see ``measure_every``."""
        return dict(self._monitors.dead_letters.found)

    @property
    def stranded(self) -> dict[str, bool]:
        """The backlog queues beyond the count, and whether each held messages at the last check."""
        return dict(self._stranded.found)

    @property
    def untransferred(self) -> dict[str, int]:
        """Messages in the transfer dead-letter queue of each backlog at the last check, if messages may land."""
        return dict(self._monitors.untransferred.found)

    @property
    def paces(self) -> dict[tuple[str, ...], float]:
        """The messages per second that each destination may get while its pace is limited, by path and side."""
        now = time.monotonic()
        sides = zip((Side.PRIMARY, Side.SECONDARY), self._paces, strict=True)
        return {(path, side.value): rate for side, each in sides for path, rate in each.rates(now).items()}

    @property
    def landing(self) -> tuple[str, ...]:
        """The destinations whose messages land on the secondary now, as keys: paths in lower case."""
        return () if self._landing is None else self._landing.landing

    async def run(self, shutdown: asyncio.Event | None = None) -> None:
        """Forward until :meth:`stop` or :meth:`request_stop` is called, or ``shutdown`` is set.

        Then messages in flight are finished within ``stop_timeout``, and the others released. Raises
        NamespaceUnusableError with ``exit_on_refusal``, once a side has refused the syphon for five seconds.
        """
        self._shutdown = shutdown or asyncio.Event()
        running = self._running = asyncio.ensure_future(self._run(self._shutdown))
        refused = asyncio.ensure_future(self._sides.wait_refused())
        watching = asyncio.ensure_future(self._watch_backlogs())
        ends = [running, refused] if self.options.exit_on_refusal else [running]
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            reason = refused.result() if refused in ends and refused.done() else None
        finally:
            for each in (running, refused, watching):
                each.cancel()
            await asyncio.gather(running, refused, watching, return_exceptions=True)
        if not running.cancelled():
            running.result()
        if reason is not None:
            raise NamespaceUnusableError(reason)

    def request_stop(self) -> None:
        """Ask :meth:`run` to stop and return at once; for signal handlers of the event loop."""
        self._shutdown.set()

    async def stop(self) -> None:
        """End :meth:`run`: finish messages in flight within ``stop_timeout``, and release the others."""
        self.request_stop()
        if self._running is not None:
            await asyncio.wait([self._running])

    def wake(self) -> None:
        """Retry at once all that waits for another attempt: unreachable sides and held destinations."""
        self._pauses.wake()
        if self._session is not None:
            self._session.wake()

    def abort(self) -> None:
        """Drop both connections at once, without settling anything more; unsettled messages are redelivered."""
        if self._session is not None:
            self._session.abort()

    async def _run(self, shutdown: asyncio.Event) -> None:
        try:
            while not shutdown.is_set():
                session = await run_until(shutdown, self._next_session(gives_up=False))
                if session is not None:
                    await self._pump_until(session, shutdown)
        finally:
            await self._stop_connecting()
            await self._end_session()
            self._become(SyphonState.IDLE)

    async def drain(self) -> SyphonCounters:
        """Forward until all backlogs are empty and nothing is unsettled; return the counters.

        Waits while a side or a destination is unreachable: limit it with ``asyncio.timeout``. Raises
        NamespaceUnusableError when a side or a backlog refuses the syphon.
        """
        try:
            while True:
                session = await self._next_session(gives_up=True)
                if await self._drain_once(session):
                    return self.counters.snapshot()
        finally:
            await self._stop_connecting()
            await self._end_session()
            self._become(SyphonState.IDLE)

    # Sessions

    async def _end_session(self) -> None:
        """End a session that was started in the turn of the loop in which its creator was cancelled."""
        session, self._begun = self._begun, None
        if session is not None:
            await session.stop()

    async def _next_session(self, *, gives_up: bool) -> ForwardingSession:
        """Connect to both sides or, once messages may land, to the secondary alone while the attempt continues."""
        landing, self._gives_up = self._landing, gives_up
        if landing is None:
            return self._session_over(*await self._connect(gives_up=gives_up))
        if self._connecting is None:
            landing.side_lost(self._now())  # until it is reached
            self._has_failed = False
            self._connecting = asyncio.ensure_future(self._connect(gives_up=gives_up))
        if await self._may_land(landing, self._connecting):
            return self._session_over(None, await self._retry(self._connect_secondary, gives_up=gives_up))
        connecting, self._connecting = self._connecting, None
        return self._session_over(*connecting.result())

    async def _may_land(self, landing: Landing, connecting: asyncio.Task[Connections]) -> bool:
        """Wait until both sides are connected; return True if the primary is out of reach for too long before that."""
        first_attempt = self._now() + FIRST_ATTEMPT
        while not connecting.done():
            due, now = landing.side_due(), self._now()
            if due is not None and not self._has_failed:
                due = max(due, first_attempt)
            if due is not None and now >= due:
                return True
            left = LANDING_CHECK_INTERVAL if due is None else due - now
            await asyncio.wait([connecting], timeout=min(left, LANDING_CHECK_INTERVAL))
        return False

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    async def _stop_connecting(self) -> None:
        connecting, self._connecting = self._connecting, None
        if connecting is not None:
            connecting.cancel()
            (both,) = await asyncio.gather(connecting, return_exceptions=True)
            for connection in both if isinstance(both, tuple) else ():
                connection.abort()

    async def _connect(self, *, gives_up: bool) -> Connections:
        """Connect to both sides, the primary first: while it is down, no backlog gets credit."""
        self._become(SyphonState.CONNECTING, self._reason)
        return await self._retry(self._connect_once, gives_up=gives_up)

    async def _retry(self, connect_once: Callable[[], Awaitable[T]], *, gives_up: bool) -> T:
        """Connect, with back-off after each failure. With ``gives_up``, raises NamespaceUnusableError for a refusal."""
        backoff = Backoff(self.options.retry_backoff_max.total_seconds())
        while True:
            try:
                return await connect_once()
            except (ConnectionLostError, NamespaceUnusableError) as error:
                if gives_up and isinstance(error, NamespaceUnusableError):
                    raise
                pause = backoff.next_pause()
                if isinstance(error, OutOfReachError):  # an attempt costs nothing
                    pause = min(pause, Backoff(ASKED_EVERY, ASKED_EVERY).next_pause())
                self._lost(str(error), pause, error.side)
                await self._pauses.sleep(pause)

    async def _reconnect(self, side: Side, reason: str) -> NamespaceConnection:
        """Connect a lost side again while the other stays connected. Raises NamespaceUnusableError."""
        state, pause = self._state, max(0.0, self._reconnected_at + MIN_SESSION_SECONDS - self._now())
        self._lost(reason, pause, side)
        await self._pauses.sleep(pause)
        connect_once = self._connect_secondary if side is Side.SECONDARY else self._connect_primary_alone
        connection = await self._retry(connect_once, gives_up=self._gives_up)
        self._reconnected_at = self._now()
        self._connected(state)
        return connection

    async def _connect_primary_alone(self) -> NamespaceConnection:
        async with AsyncExitStack() as stack:
            primary, refusal = await self._open_and_claim(stack)
            if (
                refusal is not None
                and self.options.allowed_destinations is None
                and self._session is not None
            ):
                secondary = self._session.secondary
                with _said_of(Side.SECONDARY):
                    primary, refusal = await self._claims.of_parked(stack, primary, secondary, refusal)
            self._note_claim(Side.PRIMARY, refusal)
            stack.pop_all()
        return primary

    async def _connect_once(self) -> Connections:
        async with AsyncExitStack() as stack:
            primary, refusal = await self._open_and_claim(stack)
            try:
                secondary = await self._open_secondary(stack)
            except ConnectionLostError:
                if refusal is not None:
                    self._note_claim(Side.PRIMARY, refusal)
                raise
            if refusal is not None and self.options.allowed_destinations is None:
                with _said_of(Side.SECONDARY):  # where it looks for their paths
                    primary, refusal = await self._claims.of_parked(stack, primary, secondary, refusal)
            self._note_claim(Side.PRIMARY, refusal)
            stack.pop_all()
        return primary, secondary

    async def _open_and_claim(
        self, stack: AsyncExitStack
    ) -> tuple[NamespaceConnection, TokenRefusedError | None]:
        with _said_of(Side.PRIMARY):
            return await self._claims.of_known(stack, await self._open_primary(stack))

    async def _open_primary(self, stack: AsyncExitStack) -> NamespaceConnection:
        landing = self._landing
        try:
            primary = await self._open(stack, Side.PRIMARY, self._primary)
        except ClientError as error:
            if came_of_shortage(error):  # it says nothing about the primary
                if landing is not None and not self._paces[0].is_side_lost:
                    landing.side_reached()  # counted from the end of the last session, as if it were lost
                raise
            self._has_failed = True
            self._paces[0].side_lost(self._now())
            if landing is not None and isinstance(error, ConnectionLostError):
                landing.side_lost(self._now())
            elif landing is not None:
                landing.side_reached()  # it refuses this syphon but serves others
            raise
        self._paces[0].side_reached(self._now())
        if landing is not None:
            landing.side_reached()
        return primary

    async def _connect_secondary(self) -> NamespaceConnection:
        async with AsyncExitStack() as stack:
            secondary = await self._open_secondary(stack)
            stack.pop_all()
        return secondary

    async def _open_secondary(self, stack: AsyncExitStack) -> NamespaceConnection:
        with _said_of(Side.SECONDARY):
            secondary = await self._open(stack, Side.SECONDARY, self._secondary)
            self._note_claim(Side.SECONDARY, await refusal_of(secondary, (NAMESPACE, *self.backlogs)))
        return secondary

    def _session_over(
        self, primary: NamespaceConnection | None, secondary: NamespaceConnection
    ) -> ForwardingSession:
        self._session = ForwardingSession(
            primary,
            secondary,
            self._plain,
            self.options,
            ordered=self._ordered,
            order_check=self._order_check,
            counters=self.counters,
            emit=self._emit,
            sides=self._sides,
            own=self._own,
            links=self._links,
            clock_differs=self._clock_differs,
            connect_primary=self._connect_primary,
            reconnect=self._reconnect,
            landing=self._landing,
            paces=self._paces,
        )
        self._begun = self._session
        return self._session

    def _note_claim(self, role: Side, refusal: TokenRefusedError | None) -> None:
        """Record a side's answer to a claim. Raises NamespaceUnusableError or ConnectionLostError for a refusal."""
        if refusal is None:
            self._sides.accepted(role)
            return
        fault = as_fault(refusal)
        if isinstance(fault, NamespaceUnusableError):
            self._sides.refused(role, str(fault))
        with _said_of(role):
            raise fault

    async def _connect_primary(self) -> NamespaceConnection:
        """Open another connection to the primary and claim a path on it; the service closes one without claims."""
        async with AsyncExitStack() as stack:
            primary = await self._open(stack, Side.PRIMARY, self._primary)
            primary, refusal = await self._claims.of_known(stack, primary)
            if refusal is not None:
                raise refusal  # decided by the next session, which searches the backlogs
            stack.pop_all()
        return primary

    async def _open(
        self, stack: AsyncExitStack, role: Side, namespace: NamespaceAccess
    ) -> NamespaceConnection:
        """Open a connection that ``stack`` aborts."""
        try:
            with _said_of(role):
                connection = await self._dial(namespace)
        except NamespaceUnusableError as error:
            self._sides.refused(role, str(error))
            raise
        stack.callback(connection.abort)
        return connection

    async def _dial(self, namespace: NamespaceAccess) -> NamespaceConnection:
        timeout = self.options.operation_timeout.total_seconds()
        return await connect(namespace, timeout=min(timeout, CONNECT_WITHIN), answer_timeout=timeout)

    async def _pump_until(self, session: ForwardingSession, shutdown: asyncio.Event) -> None:
        self._begun = None
        self._connected(SyphonState.RUNNING if session.has_primary else SyphonState.LANDING)
        began = time.monotonic()
        checking = asyncio.ensure_future(self._stranded.run(lambda: session.secondary))
        try:
            reason = await run_until(shutdown, self._until_over(session, SyphonState.RUNNING))
            if reason is None:
                self._become(SyphonState.DRAINING)
        finally:
            checking.cancel()
            await session.stop()
            await asyncio.gather(checking, return_exceptions=True)
            self._become(SyphonState.CONNECTING, self._reason)
        if reason is not None:
            pause = max(0.0, MIN_SESSION_SECONDS - (time.monotonic() - began))
            self._lost(reason, pause, session.lost_side)
            await run_until(shutdown, asyncio.sleep(pause))

    async def _drain_once(self, session: ForwardingSession) -> bool:
        """Return True once the backlogs are empty, False if a side is lost first.

        Raises NamespaceUnusableError when a backlog refuses its link.
        """
        self._begun = None
        self._connected(SyphonState.DRAINING if session.has_primary else SyphonState.LANDING)
        refused = self._links.refusal = asyncio.get_running_loop().create_future()
        drained = asyncio.ensure_future(self._drain_and_check_stranded(session))
        broken = asyncio.ensure_future(self._until_over(session, SyphonState.DRAINING))
        try:
            await asyncio.wait([drained, broken, refused], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (drained, broken):
                each.cancel()
            await session.stop()
            await asyncio.gather(drained, broken, return_exceptions=True)
        if refused.done():
            raise NamespaceUnusableError(refused.result())
        reason = _loss_of(drained)
        if reason is None and not drained.cancelled():
            drained.result()  # raises when a check failed: the backlogs may not be empty then
            has_any = len(self.missing_backlogs) < len(self.backlogs)
            if self.options.only_backlogs is None and has_any:
                self._emit(events.BacklogsDrained(time.time()))  # an audit relies on it for all backlogs
            return True
        self._become(SyphonState.CONNECTING, self._reason)
        lost = Side.SECONDARY if reason else session.lost_side  # a drain looks at the secondary alone
        self._lost(reason or broken.result(), MIN_SESSION_SECONDS, lost)
        await asyncio.sleep(MIN_SESSION_SECONDS)
        return False

    async def _until_over(self, session: ForwardingSession, state: SyphonState) -> str:
        """Wait until a session is lost and has finished; return the reason.

        Once the primary is connected, the session and ``state`` get it.
        """
        broken = asyncio.ensure_future(session.wait_broken())
        try:
            if self._connecting is not None:  # it began without the primary
                await asyncio.wait([broken, self._connecting], return_when=asyncio.FIRST_COMPLETED)
                if not broken.done():
                    self._give_primary(session, self._connecting, state)
            reason = await broken
            await session.finish()
            return reason
        finally:
            broken.cancel()
            await asyncio.gather(broken, return_exceptions=True)

    def _give_primary(
        self, session: ForwardingSession, connecting: asyncio.Task[Connections], state: SyphonState
    ) -> None:
        """Let a landing session also forward to the primary. Its connection to the secondary stays."""
        self._connecting = None
        primary, secondary = connecting.result()
        secondary.abort()
        session.adopt(primary)
        self._connected(state)

    async def _drain_and_check_stranded(self, session: ForwardingSession) -> None:
        await session.drain()
        if self.options.only_backlogs is None:
            await self._stranded.check(session.secondary)
        if self.counters.landed:
            await self._monitors.untransferred.check(session.secondary)

    # Monitoring

    async def _watch_backlogs(self) -> None:
        try:
            await self._monitors.run(self._busy_backlogs, self._borrow_secondary)
        finally:
            if self._monitor_connection is not None:
                self._monitor_connection.abort()

    def _busy_backlogs(self) -> tuple[str, ...]:
        """Return the backlogs that may hold messages: all but those on which a long poll waits."""
        session = self._session
        return self.backlogs if session is None or not session.is_connected else session.busy_backlogs()

    async def _borrow_secondary(self) -> NamespaceConnection:
        """Return a connection to the secondary: that of the session, or another one while there is no session."""
        async with self._borrowing:  # monitors that ask at the same time share one connection
            if self._session is not None and self._session.is_connected:
                return self._session.secondary
            if self._monitor_connection is None or not self._monitor_connection.is_open:
                self._monitor_connection = await self._dial(self._secondary)
            return self._monitor_connection

    def _clock_differs(self, ahead: float) -> None:
        if not self._is_clock_reported:
            self._is_clock_reported = True
            self._emit(events.ClockDiffers(time.time(), ahead))

    # State and events

    def _connected(self, state: SyphonState) -> None:
        self._links.detached.clear()
        self._become(state)
        if state is not SyphonState.LANDING:
            self._emit(events.SyphonConnected(time.time()))

    def _lost(self, reason: str, retry_in: float, side: Side | None) -> None:
        if self._state is not SyphonState.LANDING:  # while messages land, the primary alone is retried
            self._become(SyphonState.CONNECTING, reason if side is None else f"{side}: {reason}")
        self._emit(events.SyphonDisconnected(time.time(), side or "", reason, retry_in))

    def _become(self, state: SyphonState, reason: str | None = None) -> None:
        self._state, self._reason = state, reason


@contextmanager
def _said_of(side: Side) -> Iterator[None]:
    """Note on an error which side it came from, unless it is noted already."""
    try:
        yield
    except ClientError as error:
        error.side = error.side or side
        raise


def _loss_of(drained: asyncio.Future[None]) -> str | None:
    """Return why a drain lost its connection, or None."""
    error = None if drained.cancelled() else drained.exception()
    return str(error) if isinstance(error, ConnectionLostError) else None


def _reach(namespace: NamespaceAccess, route: Route, address: str | None) -> NamespaceAccess:
    return (namespace if route == Route() else namespace.along(route)).dial_at(address)


async def run_until(stop: asyncio.Event, work: Coroutine[object, object, T]) -> T | None:
    """Run ``work`` and return its result; when ``stop`` is set first, cancel it and return None."""
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait([task, stopped], return_when=asyncio.FIRST_COMPLETED)
        return task.result() if task.done() else None
    finally:
        for each in (task, stopped):
            each.cancel()
        await asyncio.gather(task, stopped, return_exceptions=True)


class Pauses:
    """The pauses between attempts; :meth:`wake` ends all current ones."""

    def __init__(self) -> None:
        self._waking: set[asyncio.Future[None]] = set()

    async def sleep(self, seconds: float) -> None:
        """Pause for ``seconds``, or until the next :meth:`wake`."""
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waking.add(waking)
        try:
            await asyncio.wait([waking], timeout=seconds)
        finally:
            self._waking.discard(waking)

    def wake(self) -> None:
        """End all pauses."""
        for waking in self._waking:
            if not waking.done():
                waking.set_result(None)
