"""The ordered backlogs of one forwarding session: accepts sessions, relays their messages and releases them.

    accept next available --granted--> SessionRelay --empty--> released, another is accepted
           |                               |
           | none within the poll          '-- waits for its destination: keeps its lock, frees its place for another
           '-- accept again

One accept waits per queue, and more while accepts succeed; at most ``max_concurrent_sessions`` relays run at a time.
Several syphons share the sessions: the service grants each session to one of them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from sbpair.pair.amqp.errors import NOT_FOUND
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import ClientError, ConnectionLostError, SessionUnavailableError
from sbpair.pair.client.locks import LockClock, renewal_margin
from sbpair.pair.client.management_node import ManagementNode
from sbpair.pair.ground.shared_task import share

from ..forward.credit import INITIAL_SIZE, SMALLEST_SIZE
from ..status import BacklogLinks
from ..watch.claims import is_refusal
from ..watch.peeking import has_more
from .session_relay import RelaySettings, SessionRelay

logger = logging.getLogger("sbpair.syphon")

POLL = 60.0  # seconds that an accept waits for a session
DRAIN_POLL = 0.5  # seconds, the same while draining
LOCKED_PAUSE = 1.0  # seconds between checks of a queue in which only sessions of another syphon are left
MAX_ACCEPTS = 8  # of one queue, at a time
TICK = 1.0  # seconds between checks of the locks
MAX_IN_MEMORY = 100  # messages of a session in memory
MAX_STUCK = 4  # sessions that wait for their destination, in multiples of the places
MAX_HELD = 4000  # sessions in all: each needs an AMQP session, and a connection has 5,000 of them


class Places:
    """The places for relays: at most ``most`` run at a time, and at most ``MAX_STUCK`` times as many wait.

    A place is held by a relay, or by another object that stands for a relay not yet created.
    """

    def __init__(self, most: int) -> None:
        self._most = min(most, MAX_HELD)
        self._most_stuck = min(MAX_STUCK * most, MAX_HELD - self._most)
        self._running: set[SessionRelay | object] = set()
        self._stuck: set[SessionRelay | object] = set()
        self._free = asyncio.Event()
        self._free.set()

    async def take(self, who: object) -> None:
        """Wait for a place."""
        while len(self._running) >= self._most:
            self._free.clear()
            await self._free.wait()
        self._running.add(who)

    def pass_on(self, before: object, after: object) -> None:
        """Pass the place of ``before`` on to ``after``."""
        self._running.discard(before)
        self._running.add(after)

    def leave(self, who: object) -> None:
        """Free a place."""
        self._running.discard(who)
        self._stuck.discard(who)
        self._free.set()

    def busy(self, who: object, is_busy: bool) -> None:
        """Record that a relay runs again, even beyond the limit, or that it waits for its destination."""
        if is_busy and who in self._stuck:
            self._stuck.discard(who)
            self._running.add(who)
        elif not is_busy and who in self._running and len(self._stuck) < self._most_stuck:
            self._running.discard(who)
            self._stuck.add(who)
            self._free.set()


class OrderedBacklog:
    """One ordered backlog queue: accepts its sessions, and renews their locks."""

    def __init__(
        self,
        name: str,
        connection: NamespaceConnection,
        settings: RelaySettings,
        places: Places,
        links: BacklogLinks,
        *,
        retry_backoff_max: float,
        missing_interval: float,
        attached: Callable[[str], None],
    ) -> None:
        self.name = name
        self.is_missing = False
        self.is_open = False
        self._connection = connection
        self._settings = settings
        self._places = places
        self._links = links
        self._attached = attached
        self._missing_interval = missing_interval
        self._backoff = Backoff(retry_backoff_max)
        self._clock = LockClock()
        self._node = ManagementNode(connection, name)
        self._relays: dict[SessionRelay, asyncio.Task[None]] = {}
        self._doubtful: set[SessionRelay] = set()
        self._doubted = asyncio.Event()
        self._is_draining = False
        self._is_stopping = False
        self._accepting: set[asyncio.Task[SessionRelay | None]] = set()
        self._at_once = 1  # accepts
        self._is_empty = asyncio.Event()

    @property
    def sessions(self) -> int:
        """The number of sessions locked by this syphon."""
        return len(self._relays)

    async def run(self) -> None:
        """Accept and relay until cancelled or the connection is lost."""
        renewing = asyncio.ensure_future(self._keep_locks())
        try:
            while not (self._is_stopping or self._connection.closed.done()):
                found = await asyncio.gather(*(self._accept_next() for _ in range(self._at_once)))
                self._at_once = min(2 * self._at_once, MAX_ACCEPTS) if all(found) else 1
        finally:
            renewing.cancel()
            for relay in list(self._relays):
                relay.stop()
            await asyncio.gather(renewing, *self._relays.values(), return_exceptions=True)
            await self._node.close()

    async def drain(self) -> None:
        """Wait until the queue holds no messages, including locked ones."""
        self._is_draining = True
        for accepting in self._accepting:
            accepting.cancel()  # it may wait for a minute
        while True:
            self._is_empty.clear()
            await self._is_empty.wait()
            try:
                if self.is_missing or not await has_more(self._connection, self.name):
                    return
            except ClientError as error:
                self._links.note_detached(self.name, str(error))
            await asyncio.sleep(LOCKED_PAUSE)

    async def stop(self, timeout: float) -> None:
        """Stop accepting, let messages in flight finish within ``timeout`` seconds, and release the sessions."""
        self._is_stopping = True
        for accepting in self._accepting:
            accepting.cancel()
        for relay in list(self._relays):
            relay.stop()
        if self._relays:
            await asyncio.wait(list(self._relays.values()), timeout=timeout)

    async def _accept_next(self) -> bool:
        """Accept a session; return whether there was one."""
        place = object()
        await self._places.take(place)
        accepting: asyncio.Task[SessionRelay | None] | None = None
        try:
            if self._is_stopping:  # it stopped while this waited for a place
                return False
            accepting = share(self._accept(place))
            self._accepting.add(accepting)
            await asyncio.wait([accepting])
            if accepting.cancelled():
                return False
            relay = accepting.result()
            if relay is None:
                self._is_empty.set()
            return relay is not None
        except ConnectionLostError as error:
            if not self._connection.closed.done() and self._at_once == 1:
                await self._lost(error)
        except ClientError as error:
            if self._at_once == 1:  # of several, the next will tell
                await self._refused(error)
        finally:
            if accepting is not None:
                self._accepting.discard(accepting)
                if not accepting.done():
                    accepting.cancel()
            self._places.leave(place)
        return False

    async def _accept(self, place: object) -> SessionRelay | None:
        """Accept the next available session and start its relay; return None if none becomes available in time."""
        relay = SessionRelay(self.name, self._settings, self._places.busy, self._doubt)
        asked, poll = time.time(), DRAIN_POLL if self._is_draining else POLL
        try:
            receiver = await self._connection.open_session_receiver(
                self.name, relay.on_message, relay.on_disposition, timeout=poll
            )
        except SessionUnavailableError:
            self._heard()
            return None
        self._heard()
        now, wall = asyncio.get_running_loop().time(), time.time()
        left = self._clock.left(receiver.locked_until, wall, asked) if receiver.locked_until else 0.0
        relay.receiver, relay.lock_ends, relay.lock_span = receiver, now + left, self._clock.span
        if not left:
            self._doubt(relay)
        self._places.pass_on(place, relay)
        task = asyncio.ensure_future(relay.run(receiver))
        self._relays[relay] = task
        task.add_done_callback(lambda _: self._ended(relay))
        return relay

    def _heard(self) -> None:
        """Record that the queue answered."""
        self._backoff.succeeded()
        self.is_missing, self.is_open = False, True
        self._attached(self.name)

    def _ended(self, relay: SessionRelay) -> None:
        task = self._relays.pop(relay)
        self._doubtful.discard(relay)
        self._places.leave(relay)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, ClientError):
            logger.error("the relay of a session of %s failed", self.name, exc_info=error)

    async def _lost(self, error: ClientError) -> None:
        self.is_open = False
        self._links.note_detached(self.name, str(error))
        await asyncio.sleep(self._backoff.next_pause())

    async def _refused(self, error: ClientError) -> None:
        self.is_open = False
        if error.condition is None or error.condition.symbol != NOT_FOUND:
            self._links.note_detached(self.name, str(error), is_refusal=is_refusal(error))
            await asyncio.sleep(self._backoff.next_pause())
            return
        if not self.is_missing:
            self.is_missing = True
            self._links.note_missing(self.name)
        self._is_empty.set()
        await asyncio.sleep(self._missing_interval)

    # Locks

    def _doubt(self, relay: SessionRelay) -> None:
        self._doubtful.add(relay)
        self._doubted.set()

    async def _keep_locks(self) -> None:
        while True:
            try:
                async with asyncio.timeout(TICK):
                    await self._doubted.wait()
            except TimeoutError:
                pass
            self._doubted.clear()
            now = asyncio.get_running_loop().time()
            due = [
                relay
                for relay in self._relays
                if relay in self._doubtful or relay.lock_ends - now < renewal_margin(relay.lock_span)
            ]
            await asyncio.gather(*(self._renew(relay) for relay in due))

    async def _renew(self, relay: SessionRelay) -> None:
        """Renew the lock of a session; if that fails, its relay ends."""
        began, receiver = asyncio.get_running_loop().time(), relay.receiver
        self._doubtful.discard(relay)
        if receiver is None or receiver.detached.done():
            return
        try:
            ends = await self._node.ask(receiver.renew)
        except ClientError as error:
            logger.info("the lock of a session of %s was not renewed: %s", self.name, error)
            relay.stop()
            return
        relay.lock_ends = began + self._clock.renewed(ends, time.time())
        relay.lock_renewed()


def session_credit(budget: int, sessions: int) -> Callable[[int], int]:
    """Return a function that limits a relay's credit, so that all messages fit into half of ``budget`` bytes.

    ``sessions``: the number of relays. Call the function with the size in bytes of the session's largest message so
    far, 0 before the first; it returns the number of messages to request.
    """
    share = budget // (2 * sessions)
    return lambda largest: max(
        1, min(MAX_IN_MEMORY, share // (max(largest, SMALLEST_SIZE) if largest else INITIAL_SIZE))
    )
