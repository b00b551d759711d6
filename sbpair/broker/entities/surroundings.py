"""What a namespace gives each of its queues: tokens, counters, and two places to leave word."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .operations import Operations
from .stored_message import LockToken

if TYPE_CHECKING:
    from .message_session import SessionLock
    from .queue import Queue


@dataclass(slots=True)
class Surroundings:
    """What a queue leaves word in.

    ``ready``: queues, and held sessions, with something to deliver or to tell. ``stirred``: queues whose next
    timer may have moved. ``forwards``: queues with something that may go on (3.7), in the order they came.
    """

    new_token: Callable[[], LockToken]
    operations: Operations = field(default_factory=Operations)
    ready: set[Queue | SessionLock] = field(default_factory=set)
    stirred: set[Queue] = field(default_factory=set)
    forwards: dict[Queue, None] = field(default_factory=dict)
