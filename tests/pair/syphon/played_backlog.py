"""A pump between a backlog link and a destination that are both played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from sbpair.pair.amqp.events import DispositionReceived, MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    DeliveryState,
)
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.pair.syphon.forward.credit import MemoryBudget
from sbpair.pair.syphon.forward.pump import Pump, PumpSettings
from sbpair.pair.syphon.status import SyphonCounters
from tests.pair.syphon.scripted import PlayedLink, Scene, now, turns
from tests.trials.simulation.virtual_loop import EPOCH

ROOMY = 2**30


def parked(number: int, path: str = "orders", lock: float | None = 60.0, **aliases: Any) -> bytes:
    """Create a delivery of a parked message, locked for ``lock`` seconds from now."""
    ends = (
        {}
        if lock is None
        else {Symbol("x-opt-locked-until"): Timestamp(round((EPOCH + now() + lock) * 1000))}
    )
    return Message(
        message_annotations=ends,
        properties=Properties(message_id=f"m{number}"),
        application_properties={"x-ms-path": path, "x-sbpair-version": "1", **aliases},
        body=DataBody((b"hello",)),
    ).encode()


@dataclass
class PlayedReceiver:
    """A receiver link from the backlog, with its connection."""

    on_message: Callable[[MessageReceived], None]
    on_disposition: Callable[[DispositionReceived], None]
    on_drained: Callable[[], None]
    credit: int = 0
    is_open: bool = True
    flows: list[tuple[int, bool]] = field(default_factory=list)
    settled: list[tuple[int, int, DeliveryState]] = field(default_factory=list)
    given_back: list[tuple[int, int, DeliveryState]] = field(default_factory=list)
    in_transaction: list[tuple[int, int, DeliveryState]] = field(default_factory=list)
    loses_locks: bool = False
    closed_at: float | None = None

    def __post_init__(self) -> None:
        self.detached: asyncio.Future[Condition | None] = asyncio.get_running_loop().create_future()
        self._last = 0

    def flow(self, credit: int, *, drain: bool = False) -> None:
        self.flows.append((credit, drain))
        self.credit = credit

    def drain(self) -> None:
        """Complete a drain: the peer has no more messages and clears the credit."""
        self.credit = 0
        self.on_drained()

    async def drained(self) -> None:
        self.credit = 0

    def deliver(self, *payloads: bytes) -> None:
        for payload in payloads:
            self._last += 1
            self.credit -= 1
            tag = b"lock-%d" % self._last
            self.on_message(MessageReceived(self, self._last, tag, payload, False, 0, None))  # type: ignore[arg-type]

    def dispose(self, first: int, last: int, state: DeliveryState) -> None:
        self.given_back.append((first, last, state))

    def settle(self, first: int, last: int, state: DeliveryState) -> None:
        self.settled.append((first, last, state))

    def give_back(self, first: int, last: int, state: DeliveryState) -> None:
        self.given_back.append((first, last, state))

    async def settled_run(self, first: int, last: int, state: DeliveryState) -> list[DeliveryState | None]:
        self.in_transaction.append((first, last, state))
        answers: list[DeliveryState | None] = [state] * (last - first + 1)
        return [*answers[1:], None] if self.loses_locks else answers

    async def close(self) -> None:
        self.closed_at = now()

    def confirm(self, first: int, last: int, state: DeliveryState | None = ACCEPTED) -> None:
        self.on_disposition(DispositionReceived(None, first, last, state, True))  # type: ignore[arg-type]


class Pumped:
    """A pump with its backlog link, whose destination the test plays."""

    def __init__(self, window: int = 1000, budget: int = ROOMY, link: PlayedLink | None = None, **more: Any):
        self.scene = Scene(opens=[] if link is None else [link])
        self.counters = SyphonCounters()
        self.budget = MemoryBudget(budget, 1)
        self.attached: list[str] = []
        self.unresponsive: list[str] = []
        self.ahead: list[float] = []
        self.paused: list[bool] = []
        self.receivers: list[PlayedReceiver] = []
        settings = PumpSettings(
            window=window,
            answer_timeout=30.0,
            is_allowed=lambda path: path != "forbidden",
            destination_of=lambda path: self.scene.orders,
            counters=self.counters,
            budget=self.budget,
            emit=self.scene.events.append,
            attached=self.attached.append,
            unresponsive=self.unresponsive.append,
            clock_differs=self.ahead.append,
            **more,
        )
        self.pump = Pump("b0", settings)
        self.running = self.run()

    def run(self) -> asyncio.Task[Condition | None]:
        return asyncio.ensure_future(self.pump.run(self))  # type: ignore[arg-type]

    def attached_a_minute_ago(self) -> None:
        """Locks may be as old as the link; one that looks older shows a clock that was set."""
        self.pump._locks.locked_since -= 60.0

    # the connection

    async def open_receiver(self, path: str, *callbacks: Any) -> PlayedReceiver:
        assert path == "b0"
        self.receivers.append(PlayedReceiver(*callbacks))
        return self.receivers[-1]

    def pause_reading(self) -> None:
        self.paused.append(True)

    def resume_reading(self) -> None:
        self.paused.append(False)

    @property
    def receiver(self) -> PlayedReceiver:
        return self.receivers[-1]

    @property
    def link(self) -> PlayedLink:
        return self.scene.link

    async def deliver(self, *payloads: bytes) -> None:
        await turns()
        self.receiver.deliver(*payloads)
        await turns()

    async def accept(self, count: int) -> None:
        for _ in range(count):
            self.link.answer()
        await turns()

    def counted(self) -> dict[str, int]:
        names = (
            "received", "forwarded", "landed", "completed", "dead_lettered", "released", "lock_lost", "pending",
        )  # fmt: skip
        return {name: getattr(self.counters, name) for name in names if getattr(self.counters, name)}


class Renewals:
    """Answer lock renewals: each lock lasts a minute from now, except those in ``gone``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[float, list[bytes]]] = []
        self.gone: set[bytes] = set()
        self.fails = False
        self.answered = asyncio.Event()  # cleared by a test whose answers take time
        self.answered.set()
        monkeypatch.setattr("sbpair.pair.client.locks.renew_locks", self._renew)

    async def _renew(self, connection: object, path: str, tags: Sequence[bytes]) -> list[float | None]:
        assert path == "b0"
        assert connection is not None
        self.asked.append((now(), list(tags)))
        await asyncio.sleep(0)
        await self.answered.wait()
        if self.fails:
            raise LinkRefusedError("no node")
        return [None if tag in self.gone else EPOCH + now() + 60.0 for tag in tags]


@pytest.fixture
def renewals(monkeypatch: pytest.MonkeyPatch) -> Renewals:
    return Renewals(monkeypatch)
