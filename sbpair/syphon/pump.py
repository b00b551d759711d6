"""One backlog queue: receive, forward, and only then remove (P-42, G-20).

    delivered --> restored --> posted --> accepted --> complete asked --> complete confirmed
        |             |           |
        |          poison      refused for good --> dead-letter asked --> confirmed
        |                      held --> posted again, or given back before its lock ends
        '-- given back, when we are stopping

A delivery in our hands is a parcel (active or held) or is being settled. Whatever comes of it, the window
makes room for the next: poison, and destinations out of reach, never block the rest (G-21).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from sbpair.amqp.events import DispositionReceived, MessageReceived
from sbpair.amqp.performatives import Accepted, Condition, DeliveryState, Rejected, Released
from sbpair.amqp.types import Symbol
from sbpair.pairing.redaction import blank_keys

from .connection import NamespaceConnection
from .counters import SyphonCounters
from .destination import Destination, Parcel
from .errors import SyphonError, said
from .forward import Forward, Poison, printable, restore
from .link import SERIAL, Receiver
from .lock_clock import LockClock
from .locks import renew_locks
from .message_id import message_id_of
from .ranges import runs
from .verdict import FINAL
from .window import Window

logger = logging.getLogger("sbpair.syphon")

HELD_FACTOR = 4  # as many windows may be held back for destinations out of reach
SHORTEST_HOLD, LONGEST_HOLD = 1.0, 30.0  # seconds a held message keeps its lock: half of what is left of it
RENEWED_AT = 1 / 3  # of its span is left when a lock is renewed
TICK = 1.0  # seconds between looks at what has been in our hands too long
LONGEST_DESCRIPTION = 4096  # characters of a dead-letter description
DEAD_LETTER = Symbol("com.microsoft:dead-letter")
REASON, DESCRIPTION = Symbol("DeadLetterReason"), Symbol("DeadLetterErrorDescription")


class PumpReporter(Protocol):
    """Who hears what a pump has to say."""

    def backlog_attached(self, backlog: str) -> None: ...
    def message_set_aside(self, backlog: str, path: str | None, poison: Poison, message_id: str) -> None: ...
    def messages_forwarded(self, backlog: str, path: str, message_ids: tuple[str, ...]) -> None: ...
    def answer_overdue(self, what: str) -> None: ...
    def clock_differs(self, ahead: float) -> None: ...


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """What the pumps of one syphon have in common; spans in seconds."""

    window: int
    answer_timeout: float
    is_allowed: Callable[[str], bool]
    destination_of: Callable[[str], Destination]
    counters: SyphonCounters
    reporter: PumpReporter
    tells_forwards: bool = False


class Pump:
    """The messages of one backlog that are in our hands, over one link."""

    def __init__(self, backlog: str, settings: PumpSettings) -> None:
        self.backlog = backlog
        self.is_empty = asyncio.Event()
        self.is_missing = False
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._settings = settings
        self._counters = settings.counters
        self._loop = asyncio.get_running_loop()
        self._window = Window(settings.window, settings.window * HELD_FACTOR)
        self._connection: NamespaceConnection | None = None
        self._receiver: Receiver | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._parcels: dict[int, Parcel] = {}
        self._held: dict[Parcel, float] = {}  # until when it keeps its lock; monotonic
        self._doubted: set[Parcel] = set()  # is its lock still ours? Nothing is sent before that is known
        self._clock = LockClock()
        self._locked_since = 0.0  # no lock of this link is older; wall clock
        self._to_complete: list[int] = []
        self._to_tell: dict[str, list[str]] = {}  # forwarded and not told yet, by path
        self._settling: dict[int, float] = {}  # since when the broker owes the answer
        self._settle_is_due = False
        self.is_stopping = False
        self._poll_is_ending = False
        self._is_draining = False
        self._drain_is_out = False
        self._came_in_drain = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Its link is attached."""
        return self._receiver is not None and self._receiver.is_open

    @property
    def in_hands(self) -> int:
        """Deliveries that are not settled yet."""
        return len(self._parcels) + len(self._settling)

    @property
    def is_waiting(self) -> bool:
        """A receive waits and nothing came: the backlog is empty. So is one that does not exist."""
        receiver = self._receiver
        has_credit = receiver is not None and receiver.is_open and receiver.credit > 0
        return self.is_missing or (has_credit and not self.in_hands)

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Pump until the link goes; its last word. Raises TokenRefused, LinkRefused, ConnectionLost."""
        receiver = await connection.open_receiver(
            self.backlog, self._on_message, self._on_disposition, self._top_up
        )
        self._connection, self._receiver = connection, receiver
        self._locked_since = time.time()
        self._settings.reporter.backlog_attached(self.backlog)
        self.is_missing = False
        self._top_up()
        try:
            await asyncio.wait([receiver.detached])
            return receiver.detached.result()
        finally:
            self._forget()

    def drain(self) -> None:
        """From now on ask for what there is and no more; ``is_empty`` is set when the answer was: nothing."""
        self._is_draining = True
        self.is_empty.clear()
        self._top_up()

    async def stop(self, timeout: float) -> None:
        """Receive no more, let what is on its way end within ``timeout`` seconds, and give the rest back."""
        self.is_stopping = True
        receiver = self._receiver
        if receiver is None or receiver.detached.done():
            return
        receiver.flow(receiver.credit, drain=True)  # what is already on its way comes, and is given back
        self._give_back([*self._held, *self._doubted])
        try:
            async with asyncio.timeout(timeout):
                await receiver.drained()
                await self.is_idle.wait()
        except TimeoutError:
            self._give_back(list(self._parcels.values()))
        await receiver.close()

    # From the backlog.

    def _on_message(self, event: MessageReceived) -> None:
        now, wall = self._loop.time(), time.time()
        self._counters.received += 1
        self._came_in_drain += 1
        self._window.message_arrived(now)
        delivery_id = event.delivery_id
        if self.is_stopping:
            self._counters.released += 1
            event.link.dispose(delivery_id, delivery_id, Released())
            return
        self._counters.pending += 1
        if not self.in_hands:
            self.is_idle.clear()
            self._arm(now + TICK)  # while anything is in our hands the timer looks at it
        settings = self._settings
        restored = restore(event.payload, int(wall * 1000), settings.is_allowed)
        if isinstance(restored, Poison):
            self._dead_letter(delivery_id, None, restored, event.payload)
            return
        path, payload, ends, has_deadline = restored
        clock, destination = self._clock, settings.destination_of(path)
        left = clock.span if ends is None else clock.left(ends / 1000, wall, self._locked_since)
        parcel = Parcel(self, delivery_id, path, payload, now, now + left, clock.span, event.tag, destination)
        if has_deadline:
            parcel.again, parcel.restored_at = partial(self._restored, event.payload), now
        self._parcels[delivery_id] = parcel
        if left:
            destination.post(parcel)
        else:
            self.doubted(parcel)

    def _restored(self, payload: bytes) -> Forward | Poison:
        return restore(payload, int(time.time() * 1000), self._settings.is_allowed)

    def _on_disposition(self, event: DispositionReceived) -> None:
        """The broker's answer to what we asked of a run of deliveries."""
        for offset in range((event.last - event.first) % SERIAL + 1):
            if self._settling.pop((event.first + offset) % SERIAL, None) is not None:
                self._count(event.state)
        self._let_go()

    def _count(self, state: DeliveryState | None) -> None:
        self._counters.pending -= 1
        match state:
            case Accepted():
                self._counters.completed += 1
            case Rejected(error=None):
                self._counters.dead_lettered += 1
            case _:
                self._counters.lock_lost += 1
                self._came_in_drain += 1  # it is in the backlog again

    # From the destinations.

    def forwarded(self, parcel: Parcel) -> None:
        now = self._loop.time()
        self._counters.forwarded += 1
        if self._settings.tells_forwards:
            self._to_tell.setdefault(parcel.path, []).append(message_id_of(parcel.payload))
            self._settle_soon()
        if self._parcels.get(parcel.delivery_id) is not parcel:
            self._counters.lock_lost += 1  # the link it came by is gone: it comes again, and it is ambiguous
            return
        del self._parcels[parcel.delivery_id]
        self._window.forwarded(now - parcel.posted_at, parcel.lock_span)
        self._settling[parcel.delivery_id] = now
        self._to_complete.append(parcel.delivery_id)
        self._settle_soon()

    def refused(self, parcel: Parcel, condition: Condition | None) -> None:
        reason = FINAL[str(condition.symbol)] if condition is not None else "DestinationRefused"
        self.spoiled(
            parcel, Poison(reason, f"{printable(parcel.path)} refused the message: {said(condition)}")
        )

    def spoiled(self, parcel: Parcel, poison: Poison) -> None:
        if self._parcels.get(parcel.delivery_id) is not parcel:
            return
        del self._parcels[parcel.delivery_id]
        self._held.pop(parcel, None)
        self._dead_letter(parcel.delivery_id, parcel.path, poison, parcel.payload)

    def held(self, parcel: Parcel) -> None:
        if not self._keeps(parcel):
            return
        now = self._loop.time()
        self._held[parcel] = now + min(max(SHORTEST_HOLD, (parcel.lock_ends - now) / 2), LONGEST_HOLD)
        self._settle_soon()

    def resumed(self, parcel: Parcel) -> None:
        self._held.pop(parcel, None)
        parcel.posted_at = self._loop.time()  # the wait was not the forward's

    def doubted(self, parcel: Parcel) -> None:
        if not self._keeps(parcel):
            return
        self._held.pop(parcel, None)
        parcel.is_held = False
        self._doubted.add(parcel)
        self._loop.call_soon(self._ask_for_locks)

    def _keeps(self, parcel: Parcel) -> bool:
        """Whether a parcel that cannot go now may wait here: it is ours still, and we are not stopping."""
        if self._parcels.get(parcel.delivery_id) is not parcel:
            parcel.is_taken_back = True
            return False
        if self.is_stopping:
            self._give_back([parcel])
            return False
        return True

    # To the backlog.

    def _dead_letter(self, delivery_id: int, path: str | None, poison: Poison, payload: bytes) -> None:
        receiver = self._receiver
        assert receiver is not None  # noqa: S101  (there is no delivery without one)
        description = blank_keys(poison.description)[:LONGEST_DESCRIPTION]  # S-15
        poison = Poison(poison.reason, description)
        self._settings.reporter.message_set_aside(self.backlog, path, poison, message_id_of(payload))
        self._settling[delivery_id] = self._loop.time()
        info: dict[object, object] = {REASON: poison.reason, DESCRIPTION: description}
        receiver.settle(delivery_id, delivery_id, Rejected(Condition(DEAD_LETTER, description, info)))

    def _give_back(self, parcels: Iterable[Parcel]) -> None:
        """Settle nothing: the backlog has the messages again, at once."""
        receiver = self._receiver
        assert receiver is not None  # noqa: S101
        back = []
        for parcel in parcels:
            if self._parcels.pop(parcel.delivery_id, None) is not None:
                parcel.is_taken_back = True
                self._held.pop(parcel, None)
                self._doubted.discard(parcel)
                back.append(parcel.delivery_id)
        for first, last in runs(back):
            receiver.give_back(first, last, Released())
        self._counters.pending -= len(back)
        self._counters.released += len(back)
        self._came_in_drain += len(back)
        self._let_go()

    def _settle_soon(self) -> None:
        if not self._settle_is_due:
            self._settle_is_due = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settle_is_due = False
        self._tell_forwards()  # a journal has it before the backlog loses it
        receiver, done = self._receiver, self._to_complete
        if receiver is not None and done:
            self._to_complete = []
            for first, last in runs(done):
                receiver.settle(first, last, Accepted())
        self._top_up()

    def _tell_forwards(self) -> None:
        told, self._to_tell = self._to_tell, {}
        for path, message_ids in told.items():
            self._settings.reporter.messages_forwarded(self.backlog, path, tuple(message_ids))

    def _let_go(self) -> None:
        if not self.in_hands:
            self.is_idle.set()
        self._settle_soon()

    def _top_up(self) -> None:
        """Grant credit for the room there is; called whenever something came or went."""
        receiver = self._receiver
        if receiver is None or self.is_stopping or not receiver.is_open:
            return
        if self._is_draining and (self._drain_is_out or not self.in_hands):
            self._ask_what_is_left(receiver)
            return
        if self._poll_is_ending and receiver.credit:
            return
        self._poll_is_ending = False
        held = len(self._held)
        active, settling = len(self._parcels) - held, len(self._settling)
        grant = self._window.grant(receiver.credit, active, held, self._loop.time(), settling)
        if grant is not None:
            self._count_receive(receiver)
            receiver.flow(grant)
            self._arm(self._window.next_timer())

    def _ask_what_is_left(self, receiver: Receiver) -> None:
        """With nothing in our hands, a drain-flow; one that brings nothing says that the backlog is empty."""
        if self._drain_is_out:
            if receiver.credit:
                return
            self._drain_is_out = False
            if self._came_in_drain:
                self._top_up()
                return
            self.is_empty.set()
        if not self.is_empty.is_set():
            self._came_in_drain = 0
            self._drain_is_out = True
            if receiver.credit == 0:
                self._window.receive_began(self._loop.time())
            self._count_receive(receiver)
            receiver.flow(self._window.room(0, 0), drain=True)

    def _count_receive(self, receiver: Receiver) -> None:
        if receiver.credit == 0:
            self._counters.receives += 1

    # Time.

    def _arm(self, when: float | None) -> None:
        if when is None or (self._timer is not None and self._timer.when() <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._look)

    def _look(self) -> None:
        """What has been in our hands too long, and has the long poll come to its end?"""
        self._timer = None
        now = self._loop.time()
        self._give_back([parcel for parcel, until in self._held.items() if until <= now])
        self._look_for_overdue(now)
        self._ask_for_locks()
        if self._clock.difference is not None:
            self._settings.reporter.clock_differs(self._clock.difference)
        receiver = self._receiver
        if self._window.handle_timer(now) and receiver is not None and not self._is_draining:
            self._poll_is_ending = True
            receiver.flow(receiver.credit, drain=True)
        self._arm(now + TICK if self.in_hands else self._window.next_timer())

    def _ask_for_locks(self) -> None:
        """Renew what would end while the primary takes its time (F-62), and what may have ended (F-66).

        What is held is given back before.
        """
        if self._connection is None or (self._renewing is not None and not self._renewing.done()):
            return
        now = self._loop.time()
        asked = [
            parcel
            for parcel in self._parcels.values()
            if parcel in self._doubted
            or (not parcel.is_held and 0 < parcel.lock_ends - now < parcel.lock_span * RENEWED_AT)
        ]
        if asked:
            self._renewing = asyncio.ensure_future(self._renew(self._connection, asked))
            self._renewing.add_done_callback(self._renewal_ended)

    def _renewal_ended(self, renewing: asyncio.Task[None]) -> None:
        if self._doubted:  # by those that came meanwhile; what is only ending has until the next look
            self._ask_for_locks()

    async def _renew(self, connection: NamespaceConnection, parcels: list[Parcel]) -> None:
        """Those in doubt go out when their lock could be renewed, and else are somebody else's."""
        receiver = self._receiver
        try:
            ends = await renew_locks(connection, self.backlog, [parcel.tag for parcel in parcels])
        except SyphonError as error:  # what is in doubt comes again, and is not older than that
            logger.info("%s", error)
            if self._receiver is not receiver:
                return  # the link is gone too: its messages come again by themselves
            self._clock.forget()
            self._locked_since = time.time()
            self._give_back(list(self._doubted))
            return
        now, wall = self._loop.time(), time.time()
        doubted = self._doubted.intersection(parcels)
        for parcel, end in zip(parcels, ends, strict=True):
            parcel.lock_ends = now if end is None else now + self._clock.renewed(end, wall)
        self._give_back([parcel for parcel in doubted if parcel.lock_ends <= now])
        for parcel in parcels:
            if parcel in self._doubted:
                self._doubted.remove(parcel)
                parcel.posted_at = now
                parcel.destination.post(parcel)

    def _look_for_overdue(self, now: float) -> None:
        oldest = now - self._settings.answer_timeout
        if any(since < oldest for since in self._settling.values()):
            self._settings.reporter.answer_overdue(f"the backlog {self.backlog} does not answer settlements")
        elif any(p.posted_at < oldest and not p.is_held for p in self._parcels.values()):
            self._settings.reporter.answer_overdue("the primary does not answer")

    def _forget(self) -> None:
        """The link is gone: its locks end by themselves, and its messages come again."""
        for parcel in self._parcels.values():
            parcel.is_taken_back = True
        self._counters.pending -= self.in_hands
        self._parcels.clear()
        self._held.clear()
        self._doubted.clear()
        self._settling.clear()
        self._to_complete.clear()
        self._connection = self._receiver = None
        if self._renewing is not None:
            self._renewing.cancel()
        self._drain_is_out = self._poll_is_ending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_idle.set()
