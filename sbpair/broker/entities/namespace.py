"""A namespace: which entities there are, by which paths, and which of them has something due next.

Paths are compared without regard to case and may hold slashes (``contoso/x-servicebus-transfer/0``, P-10).
A dead-letter queue is reached through its queue: ``orders/$DeadLetterQueue``.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from ..errors import EntityAlreadyExists, EntityNotFound
from .deadlines import Deadlines
from .description import QueueDescription, validated_path
from .message_session import SessionLock
from .operations import OperationCounts
from .queue import Queue
from .stored_message import Instant, LockToken
from .surroundings import Surroundings

DEAD_LETTER = "/$deadletterqueue"


def random_token() -> LockToken:
    """A lock token nobody can guess."""
    return LockToken(os.urandom(16))


class Namespace:
    """The queues of one namespace, in memory."""

    def __init__(self, name: str, *, new_token: Callable[[], LockToken] = random_token) -> None:
        self.name = name
        self._queues: dict[str, Queue] = {}
        self._surroundings = Surroundings(new_token)
        self._timers = Deadlines[Queue]()
        self._idle = Deadlines[str]()  # looked at again then, not deleted then

    def create_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Make a queue. Raises InvalidDescription, NotSupported, EntityAlreadyExists."""
        key = validated_path(path).casefold()
        description = description.validated()
        if key in self._queues:
            raise EntityAlreadyExists(path)
        queue = self._queues[key] = Queue(path, description, now, self._surroundings)
        self._watch(key, queue)
        return queue

    def update_queue(self, path: str, description: QueueDescription, now: Instant) -> Queue:
        """Give a queue another description. Raises EntityNotFound, InvalidDescription, NotSupported."""
        queue = self._existing(path)
        queue.redescribe(description.validated(), now)
        self._watch(queue.path.casefold(), queue)
        return queue

    def delete_queue(self, path: str, now: Instant) -> Queue:
        """Remove a queue with all of its messages and return it. Raises EntityNotFound."""
        queue = self._existing(path)
        key = queue.path.casefold()
        del self._queues[key]
        self._idle.drop(key)
        for part in (queue, queue.dead_letter_queue):
            if part is not None:
                self._timers.drop(part)
                self._surroundings.ready.add(part)  # so that its links learn of it
        return queue

    def queue(self, path: str) -> Queue:
        """The queue, or the dead-letter queue, of that path. Raises EntityNotFound."""
        key = path.casefold()
        if not key.endswith(DEAD_LETTER):
            return self._existing(path)
        queue = self._queues.get(key.removesuffix(DEAD_LETTER))
        if queue is None or queue.dead_letter_queue is None:
            raise EntityNotFound(path)
        return queue.dead_letter_queue

    def queues(self) -> list[Queue]:
        """All queues, by path; dead-letter queues are reached through them."""
        return [self._queues[key] for key in sorted(self._queues)]

    def holds(self, queue: Queue) -> bool:
        """False once the queue, or the queue this dead-letter queue belongs to, was deleted."""
        top = queue.parent or queue
        return self._queues.get(top.path.casefold()) is top

    @property
    def operations(self) -> OperationCounts:
        """Billed operations up to now (P-34, P-43)."""
        return self._surroundings.operations.counts()

    def receive_began(self) -> None:
        """Count a receive: a link's credit was granted from zero (P-41)."""
        self._surroundings.operations.polls += 1

    def management_requested(self) -> None:
        """Count an operation on a $management node."""
        self._surroundings.operations.management += 1

    def take_ready(self) -> list[Queue | SessionLock]:
        """What got something to deliver, was deleted, or was lost, since this was last asked."""
        ready = self._surroundings.ready
        if not ready:
            return []
        taken = list(ready)
        ready.clear()
        return taken

    def next_timer(self) -> Instant | None:
        """The earliest deadline of any entity; None for never."""
        self._look_at_stirred()
        return min((at for at in (self._timers.next(), self._idle.next()) if at is not None), default=None)

    def handle_timer(self, now: Instant) -> None:
        """Let everything happen that is due up to ``now``."""
        self._look_at_stirred()
        for queue in self._timers.take_due(now):
            queue.handle_timer(now)
        for key in self._idle.take_due(now):
            self._retire(key, self._queues[key], now)

    def _look_at_stirred(self) -> None:
        stirred = self._surroundings.stirred
        for queue in stirred:
            at = queue.next_timer()
            if at is None or not self.holds(queue):
                self._timers.drop(queue)
            else:
                self._timers.set(queue, at)
        stirred.clear()

    def _retire(self, key: str, queue: Queue, now: Instant) -> None:
        span, since = queue.description.auto_delete_on_idle, queue.idle_since
        if span is None:
            return
        if since is not None and since + span <= now:
            self.delete_queue(queue.path, now)  # T-20
        else:
            self._idle.set(key, (now if since is None else since) + span)

    def _watch(self, key: str, queue: Queue) -> None:
        span = queue.description.auto_delete_on_idle
        if span is None:
            self._idle.drop(key)
        else:
            self._idle.set(key, queue.updated_at + span)

    def _existing(self, path: str) -> Queue:
        queue = self._queues.get(path.casefold())
        if queue is None:
            raise EntityNotFound(path)
        return queue
