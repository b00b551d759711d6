"""What a namespace gives each of its queues: tokens, counters, two places to leave word, and a partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .journal import Journal
from .operations import Operations
from .partition import Partition
from .stored_message import LockToken

if TYPE_CHECKING:
    from .entity import Entity
    from .message_session import SessionLock
    from .queue import Queue
    from .rules.message_properties import MessageForm
    from .witness import Witness


@dataclass(slots=True)
class Surroundings:
    """What a queue leaves word in.

    ``ready``: entities, and held sessions, with something to deliver or to tell. ``stirred``: queues whose
    next timer may have moved. ``forwards``: queues with something that may go on (3.7), in the order they
    came. ``partition``: the one that the queue is of a partitioned entity, None for a plain one.
    ``form`` reads messages for rules.
    ``front_ends_cache``: see ``front_end``. ``legacy_forward_tdlq``: see ``namespace``. ``journal``: what a
    store is to write down, None where nothing is kept on disk. ``witness``: what became of each message, None
    where nobody asks.
    """

    new_token: Callable[[], LockToken]
    form: MessageForm
    operations: Operations = field(default_factory=Operations)
    ready: set[Entity | SessionLock] = field(default_factory=set)
    stirred: dict[Queue, None] = field(default_factory=dict)  # in order: runs are to be repeatable
    forwards: dict[Queue, None] = field(default_factory=dict)
    partition: Partition | None = None
    front_ends_cache: bool = False
    legacy_forward_tdlq: bool = False
    journal: Journal | None = None
    witness: Witness | None = None

    def of(self, partition: Partition) -> Surroundings:
        """The same for one partition, whose lock tokens begin with its index."""
        new_token, head = self.new_token, bytes((partition.index,))
        return replace(self, partition=partition, new_token=lambda: LockToken(head + new_token()[1:]))
