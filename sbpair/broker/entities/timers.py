"""The timers of a namespace: those of its queues, the deletion of idle entities, and calls at a set time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .indexes import Deadlines
from .queue import Queue
from .queue_context import SLICE, QueueContext
from .queue_partition import QueuePartition
from .stored_message import Instant

if TYPE_CHECKING:
    from .directory import Directory

Call = Callable[[Instant], None]


class Timers:
    """Knows when the next timer of a namespace is due, and runs the due ones.

    ``context`` collects the partitions whose next timer may have changed, and counts work. Timers of entities
    that are no longer in ``directory`` do not run.
    """

    __slots__ = ("_calls", "_context", "_directory", "_idle", "_partitions", "have_moved")

    def __init__(self, context: QueueContext, directory: Directory) -> None:
        self._context = context
        self._directory = directory
        self._partitions = Deadlines[QueuePartition]()
        self._calls = Deadlines[Call]()
        self._idle = Deadlines[Queue]()  # when to check again for idleness
        self.have_moved = True
        """Whether :meth:`next` may have changed since this was last set to False."""

    def next(self) -> Instant | None:
        """Return when the next timer is due, or None."""
        self._update()
        nexts = (self._partitions.next(), self._idle.next(), self._calls.next())
        return min((at for at in nexts if at is not None), default=None)

    def call_at(self, at: Instant, call: Call) -> None:
        """Call ``call`` once, at the time ``at`` or later, with the current time."""
        self.have_moved = True
        self._calls.set(call, at)

    def described(self, entity: Queue) -> None:
        """Schedule the idle check of a queue, topic or subscription that was created or whose description changed."""
        self.have_moved = True
        span = entity.description.auto_delete_on_idle
        if span is None:
            self._idle.drop(entity)
        else:
            self._idle.set(entity, entity.updated_at + span)

    def deleted(self, entity: Queue) -> None:
        """Drop the timers of a deleted queue, topic or subscription."""
        self._idle.drop(entity)
        for partition in entity.all_partitions():
            self._partitions.drop(partition)

    def run(self, now: Instant) -> None:
        """Run the timers due at ``now``, except for idleness: one slice of work, the rest remains due."""
        self._update()
        self.have_moved = True
        work = self._context.work
        until = work.steps + SLICE
        while work.steps < until and (due := self._partitions.pop_due(now, 1)):
            due[0].handle_timer(now)
        for call in self._calls.pop_due(now):
            call(now)

    def take_idle(self, now: Instant) -> Iterator[Queue]:
        """Iterate over the entities to delete, because they have been idle for ``auto_delete_on_idle``."""
        for entity in self._idle.pop_due(now):
            span, since = entity.description.auto_delete_on_idle, entity.idle_since
            if span is None or entity not in self._directory:  # deleted meanwhile with its topic
                continue
            if since is not None and since + span <= now:
                yield entity
            else:
                self._idle.set(entity, (now if since is None else since) + span)

    def _update(self) -> None:
        rescheduled = self._context.rescheduled
        if rescheduled:
            self.have_moved = True
        for partition in rescheduled:
            at = partition.next_timer()
            if at is None or partition not in self._directory:
                self._partitions.drop(partition)
            else:
                self._partitions.set(partition, at)
        rescheduled.clear()
