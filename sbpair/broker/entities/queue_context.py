"""State shared by the queues of a namespace: lock tokens, counters, and entities with pending work."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from .change_log import ChangeLog
from .partition import WHOLE, Partition
from .stored_message import LockToken

if TYPE_CHECKING:
    from .audit_recorder import AuditRecorder
    from .queue import FrontEnd, Queue
    from .queue_partition import QueuePartition
    from .rules.message_properties import PropertyCodec
    from .sessions import SessionLock


SLICE = 128
"""Messages processed in one slice of work, which takes a few milliseconds."""
SLICE_BYTES = 2**20
"""Bytes of messages delivered in one slice."""
PER_STEP = SLICE_BYTES // SLICE
"""Bytes of a message that count as one more step of work."""


@dataclass(slots=True)
class Work:
    """The work done by a namespace so far, in messages."""

    steps: int = 0


@dataclass(frozen=True, slots=True)
class OperationCounts:
    """Billed operations of a namespace since it was created; partitions count once.

    ``sends`` are messages accepted, without pings; ``pings`` pings accepted (billed as messages);
    ``receives`` messages handed to a receiver; ``polls`` receives started, that is, link credit granted from
    zero; ``management`` operations on a $management node.
    """

    sends: int = 0
    pings: int = 0
    receives: int = 0
    polls: int = 0
    management: int = 0

    @property
    def billed(self) -> int:
        """Billed message operations; polls are billed through the messages that they receive."""
        return self.sends + self.pings + self.receives + self.management


class OperationCounters:
    """The counters behind :class:`OperationCounts`."""

    __slots__ = ("management", "pings", "polls", "receives", "sends")

    def __init__(self) -> None:
        self.sends = self.pings = self.receives = self.polls = self.management = 0

    def counts(self) -> OperationCounts:
        """Return the current counts."""
        return OperationCounts(self.sends, self.pings, self.receives, self.polls, self.management)


@dataclass(slots=True)
class QueueContext:
    """The namespace as seen by one of its partitions.

    ``ready`` collects queues and session locks with something to deliver or to report; ``rescheduled`` partitions whose
    next timer may have changed; ``updated`` queues whose description was changed by an update; ``forwards`` partitions
    with messages to forward, in order; ``awaited`` the partitions whose dead letters wait for a target, by its path in
    lower case. ``partition`` is the place of the partition. ``codec`` reads messages for rules. ``change_log`` records
    changes for a store, None for a namespace in memory. ``audit`` records what happens to each message, None without an
    audit. ``work`` counts processed messages, so that bulk work can be sliced. For ``front_ends_cache`` see
    :class:`FrontEnd`, for ``legacy_forward_tdlq`` :class:`Namespace`.
    """

    new_token: Callable[[], LockToken]
    codec: PropertyCodec
    operations: OperationCounters = field(default_factory=OperationCounters)
    ready: set[Queue | SessionLock] = field(default_factory=set)
    rescheduled: dict[QueuePartition, None] = field(
        default_factory=dict
    )  # not a set: the order must be reproducible
    updated: dict[Queue, None] = field(default_factory=dict)
    forwards: dict[QueuePartition, None] = field(default_factory=dict)
    awaited: dict[str, dict[QueuePartition, None]] = field(default_factory=dict)
    partition: Partition = WHOLE
    front_ends: WeakKeyDictionary[Hashable, dict[Queue, FrontEnd]] = field(default_factory=WeakKeyDictionary)
    front_ends_cache: bool = False
    is_cache_imposed: bool = False  # by a fault
    legacy_forward_tdlq: bool = False
    change_log: ChangeLog | None = None
    audit: AuditRecorder | None = None
    work: Work = field(default_factory=Work)

    def for_partition(self, partition: Partition) -> QueueContext:
        """Return the context for one partition: of several, its lock tokens begin with the partition's index."""
        if partition.store is None:
            return self
        new_token, head = self.new_token, bytes((partition.index,))
        return replace(self, partition=partition, new_token=lambda: LockToken(head + new_token()[1:]))
