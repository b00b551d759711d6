"""The relay of one session of an ordered backlog: one transfer at a time, in order.

    delivered --> waiting --> restored --> posted --> accepted --> complete sent --> confirmed
                    ^            |           |
                    |         poison      refused finally --> dead-letter sent; or the session is held
                    |            |        not accepted now --> waits at its destination, the lock renewed
                    |      out of order --> dead-lettered
                    '---- a batch that was refused: a smaller one follows

A transfer holds the next message, or several as a batch, which is stored as a whole or not at all. It is posted only
after the destination has accepted the previous one, because with two in flight, the second could be accepted after the
first was refused. Therefore a message arrives for the first time only after all earlier ones have, whatever is lost,
delayed or repeated, and even if several syphons believe that they hold the session. A lost answer repeats a batch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.performatives import Accepted, Condition, DeliveryState, Rejected
from sbpair.pair.auth.redaction import blank_keys
from sbpair.pair.client.errors import condition_text
from sbpair.pair.client.link import DEAD_LETTER, DESCRIPTION, REASON, Settlements, release
from sbpair.pair.client.locks import DEFAULT_LOCK
from sbpair.pair.client.session import SessionReceiver
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.envelope.ordering import OrderStamp
from sbpair.pair.envelope.restore import (
    BATCH,
    BATCH_OVERHEAD,
    MEMBER_OVERHEAD,
    Forward,
    Poison,
    batched,
    printable,
    restore,
)

from ..events import MessageSetAside, MessagesInDoubt, SessionHeld, SyphonEvent
from ..forward.delivery import Destination
from ..forward.in_flight import DEAD_LETTER_REASONS, ForwardReports, InFlightMessage
from ..forward.pump import MAX_DESCRIPTION_LENGTH
from ..status import SyphonCounters
from .order_check import OrderCheck

logger = logging.getLogger("sbpair.syphon")

OUT_OF_ORDER = "OutOfOrder"
COMPLETED_AT_ONCE = 10  # messages of a session that are completed together, while more of them wait
MAX_IN_BATCH = 100  # messages
HELD_FOR = 60.0  # seconds until a session that a poison message holds is retried
SILENT_AFTER = 30.0  # seconds without a message or the end of the credit after which a link counts as silent
LAST_ANSWERS = 5.0  # seconds for which the end of a relay waits for confirmations


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """Settings shared by the relays of one syphon."""

    is_allowed: Callable[[str], bool]
    destination_of: Callable[[str], Destination]
    counters: SyphonCounters
    emit: Callable[[SyphonEvent], None]
    check: OrderCheck
    credit: Callable[[int], int]
    """Returns how many messages to request, given the size in bytes of the largest one seen."""
    holds_poison: bool = False
    report_forwards: bool = False


class BatchSize:
    """The size of a session's next batch, derived from the outcomes of earlier ones. Pure.

    A refused batch contains at least one message that would also be refused alone. To find it, half of the suspected
    messages are sent next, and so on; then it is dead-lettered. After that, batches begin small, since later messages
    may be refused too.
    """

    def __init__(self, largest: int = MAX_IN_BATCH) -> None:
        self._largest = self._most = largest
        self._suspected = 0  # of the next messages at least one is refused alone

    @property
    def most(self) -> int:
        """The number of messages, at least 1."""
        return max(1, self._suspected // 2) if self._suspected else self._most

    def accepted(self, count: int) -> None:
        """Record that a batch of ``count`` messages was accepted."""
        self._suspected = max(0, self._suspected - count)
        self._most = min(self._largest, 2 * self._most)

    def refused(self, count: int) -> None:
        """Record that a batch of ``count`` messages was refused finally; 1 for a single message."""
        self._suspected = count if count > 1 else 0
        self._most = 1


@dataclass(frozen=True, slots=True)
class _Restored:
    """A message as it was delivered, and in the form to forward."""

    event: MessageReceived
    forward: Forward


class SessionRelay:
    """Forwards the messages of one session until it is empty, lost, or stopped.

    ``busy`` is called with True when the relay needs one of the syphon's places, and with False when its destination
    keeps it waiting. ``doubted`` is called to have the owner renew the lock now, set :attr:`lock_ends`, and call
    :meth:`lock_renewed`.
    """

    def __init__(
        self,
        backlog: str,
        settings: RelaySettings,
        busy: Callable[[SessionRelay, bool], None],
        doubted: Callable[[SessionRelay], None],
    ) -> None:
        self.backlog = backlog
        self.receiver: SessionReceiver | None = None
        self.lock_ends = 0.0
        """When the lock may have ended; monotonic seconds."""
        self.lock_span = DEFAULT_LOCK
        self.is_held = False
        """Whether a poison message holds the session until an operator acts."""
        self._settings = settings
        self._busy, self._doubted = busy, doubted
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[MessageReceived] = deque()
        self._message: InFlightMessage | None = None
        self._posted: list[_Restored] = []  # the messages in the one in flight, which may be a batch
        self._size = BatchSize()
        self._settlements = Settlements[OrderStamp | None](self._confirmed)
        self._reports = ForwardReports(backlog, settings.emit, is_wanted=settings.report_forwards)
        self._settle_is_due = False
        self._arrived = 0
        self._largest = 0
        self._is_ending = False  # no further message is forwarded
        self._is_stopped = False  # and a held session is released at once
        self._is_doubtful = False
        self._changed = asyncio.Event()

    @property
    def is_stuck(self) -> bool:
        """Whether its message is waiting for the destination."""
        return self._message is not None and (self._message.is_held or self._message.is_stalled)

    async def run(self, receiver: SessionReceiver) -> None:
        """Forward until the session is empty; then release it. ``receiver`` has no credit yet."""
        self.receiver = receiver
        detached = asyncio.ensure_future(self._end_when_detached(receiver))
        try:
            while not self._is_ending:
                self._arrived = 0
                receiver.flow(self._settings.credit(self._largest), drain=True)
                if not await self._delivers(receiver):
                    break
                if not self._arrived:
                    break
                await self._until(lambda: self._is_ending or not (self._waiting or self._message))
            if self.is_held:
                await self._wait_held()
        finally:
            self.stop()
            await self._finish(receiver)
            detached.cancel()
            await asyncio.gather(detached, return_exceptions=True)

    def stop(self) -> None:
        """Forward no further messages of this session, and let :meth:`run` end."""
        self._is_ending = self._is_stopped = True
        if self._message is not None and not self._may_be_accepted():
            self._drop()
        self._changed.set()

    def on_message(self, event: MessageReceived) -> None:
        """Handle a message of the session."""
        counters = self._settings.counters
        counters.received += 1
        counters.pending += 1
        self._arrived += 1
        self._largest = max(self._largest, len(event.payload))
        self._waiting.append(event)
        if self._message is None and len(self._waiting) == 1:
            self._loop.call_soon(self._forward_next)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Count the broker's answer for a range of deliveries."""
        self._settlements.on_disposition(event)
        self._changed.set()

    def lock_renewed(self) -> None:
        """Post the message that waited for the lock, which was renewed; :attr:`lock_ends` is set."""
        message, was_doubtful, self._is_doubtful = self._message, self._is_doubtful, False
        if message is None:
            return
        message.lock_ends = self.lock_ends
        if was_doubtful:
            message.posted_at = self._loop.time()
            message.post_home(self._settings.destination_of(message.path))  # the last may be forgotten

    # From the destination

    def forwarded(self, message: InFlightMessage) -> None:
        """Complete the messages that their destination accepted, and continue with the next ones."""
        counters = self._settings.counters
        counters.forwarded += message.count
        is_reported = self._reports.add(message, members=self._members())
        if self._message is not message:  # the session was lost: it will be delivered and forwarded again
            counters.lock_lost += message.count
            if is_reported:
                self._settle_soon()
            return
        self._size.accepted(message.count)
        for each in self._posted:
            self._settlements.add(each.event.delivery_id, each.forward.order)
        self._next()

    def refused(self, message: InFlightMessage, condition: Condition | None) -> None:
        """Handle a final refusal. After the refusal of a batch, a smaller one is sent."""
        if self._message is message:
            self._size.refused(message.count)
        reason = DEAD_LETTER_REASONS[str(condition.symbol)] if condition is not None else "DestinationRefused"
        self.poisoned(
            message,
            Poison(reason, f"{printable(message.path)} refused the message: {condition_text(condition)}"),
        )

    def poisoned(self, message: InFlightMessage, poison: Poison) -> None:
        """Handle a message that can no longer be forwarded, or a batch that contains one."""
        if self._message is not message:
            return
        self._message = None
        if message.count > 1:
            self._waiting.extendleft(each.event for each in reversed(self._posted))
            self._loop.call_soon(self._continue)
        else:
            self._set_aside(message.delivery_id, message.path, poison, message.payload)

    def held(self, message: InFlightMessage) -> None:
        """Let a message wait that its destination cannot accept now, and free the place for another session."""
        if self._message is not message:
            message.is_released = True
        elif self._is_ending:
            self._drop()
        else:
            self._settle_soon()
            self._busy(self, False)

    def resumed(self, message: InFlightMessage) -> None:
        """Take a place again, because the destination accepts messages again."""
        if self._message is message:
            self._busy(self, True)

    def stalled(self, message: InFlightMessage) -> None:
        """Free the place, because the destination does not answer."""
        if self._message is message:
            self._settle_soon()
            self._busy(self, False)

    def lock_doubtful(self, message: InFlightMessage) -> None:
        """Send nothing until the lock, which may have ended, is renewed."""
        if self._message is not message or self._is_ending:
            message.is_released = True
            return
        message.is_held = False
        self._is_doubtful = True
        self._doubted(self)

    def reported(self, message: InFlightMessage) -> None:
        """Do nothing: it is never called, see :meth:`complete_in`."""

    def unanswered(self, message: InFlightMessage) -> None:
        """Emit MessagesInDoubt for a message that is sent again although its destination may have it."""
        if self._reports.add(message, MessagesInDoubt, self._members()):
            self._settle_soon()

    async def complete_in(self, messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        """Never called: messages of a session wait for the primary, which has received earlier ones."""
        return False

    def lock_given_up(self, messages: Iterable[InFlightMessage]) -> None:
        """Never called: see :meth:`complete_in`."""

    # Internals

    @property
    def _session(self) -> str:
        return "" if self.receiver is None else self.receiver.session_id

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._changed.clear()
            await self._changed.wait()

    async def _delivers(self, receiver: SessionReceiver) -> bool:
        """Wait until the credit is used or cleared; return False if the link is silent."""
        drained = asyncio.ensure_future(receiver.drained())
        try:
            while not drained.done():
                before = self._arrived
                await asyncio.wait([drained], timeout=SILENT_AFTER)
                if not drained.done() and self._arrived == before and not (self._waiting or self._message):
                    logger.warning("the link to a session of %s is silent; it is released", self.backlog)
                    return False
        finally:
            drained.cancel()
        return True

    async def _wait_held(self) -> None:
        """Keep the session, so that no syphon receives the poison message repeatedly."""
        self._settle()
        self._busy(self, False)
        try:
            async with asyncio.timeout(HELD_FOR):
                await self._until(lambda: self._is_stopped)
        except TimeoutError:
            pass

    async def _end_when_detached(self, receiver: SessionReceiver) -> None:
        await asyncio.wait([receiver.detached])
        self._is_ending = self._is_stopped = True
        self._drop()
        self._settings.counters.pending -= len(self._settlements)
        self._settlements.end()
        self._changed.set()

    def _forward_next(self) -> None:
        if self._message is not None or self._is_ending or not self._waiting:
            return
        event = self._waiting.popleft()
        restored = self._restore(event.payload)
        if isinstance(restored, Poison):
            self._set_aside(event.delivery_id, None, restored, event.payload)
            return
        destination = self._settings.destination_of(restored.path)
        self._post([_Restored(event, restored), *self._followers(restored, destination)], destination)

    def _restore(self, payload: bytes) -> Forward | Poison:
        """Return the message to forward; Poison if it cannot be forwarded, or follows a later one of its client."""
        restored = restore(payload, time.time_ns() // 1_000_000, self._settings.is_allowed)
        stamp = restored.order if isinstance(restored, Forward) else None
        before = None if stamp is None else self._settings.check.larger(self._session, stamp)
        if before is None:
            return restored
        return Poison(OUT_OF_ORDER, f"the message is number {stamp}, and {before} was forwarded before it")

    def _followers(self, first: Forward, destination: Destination) -> list[_Restored]:
        """Take and return the waiting messages that fit into one batch with ``first``."""
        most, largest = destination.batch_limits
        most, taken = min(most, self._size.most), list[_Restored]()
        room = largest - BATCH_OVERHEAD - MEMBER_OVERHEAD - len(first.payload)
        while self._waiting and len(taken) + 1 < most:
            restored = self._restore(self._waiting[0].payload)
            if not isinstance(restored, Forward) or restored.path != first.path:
                break
            room -= MEMBER_OVERHEAD + len(restored.payload)
            if room < 0:
                break
            taken.append(_Restored(self._waiting.popleft(), restored))
        return taken

    def _post(self, posted: list[_Restored], destination: Destination) -> None:
        first, now = posted[0], self._loop.time()
        is_batch = len(posted) > 1
        payload = _joined([each.forward for each in posted])
        message = InFlightMessage(
            self,
            first.event.delivery_id,
            first.forward.path,
            payload,
            now,
            self.lock_ends,
            self.lock_span,
            first.event.tag,
            destination,
            len(payload),
            message_format=BATCH if is_batch else 0,
            count=len(posted),
        )
        message.stays = True  # it must not land on the secondary while its session continues here
        if any(each.forward.has_deadline for each in posted):
            payloads = [each.event.payload for each in posted]
            message.restore_again, message.restored_at = partial(self._restore_all, payloads), now
        self._message, self._posted = message, posted
        destination.post(message)

    def _restore_all(self, payloads: Sequence[bytes]) -> Forward | Poison:
        """Return one message or a batch, with times as of now.

        Return Poison if one of several messages cannot be forwarded any more.
        """
        forwards = []
        for payload in payloads:
            restored = restore(payload, time.time_ns() // 1_000_000, self._settings.is_allowed)
            if isinstance(restored, Poison):
                return restored
            forwards.append(restored)
        return forwards[0]._replace(payload=_joined(forwards))

    def _next(self) -> None:
        message, self._message = self._message, None
        if message is not None and message.is_stalled:
            self._busy(self, True)
        if not self._waiting or len(self._settlements.due) >= COMPLETED_AT_ONCE:
            self._settle_soon()
        self._continue()

    def _continue(self) -> None:
        self._forward_next()
        if self._message is None:
            self._changed.set()

    def _set_aside(self, delivery_id: int, path: str | None, poison: Poison, payload: bytes) -> None:
        """Dead-letter a message and continue, or hold the session."""
        receiver, settings = self.receiver, self._settings
        assert receiver is not None  # noqa: S101  (a delivery implies a receiver)
        description = blank_keys(poison.description)[:MAX_DESCRIPTION_LENGTH]
        if settings.holds_poison and poison.reason != OUT_OF_ORDER:
            settings.emit(
                SessionHeld(
                    time.time(), self.backlog, receiver.session_id, poison.reason, message_id_of(payload)
                )
            )
            settings.counters.pending -= 1
            settings.counters.released += 1
            self.is_held = self._is_ending = True
            self._changed.set()
            return
        settings.emit(
            MessageSetAside(
                time.time(), self.backlog, path, poison.reason, description, message_id_of(payload)
            )
        )
        self._settle()  # completes the messages before it
        info: dict[object, object] = {REASON: poison.reason, DESCRIPTION: description}
        rejected = Rejected(Condition(DEAD_LETTER, description, info))
        self._settlements.add(delivery_id, None, rejected)
        self._settlements.flush(receiver)
        self._loop.call_soon(self._continue)

    def _members(self) -> list[bytes]:
        """The messages posted last."""
        return [each.forward.payload for each in self._posted]

    def _may_be_accepted(self) -> bool:
        """Whether the message is in flight, so that its answer must be awaited."""
        message = self._message
        return message is not None and not (message.is_held or message.is_stalled or self._is_doubtful)

    def _drop(self) -> None:
        message, self._message = self._message, None
        if message is not None:
            message.is_released = True
            message.destination.withdraw(message)
            self._settings.counters.pending -= message.count
            self._settings.counters.released += message.count

    def _settle_soon(self) -> None:
        if not self._settle_is_due:
            self._settle_is_due = True
            self._loop.call_soon(self._settle)

    def _settle(self) -> None:
        self._settle_is_due = False
        self._reports.emit()  # for an audit: before the backlog removes the messages
        if self.receiver is not None:
            self._settlements.flush(self.receiver)

    def _confirmed(self, stamp: OrderStamp | None, state: DeliveryState | None) -> None:
        counters = self._settings.counters
        counters.pending -= 1
        match state:
            case Accepted():
                counters.completed += 1
                if stamp is not None:
                    self._settings.check.completed(self._session, stamp)
            case Rejected(error=None):
                counters.dead_lettered += 1
            case _:
                counters.lock_lost += 1
                self.stop()

    async def _finish(self, receiver: SessionReceiver) -> None:
        """Wait for the message in flight and the confirmations, then release the other messages and the session."""
        try:
            async with asyncio.timeout(LAST_ANSWERS):
                await self._until(lambda: self._message is None)
                self._settle()
                await self._settlements.is_empty.wait()
        except TimeoutError:
            logger.debug("a session of %s is released before all answers have arrived", self.backlog)
        self._drop()
        rest, self._waiting = [each.delivery_id for each in self._waiting], deque()
        counters = self._settings.counters
        counters.pending -= len(rest) + len(self._settlements)
        counters.released += len(rest)
        self._settlements.end()
        release(receiver, rest)
        await receiver.close()


def _joined(forwards: Sequence[Forward]) -> bytes:
    return batched([each.payload for each in forwards]) if len(forwards) > 1 else forwards[0].payload
