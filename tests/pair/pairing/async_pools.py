"""Pools of asyncio senders over scripted senders."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from sbpair.pair.pairing.aio.sender_pool import (
    AsyncPooledSender,
    AsyncSenderPool,
    Tasks,
)
from tests.pair.pairing.scripted_sender import Sender
from tests.waiting import PATIENCE


@dataclass
class Pooled:
    pool: AsyncSenderPool
    tasks: Tasks
    made: list[Sender]
    failures: list[Exception] = field(default_factory=list)
    opened: list[int] = field(default_factory=list)
    later: list[Sender] = field(default_factory=list)  # made next

    async def acquired(self, count: int, **settings: bool) -> list[AsyncPooledSender]:
        return [await self.pool.acquire(time.monotonic() + PATIENCE, **settings) for _ in range(count)]

    async def several(self, count: int) -> list[AsyncPooledSender]:
        """Open ``count`` senders, each with a call and no room for another."""
        found = []
        while len(found) < count:
            (pooled,) = await self.acquired(1)
            pooled.wire.is_shared = False
            found.append(pooled)
        return found


MakePool = Callable[..., Pooled]


@asynccontextmanager
async def pools() -> AsyncIterator[MakePool]:
    """Build pools over these senders, and end them afterwards."""
    built: list[Pooled] = []

    def build(*senders: Sender, find: Callable[[], Awaitable[None]] | None = None) -> Pooled:
        made: list[Sender] = []
        next_ones = list(senders)
        failures: list[Exception] = []
        opened: list[int] = []

        def make_one() -> Sender:
            made.append(next_ones.pop(0) if next_ones else Sender())
            return made[-1]

        tasks = Tasks()
        settings = {} if find is None else {"find": find}
        pool = AsyncSenderPool(
            make_one,  # type: ignore[arg-type]
            tasks,
            failed=failures.append,
            opened=lambda: opened.append(len(made)),
            **settings,
        )
        built.append(Pooled(pool, tasks, made, failures, opened, next_ones))
        return built[-1]

    yield build
    for each in built:
        each.pool.close(now=True)
        for sender in each.made:
            sender.gate.set()
        await each.tasks.join(PATIENCE)
