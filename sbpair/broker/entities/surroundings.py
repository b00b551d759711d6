"""What a namespace gives each of its queues: tokens, counters, and two places to leave word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .operations import Operations
from .stored_message import LockToken

if TYPE_CHECKING:
    from .queue import Queue


@dataclass(slots=True)
class Surroundings:
    """``ready``: queues with something to deliver. ``stirred``: queues whose next timer may have moved."""

    new_token: Callable[[], LockToken]
    operations: Operations = field(default_factory=Operations)
    ready: set[Queue] = field(default_factory=set)
    stirred: set[Queue] = field(default_factory=set)
