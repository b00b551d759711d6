"""The locks of a backlog's unsettled deliveries: their renewal, and deliveries whose message is not kept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.locks import LockClock, LockKeeper

from .in_flight import InFlightMessage, MessageTarget

FIRST_BATCH = 1000  # deliveries released at once per destination; doubled while the destination accepts them


@dataclass(slots=True, eq=False)
class KeptDelivery:
    """A delivery without its message."""

    delivery_id: int
    tag: bytes  # the lock token
    lock_ends: float  # seconds, monotonic


@dataclass(slots=True)
class _Entry:
    """The deliveries for one destination."""

    deliveries: dict[int, KeptDelivery] = field(default_factory=dict)
    batch: int = FIRST_BATCH


class Overflow:
    """Locked deliveries by destination.

    Each takes a few hundred bytes and no room in the window, and its lock is renewed. Once its destination has accepted
    all messages that wait in memory, deliveries are released, oldest first, to be redelivered.
    """

    def __init__(self) -> None:
        self._entries: dict[MessageTarget, _Entry] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[KeptDelivery]:
        for entry in self._entries.values():
            yield from entry.deliveries.values()

    def put(self, destination: MessageTarget, delivery: KeptDelivery) -> None:
        """Keep the lock of a delivery for ``destination``."""
        entry = self._entries.setdefault(destination, _Entry())
        entry.batch = FIRST_BATCH
        entry.deliveries[delivery.delivery_id] = delivery
        self._count += 1

    def take_ready(self) -> list[int]:
        """Remove and return the delivery ids for destinations that accept messages again, a batch of each."""
        ready: list[int] = []
        for destination, entry in list(self._entries.items()):
            if destination.takes_more:
                batch = list(entry.deliveries)[: entry.batch]
                entry.batch *= 2
                ready += self._take(destination, entry, batch)
        return ready

    def take_expired(self, now: float) -> list[int]:
        """Remove and return the delivery ids whose locks have expired: they are redelivered anyway."""
        expired: list[int] = []
        for destination, entry in list(self._entries.items()):
            ended = [each.delivery_id for each in entry.deliveries.values() if each.lock_ends <= now]
            expired += self._take(destination, entry, ended)
        return expired

    def take_all(self) -> list[int]:
        """Remove and return all delivery ids."""
        ids = [each.delivery_id for each in self]
        self._entries.clear()
        self._count = 0
        return ids

    def _take(self, destination: MessageTarget, entry: _Entry, ids: Iterable[int]) -> list[int]:
        taken = [number for number in ids if entry.deliveries.pop(number, None) is not None]
        self._count -= len(taken)
        if not entry.deliveries:
            del self._entries[destination]
        return taken


class LockRenewal:
    """Renews the locks of the unsettled deliveries of one backlog.

    A message whose lock may have ended is *doubtful*: it is sent only after its lock was renewed.
    """

    def __init__(
        self,
        backlog: str,
        deliveries: Callable[[], Iterator[InFlightMessage | KeptDelivery]],
        release: Callable[[Iterable[InFlightMessage]], None],
        home: Callable[[str], MessageTarget],
    ) -> None:
        """Create a renewal; ``deliveries`` iterates over the locked ones, ``release`` returns messages to the backlog.

        ``home`` returns the destination of a path: the destination of a doubtful message may have been forgotten
        meanwhile.
        """
        self.clock = LockClock()
        self.locked_since = 0.0  # no lock of the current link is older; wall clock
        self.doubtful: set[InFlightMessage] = set()
        self._deliveries = deliveries
        self._release = release
        self._home = home
        self._loop = asyncio.get_running_loop()
        self._connection: NamespaceConnection | None = None
        self._link_ends: asyncio.Future[Condition | None] = self._loop.create_future()
        self._keeper = LockKeeper[InFlightMessage | KeptDelivery](
            backlog, self.clock, lambda: time.time(), self._renewed, self._not_renewed
        )

    def start(self, connection: NamespaceConnection, link_ends: asyncio.Future[Condition | None]) -> None:
        """Renew over ``connection``, whose link to the backlog was just attached.

        ``link_ends`` is done when it is detached.
        """
        self._connection, self._link_ends = connection, link_ends
        self.locked_since = time.time()

    def stop(self) -> None:
        """Stop renewing: the link is gone, and its locks expire."""
        self.doubtful.clear()
        self._connection = None
        self._keeper.stop()

    def doubt(self, message: InFlightMessage) -> None:
        """Renew the lock of ``message`` now, then post the message again; if the lock is lost, release it."""
        self.doubtful.add(message)
        self._loop.call_soon(self.renew_due)

    def renew_due(self) -> None:
        """Start renewing the locks that end soon, and the doubtful ones, unless a renewal is in progress."""
        if self._connection is None:
            return
        renewing = self._keeper.renew_due(self._connection, self._deliveries(), self.doubtful)
        if renewing is not None:
            renewing.add_done_callback(self._renewal_ended)

    def _renewal_ended(self, renewing: asyncio.Task[None]) -> None:
        if self.doubtful:  # added meanwhile; locks that merely end soon can wait for the next tick
            self.renew_due()

    def _renewed(
        self, renewed: Sequence[InFlightMessage | KeptDelivery], ends: Sequence[float | None]
    ) -> None:
        """Post the doubtful messages that still have a lock, and release the others."""
        if self._link_ends.done():
            return  # its owner stops the renewal some turns later; its messages are delivered again
        now = self._loop.time()
        doubtful = [each for each in renewed if isinstance(each, InFlightMessage) and each in self.doubtful]
        self._release([message for message in doubtful if message.lock_ends <= now])
        for message in doubtful:
            if message in self.doubtful:
                self.doubtful.remove(message)
                message.posted_at = now
                message.post_home(self._home(message.path))

    def _not_renewed(self) -> None:
        if not self._link_ends.done():
            self.clock.forget()
            self.locked_since = time.time()
            self._release(list(self.doubtful))
