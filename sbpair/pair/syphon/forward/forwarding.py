"""Forwarding sessions: a connection to each side, and the pumps and destinations that use them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Any

from sbpair.pair.amqp.errors import DETACH_FORCED, NOT_FOUND
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, condition_text
from sbpair.pair.client.link import Sender
from sbpair.pair.envelope import aliases
from sbpair.pair.envelope.names import path_key
from sbpair.pair.envelope.restore import UNKNOWN_VERSION
from sbpair.pair.ground.side import Side

from ..events import SyphonEvent
from ..land.landing import Landing
from ..land.landings import Landings
from ..options import SyphonOptions
from ..order.order_check import OrderCheck
from ..order.ordered_backlogs import OrderedBacklog, Places, session_credit
from ..order.session_relay import RelaySettings
from ..status import BacklogLinks, SideRefusals, SyphonCounters
from ..watch.claims import OwnPaths, is_refusal
from ..watch.peeking import has_more
from .credit import MemoryBudget
from .delivery import Destination
from .destination_host import DeliveryTimeouts
from .pace import Paces
from .pump import Pump, PumpSettings
from .slots import LinkSlots, Slot

logger = logging.getLogger("sbpair.syphon")

MIN_IDLE_SECONDS = 1.0  # seconds that an idle primary must have been connected to be reconnected alone
RECONNECT_WITHIN = 5.0  # seconds, in addition to RECONNECT_ROUND_TRIPS
RECONNECT_ROUND_TRIPS = 8  # a name, TCP, two of TLS, two of AMQP, two for a token
KEPT = 60.0  # seconds, one lock: how long messages for a lost primary stay locked
LOCKED_PAUSE = 1.0  # seconds between checks of a backlog in which only locked messages are left
MAX_LINKS = 256  # to destinations at a time: a connection supports about a thousand
MAX_CLAIMS = 1000  # tokens on one connection to the primary; above that, new links use another connection


class ForwardingSession:
    """Forwards from all backlogs over two connections, until both are lost.

    When one side is lost, it is connected again, while the links and locks of the other stay. Meanwhile nothing is
    received, and after a minute the messages that wait for the primary are released. If the other side is lost too, the
    session is over: all messages are released, and the syphon creates another session. A session that begins without a
    connection to the primary lands messages on the secondary until it is given one; from then on the loss of a side
    ends it.
    """

    def __init__(
        self,
        primary: NamespaceConnection | None,
        secondary: NamespaceConnection,
        backlogs: Iterable[str],
        options: SyphonOptions,
        *,
        ordered: Iterable[str] = (),
        order_check: OrderCheck | None = None,
        counters: SyphonCounters,
        emit: Callable[[SyphonEvent], None],
        sides: SideRefusals,
        links: BacklogLinks,
        clock_differs: Callable[[float], None],
        connect_primary: Callable[[], Awaitable[NamespaceConnection]],
        reconnect: Callable[[Side, str], Awaitable[NamespaceConnection]] | None = None,
        landing: Landing | None = None,
        paces: tuple[Paces, Paces] | None = None,
        own: OwnPaths | None = None,
    ) -> None:
        """Create a session.

        ``paces`` are those of the primary and of the secondary, ``own`` the paths that the primary accepted; new ones
        by default. ``reconnect`` connects a lost side again, given the reason, however long that takes; without it, a
        loss ends the session.
        """
        self._primary = primary
        self._primary_since = asyncio.get_running_loop().time()
        self._connect_primary = connect_primary
        self._reconnect = None if landing is not None else reconnect
        self._secondary = secondary
        self._options = options
        self._emit = emit
        self._sides = sides
        self._own = own or OwnPaths()
        self._links = links
        self._destinations: dict[str, Destination] = {}
        self._slots = LinkSlots(MAX_LINKS)
        self._senders: Counter[NamespaceConnection] = Counter()  # links to destinations, by connection
        self._replacing = asyncio.Lock()
        self._replaced = asyncio.Event()
        self._closing: set[asyncio.Task[None]] = set()
        answer = options.operation_timeout.total_seconds()
        self._timeouts = DeliveryTimeouts(options.retry_backoff_max.total_seconds(), answer)
        self._paces, twin_paces = paces or (Paces(options.max_rate), Paces(options.max_rate))
        self._landings: Landings | None = None
        if landing is not None:
            self._landings = Landings(
                landing,
                secondary,
                emit,
                self._timeouts,
                retry_missing=options.missing_backlog_interval.total_seconds(),
                paces=twin_paces,
                home=self._destination_of,
                lost=self._secondary_unresponsive,
            )
        names, allowed = tuple(backlogs), options.allowed_destinations
        self.budget = MemoryBudget(options.memory_budget, len(names), lambda: self._secondary.unfinished)
        secondary.unfinished_limit = options.memory_budget // 2
        keys = None if allowed is None else frozenset(map(path_key, allowed))
        settings = PumpSettings(
            window=options.window,
            answer_timeout=answer,
            is_allowed=lambda path: keys is None or path_key(path) in keys,
            destination_of=self._destination_of,
            counters=counters,
            budget=self.budget,
            emit=emit,
            attached=self._backlog_attached,
            unresponsive=self._secondary_unresponsive,
            clock_differs=clock_differs,
            report_forwards=options.report_forwards,
        )
        self._pumps = [Pump(backlog, settings) for backlog in names]
        self._failed: set[str] = set()  # backlogs that could not be attached at least once
        self.lost_side = Side.SECONDARY
        """The side whose loss ended the session: the pumps read from the secondary."""
        self._relays = partial(self._relays_of, tuple(ordered), settings, order_check)
        self._ordered = () if primary is None else self._relays()
        self._pumping = self._pump_all()
        if primary is not None and self._landings is not None:
            self._landings.primary_is_back()

    def _pump_all(self) -> asyncio.Future[Any]:
        return asyncio.gather(
            *(self._keep_pumping(pump) for pump in self._pumps), *(each.run() for each in self._ordered)
        )

    def _relays_of(
        self, names: tuple[str, ...], pumps: PumpSettings, check: OrderCheck | None
    ) -> tuple[OrderedBacklog, ...]:
        """Return the ordered backlogs of these names, with the same destinations and counters as the pumps."""
        if not names:
            return ()
        options = self._options
        settings = RelaySettings(
            is_allowed=pumps.is_allowed,
            destination_of=self._destination_of,
            counters=pumps.counters,
            emit=self._emit,
            check=check or OrderCheck(),
            credit=session_credit(options.memory_budget, options.max_concurrent_sessions),
            holds_poison=options.on_poison == "hold",
            report_forwards=options.report_forwards,
        )
        places = Places(max(options.max_concurrent_sessions, len(names)))
        return tuple(
            OrderedBacklog(
                name,
                self._secondary,
                settings,
                places,
                self._links,
                retry_backoff_max=options.retry_backoff_max.total_seconds(),
                missing_interval=options.missing_backlog_interval.total_seconds(),
                attached=self._backlog_attached,
            )
            for name in names
        )

    def adopt(self, primary: NamespaceConnection) -> None:
        """Forward to the primary from now on; each destination is tried at once.

        Answers to messages that landed are still processed.
        """
        self._primary, self._primary_since = primary, asyncio.get_running_loop().time()
        self._ordered = self._relays()
        self._pumping = asyncio.gather(self._pumping, *(each.run() for each in self._ordered))
        for destination in self._destinations.values():
            destination.try_now()
        if self._landings is not None:
            self._landings.primary_is_back()
        self._replaced.set()

    def wake(self) -> None:
        """Probe each waiting destination, because the primary seems to be back."""
        for destination in list(self._destinations.values()):
            destination.probe_now()

    async def wait_broken(self) -> str:
        """Wait until a side is lost; return why. An idle primary that closes its connection is reconnected instead."""
        while True:
            sides = {"secondary": self._secondary}
            if self._primary is not None:
                sides["primary"] = self._primary
            replaced = asyncio.ensure_future(self._replaced.wait())
            any_of: list[asyncio.Future[Any]] = [self._pumping, replaced]
            any_of += [each for side in sides.values() for each in (side.closed, side.claims_ended)]
            try:
                await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            finally:
                replaced.cancel()
            if self._replaced.is_set():
                self._replaced.clear()
                continue
            if self._pumping.done():
                self._pumping.result()  # raises only because of a defect, which must not be hidden
            lost = next((name for name, side in sides.items() if side.closed.done()), None)
            if lost == "primary" and self._is_idle() and await self._reconnect_primary():
                continue
            if lost is not None:
                reason = (
                    f"the connection to the {lost} was lost: {condition_text(sides[lost].closed.result())}"
                )
                if await self._recover(Side(lost), reason):
                    continue
                self.lost_side = Side(lost)
                return reason
            ended = next((name for name, side in sides.items() if side.claims_ended.done()), None)
            if ended is not None:
                self.lost_side = Side(ended)
                return f"the token for the {ended} has expired: {sides[ended].claims_ended.result()}"
            return "the pumps have ended"

    async def _recover(self, side: Side, reason: str) -> bool:
        """Connect a lost side again; return False if that is left to another session, or the other side is lost too.

        Raises NamespaceUnusableError if the side refuses the syphon, and the refusal is to end it.
        """
        loop, other = asyncio.get_running_loop(), self._secondary if side is Side.PRIMARY else self._primary
        if self._reconnect is None or self._ordered or other is None or not other.is_open:
            return False
        if side is Side.PRIMARY:
            self._primary = None
            for pump in self._pumps:
                pump.pause()
        giving_back = loop.call_later(KEPT, self._give_back)
        connecting = asyncio.ensure_future(self._reconnect(side, reason))
        taken = False
        try:
            either: list[asyncio.Future[Any]] = [connecting, other.closed, other.claims_ended]
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if connecting.done() and other.is_open:
                connection, taken = connecting.result(), True
                await self._take_back(side, connection)
        finally:
            giving_back.cancel()
            if not taken:
                connecting.cancel()
                connecting.add_done_callback(_abort_late)
        return taken

    def _give_back(self) -> None:
        """Release the messages that wait for a primary that stays away: another syphon may reach it."""
        for pump in self._pumps:
            pump.give_back()

    async def _take_back(self, side: Side, connection: NamespaceConnection) -> None:
        if side is Side.PRIMARY:
            self._primary, self._primary_since = connection, asyncio.get_running_loop().time()
            for pump in self._pumps:
                pump.resume()
            self.wake()
            return
        self._pumping.cancel()  # a pump that waits for a missing queue has not noticed
        await asyncio.gather(self._pumping, return_exceptions=True)
        self._secondary = connection
        connection.unfinished_limit = self._options.memory_budget // 2
        self._pumping = self._pump_all()

    def _is_idle(self) -> bool:
        lasted = asyncio.get_running_loop().time() - self._primary_since
        is_busy = any(pump.unsettled for pump in self._pumps) or any(each.sessions for each in self._ordered)
        return lasted >= MIN_IDLE_SECONDS and not is_busy

    async def _reconnect_primary(self) -> bool:
        """Reconnect only the primary, so that the long polls of the backlogs, which are billed, continue."""
        try:
            async with asyncio.timeout(RECONNECT_WITHIN + RECONNECT_ROUND_TRIPS * self.round_trip):
                self._primary = await self._connect_primary()
        except (ClientError, TimeoutError):
            return False
        self._primary_since = asyncio.get_running_loop().time()
        return True

    @property
    def round_trip(self) -> float:
        """The round-trip time to the primary in seconds; 0 without a connection to it."""
        return 0.0 if self._primary is None else self._primary.round_trip

    @property
    def secondary(self) -> NamespaceConnection:
        """The connection to the secondary."""
        return self._secondary

    @property
    def has_primary(self) -> bool:
        """Whether there is a connection to the primary; without one, messages land on the secondary."""
        return self._primary is not None

    @property
    def is_connected(self) -> bool:
        """Whether both sides are connected."""
        return self._secondary.is_open and (self._primary is None or self._primary.is_open)

    def busy_backlogs(self) -> tuple[str, ...]:
        """Return the backlogs that may hold messages: all but those whose long poll waits."""
        busy = [pump.backlog for pump in self._pumps if not pump.is_waiting]
        return (*busy, *(each.name for each in self._ordered if each.sessions))

    async def drain(self) -> None:
        """Wait until every backlog is empty, including locked messages, and nothing is unsettled."""
        await asyncio.gather(
            *(self._drain(pump) for pump in self._pumps), *(each.drain() for each in self._ordered)
        )

    async def _drain(self, pump: Pump) -> None:
        pump.drain()
        await pump.is_empty.wait()
        while not pump.is_missing and await self._has_more(pump.backlog):
            await asyncio.sleep(LOCKED_PAUSE)  # until another receiver completes them or their locks end
            pump.drain()
            await pump.is_empty.wait()

    async def _has_more(self, backlog: str) -> bool:
        try:
            return await has_more(self._secondary, backlog)
        except ClientError as error:
            self._links.note_detached(backlog, str(error))
            return True

    async def finish(self) -> None:
        """Stop receiving, and wait for the answers to the sent messages, as long as an operation may take.

        Answers to landing messages are awaited even if the primary is lost: if released earlier, they would land twice.
        """
        await self._stop_receiving(self._timeouts.answer)

    async def _stop_receiving(self, within: float) -> None:
        if not self._secondary.closed.done():
            await asyncio.gather(
                *(pump.stop(within) for pump in self._pumps), *(each.stop(within) for each in self._ordered)
            )

    async def stop(self) -> None:
        """Finish active messages within ``stop_timeout``, release the others, and close both connections."""
        try:
            await self._stop_receiving(self._options.stop_timeout.total_seconds())
        finally:
            self._pumping.cancel()
            for destination in self._destinations.values():
                destination.stop()
            if self._landings is not None:
                self._landings.stop()
            await asyncio.gather(self._pumping, return_exceptions=True)
            await asyncio.gather(*(each.close() for each in self._connections()), *self._closing)

    def abort(self) -> None:
        """Drop all connections at once."""
        for each in self._connections():
            each.abort()

    def unresponsive(self, reason: str) -> None:
        """Drop the connections to the primary because it does not answer."""
        logger.warning("%s; reconnecting", reason)
        for each in self._connections() - {self._secondary}:
            each.abort()

    def _secondary_unresponsive(self, reason: str) -> None:
        logger.warning("%s; reconnecting", reason)
        self._secondary.abort()

    def _connections(self) -> set[NamespaceConnection]:
        primary = () if self._primary is None else (self._primary,)
        return {self._secondary, *primary, *self._senders}

    # Destinations

    def _destination_of(self, path: str) -> Destination:
        key = path_key(path)
        destination = self._destinations.get(key)
        if destination is None:
            pace = self._paces.of(path, asyncio.get_running_loop().time())
            destination = Destination(path, self, self._emit, self._timeouts, pace)
            self._destinations[key] = destination
            if self._landings is not None:
                self._landings.created(destination)
        return destination

    async def open_sender(self, destination: Destination) -> Sender:
        """Open a link to ``destination``, once a slot is free. Raises ClientError."""
        if destination.path == UNKNOWN_VERSION:
            raise LinkRefusedError(
                f"it is parked with {aliases.VERSION} other than {aliases.ENVELOPE_VERSION!r}: "
                "it waits for a syphon that supports this version, possibly of a newer release"
            )
        slot = await self._slots.take(destination)
        try:
            primary = await self._primary_with_capacity()
            sender = await primary.open_sender(destination.path)
        except BaseException as error:
            self._slots.free(destination, slot)
            if isinstance(error, ClientError):
                self._destination_refused(destination, error)
            raise
        self._senders[primary] += 1
        sender.detached.add_done_callback(lambda _: self._link_closed(destination, primary, slot))
        self._own.accepted(destination.path)
        self._sides.accepted(Side.PRIMARY)
        return sender

    async def _primary_with_capacity(self) -> NamespaceConnection:
        """Return a connection that accepts one more token, since a connection keeps its tokens until it closes."""
        async with self._replacing:
            if self._primary is None:
                raise ConnectionLostError("the primary is out of reach")
            if self._primary.claims >= MAX_CLAIMS:
                full, self._primary = self._primary, await self._connect_primary()
                self._replaced.set()
                self._close_if_unused(full)
            return self._primary

    def _close_if_unused(self, connection: NamespaceConnection) -> None:
        if connection is not self._primary and not self._senders[connection]:
            del self._senders[connection]
            closing = asyncio.ensure_future(connection.close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    def _link_closed(self, destination: Destination, connection: NamespaceConnection, slot: Slot) -> None:
        self._senders[connection] -= 1
        self._close_if_unused(connection)
        self._slots.free(destination, slot)
        if not destination.is_open:  # otherwise it has another link already
            self.destination_idle(destination)

    def destination_idle(self, destination: Destination) -> None:
        """Offer the slot of an idle destination to others; forget it and its token if it has neither link nor messages.

        Senders choose the paths, so their number must not grow without bound.
        """
        self._slots.offer(destination)
        key = path_key(destination.path)
        if destination.is_unused and self._destinations.get(key) is destination:
            del self._destinations[key]
            if self._primary is not None:
                self._primary.forget(destination.path)

    def destination_out_of_reach(self, destination: Destination, since: float) -> None:
        """Divert its messages to the secondary, if ``destination`` has been out of reach for long enough."""
        if self._landings is not None:
            self._landings.out_of_reach(destination, since)

    def destination_attached(self, destination: Destination) -> None:
        """Send the messages of ``destination`` to the primary again, if none comes for a while."""
        if self._landings is not None:
            self._landings.attached(destination)

    def destination_answered(self, destination: Destination) -> None:
        """Send the messages of ``destination`` to the primary again."""
        if self._landings is not None:
            self._landings.answered(destination)

    # Backlogs

    def _backlog_attached(self, backlog: str) -> None:
        self._links.note_attached(backlog)
        self._sides.accepted(Side.SECONDARY)

    def _destination_refused(self, destination: Destination, error: ClientError) -> None:
        """Record a refused link, which may mean that the primary refuses the syphon as a whole."""
        if is_refusal(error):
            others_are_open = any(each.is_open for each in self._destinations.values())
            if self._own.note_refusal(destination.path, others_are_open=others_are_open):
                self._sides.refused(Side.PRIMARY, str(error))

    def _backlog_refused(self, error: ClientError) -> None:
        """Record a refused link as a refusal by the secondary, unless another backlog has a link."""
        all_tried = len(self._failed) == len(self._pumps)
        backlogs: tuple[Pump | OrderedBacklog, ...] = (*self._pumps, *self._ordered)
        if all_tried and is_refusal(error) and not any(each.is_open for each in backlogs):
            self._sides.refused(Side.SECONDARY, str(error))

    async def _keep_pumping(self, pump: Pump) -> None:
        """Attach again whenever the link is lost; retry a missing queue at intervals."""
        loop = asyncio.get_running_loop()
        backoff = Backoff(self._options.retry_backoff_max.total_seconds())
        was_missing = False
        while not self._secondary.closed.done():
            began = loop.time()
            try:
                condition = await pump.run(self._secondary)
            except ConnectionLostError as error:
                if self._secondary.closed.done():
                    return
                self._links.note_detached(pump.backlog, str(error))
            except ClientError as error:
                self._failed.add(pump.backlog)
                self._backlog_refused(error)
                if error.condition is not None and error.condition.symbol == NOT_FOUND:
                    if not was_missing:
                        self._links.note_missing(pump.backlog)
                    was_missing = pump.is_missing = True
                    pump.is_empty.set()
                    await asyncio.sleep(self._options.missing_backlog_interval.total_seconds())
                    continue
                self._links.note_detached(pump.backlog, str(error), is_refusal=is_refusal(error))
            else:
                if pump.is_stopping:
                    return
                was_missing = False
                # with DETACH_FORCED, the link was idle
                if condition is None or condition.symbol != DETACH_FORCED:
                    self._links.note_detached(pump.backlog, condition_text(condition))
                await asyncio.sleep(backoff.link_ended(loop.time() - began, condition))
                continue
            await asyncio.sleep(backoff.next_pause())


def _abort_late(connecting: asyncio.Future[NamespaceConnection]) -> None:
    """Drop a connection that nobody waits for any more."""
    if not connecting.cancelled() and connecting.exception() is None:
        connecting.result().abort()
