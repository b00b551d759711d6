"""Senders and a transaction controller that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    DeliveryState,
    Rejected,
    TransactionalState,
)
from sbpair.pair.client.errors import ClientError, LinkRefusedError
from sbpair.pair.syphon.forward.in_flight import InFlightMessage
from tests.pair.syphon.scripted import now

FULL = Rejected(Condition("amqp:resource-limit-exceeded", "full"))
NOT_ALLOWED = Rejected(Condition("amqp:not-allowed", "no transactions"))
TOO_LARGE = Rejected(Condition("amqp:link:message-size-exceeded"))
NO_TWIN = LinkRefusedError("no link", Condition("amqp:not-found"))


def named(name: str) -> bytes:
    return Message(properties=Properties(message_id=name), body=DataBody((b"",))).encode()


def id_of(payload: bytes) -> object:
    properties = Message.decode(payload).properties
    return None if properties is None else properties.message_id


@dataclass
class PlayedSender:
    """A sender that answers with ``outcomes`` in turn, after ``takes`` seconds each, and then accepts everything."""

    log: list[Any]
    name: str
    outcomes: list[DeliveryState | ClientError | None] = field(default_factory=list)
    takes: list[float] = field(default_factory=list)
    credit: int = 7
    progress: int = 0
    on_progress: Callable[[], None] | None = None
    max_message_size: int | None = None
    plain: list[InFlightMessage] = field(default_factory=list)
    waiting: list[InFlightMessage] = field(default_factory=list)
    let_go_at: float | None = None

    def __post_init__(self) -> None:
        self.detached: asyncio.Future[Condition | None] = asyncio.get_running_loop().create_future()
        attach = SimpleNamespace(max_message_size=self.max_message_size)
        self.link = SimpleNamespace(remote_attach=attach)

    @property
    def is_open(self) -> bool:
        return not self.detached.done()

    @property
    def in_flight(self) -> int:
        return len(self.plain)

    def take_waiting(self) -> list[InFlightMessage]:
        taken, self.waiting = self.waiting, []
        return taken

    def unanswered_messages(self) -> list[InFlightMessage]:
        return list(self.plain)

    def transfer(self, message: InFlightMessage) -> None:
        self.plain.append(message)

    def answer(self, state: DeliveryState = ACCEPTED) -> None:
        self.plain.pop(0).answered(state)

    async def send(
        self, payload: bytes, message_format: int, state: TransactionalState
    ) -> DeliveryState | None:
        self.log.append((self.name, id_of(payload), state.txn_id))
        assert message_format == 0
        outcome = self.outcomes.pop(0) if self.outcomes else TransactionalState(state.txn_id, ACCEPTED)
        await asyncio.sleep(self.takes.pop(0) if self.takes else 0)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    def let_go(self) -> None:
        self.let_go_at = now()
        if self.is_open:
            self.detached.set_result(None)


@dataclass
class PlayedController:
    """A controller of transactions t1, t2 …; ``fails`` maps an operation to the error that it raises."""

    log: list[Any]
    fails: dict[str, ClientError] = field(default_factory=dict)
    count: int = 0
    is_ready: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared by a test whose opening takes time."""

    def __post_init__(self) -> None:
        self.is_ready.set()

    async def ready(self) -> None:
        await self.is_ready.wait()
        if "ready" in self.fails:
            raise self.fails["ready"]

    async def declare(self) -> bytes:
        if "declare" in self.fails:
            raise self.fails["declare"]
        self.count += 1
        return b"t%d" % self.count

    async def commit(self, txn_id: bytes) -> None:
        self.log.append(("commit", txn_id))
        if "commit" in self.fails:
            raise self.fails["commit"]

    async def roll_back(self, txn_id: bytes) -> None:
        self.log.append(("roll back", txn_id))
