"""A broker that keeps its namespace on disk and dies: uncommitted changes are lost, acknowledged ones are not.

    change in memory --- commit -----------------------> answers
                     ^         ^                    ^
                     BEFORE    IN (all but COMMIT)  AFTER       here its process can end

The next broker starts from the bytes of the file and its write-ahead log at that moment. Commits are
not synced here, which only a crash of the machine would show: a process that ends loses nothing it wrote.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any

from sbpair.broker.access import Verifier
from sbpair.broker.clock import Clock
from sbpair.broker.entities.change_log import ChangeLog
from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.server.namespace_server import Commits, NamespaceServer
from sbpair.broker.store.disk import load
from sbpair.broker.store.schema import Row
from sbpair.broker.store.sqlite import SqliteStore


class When(Enum):
    """Where in a commit the process ends."""

    BEFORE = 0
    IN = 1
    AFTER = 2


class Died(BaseException):
    """The broker's process has ended: nothing of it may go on, so nothing catches it by accident."""

    def __init__(self, when: When) -> None:
        super().__init__(when.name)
        self.when = when


class Room:
    """A disk that is never full."""

    def has_room(self) -> bool:
        return True

    def release_reserve(self) -> bool:
        return False


class DyingStore(SqliteStore):
    """A store whose process ends at the given commit."""

    def __init__(self, path: Path, change_log: ChangeLog) -> None:
        self.doom: tuple[int, When] | None = None  # commits that still succeed, then how it ends
        super().__init__(Room(), path, change_log)  # type: ignore[arg-type]
        self.connection.execute("PRAGMA synchronous = OFF")
        self.when_kept: list[Callable[[], None]] = []
        self.when_lost: list[Callable[[], None]] = []

    def commit(self) -> None:
        try:
            super().commit()
        except Died as died:
            self._conclude(self.when_kept if died.when is When.AFTER else self.when_lost)
            raise
        self._conclude(self.when_kept)

    def _conclude(self, what: list[Callable[[], None]]) -> None:
        calls = list(what)
        self.when_kept.clear()
        self.when_lost.clear()
        for call in calls:
            call()

    def _transact(self, statements: list[tuple[str, list[Row]]]) -> None:
        if self.doom is None or not statements:
            super()._transact(statements)
            return
        left, when = self.doom
        self.doom = (left - 1, when)
        if left == 0 and when is not When.AFTER:
            if when is When.IN:
                self.connection.execute("BEGIN IMMEDIATE")
                for statement, rows in statements:
                    self.connection.executemany(statement, rows)
            raise Died(when)
        super()._transact(statements)
        if left == 0:
            raise Died(when)


class MortalCommits(Commits):
    """In place, not in a thread, so that a run is the same each time; notified when the broker dies."""

    died: Callable[[When], None]
    is_dead = False

    def __init__(self, server: DurableServer) -> None:
        super().__init__(server.frontend, server.wires, server.store, None, server._fail)
        self.answers: list[
            Callable[[bool], None]
        ] = []  # called with whether the broker died before it answered

    def commit(self) -> None:
        if self.is_dead:
            return
        try:
            super().commit()
        except Died as died:
            self.died(died.when)

    def _begin(self) -> None:
        self.commit()

    def _flush(self) -> None:
        super()._flush()
        self._answer(False)

    def die(self) -> None:
        self.is_dead = True
        if self._turn is not None:
            self._turn.cancel()
        self._answer(True)

    def _answer(self, died: bool) -> None:
        answers, self.answers = self.answers, []
        for reply in answers:
            reply(died)


class DurableServer(NamespaceServer):
    """A namespace server over such a store, notified when its broker dies."""

    def __init__(
        self,
        namespace: Namespace,
        clock: Clock,
        path: Path,
        tls: Any,
        verifier: Verifier,
        died: Callable[[DurableServer, When], None],
    ) -> None:
        assert namespace.change_log is not None
        self.store = DyingStore(path, namespace.change_log)
        load(self.store, namespace, clock.now())
        super().__init__(namespace, verifier, clock, namespace.name, 0, tls, self.store)
        self._commits = self._mortal = MortalCommits(self)
        self._mortal.died = lambda when: died(self, when)

    @property
    def is_dead(self) -> bool:
        return self._mortal.is_dead

    def end_turn(self) -> None:
        if not self.is_dead:
            super().end_turn()

    def keep(self) -> None:
        """Commit, and live: what the plan of a run does to a broker is done."""
        doom, self.store.doom = self.store.doom, None
        self.commit()
        self.store.doom = doom

    def answer(self, reply: Callable[[bool], None]) -> None:
        """Reply once all that was changed is on disk (G-26)."""
        if self.is_holding:
            self._mortal.answers.append(reply)
        else:
            reply(False)

    def die(self) -> None:
        """Do nothing any more."""
        self._timer.cancel()
        self.store.connection.close()
        self._mortal.die()


def crash_image(path: Path, to: Path) -> None:
    """The bytes of a store's file and of its write-ahead log, as they are now."""
    for suffix in ("", "-wal", "-mark"):
        there = path.with_name(path.name + suffix)
        if there.exists():
            shutil.copyfile(there, to.with_name(to.name + suffix))
