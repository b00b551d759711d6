"""The state that all queues of a namespace share: lock tokens, counters, and sets of entities with pending work."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .change_log import ChangeLog
from .partition import Partition
from .stored_message import LockToken

if TYPE_CHECKING:
    from .entity import Entity
    from .queue import Queue
    from .rules.message_properties import MessageForm
    from .sessions import SessionLock
    from .audit_recorder import AuditRecorder


SLICE = 128
"""Messages of one kind of work, at once: some milliseconds."""
SLICE_BYTES = 2**20
"""Bytes of messages that are handed out, at once."""
PER_STEP = SLICE_BYTES // SLICE
"""Bytes of a message that cost as much as a message does."""


@dataclass(slots=True)
class Work:
    """What a namespace has done up to now, in messages."""

    steps: int = 0


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Billed operations of a namespace since it was created (P-34, P-41, P-43); partitions count once (Q-20).

    ``sends`` messages accepted, pings not among them · ``pings`` pings accepted (P-34: billed as messages) ·
    ``receives`` messages handed to a receiver · ``polls`` receives that began: link credit granted from zero
    (P-41) · ``management`` operations on a $management node.
    """

    sends: int = 0
    pings: int = 0
    receives: int = 0
    polls: int = 0
    management: int = 0

    @property
    def billed(self) -> int:
        """Message operations as billed; a poll is paid by the receives it brought."""
        return self.sends + self.pings + self.receives + self.management


class OperationCounters:
    """The counters behind :class:`OperationCounts`."""

    __slots__ = ("management", "pings", "polls", "receives", "sends")

    def __init__(self) -> None:
        self.sends = self.pings = self.receives = self.polls = self.management = 0

    def counts(self) -> OperationCounts:
        """The counts as they are now."""
        return OperationCounts(self.sends, self.pings, self.receives, self.polls, self.management)


@dataclass(slots=True)
class QueueContext:
    """What a queue leaves word in.

    ``ready``: entities, and held sessions, with something to deliver or to report. ``rescheduled``: queues whose
    next timer may have moved. ``forwards``: queues with something that may go on, in the order they
    came. ``partition``: the one that the queue is of a partitioned entity, None for a plain one.
    ``form`` reads messages for rules.
    ``front_ends_cache``: see ``front_end``. ``legacy_forward_tdlq``: see ``namespace``. ``change_log``: what a
    store is to write down, None where nothing is kept on disk. ``audit``: what became of each message, None
    where nobody asks. ``work``: how much was done, for who has other things to do too.
    """

    new_token: Callable[[], LockToken]
    form: MessageForm
    operations: OperationCounters = field(default_factory=OperationCounters)
    ready: set[Entity | SessionLock] = field(default_factory=set)
    rescheduled: dict[Queue, None] = field(default_factory=dict)  # in order: runs are to be repeatable
    forwards: dict[Queue, None] = field(default_factory=dict)
    partition: Partition | None = None
    front_ends_cache: bool = False
    legacy_forward_tdlq: bool = False
    change_log: ChangeLog | None = None
    audit: AuditRecorder | None = None
    work: Work = field(default_factory=Work)

    def of(self, partition: Partition) -> QueueContext:
        """The same for one partition, whose lock tokens begin with its index."""
        new_token, head = self.new_token, bytes((partition.index,))
        return replace(self, partition=partition, new_token=lambda: LockToken(head + new_token()[1:]))
