"""The spool of a sending process, over a disk that keeps what was synced and nothing else.

    write    encoded as in the real spool; the process may die before the sync, and after it
    replay   by the project's own schedule: the oldest by the pair's own flow, then deleted;
             a process that dies in between sends it again, which is one ambiguity event (G-4)

Not simulated: batches, and the short hold of senders at the end of a replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

from sbpair.pair.envelope.copies import Message
from sbpair.pair.pairing import events
from sbpair.pair.pairing.decide.pair import Result
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.outcome import Outcome, Stored
from sbpair.pair.pairing.spool.replay import entry_of
from sbpair.pair.pairing.spool.schedule import ReplaySchedule
from sbpair.pair.pairing.spool.store import Spooled
from sbpair.pair.pairing.spool.units import unit_of

from .entities import CLOCK
from .world import World

SendAgain = Callable[[str, Message, int | None, Choice], Awaitable[Outcome]]


class Disk:
    """What is there after a death: the messages, the oldest first."""

    def __init__(self) -> None:
        self.numbers = count()
        self.rows: dict[int, Spooled] = {}

    def of(self, path: str) -> list[Spooled]:
        return [row for row in self.rows.values() if row.path == path]


class PlayedSpool:
    """The spool of the process ``name``, while it lives."""

    def __init__(self, world: World, name: str, disk: Disk, rng: Random) -> None:
        self._world, self._name, self._disk, self._rng = world, name, disk, rng
        self._schedule = ReplaySchedule(lambda: rng.uniform(0.75, 1.25))
        self._choices: dict[str, Choice] = {}
        for row in disk.rows.values():
            self._schedule.spooled(row.path, world.now)
        self._schedule.hurry(world.now)

    def waiting(self, path: str | None = None) -> int:
        return len(self._disk.rows if path is None else self._disk.of(path))

    async def write(self, path: str, message: Message, deadline: int | None) -> Result:
        """On the disk when it returns."""
        history, (entry, _) = self._world.history, entry_of(message, deadline)
        try:
            await self._step()
        except asyncio.CancelledError:
            history.reached["sender crashed with an unsynced spool"] += 1
            raise
        number = next(self._disk.numbers)
        self._disk.rows[number] = Spooled(number, path, entry.message_id, CLOCK.now(), entry.message, True)
        history.note(self._world.now, self._name, "spooled", entry.message_id, path)
        history.reached["spooled"] += 1
        self._schedule.spooled(path, self._world.now)
        await self._step()  # synced, and not reported yet
        return Result(self._world.now)

    async def _step(self) -> None:
        """The disk takes its time; the process may die while it does."""
        await asyncio.sleep(self._rng.uniform(0.001, 0.05))
        self._world.stepped(self._name)
        await asyncio.sleep(0)  # where it is dead now, it goes no further

    def hear(self, event: events.PairingEvent) -> None:
        match event:
            case events.EntityRecovered():
                self._schedule.hurry(event.at, event.path)
            case events.BacklogReturned() | events.MessageParked():
                self._schedule.hurry(event.at)

    def next_timer(self) -> float | None:
        return self._schedule.next_timer()

    def due(self, now: float) -> list[str]:
        return self._schedule.due(now)

    async def replay(self, path: str, send_again: SendAgain) -> None:
        """The oldest messages of this entity, until none is left or one is not accepted."""
        while (rows := self._disk.of(path)) and await self._moved(rows[0], send_again):
            self._schedule.accepted(path, self._world.now)
        self._schedule.finished(path, self._world.now, is_empty=not rows, was_accepted=not rows)

    async def _moved(self, row: Spooled, send_again: SendAgain) -> bool:
        history = self._world.history
        unit = unit_of([row], CLOCK.now(), is_mixed=False)
        if not unit.messages:
            self._set_aside(row, unit.broken)
            return True
        choice = self._choices.setdefault(row.path, Choice())
        outcome = await send_again(row.path, unit.messages[0], unit.deadlines[0], choice)
        if not isinstance(outcome, Stored):
            return False
        history.unanswered[row.message_id] += 1  # until the disk knows it
        try:
            await self._step()
        except asyncio.CancelledError:
            history.reached["sender crashed between a replay and its deletion"] += 1
            raise
        del self._disk.rows[row.number]
        history.unanswered[row.message_id] -= 1
        history.note(self._world.now, self._name, "replayed", row.message_id, row.path)
        history.reached["replayed from the spool"] += 1
        return True

    def _set_aside(self, row: Spooled, why: str) -> None:
        reason = why.partition(":")[0]
        history = self._world.history
        history.note(self._world.now, self._name, "set aside", row.message_id, why)
        history.reached["expired in the spool"] += reason == "TTLExpiredException"
        history.dead[row.message_id].add(reason)
        del self._disk.rows[row.number]
