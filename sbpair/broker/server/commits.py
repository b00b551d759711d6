"""Group commits: no answer leaves before the changes it reports are on disk.

    a turn of the loop       everything that arrived in it shares a commit
    a commit in progress     answers produced before it began wait for it, and for no later one
    the next commit          begins when that one is done, with everything that arrived meanwhile
    no store                 answers leave at once

A failed commit ends the server: the state on disk is unknown, and the answers that waited are never sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import StoreFailedError
from ..frontends.namespace_frontend import NamespaceFrontend
from .wire import AmqpWire

if TYPE_CHECKING:
    from ..store.sqlite import SqliteStore
    from .audit_writer import AuditWriter


class Commits:
    """Decides when a namespace's answers are sent.

    ``fail`` is called with the error of the commit that failed.
    """

    def __init__(
        self,
        frontend: NamespaceFrontend,
        wires: Mapping[Hashable, AmqpWire],
        store: SqliteStore | None,
        audit_writer: AuditWriter | None,
        fail: Callable[[StoreFailedError], None],
    ) -> None:
        self._frontend = frontend
        self._wires = wires
        self._store = store
        self._audit_writer = audit_writer
        self._fail = fail
        self._turn: asyncio.Handle | None = None  # scheduled for the end of this turn
        self._pending: Future[None] | None = None
        self._holding_wires: list[AmqpWire] = []  # with answers that wait for the pending commit

    @property
    def is_holding(self) -> bool:
        """Whether changes must reach the disk before any answer leaves."""
        return self._store is not None and self._store.has_pending_changes

    def end_turn(self) -> None:
        """Send pending answers: now, or after the commit of this turn of the loop."""
        if not self.is_holding:
            self._flush()
        elif self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._end_turn)

    def commit(self) -> None:
        """Write all changes to disk, then send the answers that waited.

        Raises StoreFailedError, after which the broker stops.
        """
        try:
            if self._store is not None:
                self._store.commit()
        except StoreFailedError as error:
            self._abandon(error)
            raise
        self._pending = None
        self._flush()

    def _end_turn(self) -> None:
        self._turn = None
        if self._pending is not None:
            return  # the next commit begins when this one is done
        if self.is_holding:
            self._begin()
        else:
            self._flush()

    def _begin(self) -> None:
        """Start syncing the changes in a thread; answers produced so far wait for this commit, not for a later one.

        With an audit journal, the commit is synchronous, because events are written only when no change waits to be
        synced.
        """
        if self._store is None or self._audit_writer is not None:
            with suppress(StoreFailedError):  # already reported to the broker
                self.commit()
            return
        try:
            self._pending = pending = self._store.begin_commit()
        except StoreFailedError as error:
            self._abandon(error)
            return
        for client in self._frontend.take_pending():
            if (wire := self._wires.get(client)) is not None:
                wire.hold_output()
                self._holding_wires.append(wire)
        loop = asyncio.get_running_loop()

        def synced(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has closed, after waiting for this commit
                loop.call_soon_threadsafe(self._end, pending)

        pending.add_done_callback(synced)

    def _end(self, pending: Future[None]) -> None:
        if pending is not self._pending or self._store is None:
            return  # commit() has completed it synchronously
        self._pending = None
        try:
            self._store.end_commit()
        except StoreFailedError as error:
            self._abandon(error)
            return
        if self.is_holding:
            self._flush_held()
            self._begin()
        else:
            self._flush()

    def _flush(self) -> None:
        if self._audit_writer is not None:
            self._audit_writer.write_soon(lambda: self.is_holding)
        for wire in self._flush_held():
            wire.flush()
        for client in self._frontend.take_pending():
            if (found := self._wires.get(client)) is not None:
                found.flush()

    def _flush_held(self) -> list[AmqpWire]:
        wires, self._holding_wires = self._holding_wires, []
        for wire in wires:
            wire.flush_held()
            if wire.client.is_closed:
                self._frontend.stir(wire.client)  # closes once everything is sent
        return wires

    def _abandon(self, error: StoreFailedError) -> None:
        self._frontend.take_pending()
        self._pending = None
        self._holding_wires.clear()
        if self._audit_writer is not None:
            self._audit_writer.abandon()
        self._fail(error)
