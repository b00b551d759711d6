"""Ordered sessions in a run: sequences of messages, each sent after the previous one was stored or given up.

A sequence belongs to one client name: when its process dies, the next one of that name continues with the message in
flight, as an application with its own journal would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from collections.abc import Sequence as Payloads
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from azure.servicebus import ServiceBusMessage

from sbpair.pair.envelope.restore import batched
from sbpair.pair.pairing.decide.fence import Fence
from sbpair.pair.syphon.order import session_relay

from .history import History

PATHS = ("ordered", "parts-ordered")
TRIES = 8  # of one message, before the application gives it up


@dataclass(slots=True)
class Sequence:
    """The messages of one session of one client, and how far it is."""

    client: str
    path: str
    session: str
    count: int
    pauses: list[float]
    number: int = 0
    is_over: bool = False
    given_up: set[str] = field(default_factory=set)

    @property
    def name(self) -> str:
        return f"{self.session}.{self.number}"

    def message(self) -> ServiceBusMessage:
        return ServiceBusMessage(b"in order", message_id=self.name, session_id=self.session)

    async def send(self, send: Callable[[str, ServiceBusMessage], Awaitable[bool]]) -> None:
        """Send what is left; ``send`` says whether the message was stored."""
        while self.number < self.count:
            await asyncio.sleep(self.pauses[self.number])
            for _ in range(TRIES):
                if await send(self.path, self.message()):
                    break
                await asyncio.sleep(5.0)
            else:
                self.given_up.add(self.name)
            self.number += 1
        self.is_over = True


def drawn_sequences(rng: Random, clients: int, workload: float) -> list[Sequence]:
    """One or two sequences for each client."""
    drawn = []
    for client in range(clients):
        for index in range(rng.randint(1, 2)):
            count = rng.choice((4, 8, 12, 30))
            burst = [
                rng.uniform(0, 0.05) if rng.random() < 0.5 else rng.uniform(0, workload / count)
                for _ in range(count)
            ]
            drawn.append(Sequence(f"client-{client}", rng.choice(PATHS), f"q{client}{index}", count, burst))
    return drawn


@contextmanager
def open_fence() -> Iterator[None]:
    """Have the fence let every session pass."""
    with patch.object(Fence, "lets_pass", lambda self, place: True):
        yield


@contextmanager
def counted_batches(history: History) -> Iterator[None]:
    """Note each batch in which a syphon sends messages of a session."""

    def counted(payloads: Payloads[bytes]) -> bytes:
        history.reached["ordered messages in a batch"] += len(payloads)
        return batched(payloads)

    with patch.object(session_relay, "batched", counted):
        yield


def check_order(history: History, sequences: Iterable[Sequence], sessions: dict[str, list[str]]) -> None:
    """O-1: without repeated ids, what arrived of a session is in the order in which it was sent.

    A message that was given up may arrive late, or never: where it stands is not promised.
    """
    for sequence in sequences:
        arrived = list(dict.fromkeys(sessions.get(sequence.session, ())))
        numbers = [int(name.rpartition(".")[2]) for name in arrived if name not in sequence.given_up]
        if numbers != sorted(numbers):
            history.wrong(f"O-1: {sequence.session} in {sequence.path} arrived as {numbers}")
        history.reached["ordered sessions that arrived"] += bool(numbers)
