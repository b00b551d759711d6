"""The two ends of a link as the syphon uses them: a sender that learns each outcome, a receiver that settles.

Both speak in callbacks, not coroutines, on the way of every message: a future for each would cost more than
the message itself. For tests and tools a coroutine stands beside them.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from sbpair.amqp.events import (
    CreditDrained,
    CreditGranted,
    DispositionReceived,
    LinkAttached,
    LinkDetached,
    MessageReceived,
)
from sbpair.amqp.link import ReceiverLink, SenderLink
from sbpair.amqp.performatives import Condition, DeliveryState
from sbpair.amqp.session import Session

from .errors import ConnectionLost, LinkRefused

SERIAL = 2**32  # delivery ids count modulo this (2.8.10)

OnMessage = Callable[[MessageReceived], None]
OnDisposition = Callable[[DispositionReceived], None]
OnDrained = Callable[[], None]
Opened = TypeVar("Opened", SenderLink, ReceiverLink, Session)
LinkEvent = (
    MessageReceived | DispositionReceived | CreditGranted | CreditDrained | LinkAttached | LinkDetached
)


class Outgoing(Protocol):
    """A message that waits to be sent."""

    payload: bytes
    message_format: int

    def may_go(self, now: float) -> bool:
        """Whether to send it; asked once, at the last moment (monotonic seconds). Else nothing follows."""

    def answered(self, outcome: DeliveryState | None) -> None:
        """Called once; None: the link went, and the outcome is unknown."""


class LinkOwner(Protocol):
    """What a link needs of its connection."""

    is_writable: bool

    def flush_soon(self) -> None: ...


class LinkHost(LinkOwner, Protocol):
    """What those need who attach links of their own to a connection."""

    @property
    def session(self) -> Session: ...

    def opening(self, what: str, attach: Callable[[], Opened]) -> Opened: ...

    def register(self, link: ClientLink) -> None: ...


class ClientLink(ABC):
    """What both ends share: to be attached, and to be detached."""

    def __init__(self, owner: LinkOwner, link: SenderLink | ReceiverLink, path: str) -> None:
        self._owner = owner
        self.link = link
        self.path = path
        loop = asyncio.get_running_loop()
        self._attached: asyncio.Future[None] = loop.create_future()
        self.detached: asyncio.Future[Condition | None] = loop.create_future()
        self._is_lost = False

    @property
    def is_open(self) -> bool:
        return self._attached.done() and not self.detached.done()

    async def wait_attached(self) -> None:
        """Wait for the peer's attach. Raises LinkRefused, ConnectionLost."""
        either: tuple[asyncio.Future[Any], ...] = (self._attached, self.detached)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self.detached.done():
            error = ConnectionLost if self._is_lost else LinkRefused
            raise error(f"no link to {self.path}", self.detached.result())

    def on_event(self, event: LinkEvent) -> None:
        """What the engine reports of this link."""
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
        # 2.6.3: an attach without the terminus we asked for announces a refusal; its detach follows
        terminus = event.attach.target if isinstance(self.link, SenderLink) else event.attach.source
        if terminus is not None and not self._attached.done():
            self._attached.set_result(None)

    def on_lost(self, condition: Condition | None) -> None:
        """The connection or the session is gone, and the link with it."""
        self._is_lost = True
        self._end(condition)

    @abstractmethod
    def on_writable(self) -> None:
        """The socket takes bytes again."""

    def _end(self, condition: Condition | None) -> None:
        if not self.detached.done():
            self.detached.set_result(condition)

    async def close(self, timeout: float = 5.0) -> None:
        """Detach, and wait for the peer's detach for up to ``timeout`` seconds."""
        if not self.detached.done():
            self.link.detach()
            self._owner.flush_soon()
            await asyncio.wait([self.detached], timeout=timeout)


class Sender(ClientLink):
    """Sends messages to one path, as many at once as the peer's credit allows; the rest wait in order."""

    link: SenderLink

    def __init__(self, owner: LinkOwner, link: SenderLink, path: str) -> None:
        super().__init__(owner, link, path)
        self._waiting: deque[Outgoing] = deque()
        self._pending: dict[int, Outgoing] = {}
        self._loop = asyncio.get_running_loop()
        self._push_is_due = False
        self._sent = 0

    @property
    def in_flight(self) -> int:
        """Messages without an outcome yet."""
        return len(self._pending) + len(self._waiting)

    def transfer(self, message: Outgoing) -> None:
        """Send one message; it is told the outcome once, later."""
        if self.detached.done():
            self._loop.call_soon(message.answered, None)
            return
        self._waiting.append(message)
        if not self._push_is_due:  # once for all that come in one go
            self._push_is_due = True
            self._loop.call_soon(self._push)

    async def send(self, payload: bytes, message_format: int = 0) -> DeliveryState | None:
        """Send one message and wait for its outcome."""
        message = _Awaited(payload, message_format, asyncio.get_running_loop().create_future())
        self.transfer(message)
        return await message.outcome

    def _on_flow(self, event: MessageReceived | CreditGranted | CreditDrained) -> None:
        self._push()
        if isinstance(event, CreditGranted) and event.drain and self.link.credit:
            self.link.drained()

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

    def _push(self) -> None:
        self._push_is_due = False
        link, waiting, pending = self.link, self._waiting, self._pending
        if not waiting or not self._owner.is_writable:
            return
        now = self._loop.time()
        while waiting and link.credit > 0 and not self.detached.done():
            message = waiting.popleft()
            if message.may_go(now):
                tag = self._sent.to_bytes(4, "big")
                self._sent = (self._sent + 1) % SERIAL
                number = link.transfer(message.payload, tag=tag, message_format=message.message_format)
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
    """A message whose outcome somebody waits for."""

    payload: bytes
    message_format: int
    outcome: asyncio.Future[DeliveryState | None]

    def may_go(self, now: float) -> bool:
        return not self.outcome.done()  # nobody waits any more

    def answered(self, outcome: DeliveryState | None) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)


class Receiver(ClientLink):
    """Receives from one path under the credit its owner grants; what comes goes to ``on_message`` at once."""

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
        """Let the peer deliver ``credit`` messages from now on; with ``drain`` only those it has."""
        if not self.detached.done():
            self.link.flow(credit, drain=drain)
            self._owner.flush_soon()

    async def drained(self) -> None:
        """Wait until no credit is out: the peer has answered a drain, or the link is gone."""
        if self.credit and not self.detached.done():
            self._credit_ends = asyncio.get_running_loop().create_future()
            either: tuple[asyncio.Future[Any], ...] = (self._credit_ends, self.detached)
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)

    def settle(self, first: int, last: int, state: DeliveryState) -> None:
        """Ask for an outcome of deliveries ``first`` to ``last``; the peer's settled answer confirms it."""
        if not self.detached.done():
            self.link.dispose(first, last, state, settled=False)
            self._owner.flush_soon()

    def give_back(self, first: int, last: int, state: DeliveryState) -> None:
        """Settle without waiting for an answer: what becomes of it is the peer's business."""
        if not self.detached.done():
            self.link.dispose(first, last, state, settled=True)
            self._owner.flush_soon()

    async def settled(self, delivery_id: int, state: DeliveryState) -> DeliveryState | None:
        """Settle one delivery and wait for the peer's answer; None when the link went before it came."""
        answered: asyncio.Future[DeliveryState | None] = asyncio.get_running_loop().create_future()
        self._settling[delivery_id] = answered
        self.settle(delivery_id, delivery_id, state)
        return await answered

    def _on_flow(self, event: MessageReceived | CreditGranted | CreditDrained) -> None:
        if isinstance(event, MessageReceived):
            self.on_message(event)
        elif self._on_drained is not None:
            self._on_drained()
        if self._credit_ends is not None and not self.credit and not self._credit_ends.done():
            self._credit_ends.set_result(None)

    def on_writable(self) -> None:
        """What a receiver says is small: it never waited."""

    def _on_states(self, event: DispositionReceived) -> None:
        if self._on_disposition is not None:
            self._on_disposition(event)
        span = (event.last - event.first) % SERIAL
        for delivery_id in [each for each in self._settling if (each - event.first) % SERIAL <= span]:
            self._settling.pop(delivery_id).set_result(event.state)

    def _end(self, condition: Condition | None) -> None:
        super()._end(condition)
        waiting, self._settling = self._settling, {}
        for answered in waiting.values():
            if not answered.done():
                answered.set_result(None)
