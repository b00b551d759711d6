"""A receiver for checks: takes messages one at a time, and settles them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import Message
from sbpair.pair.amqp.performatives import (
    Accepted,
    AmqpMap,
    Condition,
    DeliveryState,
    Modified,
    Rejected,
    Released,
)
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.client.link import DEAD_LETTER, DESCRIPTION, REASON, Receiver

from .entry import DifferenceError, expect

PATIENCE = 10.0  # seconds to wait for a message that must come
SILENCE = 0.7  # seconds to wait for a message that must not come


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message that arrived."""

    event: MessageReceived
    message: Message

    @property
    def body(self) -> object:
        body = self.message.body
        return getattr(body, "data", None) if body is not None else None

    @property
    def count(self) -> int:
        """The delivery count in the message's header."""
        header = self.message.header
        return 0 if header is None or header.delivery_count is None else int(header.delivery_count)

    def annotation(self, name: str) -> object:
        return self.message.message_annotations.get(Symbol(name))

    @property
    def number(self) -> int:
        """The sequence number of the message. Raises DifferenceError when it has none."""
        return whole("x-opt-sequence-number", self.annotation("x-opt-sequence-number"))

    def time(self, name: str) -> float:
        """Return a time annotation in seconds since the epoch. Raises DifferenceError if it is not a time."""
        found = self.annotation(name)
        if not isinstance(found, Timestamp):
            raise DifferenceError(f"{name} is {found!r}")
        return found / 1000


def whole(name: str, found: object) -> int:
    """Return a numeric annotation. Raises DifferenceError if it is not a number."""
    if not isinstance(found, int):
        raise DifferenceError(f"{name} is {found!r}")
    return found


class Inbox:
    """The deliveries of one receiver."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Arrival] = asyncio.Queue()
        self._held: dict[int, Arrival] = {}
        self._receiver: Receiver | None = None
        self._unreadable = ""

    def on_message(self, event: MessageReceived) -> None:
        try:
            arrival = Arrival(event, Message.decode(event.payload))
        except DecodeError as error:
            self._unreadable = f"a message came that cannot be read: {error}"
            self.receiver.let_go()
            return
        if not event.settled:
            self._held[event.delivery_id] = arrival
        self.arrived.put_nowait(arrival)

    def opened(self, receiver: Receiver) -> None:
        """Receive from this receiver."""
        self._receiver = receiver

    @property
    def receiver(self) -> Receiver:
        assert self._receiver is not None  # noqa: S101 - it is opened before anyone has it
        return self._receiver

    async def take(self, within: float = PATIENCE) -> Arrival:
        """The next message. Raises DifferenceError when none comes in time, or the link ends."""
        arrival = await self.take_if_any(within)
        if arrival is None:
            ended = self.receiver.detached
            if self._unreadable:
                raise DifferenceError(self._unreadable)
            why = f"the link ended ({ended.result()})" if ended.done() else f"none came in {within:g} s"
            raise DifferenceError(f"a message was expected on {self.receiver.path}: {why}")
        return arrival

    async def take_if_any(self, within: float = PATIENCE) -> Arrival | None:
        """The next message, or None when none comes in time or the link ends."""
        if self.arrived.empty() and not self.receiver.credit:
            self.receiver.flow(1)
        getting = asyncio.ensure_future(self.arrived.get())
        try:
            either: tuple[asyncio.Future[Any], ...] = (getting, self.receiver.detached)
            await asyncio.wait(either, timeout=within, return_when=asyncio.FIRST_COMPLETED)
            return getting.result() if getting.done() else None
        finally:
            getting.cancel()

    async def receive(self, within: float = PATIENCE) -> Arrival:
        """Take the next message and complete it. Raises as :meth:`take`."""
        arrival = await self.take(within)
        await self.complete(arrival)
        return arrival

    async def receive_all(self, count: int) -> list[Arrival]:
        """Take and complete ``count`` messages, one after the other. Raises as :meth:`take`."""
        return [await self.receive() for _ in range(count)]

    async def expect(self, *bodies: bytes) -> list[Arrival]:
        """Take and complete messages. Raises as :meth:`take`, and DifferenceError unless these are their bodies."""
        arrivals = await self.receive_all(len(bodies))
        expect((found := [each.body for each in arrivals]) == [*bodies], f"they came as {found}")
        return arrivals

    async def expect_only(self, *bodies: bytes) -> list[Arrival]:
        """As :meth:`expect`. Raises DifferenceError if another message comes."""
        arrivals = await self.expect(*bodies)
        await self.nothing()
        return arrivals

    async def nothing(self, within: float = SILENCE) -> None:
        """Raise DifferenceError if a message comes within this time."""
        arrival = await self.take_if_any(within)
        if arrival is not None:
            raise DifferenceError(f"a message came that should not: {arrival.body!r:.80}")

    async def complete(self, arrival: Arrival) -> DeliveryState | None:
        return await self.settle(arrival, Accepted())

    async def abandon(self, arrival: Arrival) -> DeliveryState | None:
        return await self.settle(arrival, Modified(delivery_failed=True, undeliverable_here=False))

    async def defer(self, arrival: Arrival) -> DeliveryState | None:
        return await self.settle(arrival, Modified(delivery_failed=True, undeliverable_here=True))

    async def dead_letter(
        self, arrival: Arrival, reason: str, text: str = "", more: AmqpMap | None = None
    ) -> DeliveryState | None:
        info: AmqpMap = {REASON: reason, DESCRIPTION: text, **(more or {})}
        return await self.settle(arrival, Rejected(Condition(DEAD_LETTER, text, info)))

    async def settle(self, arrival: Arrival, state: DeliveryState) -> DeliveryState | None:
        """Settle a message and wait for the peer's answer; None when the link ended or it took too long."""
        number = arrival.event.delivery_id
        self._held.pop(number, None)
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.receiver.settle_and_wait(number, state)
        except TimeoutError:
            return None

    async def close(self) -> None:
        """Give back the remaining messages, and detach."""
        receiver = self._receiver
        if receiver is None or receiver.detached.done():
            return
        if receiver.credit:
            await receiver.withdraw(within=2.0)
        for number in self._held:
            receiver.give_back(number, number, Released())
        await receiver.close()
