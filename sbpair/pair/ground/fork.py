"""Reopening clients in a forked process."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """A client that survives a fork. ``lock`` guards state that must be consistent in the child."""

    lock: threading.Lock

    def reopen_in_child(self) -> None: ...


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []
_forking = threading.RLock()  # held during a fork: one at a time, and no client is added meanwhile
_left_to_the_parent: list[object] = []


def reopen_after_fork(thing: Forkable) -> None:
    """Reopen ``thing`` in every child that is forked while it lives."""
    with _forking:
        _alive.add(thing)


def leave_to_the_parent(thing: object) -> None:
    """In a forked child: keep ``thing`` from being garbage-collected, because the parent owns its sockets and loops."""
    _left_to_the_parent.append(thing)


def _before() -> None:
    _forking.acquire()
    for thing in list(_alive):
        thing.lock.acquire()
        _held.append(thing)


def _in_parent() -> None:
    while _held:
        _held.pop().lock.release()
    _forking.release()


def _in_child() -> None:
    while _held:
        thing = _held.pop()
        thing.lock.release()
        thing.reopen_in_child()
    _forking.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
