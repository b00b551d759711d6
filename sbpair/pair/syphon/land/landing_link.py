"""The link by which messages of one backlog land in one entity of the secondary, in transactions.

    waiting --> trial --> sent via the backlog --> completed on it --> committed: landed
                  |            |                       |                '--> refused: the locks end
                  |            |                       '-- a lock is lost --> rolled back, the locks end
                  |            '-- refused --> rolled back: each is held
                  '-- refused --> each is held

A message sent via another entity is transferred after the commit. If its destination refuses it then, for example
because it is full, the service moves it to the transfer dead-letter queue of the backlog. Therefore, before a
transaction, its first message is sent to the entity itself in a transaction that is rolled back: the trial. An accepted
trial is valid for all transactions of the next second; after a refused one, each waiting batch has its own trial, one
directly after the other. A message sent via the backlog carries its destination (``transfer``), so that it can be
parked again from the transfer dead-letter queue. Where transactions are not possible (the Basic tier, a partitioned
backlog), messages are sent without one and completed once accepted, like messages to the primary.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from sbpair.pair.amqp.errors import NOT_ALLOWED, DecodeError
from sbpair.pair.amqp.performatives import ACCEPTED, DeliveryState, Rejected, TransactionalState
from sbpair.pair.client.errors import ClientError, LinkRefusedError
from sbpair.pair.client.link import OutgoingMessage, Sender

from ..forward.in_flight import DeliveryAction, InFlightMessage, action_for
from .transaction import TransactionController
from .transfer import address

MAX_IN_TRANSACTION = 100  # messages of one transaction: the limit of the service
MAX_TRANSACTIONS = 4  # of one link at a time
TRIED_FOR = 1.0  # seconds for which the result of a trial is used
STALE_AFTER = 5.0  # seconds between restoring a time to live and its commit, after which it is not committed


class LandingLink:
    """Sends messages like :class:`~sbpair.pair.client.link.Sender`, and completes them in the same transaction."""

    def __init__(self, plain: Sender, via: Sender | None, controller: TransactionController) -> None:
        """Create a link; ``plain`` links to the entity, ``via`` to it via the backlog, None without transactions."""
        self._plain = plain
        self._via = via
        self._controller = controller
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[InFlightMessage] = deque()
        self._running: dict[InFlightMessage, None] = {}  # in transactions
        self._tasks: set[asyncio.Task[None]] = set()
        self._push_is_due = False
        self._tried_at = -TRIED_FOR
        self._trying = asyncio.Lock()
        self.progress = 0
        self.on_progress: Callable[[], None] | None = None
        self.detached = plain.detached
        plain.on_progress = self._moved
        plain.detached.add_done_callback(lambda _: self._ended())
        if via is not None:
            via.on_progress = self._moved
            via.detached.add_done_callback(lambda _: self._via_ended())
            plain.detached.add_done_callback(lambda _: via.let_go())  # even if it is no longer used

    @property
    def is_open(self) -> bool:
        return self._plain.is_open and (self._via is None or self._via.is_open)

    @property
    def in_flight(self) -> int:
        """The number of messages without an outcome."""
        return len(self._waiting) + len(self._running) + self._plain.in_flight

    @property
    def credit(self) -> int:
        """The number of further messages that the link accepts now."""
        if self._via is None:
            return self._plain.credit
        return MAX_IN_TRANSACTION * MAX_TRANSACTIONS - len(self._waiting) - len(self._running)

    @property
    def largest_batch(self) -> int:
        """None: landing messages cannot be batched, because each is completed together with its transfer."""
        return 0

    def transfer(self, message: InFlightMessage) -> None:
        """Queue one message; its outcome is passed to :meth:`InFlightMessage.answered`."""
        if self._via is None:
            self._plain.transfer(message)
            return
        self._waiting.append(message)
        if not self._push_is_due:
            self._push_is_due = True
            self._loop.call_soon(self._push)

    def take_waiting(self) -> list[OutgoingMessage]:
        """Remove and return the messages not sent yet, in order; a trial that waits for credit keeps waiting."""
        plain = self._plain.take_waiting()
        for each in plain:
            if not isinstance(each, InFlightMessage):
                self._plain.transfer(each)
        taken: list[OutgoingMessage] = [each for each in plain if isinstance(each, InFlightMessage)]
        taken += self._waiting
        self._waiting.clear()
        return taken

    def unanswered_messages(self) -> list[OutgoingMessage]:
        """Return the messages that were sent and have no outcome yet."""
        return [*self._plain.unanswered_messages(), *self._running]

    def let_go(self) -> None:
        """Detach without waiting; transactions that did not commit are rolled back."""
        self._plain.let_go()

    def _via_ended(self) -> None:
        if self._via is not None:  # otherwise messages are sent without transactions, and it was idle
            self._plain.let_go()

    def _ended(self) -> None:
        waiting, self._waiting = self._waiting, deque()
        for message in waiting:
            message.answered(None)

    def _moved(self) -> None:
        self.progress += 1
        if self.on_progress is not None:
            self.on_progress()

    # Transactions

    def _push(self) -> None:
        self._push_is_due = False
        if self.detached.done():
            self._ended()  # a refusal may have put messages back since
            return
        while self._waiting and len(self._tasks) < MAX_TRANSACTIONS:
            count = min(len(self._waiting), MAX_IN_TRANSACTION)
            batch = [self._waiting.popleft() for _ in range(count)]
            self._running.update(dict.fromkeys(batch))
            task = self._loop.create_task(self._land(batch))
            self._tasks.add(task)
            task.add_done_callback(self._landed)

    def _landed(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()
        self._moved()
        self._push()

    async def _land(self, batch: list[InFlightMessage]) -> None:
        """Send and complete messages in one transaction; answer each message once.

        ``batch`` keeps only the messages that still belong to this transaction: a message that was sent without one may
        return in another batch before this one ends.
        """
        try:
            refusal = await self._trial(batch[0])
            if refusal is None:
                await self._commit(batch)
            elif _is_not_allowed(refusal):  # in a transaction, or at all: sending it without one shows which
                self._send_plainly(batch)
            else:
                self._refused(batch, batch[:1], refusal)
        except ClientError as error:
            state = None if error.condition is None else Rejected(error.condition)
            if isinstance(error, LinkRefusedError) and _is_not_allowed(state):
                self._via = None  # no transactions here
                self._send_plainly(batch)
            else:
                self._answer(batch, state)
        finally:
            for message in batch:
                self._running.pop(message, None)

    async def _trial(self, message: InFlightMessage) -> DeliveryState | None:
        """Return the state with which the entity refuses ``message``; None if accepted, or tried recently."""
        async with self._trying:  # a batch that waits for another's trial is not committed before its outcome
            began = self._loop.time()
            if began < self._tried_at + TRIED_FOR:
                return None
            txn_id = await self._controller.declare()
            try:
                outcome = await self._plain.send(message.payload, 0, TransactionalState(txn_id))
            finally:
                await self._controller.roll_back(txn_id)
            if isinstance(outcome, TransactionalState):
                self._tried_at = began
                return None
            return outcome if outcome is not None else Rejected()

    async def _commit(self, batch: list[InFlightMessage]) -> None:
        via, attach = self._via, self._plain.link.remote_attach
        if via is None:
            self._send_plainly(batch)
            return
        restored_at = self._loop.time()
        self._leave_out(batch, restored_at)
        payloads = _address(batch, (attach and attach.max_message_size) or None)
        plain = [each for each in batch if each not in payloads]
        batch[:] = payloads
        self._send_plainly(plain)
        if not batch:
            return
        txn_id = await self._controller.declare()
        state = TransactionalState(txn_id)
        try:
            outcomes = await asyncio.gather(*(via.send(each, 0, state) for each in payloads.values()))
        except BaseException:
            await self._controller.roll_back(txn_id)
            raise
        refusal = next((each for each in outcomes if not isinstance(each, TransactionalState)), ACCEPTED)
        if refusal != ACCEPTED:
            await self._controller.roll_back(txn_id)
            if _is_not_allowed(refusal):
                self._via = None  # the backlog is partitioned
                self._send_plainly(batch)
            else:
                refused = [each for each, state in zip(batch, outcomes, strict=True) if state == refusal]
                self._refused(batch, refused, refusal)
            return
        if self._is_late(batch, restored_at):
            await self._controller.roll_back(txn_id)
            self._send_timed_plainly(batch)
            return
        await self._complete(batch, txn_id, restored_at)

    def _leave_out(self, batch: list[InFlightMessage], now: float) -> None:
        """Remove the messages that may not be sent, and restore the time to live of the others."""
        for message in list(batch):  # only now: the trial, or the wait for another's, may have taken long
            if not message.is_ready(now):
                batch.remove(message)
                self._running.pop(message, None)

    def _is_late(self, batch: Sequence[InFlightMessage], restored_at: float) -> bool:
        """Whether a message would outlive its deadline if the transaction were committed now."""
        is_slow = self._loop.time() - restored_at >= STALE_AFTER
        return is_slow and any(each.has_deadline for each in batch)

    def _send_timed_plainly(self, batch: Sequence[InFlightMessage]) -> None:
        """Send messages with a deadline without a transaction, and the others in another transaction."""
        others = [each for each in batch if not each.has_deadline]
        for message in others:
            self._running.pop(message, None)
        self._waiting.extendleft(reversed(others))
        self._send_plainly(each for each in batch if each.has_deadline)

    async def _complete(self, batch: Sequence[InFlightMessage], txn_id: bytes, restored_at: float) -> None:
        origin = batch[0].origin
        for message in batch:
            origin.reported(message)
        try:
            if not await origin.complete_in(batch, txn_id) or self._is_late(batch, restored_at):
                await self._controller.roll_back(txn_id)
                self._give_up(batch)
                return
            await self._controller.commit(txn_id)
        except ClientError:  # rolled back or unknown: their locks cannot be used in either case
            self._give_up(batch)
            return
        for message in batch:
            message.is_settled = True
        self._answer(batch, ACCEPTED)

    def _give_up(self, batch: Sequence[InFlightMessage]) -> None:
        """Abandon messages without settling them: the backlog redelivers them once their locks expire."""
        batch[0].origin.lock_given_up(batch)
        for message in batch:
            message.destination.skipped(message)

    def _refused(
        self,
        batch: Sequence[InFlightMessage],
        refused: Sequence[InFlightMessage],
        state: DeliveryState | None,
    ) -> None:
        """Answer the messages after a refusal: those in ``refused`` if it is final, all if it asks to wait."""
        if action_for(state) is DeliveryAction.HOLD:
            self._answer(batch, state)
            return
        self._waiting.extendleft(each for each in reversed(batch) if each not in refused)
        self._answer(refused, state)

    def _send_plainly(self, batch: Iterable[InFlightMessage]) -> None:
        for message in batch:
            self._running.pop(message, None)
            self._plain.transfer(message)

    def _answer(self, batch: Iterable[InFlightMessage], state: DeliveryState | None) -> None:
        for message in batch:
            self._running.pop(message, None)
            message.answered(state)


def _address(batch: Iterable[InFlightMessage], limit: int | None) -> dict[InFlightMessage, bytes]:
    """Return the payloads to send via the backlog, by message.

    Messages above the ``limit`` of the entity are left out: it can refuse them now, but not after a commit.
    """
    payloads: dict[InFlightMessage, bytes] = {}
    for message in batch:
        with suppress(DecodeError, IndexError):
            payload = address(message.payload, message.path)
            if limit is None or len(payload) <= limit:
                payloads[message] = payload
    return payloads


def _is_not_allowed(state: DeliveryState | None) -> bool:
    return isinstance(state, Rejected) and state.error is not None and state.error.symbol == NOT_ALLOWED
