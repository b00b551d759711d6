"""What the pumps do not see: how long the oldest message waits, and what waits beyond our count of backlogs.

Both are looked at by peeking, which locks nothing and begins no receive: the oldest message of a backlog only
while it may hold any, and the queues beyond the count one after another until one does not exist (F-48).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from sbpair.amqp.errors import NOT_FOUND
from sbpair.pairing.names import backlog_queue_name

from .connection import NamespaceConnection
from .errors import SyphonError
from .look import look

BEYOND_EVERY = 900.0  # seconds between looks beyond the count
MOST_BEYOND = 100  # queues that are looked at there
SOONEST, LATEST = 0.25, 300.0  # seconds between looks at the ages: a quarter of the threshold

logger = logging.getLogger("sbpair.syphon")


class SurveyReporter(Protocol):
    """Who hears what was seen."""

    def backlog_stranded(self, backlog: str, holds_messages: bool) -> None: ...
    def backlog_overdue(self, backlog: str, age: float, threshold: float) -> None: ...
    def backlog_caught_up(self, backlog: str) -> None: ...


@dataclass(slots=True)
class Beyond:
    """The backlog queues beyond our ``count``; each is told once, and again once it holds messages."""

    label: str
    count: int
    reporter: SurveyReporter
    told: dict[str, bool] = field(default_factory=dict)

    async def keep_looking(self, connection: NamespaceConnection) -> None:
        """Look now, and every so often while ``connection`` lasts."""
        while True:
            await self.look(connection)
            await asyncio.sleep(BEYOND_EVERY)

    async def look(self, connection: NamespaceConnection) -> list[str]:
        """Those that hold messages now."""
        holding = []
        for index in range(self.count, self.count + MOST_BEYOND):
            backlog = backlog_queue_name(self.label, index)
            try:
                holds = await oldest(connection, backlog) is not None
            except SyphonError as error:
                if error.condition is None or error.condition.symbol != NOT_FOUND:
                    logger.info("%s cannot be looked into: %s", backlog, error)
                break
            if self.told.get(backlog) is not holds and not self.told.get(backlog):
                self.reporter.backlog_stranded(backlog, holds)
            self.told[backlog] = holds
            if holds:
                holding.append(backlog)
        return holding


@dataclass(slots=True)
class Ages:
    """Which backlogs hold a message older than ``threshold``: told when it begins, and when it is over."""

    threshold: timedelta
    reporter: SurveyReporter
    overdue: set[str] = field(default_factory=set)

    @property
    def interval(self) -> float:
        """Seconds between two looks."""
        return min(LATEST, max(SOONEST, self.threshold.total_seconds() / 4))

    async def keep_looking(
        self, which: Callable[[], Iterable[str]], borrow: Callable[[], Awaitable[NamespaceConnection]]
    ) -> None:
        """Look every so often at the backlogs that ``which`` names, and at those that were overdue."""
        while True:
            await asyncio.sleep(self.interval)
            wanted = sorted(self.overdue.union(which()))
            if not wanted:
                continue  # all is known to be empty: nothing is asked, and nothing billed
            try:
                connection = await borrow()
                for backlog in wanted:
                    self.measured(backlog, await oldest(connection, backlog), time.time())
            except SyphonError as error:
                logger.debug("the age of the backlogs cannot be seen: %s", error)

    def measured(self, backlog: str, parked_at: int | None, now: float) -> None:
        """Note when the oldest message was parked (milliseconds; None: there is none), at ``now``."""
        age = 0.0 if parked_at is None else now - parked_at / 1000
        limit = self.threshold.total_seconds()
        if age > limit and backlog not in self.overdue:
            self.overdue.add(backlog)
            self.reporter.backlog_overdue(backlog, age, limit)
        elif age <= limit and backlog in self.overdue:
            self.overdue.discard(backlog)
            self.reporter.backlog_caught_up(backlog)


async def oldest(connection: NamespaceConnection, backlog: str) -> int | None:
    """When the first message of a backlog was parked, in milliseconds; None when it is empty.

    Raises TokenRefused, LinkRefused, ConnectionLost.
    """
    async for message in look(connection, backlog, most=1):
        return message.parked_at or 0
    return None
