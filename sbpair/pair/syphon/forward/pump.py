"""The pump of one backlog queue: receives messages, forwards them, and only then completes them.

    delivered --> restored --> posted --> accepted --> complete sent --> complete confirmed
        |             |           |
        |          poison      refused finally --> dead-letter sent --> confirmed
        |                      held --> sent later, or in overflow --> released once its destination accepts more
        '-- released, when stopping

A delivery in memory is an in-flight message: active, stalled or held. Other deliveries are in overflow, or being
settled. Only active messages count against the window, so that neither poison messages nor stuck destinations block the
rest. Held messages stay in memory within the budget; of those in overflow, only the lock is kept. Locks are renewed as
long as needed, so that a waiting message is not redelivered repeatedly.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.performatives import (
    Accepted,
    Condition,
    DeliveryState,
    Rejected,
    Released,
    TransactionalState,
)
from sbpair.pair.amqp.sections import decode_map_section, split
from sbpair.pair.auth.redaction import blank_keys
from sbpair.pair.client.connection import NamespaceConnection
from sbpair.pair.client.errors import condition_text
from sbpair.pair.client.link import (
    DEAD_LETTER,
    DESCRIPTION,
    LINK_USED_EVERY,
    REASON,
    Receiver,
    Settlements,
    release,
    runs,
)
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.envelope.restore import EXPIRED, Forward, Poison, locked_until_of, printable, restore
from sbpair.pair.ground.side import Side
from sbpair.pair.tracing import current
from sbpair.pair.tracing.current import Tracing

from ..events import MessageSetAside, MessagesInDoubt, SyphonEvent
from ..status import SyphonCounters
from ..watch.peeking import SilenceWatch
from .credit import MemoryBudget, RecentSize, Window
from .delivery import Destination
from .in_flight import DEAD_LETTER_REASONS, ForwardReports, InFlightMessage
from .locks import KeptDelivery, LockRenewal, Overflow

logger = logging.getLogger("sbpair.syphon")

HELD_FACTOR = 4  # messages held in memory for stuck destinations, in multiples of the window
MAX_LOCKED = 50_000  # waiting deliveries of a backlog; above that, none is received
MAX_DESCRIPTION_LENGTH = 4096  # characters of a dead-letter description
TICK = 1.0  # seconds between checks while anything is unsettled


@dataclass(frozen=True, slots=True)
class PumpSettings:
    """Settings shared by the pumps of one syphon; durations in seconds."""

    window: int
    answer_timeout: float
    is_allowed: Callable[[str], bool]
    destination_of: Callable[[str], Destination]
    counters: SyphonCounters
    budget: MemoryBudget
    emit: Callable[[SyphonEvent], None]
    attached: Callable[[str], None]
    """Called with the backlog once its link is attached."""
    unresponsive: Callable[[str], None]
    """Called with the reason when the peer does not answer: the connection must be replaced."""
    clock_differs: Callable[[float], None]
    """Called with the seconds that the broker's clock is ahead, repeatedly while it differs."""
    report_forwards: bool = False


class Pump:
    """The unsettled messages of one backlog, received over one link at a time."""

    def __init__(self, backlog: str, settings: PumpSettings) -> None:
        self.backlog = backlog
        self.is_empty = asyncio.Event()
        self.is_missing = False
        self.is_idle = asyncio.Event()
        self.is_idle.set()
        self._settings = settings
        self._counters = settings.counters
        self._loop = asyncio.get_running_loop()
        self._window = Window(settings.window, MAX_LOCKED)
        self._most_held = settings.window * HELD_FACTOR
        self._budget = settings.budget
        self._size = RecentSize()
        self._largest = 0  # bytes of a message since the last grant of credit
        self._connection: NamespaceConnection | None = None
        self._receiver: Receiver | None = None
        self._messages: dict[int, InFlightMessage] = {}
        self._held: dict[InFlightMessage, None] = {}  # wait for their destination
        self._stalled: set[InFlightMessage] = set()  # in flight for too long to count as active
        self._overflow = Overflow()
        self._locks = LockRenewal(backlog, self._locked_deliveries, self._release, settings.destination_of)
        self._silence = SilenceWatch(backlog, self._arm_next, settings.unresponsive)
        self._link_used_at = 0.0  # when credit was last granted; monotonic
        self._reports = ForwardReports(backlog, settings.emit, is_wanted=settings.report_forwards)
        self._settlements = Settlements[None](self._count)
        self._settle_is_due = False
        self.is_stopping = False
        self._is_paused = False
        self._poll_is_ending = False
        self._is_draining = self._drain_is_pending = False
        self._received_in_drain = 0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_open(self) -> bool:
        """Whether the link is attached."""
        return self._receiver is not None and self._receiver.is_open

    @property
    def unsettled(self) -> int:
        """The number of deliveries that are not settled yet."""
        return len(self._messages) + len(self._settlements) + len(self._overflow)

    @property
    def is_waiting(self) -> bool:
        """Whether the backlog is empty: it is missing, or a receive waits with nothing unsettled."""
        receiver = self._receiver
        has_credit = receiver is not None and receiver.is_open and receiver.credit > 0
        return self.is_missing or (has_credit and not self.unsettled)

    async def run(self, connection: NamespaceConnection) -> Condition | None:
        """Pump until the link is detached; return its error.

        Raises TokenRefusedError, LinkRefusedError, ConnectionLostError when the link cannot be attached.
        """
        receiver = await connection.open_receiver(
            self.backlog, self._on_message, self._on_disposition, self._top_up
        )
        self._connection, self._receiver = connection, receiver
        self._locks.start(connection, receiver.detached)
        self._silence.start(connection)
        self._settings.attached(self.backlog)
        self.is_missing = False
        self._top_up()
        try:
            await asyncio.wait([receiver.detached])
            return self._silence.condition or receiver.detached.result()
        finally:
            self._forget()

    def drain(self) -> None:
        """Receive only the messages present from now on; ``is_empty`` is set once a drain returns none."""
        self._is_draining = True
        self.is_empty.clear()
        self._top_up()

    def pause(self) -> None:
        """Receive nothing until :meth:`resume`; messages already received wait, locked."""
        self._is_paused = True
        if self._receiver is not None:
            self._receiver.flow(0)

    def resume(self) -> None:
        """Receive again."""
        self._is_paused = self._poll_is_ending = self._drain_is_pending = False
        self._top_up()

    def give_back(self) -> None:
        """If paused, release the waiting messages, so that they are redelivered later or to another receiver."""
        if self._is_paused and self._receiver is not None and not self._receiver.detached.done():
            self._release(list(self._messages.values()))
            self._release_ids(self._overflow.take_all())

    async def stop(self, timeout: float) -> None:
        """Stop receiving, wait up to ``timeout`` seconds for active messages, and release the others."""
        self.is_stopping = True
        receiver = self._receiver
        if receiver is None or receiver.detached.done():
            return
        receiver.flow(receiver.credit, drain=True)  # messages that still arrive are released
        self._release([*self._held, *self._locks.doubtful])
        self._release_ids(self._overflow.take_all())
        try:
            async with asyncio.timeout(timeout):
                await receiver.drained()
                await self.is_idle.wait()
        except TimeoutError:
            if self._receiver is not None and not receiver.detached.done():  # lost in the same turn
                self._release(list(self._messages.values()))
        await receiver.close()

    # From the backlog

    def _on_message(self, event: MessageReceived) -> None:
        now, wall = self._loop.time(), time.time()
        self._counters.received += 1
        self._received_in_drain += 1
        self._window.message_arrived(now)
        delivery_id = event.delivery_id
        if self.is_stopping:
            self._counters.released += 1
            event.link.dispose(delivery_id, delivery_id, Released())
            return
        self._counters.pending += 1
        if not (self._messages or self.unsettled):
            self.is_idle.clear()
            self._arm(now + TICK)
        settings = self._settings
        restored = restore(event.payload, int(wall * 1000), settings.is_allowed)
        if isinstance(restored, Poison):
            if restored.reason == EXPIRED:
                self._check_clock(event.payload, wall)
            self._dead_letter(delivery_id, None, restored, event.payload)
            return
        path, payload, ends, has_deadline, _ = restored
        locks, destination = self._locks, settings.destination_of(path)
        clock = locks.clock
        left = clock.span if ends is None else clock.left(ends / 1000, wall, locks.locked_since)
        size = len(payload)
        message = InFlightMessage(
            self, delivery_id, path, payload, now, now + left, clock.span, event.tag, destination, size
        )
        if has_deadline:
            message.restore_again, message.restored_at = partial(self._restore, event.payload), now
            message.size += len(event.payload)
        self._messages[delivery_id] = message
        budget = self._budget
        budget.used += message.size
        self._largest = max(self._largest, message.size)
        if budget.is_exceeded:
            self._pause_reading()
        if left:
            destination.post(message)
        else:
            self.lock_doubtful(message)

    def _pause_reading(self) -> None:
        if self._connection is not None:
            self._connection.pause_reading()
            self._budget.wake_later(self._connection.resume_reading)

    def _remove(self, message: InFlightMessage) -> bool:
        """Remove ``message`` from memory; return False when it was removed before."""
        if self._messages.get(message.delivery_id) is not message:
            return False
        del self._messages[message.delivery_id]
        if message in self._held:
            del self._held[message]
            self._budget.held -= message.size
        if message.is_stalled:
            self._stalled.discard(message)
        self._budget.used -= message.size
        if self._budget.waiting:
            self._budget.wake()
        return True

    def _check_clock(self, payload: bytes, wall: float) -> None:
        """Check whether a message that expired by the local clock shows that the broker's clock differs."""
        ends = locked_until_of(payload)
        if ends is not None:
            self._locks.clock.left(ends / 1000, wall, self._locks.locked_since)
        self._report_clock()

    def _report_clock(self) -> None:
        difference = self._locks.clock.difference
        if difference is not None:
            self._settings.clock_differs(difference)

    def _restore(self, payload: bytes) -> Forward | Poison:
        return restore(payload, int(time.time() * 1000), self._settings.is_allowed)

    def _on_disposition(self, event: DispositionReceived) -> None:
        """Count the broker's answer for a range of deliveries."""
        self._settlements.on_disposition(event)
        self._removed()

    def _count(self, _: None, state: DeliveryState | None) -> None:
        self._counters.pending -= 1
        match state:
            case Accepted():
                self._counters.completed += 1
            case Rejected(error=None):
                self._counters.dead_lettered += 1
            case _:
                self._counters.lock_lost += 1
                self._received_in_drain += 1  # the message is in the backlog again

    # From the destinations

    def forwarded(self, message: InFlightMessage) -> None:
        """Complete a message that its destination accepted."""
        now = self._loop.time()
        self._counters.forwarded += 1
        if current.active is not None:
            side = Side.SECONDARY if message.is_landing else Side.PRIMARY
            seconds = now - message.posted_at
            trace_forward(
                current.active, message.payload, message.path, self.backlog, seconds=seconds, side=side.value
            )
        if message.is_landing:
            self._counters.landed += 1
        if message.is_settled:
            self._settled_in_transaction(message, now)
            return
        self.reported(message)
        if self._messages.get(message.delivery_id) is not message:
            self._counters.lock_lost += 1  # its link is gone: it will be delivered and forwarded again
            return
        del self._messages[message.delivery_id]
        if message.is_stalled:
            self._stalled.discard(message)
        budget = self._budget
        budget.used -= message.size
        if budget.waiting:
            budget.wake()
        self._window.forwarded(now - message.posted_at, message.lock_span)
        self._settlements.add(message.delivery_id, None)
        self._settle_soon()

    def _settled_in_transaction(self, message: InFlightMessage, now: float) -> None:
        if self._remove(message):  # otherwise its link is gone, and the message was counted then
            self._counters.pending -= 1
            self._window.forwarded(now - message.posted_at, message.lock_span)
        self._counters.completed += 1
        self._removed()

    def reported(self, message: InFlightMessage) -> None:
        """Emit MessagesForwarded for a message, before the backlog removes it at the latest."""
        if self._reports.add(message):
            self._settle_soon()

    def unanswered(self, message: InFlightMessage) -> None:
        """Emit MessagesInDoubt for a message that is sent again although its destination may have it."""
        if self._reports.add(message, MessagesInDoubt):
            self._settle_soon()

    async def complete_in(self, messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        """Complete messages as part of a transaction; return whether all locks were still held.

        The messages are reported first. After False, roll the transaction back and give up the locks, because a settled
        delivery cannot be settled again.
        """
        self._reports.emit()
        receiver = self._receiver
        if receiver is None or any(self._messages.get(each.delivery_id) is not each for each in messages):
            return False
        state = TransactionalState(txn_id, Accepted())
        spans = runs(each.delivery_id for each in messages)
        answers = await asyncio.gather(*(receiver.settled_run(first, last, state) for first, last in spans))
        return all(isinstance(each, TransactionalState) for run in answers for each in run)

    def lock_given_up(self, messages: Iterable[InFlightMessage]) -> None:
        """Forget messages whose locks can no longer be used: they are redelivered when the locks expire."""
        for message in messages:
            if self._remove(message):
                message.is_released = True
                self._counters.pending -= 1
                self._counters.lock_lost += 1
                self._received_in_drain += 1  # the message is still in the backlog
        self._removed()

    def refused(self, message: InFlightMessage, condition: Condition | None) -> None:
        """Dead-letter a message that its destination refused finally."""
        reason = DEAD_LETTER_REASONS[str(condition.symbol)] if condition is not None else "DestinationRefused"
        description = f"{printable(message.path)} refused the message: {condition_text(condition)}"
        self.poisoned(message, Poison(reason, description))

    def poisoned(self, message: InFlightMessage, poison: Poison) -> None:
        """Dead-letter a message that can no longer be forwarded."""
        if self._remove(message):
            self._dead_letter(message.delivery_id, message.path, poison, message.payload)

    def held(self, message: InFlightMessage) -> None:
        """Keep a message that its destination cannot accept now, in memory or in overflow."""
        if not self._may_wait(message):
            return
        if message.is_stalled:
            message.is_stalled = False
            self._stalled.discard(message)
        is_first = message.destination.waiting <= 1  # at least one stays in memory, to probe its destination
        if is_first or (len(self._held) < self._most_held and self._budget.may_hold(message.size)):
            self._held[message] = None
            self._budget.held += message.size
            if self._budget.waiting:
                self._budget.wake()
        else:
            self._move_to_overflow(message)
        self._settle_soon()

    def _move_to_overflow(self, message: InFlightMessage) -> None:
        if self._remove(message):
            message.is_released = True
            message.destination.withdraw(message)
            lock = KeptDelivery(message.delivery_id, message.tag, message.lock_ends)
            self._overflow.put(message.destination, lock)

    def resumed(self, message: InFlightMessage) -> None:
        """Count a held message as active again."""
        if message in self._held:
            del self._held[message]
            self._budget.held -= message.size
        message.posted_at = self._loop.time()  # the wait does not count as time to forward

    def stalled(self, message: InFlightMessage) -> None:
        """Stop counting a message as active: its destination does not answer."""
        if self._messages.get(message.delivery_id) is message:
            self._stalled.add(message)
            self._settle_soon()

    def lock_doubtful(self, message: InFlightMessage) -> None:
        """Renew the lock of a message, which may have ended, before the message is posted."""
        if not self._may_wait(message):
            return
        self.resumed(message)
        message.is_held = False
        self._locks.doubt(message)

    def _may_wait(self, message: InFlightMessage) -> bool:
        """Return whether a message that cannot be sent now may wait; releases it when stopping."""
        if self._messages.get(message.delivery_id) is not message:
            message.is_released = True
            return False
        if self.is_stopping:
            self._release([message])
            return False
        return True

    # To the backlog

    def _dead_letter(self, delivery_id: int, path: str | None, poison: Poison, payload: bytes) -> None:
        description = blank_keys(poison.description)[:MAX_DESCRIPTION_LENGTH]
        self._settings.emit(
            MessageSetAside(
                time.time(), self.backlog, path, poison.reason, description, message_id_of(payload)
            )
        )
        if current.active is not None:
            trace_forward(current.active, payload, path or "", self.backlog, refusal=poison.reason)
        info: dict[object, object] = {REASON: poison.reason, DESCRIPTION: description}
        rejected = Rejected(Condition(DEAD_LETTER, description, info))
        self._settlements.add(delivery_id, None, rejected)
        self._settle_soon()

    def _release(self, messages: Iterable[InFlightMessage]) -> None:
        """Return messages to the backlog, which can deliver them again at once."""
        ids = []
        for message in messages:
            if self._remove(message):
                message.is_released = True
                message.destination.withdraw(message)
                self._locks.doubtful.discard(message)
                ids.append(message.delivery_id)
        self._release_ids(ids)

    def _release_ids(self, ids: list[int]) -> None:
        receiver = self._receiver
        assert receiver is not None  # noqa: S101
        release(receiver, ids)
        self._counters.pending -= len(ids)
        self._counters.released += len(ids)
        self._received_in_drain += len(ids)
        self._removed()

    def _settle_soon(self) -> None:
        if not self._settle_is_due:
            self._settle_is_due = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settle_is_due = False
        self._reports.emit()  # for an audit: before the backlog removes the messages
        if self._receiver is not None:
            self._settlements.flush(self._receiver)
        self._top_up()

    def _removed(self) -> None:
        if not self.unsettled:
            self.is_idle.set()
        self._settle_soon()

    # Credit

    def _top_up(self) -> None:
        """Grant credit for the available room; called after every change."""
        receiver = self._receiver
        if receiver is None or self.is_stopping or self._is_paused or not receiver.is_open:
            return
        if self._is_draining and (self._drain_is_pending or not self.unsettled):
            self._drain_remaining(receiver)
            return
        if self._poll_is_ending and receiver.credit:
            return
        self._poll_is_ending = False
        idle = len(self._held) + len(self._stalled)
        active, settling = len(self._messages) - idle, len(self._settlements)
        if self._largest:
            self._size.update(self._largest)
            self._largest = 0
        held, most = idle + len(self._overflow), self._budget.credit(self._size.bytes, self._settle_soon)
        grant = self._window.grant(receiver.credit, active, held, self._loop.time(), settling, most)
        if grant is not None:
            self._counters.receives += receiver.credit == 0
            self._link_used_at = self._loop.time()
            receiver.flow(grant)
            self._arm_next()

    def _drain_remaining(self, receiver: Receiver) -> None:
        """Drain the link if nothing is unsettled; if nothing arrives, the backlog is empty."""
        if self._drain_is_pending:
            if receiver.credit:
                return
            self._drain_is_pending = False
            if self._received_in_drain:
                self._top_up()
                return
            self.is_empty.set()
        if not self.is_empty.is_set():
            self._received_in_drain = 0
            self._drain_is_pending = True
            if receiver.credit == 0:
                self._window.receive_began(self._loop.time())
                self._counters.receives += 1
            most = self._budget.credit(self._size.bytes, self._settle_soon)
            receiver.flow(max(1, min(most, self._window.room(0, 0))), drain=True)

    # Timers

    def _arm(self, when: float | None) -> None:
        if when is None or (self._timer is not None and self._timer.when() <= when):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(when, self._check)

    def _check(self) -> None:
        """Release overflow, renew locks, and end a long poll, as due."""
        self._timer = None
        now = self._loop.time()
        if self._overflow and self._receiver is not None:
            self._release_ids(self._overflow.take_expired(now) + self._overflow.take_ready())
        self._check_answers()
        self._use_link(now)
        self._locks.renew_due()
        self._report_clock()
        receiver = self._receiver
        if receiver is not None and not (self.unsettled or self.is_stopping):
            self._silence.watch(receiver, now, self._window.heard_at)
        if self._window.handle_timer(now) and receiver is not None and not self._is_draining:
            self._poll_is_ending = True
            receiver.flow(receiver.credit, drain=True)
        self._arm(now + TICK if self.unsettled else self._next_check(now))

    def _next_check(self, now: float) -> float | None:
        """Return when to check while nothing is unsettled: when the long poll ends, or the link must be used."""
        poll, receiver = self._window.next_timer(), self._receiver
        if receiver is not None and receiver.credit:  # otherwise nothing can arrive
            check = max(now + TICK, self._silence.next_check())
            poll = check if poll is None else min(poll, check)
        if poll is None or self._is_draining:
            return poll
        return min(poll, max(now + TICK, self._link_used_at + LINK_USED_EVERY))

    def _arm_next(self) -> None:
        self._arm(self._next_check(self._loop.time()))

    def _use_link(self, now: float) -> None:
        """Grant the current credit again, so that the link does not count as idle.

        Its deliveries can be settled only over this link. Unlike a new link, repeated credit does not start another
        billed receive.
        """
        receiver = self._receiver
        if receiver is None or self._is_draining or now - self._link_used_at < LINK_USED_EVERY:
            return
        if not self._poll_is_ending:
            self._link_used_at = now
            receiver.flow(receiver.credit)

    def _locked_deliveries(self) -> Iterator[InFlightMessage | KeptDelivery]:
        yield from self._messages.values()
        yield from self._overflow

    def _check_answers(self) -> None:
        if self._settlements.is_overdue(self._settings.answer_timeout):
            self._settings.unresponsive(f"the backlog {self.backlog} does not answer settlements")

    def _forget(self) -> None:
        """Drop all state of a lost link: its locks expire, and its messages are redelivered."""
        self._counters.pending -= self.unsettled
        self._window.link_lost(len(self._messages))
        for message in list(self._messages.values()):
            message.is_released = True
            message.destination.withdraw(message)
            self._remove(message)
        self._overflow.take_all()
        self._stalled.clear()
        self._settlements.end()
        self._connection = self._receiver = None
        self._locks.stop()
        self._silence.stop()
        self._drain_is_pending = self._poll_is_ending = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.is_idle.set()


def trace_forward(
    tracing: Tracing,
    payload: bytes,
    path: str,
    backlog: str,
    *,
    seconds: float = 0.0,
    side: str = "primary",
    refusal: str = "",
) -> None:
    """Record the span of a message that was forwarded in ``seconds``, or dead-lettered with the reason ``refusal``."""
    try:
        headers = current.headers_of(decode_map_section(split(payload).application_properties))
    except (DecodeError, IndexError):
        return  # poison: its content cannot be trusted
    if headers:
        attributes = {
            "messaging.message.id": message_id_of(payload),
            "sbpair.backlog": backlog,
            "sbpair.side": side,
        }
        tracing.forwarded(headers, attributes, path, seconds, refusal)
