"""What becomes of an open journal or webhook when the process forks?

The child's copy becomes a writer of its own: two processes must not count one writer's ordinals. Locks are
made new, for another thread may have held them at that instant (F-19).
"""

from __future__ import annotations

import os
import weakref
from typing import Protocol


class Renewable(Protocol):
    """What must begin anew in a child."""

    def renew(self) -> None: ...


_alive: weakref.WeakSet[Renewable] = weakref.WeakSet()


def renewed_in_children(thing: Renewable) -> None:
    """Call ``thing.renew()`` in every child that is forked while it lives."""
    _alive.add(thing)


def _in_child() -> None:
    for thing in list(_alive):
        thing.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
