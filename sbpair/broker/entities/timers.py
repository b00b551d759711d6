"""The timers of a namespace: those of its queues, the deletion of idle entities, and calls at a set time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from .entity import Entity
from .indexes import Deadlines
from .queue_context import SLICE, QueueContext
from .stored_message import Instant

if TYPE_CHECKING:
    from .directory import Directory

Call = Callable[[Instant], None]


class Timers:
    """Knows when the next timer of a namespace is due, and runs the due ones.

    ``context`` collects the queues whose next timer may have changed, and counts work. Timers of entities that are no
    longer in ``directory`` do not run.
    """

    __slots__ = ("_calls", "_context", "_directory", "_idle", "_queues", "have_moved")

    def __init__(self, context: QueueContext, directory: Directory) -> None:
        self._context = context
        self._directory = directory
        self._queues = Deadlines[Entity]()
        self._calls = Deadlines[Call]()
        self._idle = Deadlines[Entity]()  # when to check again for idleness
        self.have_moved = True
        """Whether :meth:`next` may have changed since this was last set to False."""

    def next(self) -> Instant | None:
        """Return when the next timer is due, or None."""
        self._update()
        nexts = (self._queues.next(), self._idle.next(), self._calls.next())
        return min((at for at in nexts if at is not None), default=None)

    def call_at(self, at: Instant, call: Call) -> None:
        """Call ``call`` once, at the time ``at`` or later, with the current time."""
        self.have_moved = True
        self._calls.set(call, at)

    def described(self, entity: Entity) -> None:
        """Schedule the idle check of a queue, topic or subscription that was created or whose description changed."""
        self.have_moved = True
        span = entity.description.auto_delete_on_idle
        if span is None:
            self._idle.drop(entity)
        else:
            self._idle.set(entity, entity.updated_at + span)

    def deleted(self, entity: Entity) -> None:
        """Drop the timers of a deleted queue, topic or subscription."""
        self._idle.drop(entity)
        for part in entity.parts():
            self._queues.drop(part)

    def run(self, now: Instant) -> None:
        """Run the timers due at ``now``, except for idleness: one slice of work, the rest remains due."""
        self._update()
        self.have_moved = True
        work = self._context.work
        until = work.steps + SLICE
        while work.steps < until and (due := self._queues.pop_due(now, 1)):
            due[0].handle_timer(now)
        for call in self._calls.pop_due(now):
            call(now)

    def take_idle(self, now: Instant) -> Iterator[Entity]:
        """Iterate over the entities to delete, because they have been idle for ``auto_delete_on_idle`` (T-20)."""
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
        for queue in rescheduled:
            at = queue.next_timer()
            if at is None or queue not in self._directory:
                self._queues.drop(queue)
            else:
                self._queues.set(queue, at)
        rescheduled.clear()
