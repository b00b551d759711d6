"""Sender and receiver links: a sender that reports each outcome, a receiver that settles.

Per message they use callbacks, because a future for each would cost more than the message itself. Coroutines exist
for callers with few messages: :meth:`Sender.send` and :meth:`Receiver.settle_and_wait`. :class:`Settlements` go out in
runs of consecutive deliveries, each confirmed by the broker.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from sbpair.pair.amqp import errors
from sbpair.pair.amqp.events import (
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
)
from sbpair.pair.amqp.link import ReceiverLink, SenderLink
from sbpair.pair.amqp.performatives import ACCEPTED, RELEASED, Condition, DeliveryState, TransactionalState
from sbpair.pair.amqp.session import Session
from sbpair.pair.amqp.types import Symbol

from .errors import ConnectionLostError, LinkRefusedError

SERIAL = 2**32  # delivery ids wrap at this (AMQP part 2, 2.8.10)
WRITTEN_AT_ONCE = 1024 * 1024  # bytes of messages framed before yielding to the socket
ANSWER_TIMEOUT = 60.0  # seconds that a peer may take to answer
# Seconds: the service detaches a link that is idle for ten minutes, with its deliveries.
LINK_USED_EVERY = 240.0
MAX_BATCH_SIZE = "com.microsoft:max-message-batch-size"
STANDARD_BATCH, PREMIUM_BATCH = 262_144, 1_048_576  # bytes, where the link does not announce them

OnMessage = Callable[[MessageReceived], None]
OnDisposition = Callable[[DispositionReceived], None]
OnDrained = Callable[[], None]
Opened = TypeVar("Opened", SenderLink, ReceiverLink, Session)
LinkEvent = (
    MessageReceived | DispositionReceived | CreditGranted | CreditDrained | LinkAttached | LinkDetached
)


class OutgoingMessage(Protocol):
    """A message to send."""

    payload: bytes
    message_format: int
    state: TransactionalState | None
    """The transaction that the transfer is part of, if any."""

    def may_go(self, now: float) -> bool:
        """Whether to send the message, asked once right before sending; ``now`` in monotonic seconds.

        If False, the message is dropped, and :meth:`answered` is not called.
        """

    def answered(self, outcome: DeliveryState | None) -> None:
        """Called once with the outcome; None when the link was lost and the outcome is unknown."""


class LinkOwner(Protocol):
    """The methods of a connection that a link uses."""

    is_writable: bool
    answer_timeout: float
    """Seconds that the peer may take to answer."""

    def flush_soon(self) -> None: ...


class LinkHost(LinkOwner, Protocol):
    """The methods of a connection that are used by a class which attaches links itself."""

    @property
    def session(self) -> Session: ...

    def opening(self, what: str, attach: Callable[[], Opened]) -> Opened: ...

    def register(self, link: ClientLink) -> None: ...


class ClientLink(ABC):
    """The common part of both ends: attach and detach."""

    def __init__(self, owner: LinkOwner, link: SenderLink | ReceiverLink, path: str) -> None:
        self._owner = owner
        self.link = link
        self.path = path
        loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[None] = loop.create_future()
        self.detached: asyncio.Future[Condition | None] = loop.create_future()
        self._is_lost = False
        self._answer_timeout = owner.answer_timeout

    @property
    def is_open(self) -> bool:
        return self._attached.done() and not self.detached.done()

    async def wait_attached(self) -> None:
        """Wait for the peer's attach, for at most the time that an answer may take.

        Detaches on failure and cancellation. Raises LinkRefusedError, ConnectionLostError.
        """
        either: tuple[asyncio.Future[Any], ...] = (self._attached, self.detached)
        try:
            await asyncio.wait(either, timeout=self._answer_timeout, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self.let_go()
            raise
        if not self._attached.done() and not self.detached.done():
            self.let_go()
            raise LinkRefusedError(f"no link to {self.path}: no answer within {self._answer_timeout:g} s")
        if self.detached.done():
            error = ConnectionLostError if self._is_lost else LinkRefusedError
            raise error(f"no link to {self.path}", self.detached.result())

    def on_event(self, event: LinkEvent) -> None:
        """Handle an engine event of this link."""
        match event:
            case MessageReceived():
                self._on_flow(event)
            case LinkAttached():
                self._on_attached(event)
            case LinkDetached():
                self._end(event.condition)
            case DispositionReceived():
                self._on_states(event)
            case _:
                self._on_flow(event)

    @abstractmethod
    def _on_states(self, event: DispositionReceived) -> None: ...

    @abstractmethod
    def _on_flow(self, event: MessageReceived | CreditGranted | CreditDrained) -> None: ...

    def _on_attached(self, event: LinkAttached) -> None:
        # AMQP part 2, 2.6.3: an attach without the requested terminus announces a refusal; a detach follows
        terminus = event.attach.target if isinstance(self.link, SenderLink) else event.attach.source
        if terminus is not None and not self._attached.done():
            self._attached.set_result(None)

    def on_lost(self, condition: Condition | None) -> None:
        """End the link, because its connection or session has ended."""
        self._is_lost = True
        self._end(condition)

    @abstractmethod
    def on_writable(self) -> None:
        """Continue to send: the socket accepts bytes again."""

    def _end(self, condition: Condition | None) -> None:
        if not self.detached.done():
            self.detached.set_result(condition)

    def let_go(self) -> None:
        """Detach without waiting."""
        if not self.detached.done():
            self.link.detach()
            self._owner.flush_soon()

    async def close(self, timeout: float = 5.0) -> None:
        """Detach, and wait up to ``timeout`` seconds for the peer's detach."""
        if not self.detached.done():
            self.let_go()
            await asyncio.wait([self.detached], timeout=timeout)


class Sender(ClientLink):
    """Sends messages to one path while the peer grants credit; the others wait in order."""

    link: SenderLink

    def __init__(self, owner: LinkOwner, link: SenderLink, path: str) -> None:
        super().__init__(owner, link, path)
        self._waiting: deque[OutgoingMessage] = deque()
        self._pending: dict[int, OutgoingMessage] = {}
        self._loop = asyncio.get_running_loop()
        self._push_is_due = False
        self._sent = 0
        self.progress = 0
        """Increases with every outcome and every grant of credit."""
        self.on_progress: Callable[[], None] | None = None

    @property
    def in_flight(self) -> int:
        """The number of messages without an outcome."""
        return len(self._pending) + len(self._waiting)

    @property
    def credit(self) -> int:
        """The credit granted by the peer, minus the number of messages waiting to be sent."""
        return self.link.credit - len(self._waiting)

    @property
    def largest_batch(self) -> int:
        """The size in bytes of the largest batch that the peer accepts; 0 before its attach."""
        attach = self.link.remote_attach
        if attach is None:
            return 0
        announced = (attach.properties or {}).get(MAX_BATCH_SIZE)
        if isinstance(announced, int) and announced > 0:
            return announced
        return PREMIUM_BATCH if (attach.max_message_size or 0) >= PREMIUM_BATCH else STANDARD_BATCH

    def take_waiting(self) -> list[OutgoingMessage]:
        """Remove and return the messages not sent yet, in order.

        :meth:`OutgoingMessage.answered` is not called for them.
        """
        taken = list(self._waiting)
        self._waiting.clear()
        return taken

    def unanswered_messages(self) -> list[OutgoingMessage]:
        """Return the messages that were sent and have no outcome yet."""
        return list(self._pending.values())

    def transfer(self, message: OutgoingMessage) -> None:
        """Queue one message for sending; :meth:`OutgoingMessage.answered` reports its outcome later."""
        if self.detached.done():
            self._loop.call_soon(message.answered, None)
            return
        self._waiting.append(message)
        if not self._push_is_due:  # one push for all messages of this loop iteration
            self._push_is_due = True
            self._loop.call_soon(self._push)

    async def send(
        self, payload: bytes, message_format: int = 0, state: TransactionalState | None = None
    ) -> DeliveryState | None:
        """Send one message, as part of a transaction if ``state`` names one, and wait for its outcome.

        The outcome is None when the link ends first.
        """
        message = _Awaited(payload, message_format, state, asyncio.get_running_loop().create_future())
        self.transfer(message)
        return await message.outcome

    def _on_flow(self, event: MessageReceived | CreditGranted | CreditDrained) -> None:
        self._push()
        if isinstance(event, CreditGranted):
            if event.drain and self.link.credit:
                self.link.drained()
            if event.credit:
                self._moves()

    def _moves(self) -> None:
        self.progress += 1
        if self.on_progress is not None:
            self.on_progress()

    def on_writable(self) -> None:
        self._push()

    def _on_states(self, event: DispositionReceived) -> None:
        if event.state is None and not event.settled:
            return
        delivery_id = event.first
        for _ in range((event.last - event.first) % SERIAL + 1):
            message = self._pending.pop(delivery_id, None)
            if message is not None:
                message.answered(event.state)
            delivery_id = (delivery_id + 1) % SERIAL
        if not event.settled:
            self.link.settle(event.first, event.last, event.state)
        self._moves()

    def _push(self) -> None:
        self._push_is_due = False
        link, waiting, pending = self.link, self._waiting, self._pending
        if not waiting or not self._owner.is_writable:
            return
        now, written = self._loop.time(), 0
        while waiting and link.credit > 0 and not self.detached.done():
            if written > WRITTEN_AT_ONCE:  # let the socket apply backpressure
                self._owner.flush_soon()
                self._push_is_due = True
                self._loop.call_soon(self._push)
                return
            message = waiting.popleft()
            if message.may_go(now):
                written += len(message.payload)
                tag = self._sent.to_bytes(4, "big")
                self._sent = (self._sent + 1) % SERIAL
                number = link.transfer(
                    message.payload, tag=tag, message_format=message.message_format, state=message.state
                )
                pending[number] = message
        self._owner.flush_soon()

    def _end(self, condition: Condition | None) -> None:
        super()._end(condition)
        unknown = [*self._pending.values(), *self._waiting]
        self._pending.clear()
        self._waiting.clear()
        for message in unknown:
            message.answered(None)


@dataclass(slots=True)
class _Awaited:
    """A message whose outcome a coroutine awaits."""

    payload: bytes
    message_format: int
    state: TransactionalState | None
    outcome: asyncio.Future[DeliveryState | None]

    def may_go(self, now: float) -> bool:
        return not self.outcome.done()  # cancelled

    def answered(self, outcome: DeliveryState | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Receiver(ClientLink):
    """Receives from one path within the credit that its owner grants; passes each message to ``on_message`` at once."""

    link: ReceiverLink

    def __init__(
        self,
        owner: LinkOwner,
        link: ReceiverLink,
        path: str,
        on_message: OnMessage,
        on_disposition: OnDisposition | None = None,
        on_drained: OnDrained | None = None,
    ) -> None:
        super().__init__(owner, link, path)
        self.on_message = on_message
        self._on_disposition = on_disposition
        self._on_drained = on_drained
        self._credit_ends: asyncio.Future[None] | None = None
        self._settling: dict[int, asyncio.Future[DeliveryState | None]] = {}

    @property
    def credit(self) -> int:
        return self.link.credit

    def flow(self, credit: int, *, drain: bool = False) -> None:
        """Set the credit to ``credit`` messages; with ``drain`` the peer delivers what it has and clears the rest."""
        if not self.detached.done():
            self.link.flow(credit, drain=drain)
            self._owner.flush_soon()

    async def drained(self) -> None:
        """Wait until the credit is 0, after a drain, or the link has ended."""
        if self.credit and not self.detached.done():
            self._credit_ends = asyncio.get_running_loop().create_future()
            either: tuple[asyncio.Future[Any], ...] = (self._credit_ends, self.detached)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    async def drain(self, credit: int) -> None:
        """Receive the messages available now, at most ``credit``. Raises ConnectionLostError when the link ends."""
        self.flow(credit, drain=True)
        await self.drained()
        if self.detached.done():
            raise ConnectionLostError(f"the link to {self.path} was detached", self.detached.result())

    async def withdraw(self, within: float) -> bool:
        """Withdraw the credit; return whether the peer confirmed it ``within`` seconds.

        Until then messages may come.
        """
        self.flow(self.credit, drain=True)
        try:
            async with asyncio.timeout(within):
                await self.drained()
        except TimeoutError:
            return False
        return True

    def settle(self, first: int, last: int, state: DeliveryState) -> None:
        """Propose ``state`` for deliveries ``first`` to ``last``; a settled disposition of the peer confirms it."""
        if not self.detached.done():
            self.link.dispose(first, last, state, settled=False)
            self._owner.flush_soon()

    def give_back(self, first: int, last: int, state: DeliveryState) -> None:
        """Settle deliveries ``first`` to ``last`` with ``state``, without confirmation."""
        if not self.detached.done():
            self.link.dispose(first, last, state, settled=True)
            self._owner.flush_soon()

    async def settle_and_wait(self, delivery_id: int, state: DeliveryState) -> DeliveryState | None:
        """Settle one delivery and return the peer's answer; None if the link ends first."""
        (answer,) = await self.settled_run(delivery_id, delivery_id, state)
        return answer

    async def settled_run(self, first: int, last: int, state: DeliveryState) -> list[DeliveryState | None]:
        """Settle deliveries ``first`` to ``last``.

        Return the peer's answers, None for each that it did not give before the link ended.
        """
        loop = asyncio.get_running_loop()
        answers: list[asyncio.Future[DeliveryState | None]] = []
        for offset in range((last - first) % SERIAL + 1):
            answer = self._settling[(first + offset) % SERIAL] = loop.create_future()
            answers.append(answer)
        if self.detached.done():
            self._end(self.detached.result())
        self.settle(first, last, state)
        return list(await asyncio.gather(*answers))

    def _on_flow(self, event: MessageReceived | CreditGranted | CreditDrained) -> None:
        if isinstance(event, MessageReceived):
            self.on_message(event)
        elif self._on_drained is not None:
            self._on_drained()
        if self._credit_ends is not None and not self.credit and not self._credit_ends.done():
            self._credit_ends.set_result(None)

    def on_writable(self) -> None:
        """Do nothing: a receiver writes little and never waits for the socket."""

    def _on_states(self, event: DispositionReceived) -> None:
        if self._on_disposition is not None:
            self._on_disposition(event)
        if not self._settling:
            return
        for offset in range((event.last - event.first) % SERIAL + 1):
            answered = self._settling.pop((event.first + offset) % SERIAL, None)
            if answered is not None and not answered.done():  # cancelled
                answered.set_result(event.state)

    def _end(self, condition: Condition | None) -> None:
        super()._end(condition)
        waiting, self._settling = self._settling, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_result(None)


def runs(delivery_ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Return ``(first, last)`` of each run of consecutive ids, ascending, so that one disposition settles a run.

    A run ends where the serial numbers wrap.
    """
    first = last = -1
    for delivery_id in sorted(delivery_ids):
        if delivery_id == last + 1 and first >= 0:
            last = delivery_id
            continue
        if first >= 0:
            yield first, last
        first = last = delivery_id
    if first >= 0:
        yield first, last


T = TypeVar("T")

DEAD_LETTER = Symbol(errors.DEAD_LETTER)  # the condition of a rejection, and the keys of its information
REASON, DESCRIPTION = Symbol("DeadLetterReason"), Symbol("DeadLetterErrorDescription")


class Settlements(Generic[T]):
    """The settlements that are due, and those that are sent but not confirmed; each carries an item of the owner.

    add() --> due --flush()--> one disposition for each run --> the broker's answer
                                       '-- the link ends first: end()
    """

    def __init__(self, answered: Callable[[T, DeliveryState | None], None]) -> None:
        """``answered`` is called with each item and the broker's answer."""
        self._answered = answered
        self._loop = asyncio.get_running_loop()
        self._due: dict[int, T] = {}
        self._refusals: dict[int, DeliveryState] = {}  # of those due that are not to be accepted
        self._sent: dict[int, tuple[float, dict[int, T]]] = {}  # when, and the items of all sent then
        self.is_empty = asyncio.Event()
        """Set while nothing is due or unconfirmed."""
        self.is_empty.set()

    def __len__(self) -> int:
        return len(self._due) + len(self._sent)

    @property
    def due(self) -> Collection[T]:
        """The items of the settlements that are not sent yet."""
        return self._due.values()

    def add(self, delivery_id: int, item: T, state: DeliveryState = ACCEPTED) -> None:
        """Settle a delivery with ``state`` at the next :meth:`flush`."""
        if not self._due:
            self.is_empty.clear()
        self._due[delivery_id] = item
        if state is not ACCEPTED:
            self._refusals[delivery_id] = state

    def flush(self, receiver: Receiver) -> None:
        """Send the settlements that are due."""
        if not self._due:
            return
        (due, self._due), (refusals, self._refusals) = (self._due, {}), (self._refusals, {})
        self._sent.update(dict.fromkeys(due, (self._loop.time(), due)))
        for delivery_id, state in refusals.items():
            receiver.settle(delivery_id, delivery_id, state)
        for first, last in runs(due.keys() - refusals.keys() if refusals else due):
            receiver.settle(first, last, ACCEPTED)

    def on_disposition(self, event: DispositionReceived) -> None:
        """Match the broker's answer for a range of deliveries."""
        sent, state = self._sent, event.state
        for offset in range((event.last - event.first) % SERIAL + 1):
            delivery_id = (event.first + offset) % SERIAL
            found = sent.pop(delivery_id, None)
            if found is not None:
                self._answered(found[1].pop(delivery_id), state)
        self._note_empty()

    def is_overdue(self, within: float) -> bool:
        """Whether a settlement was sent more than ``within`` seconds ago and is not confirmed."""
        sent_at = next((at for at, _ in self._sent.values()), None)
        return sent_at is not None and self._loop.time() - sent_at > within

    def end(self) -> tuple[list[T], list[T]]:
        """Forget all settlements, because the link has ended. Return the items of those sent, and of those not sent."""
        sent, self._sent = self._sent, {}
        due, self._due = self._due, {}
        self._refusals.clear()
        self._note_empty()
        return [items[delivery_id] for delivery_id, (_, items) in sent.items()], list(due.values())

    def _note_empty(self) -> None:
        if not (self._sent or self._due):
            self.is_empty.set()


def release(receiver: Receiver, delivery_ids: Iterable[int]) -> None:
    """Release deliveries without confirmation; if that fails, they are redelivered when their locks expire."""
    for first, last in runs(delivery_ids):
        receiver.give_back(first, last, RELEASED)
