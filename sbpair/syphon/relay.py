"""One connection to each side, and the pumps that run on the two, until one of them is lost.

A relay is used once: when a side goes, what is in our hands is given back and the syphon makes another.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from sbpair.amqp.errors import DETACH_FORCED, NOT_FOUND, UNAUTHORIZED_ACCESS
from sbpair.pairing.bond import Role
from sbpair.pairing.names import path_key

from .backoff import Backoff
from .connection import NamespaceConnection
from .counters import SyphonCounters
from .destination import Destination, DestinationReporter
from .errors import ConnectionLost, SyphonError, said
from .link import Sender
from .options import SyphonOptions
from .pump import Pump, PumpReporter, PumpSettings
from .remainder import has_more

FIRST_RETRY = 0.5  # seconds
LEAST_REST = 1.0  # seconds an idle primary must have lasted, or else it is lost like any other
RENEW_WITHIN = 5.0  # seconds
LOCKED_PAUSE = 1.0  # seconds between looks at a backlog where only locked messages are left
SOUND = 30.0  # seconds a link must have lasted for its loss not to count as one more failure


class RelayReporter(PumpReporter, DestinationReporter, Protocol):
    """Who hears what a relay has to say."""

    def backlog_missing(self, backlog: str) -> None: ...
    def side_failed(self, role: Role, error: SyphonError) -> None: ...
    def side_accepted(self, role: Role) -> None: ...
    def backlog_detached(self, backlog: str, reason: str, is_refusal: bool) -> None: ...


class Relay:
    """The pumps of all backlogs between two connections."""

    def __init__(
        self,
        primary: NamespaceConnection,
        secondary: NamespaceConnection,
        backlogs: Iterable[str],
        options: SyphonOptions,
        counters: SyphonCounters,
        reporter: RelayReporter,
        reach_primary: Callable[[], Awaitable[NamespaceConnection]],
    ) -> None:
        self._primary = primary
        self._primary_since = asyncio.get_running_loop().time()
        self._reach_primary = reach_primary
        self._secondary = secondary
        self._options = options
        self._reporter = reporter
        self._destinations: dict[str, Destination] = {}
        allowed = options.allowed_destinations
        keys = None if allowed is None else frozenset(map(path_key, allowed))
        settings = PumpSettings(
            window=options.window,
            answer_timeout=options.operation_timeout.total_seconds(),
            is_allowed=lambda path: keys is None or path_key(path) in keys,
            destination_of=self._destination_of,
            counters=counters,
            reporter=reporter,
            tells_forwards=options.tell_forwards,
        )
        self._pumps = [Pump(backlog, settings) for backlog in backlogs]
        self._show_claims()
        self._pumping = asyncio.gather(*(self._keep_pumping(pump) for pump in self._pumps))

    async def wait_broken(self) -> str:
        """Wait until a side is lost; which, and why. An idle primary may close, and is reached again."""
        while True:
            sides = {self._secondary.closed: "secondary", self._primary.closed: "primary"}
            any_of: list[asyncio.Future[Any]] = [*sides, self._pumping]
            await asyncio.wait(any_of, return_when=asyncio.FIRST_COMPLETED)
            if self._pumping.done():
                self._pumping.result()  # it ends by itself only by a fault of ours, which must not be hidden
            lost = next(((side, closed) for closed, side in sides.items() if closed.done()), None)
            if lost is None:
                return "the pumps have ended"
            side, closed = lost
            if side == "primary" and self._is_at_rest() and await self._renew_primary():
                continue
            return f"the connection to the {side} was lost: {said(closed.result())}"

    def _is_at_rest(self) -> bool:
        lasted = asyncio.get_running_loop().time() - self._primary_since
        return lasted >= LEAST_REST and not any(pump.in_hands for pump in self._pumps)

    async def _renew_primary(self) -> bool:
        """Reach the primary alone: the backlogs' long polls, which are billed, go on (P-41)."""
        try:
            async with asyncio.timeout(RENEW_WITHIN):
                self._primary = await self._reach_primary()
        except (SyphonError, TimeoutError):
            return False
        self._primary_since = asyncio.get_running_loop().time()
        self._show_claims()
        return True

    def _show_claims(self) -> None:
        """Prove who we are before anything is to be done: a connection without a claim is soon closed."""
        self._claiming = asyncio.gather(
            *(side.authorize("") for side in (self._primary, self._secondary)), return_exceptions=True
        )

    @property
    def secondary(self) -> NamespaceConnection:
        """The connection on which the backlogs are read."""
        return self._secondary

    @property
    def is_whole(self) -> bool:
        """Both sides are connected now."""
        return self._primary.is_open and self._secondary.is_open

    def busy_backlogs(self) -> tuple[str, ...]:
        """Those that may hold messages: not those whose receive waits for the next one to come."""
        return tuple(pump.backlog for pump in self._pumps if not pump.is_waiting)

    @property
    def is_known(self) -> bool:
        """Both sides have judged our claim to the whole namespace; a key for single entities has none."""
        return self._claiming.done()

    async def drain(self) -> None:
        """Wait until every backlog was found empty: nothing free, nothing in our hands, nothing locked."""
        await asyncio.gather(*(self._drain(pump) for pump in self._pumps))

    async def _drain(self, pump: Pump) -> None:
        pump.drain()
        await pump.is_empty.wait()
        while not pump.is_missing and await self._has_more(pump.backlog):
            await asyncio.sleep(LOCKED_PAUSE)  # somebody's lock ends, or somebody completes it
            pump.drain()
            await pump.is_empty.wait()

    async def _has_more(self, backlog: str) -> bool:
        try:
            return await has_more(self._secondary, backlog)
        except SyphonError as error:
            self._reporter.backlog_detached(backlog, str(error), is_refusal=False)
            return True

    async def stop(self) -> None:
        """Finish what is being forwarded, give the rest back, and close both sides."""
        within = self._options.stop_timeout.total_seconds()
        try:
            if not self._secondary.closed.done():
                await asyncio.gather(*(pump.stop(within) for pump in self._pumps))
        finally:
            self._pumping.cancel()
            self._claiming.cancel()
            for destination in self._destinations.values():
                destination.stop()
            await asyncio.gather(self._pumping, self._claiming, return_exceptions=True)
            await asyncio.gather(self._secondary.close(), self._primary.close())

    def abort(self) -> None:
        """Drop both connections: a peer has stopped answering."""
        self._secondary.abort()
        self._primary.abort()

    def _destination_of(self, path: str) -> Destination:
        key = path_key(path)
        destination = self._destinations.get(key)
        if destination is None:
            most = self._options.retry_backoff_max.total_seconds()
            destination = Destination(path, self._open_sender, self._reporter, most)
            self._destinations[key] = destination
        return destination

    async def _open_sender(self, path: str) -> Sender:
        try:
            sender = await self._primary.open_sender(path)
        except SyphonError as error:
            self._refused(Role.PRIMARY, error)
            raise
        self._reporter.side_accepted(Role.PRIMARY)
        return sender

    def _refused(self, role: Role, error: SyphonError) -> None:
        """While another path of the side is served, what one is refused is its own affair (F-61)."""
        served = self._destinations.values() if role is Role.PRIMARY else self._pumps
        if not any(each.is_open for each in served):
            self._reporter.side_failed(role, error)

    async def _keep_pumping(self, pump: Pump) -> None:
        """Attach again whenever the link goes; a queue that is missing is looked for every so often."""
        loop = asyncio.get_running_loop()
        most = self._options.retry_backoff_max.total_seconds()
        backoff = Backoff(FIRST_RETRY, most, random.random)
        was_missing = False
        while not self._secondary.closed.done():
            began = loop.time()
            try:
                condition = await pump.run(self._secondary)
            except ConnectionLost as error:
                if self._secondary.closed.done():
                    return
                self._reporter.backlog_detached(pump.backlog, str(error), is_refusal=False)
            except SyphonError as error:
                self._refused(Role.SECONDARY, error)
                if error.condition is not None and error.condition.symbol == NOT_FOUND:
                    if not was_missing:
                        self._reporter.backlog_missing(pump.backlog)
                    was_missing = pump.is_missing = True
                    pump.is_empty.set()
                    await asyncio.sleep(self._options.missing_backlog_interval.total_seconds())
                    continue
                is_refusal = error.condition is not None and error.condition.symbol == UNAUTHORIZED_ACCESS
                self._reporter.backlog_detached(pump.backlog, str(error), is_refusal)
            else:
                if pump.is_stopping:
                    return
                was_missing = False
                if condition is None or condition.symbol != DETACH_FORCED:  # idleness is normal (P-41)
                    self._reporter.backlog_detached(pump.backlog, said(condition), is_refusal=False)
                if loop.time() - began >= SOUND:
                    backoff.succeeded()
                    continue
            await asyncio.sleep(backoff.failed())
