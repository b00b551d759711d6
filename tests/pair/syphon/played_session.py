"""A played session of an ordered backlog, and its parked messages."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import Condition, DeliveryState, Rejected
from tests.pair.syphon.scripted import now

CLIENT, EPOCH = "abcdef", 1000


def parked(number: int, path: str = "orders", ordinal: int | None = None, **aliases: Any) -> bytes:
    stamp = {} if ordinal is None else {"x-sbpair-order": f"{CLIENT}/{EPOCH}/{ordinal}"}
    return Message(
        properties=Properties(message_id=f"m{number}", group_id="parked"),
        application_properties={"x-ms-path": path, "x-sbpair-version": "1", **stamp, **aliases},
        body=DataBody((b"hello",)),
    ).encode()


@dataclass
class PlayedSession:
    """A session receiver that delivers ``stored`` within its credit, starting with delivery 1."""

    stored: deque[bytes]
    session_id: str = "s"
    credits: list[int] = field(default_factory=list)
    settled: list[tuple[int, int, DeliveryState]] = field(default_factory=list)
    given_back: list[tuple[int, int, DeliveryState]] = field(default_factory=list)
    confirmation: DeliveryState | None = None
    """What settlements are confirmed with, in place of what was asked for."""
    is_silent: bool = False
    closed_at: float | None = None

    def __post_init__(self) -> None:
        self.detached: asyncio.Future[Condition | None] = asyncio.get_running_loop().create_future()
        self.on_message: Callable[[MessageReceived], None]
        self.on_disposition: Callable[[DispositionReceived], None]
        self._number = 0

    def flow(self, credit: int, *, drain: bool) -> None:
        assert drain
        self.credits.append(credit)
        for _ in range(min(credit, len(self.stored))):
            self._number += 1
            event = MessageReceived(None, self._number, b"", self.stored.popleft(), False, 0, None)  # type: ignore[arg-type]
            self.on_message(event)

    async def drained(self) -> None:
        await asyncio.sleep(0)

    def settle(self, first: int, last: int, state: DeliveryState) -> None:
        self.settled.append((first, last, state))
        if not self.is_silent:
            asyncio.get_running_loop().call_soon(self.confirm, first, last, state)

    def confirm(self, first: int, last: int, state: DeliveryState) -> None:
        answer = (
            Rejected() if isinstance(state, Rejected) else state
        )  # as the service answers, without an error
        answer = answer if self.confirmation is None else self.confirmation
        self.on_disposition(DispositionReceived(None, first, last, answer, True))  # type: ignore[arg-type]

    def give_back(self, first: int, last: int, state: DeliveryState) -> None:
        self.given_back.append((first, last, state))

    async def close(self) -> None:
        self.closed_at = now()
