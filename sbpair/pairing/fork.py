"""What happens to paired clients when the process forks?

The pure state is copied whole, for no thread is inside it at that instant. The child gets links and
threads of its own when it first needs them.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What is watched over. ``lock`` stands around the state that must be copied whole."""

    lock: threading.Lock

    def reopen_in_child(self) -> None: ...


_alive: weakref.WeakSet[Forkable] = weakref.WeakSet()
_held: list[Forkable] = []


def watch_over(thing: Forkable) -> None:
    """Reopen ``thing`` in every child that is forked while it lives."""
    _alive.add(thing)


def _before() -> None:
    for thing in list(_alive):
        thing.lock.acquire()
        _held.append(thing)


def _in_parent() -> None:
    while _held:
        _held.pop().lock.release()


def _in_child() -> None:
    while _held:
        thing = _held.pop()
        thing.lock.release()
        thing.reopen_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
