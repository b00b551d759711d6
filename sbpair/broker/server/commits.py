"""Nothing is said before what it says is on the disk (G-26).

    a turn of the loop     all that came in it shares a commit
    a commit under way     what was said up to its beginning waits for it, and for no other
    the next one           begins when that one is done, with all that came meanwhile
    no store               what is said goes out at once

A commit that failed ends all: nobody knows what is on the disk, and what waits to be said is never said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from typing import TYPE_CHECKING

from ..errors import StoreFailed
from ..faces.namespace_face import NamespaceFace
from .wire import AmqpWire

if TYPE_CHECKING:
    from ..store.sqlite import SqliteStore
    from .chronicle import Chronicle


class Commits:
    """When a namespace's answers go out. ``fail`` is told of a commit that failed, once."""

    def __init__(
        self,
        face: NamespaceFace,
        wires: Mapping[Hashable, AmqpWire],
        store: SqliteStore | None,
        chronicle: Chronicle | None,
        fail: Callable[[StoreFailed], None],
    ) -> None:
        self._face = face
        self._wires = wires
        self._store = store
        self._chronicle = chronicle
        self._fail = fail
        self._turn: asyncio.Handle | None = None  # at the end of this one
        self._under_way: Future[None] | None = None
        self._aside: list[AmqpWire] = []  # those that wait for it

    @property
    def is_holding(self) -> bool:
        """Something is to be on the disk before anything more is said."""
        return self._store is not None and self._store.has_work

    def settle(self) -> None:
        """Say what there is to say: now, or behind the commit of this turn of the loop."""
        if not self.is_holding:
            self._flush()
        elif self._turn is None:
            self._turn = asyncio.get_running_loop().call_soon(self._end_turn)

    def commit(self) -> None:
        """Have on disk what has changed, then say what waited for it. Raises StoreFailed: all is over."""
        try:
            if self._store is not None:
                self._store.commit()
        except StoreFailed as error:
            self._forsake(error)
            raise
        self._under_way = None
        self._flush()

    def _end_turn(self) -> None:
        self._turn = None
        if self._under_way is not None:
            return  # the next begins when that one is done
        if self.is_holding:
            self._begin()
        else:
            self._flush()

    def _begin(self) -> None:
        """Have what has changed synced aside; what was said up to now waits for that, and for no more.

        A journal of what became of messages is written when nothing is to be synced: it waits here.
        """
        if self._store is None or self._chronicle is not None:
            with suppress(StoreFailed):  # the broker was told
                self.commit()
            return
        try:
            self._under_way = under_way = self._store.begin_commit()
        except StoreFailed as error:
            self._forsake(error)
            return
        for client in self._face.take_stirred():
            if (wire := self._wires.get(client)) is not None:
                wire.set_aside()
                self._aside.append(wire)
        loop = asyncio.get_running_loop()

        def synced(_: Future[None]) -> None:
            with suppress(RuntimeError):  # the loop has ended: who ended it has waited
                loop.call_soon_threadsafe(self._end, under_way)

        under_way.add_done_callback(synced)

    def _end(self, under_way: Future[None]) -> None:
        if under_way is not self._under_way or self._store is None:
            return  # somebody could not wait, and has ended it
        self._under_way = None
        try:
            self._store.end_commit()
        except StoreFailed as error:
            self._forsake(error)
            return
        if self.is_holding:
            self._flush_aside()
            self._begin()
        else:
            self._flush()

    def _flush(self) -> None:
        if self._chronicle is not None:
            self._chronicle.write_soon(lambda: self.is_holding)
        for wire in self._flush_aside():
            wire.flush()
        for client in self._face.take_stirred():
            if (stirred := self._wires.get(client)) is not None:
                stirred.flush()

    def _flush_aside(self) -> list[AmqpWire]:
        wires, self._aside = self._aside, []
        for wire in wires:
            wire.flush_aside()
            if wire.client.is_closed:
                self._face.stir(wire.client)  # it is to leave once all is said
        return wires

    def _forsake(self, error: StoreFailed) -> None:
        self._face.take_stirred()
        self._under_way = None
        self._aside.clear()
        if self._chronicle is not None:
            self._chronicle.forsake()
        self._fail(error)
