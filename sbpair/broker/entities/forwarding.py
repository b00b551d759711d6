"""Auto-forwarding: the destination of a message, and what happens to one that cannot be forwarded.

    orders ---- forward_to ----> all ---- forward_to ----> archive          four hops at most
      |  '- what fails -.
      |                 v
      '- dead-lettered: $DeadLetterQueue -- forward_dead_lettered_messages_to --> failures

Who forwards is a receiver that always listens (T-22): of an entity that forwards nobody else receives, and
what expired in it goes the way of what expired. A message is gone from its source only when its destination
has it. What cannot go on is dead-lettered with a reason; out of a dead-letter queue it can only stay there,
set aside until the queue's description changes. The partitions of a partitioned source forward each for
itself, and the message's key decides at the destination again (Q-15).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import (
    BrokerError,
    EntityDisabled,
    EntityNotFound,
    ForwardsOn,
    HopsExceeded,
    MessageTooLarge,
    PartitionUnavailable,
    QuotaExceeded,
    Rerouting,
    ServerBusy,
    SessionRequired,
)
from .partition import Health
from .paths import path_of
from .queue_context import SLICE
from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .entity import Entity
    from .queue import Queue

MAX_HOPS = 4
REASONS: dict[type[BrokerError], str] = {
    HopsExceeded: "MaxTransferHopCountExceeded",
    SessionRequired: "Session ID is null",
    EntityNotFound: "MessagingEntityNotFoundException",
    EntityDisabled: "MessagingEntityDisabledException",
    QuotaExceeded: "QuotaExceededException",
    MessageTooLarge: "MessageSizeExceededException",
}
"""Why a message could not go on, as its dead letter says; the description is the error's text."""

WITHOUT_SESSION = "Session enabled entity doesn't allow a message whose session identifier is null."
OTHER_REASON = "MessagingException"


def reason_of(error: BrokerError) -> tuple[str, str]:
    """Reason and description of a dead letter that could not go on because of ``error``."""
    text = WITHOUT_SESSION if isinstance(error, SessionRequired) else str(error)
    return REASONS.get(type(error), OTHER_REASON), text


class Forwarding:
    """What goes on from ``queue``, which may be a dead-letter queue; nothing while it names no target."""

    __slots__ = ("_queue", "_to_transfer_dlq", "_unforwardable")

    def __init__(self, queue: Queue, *, to_transfer_dlq: bool) -> None:
        self._queue = queue
        self._to_transfer_dlq = to_transfer_dlq
        self._unforwardable: list[StoredMessage] = []

    @property
    def target(self) -> str | None:
        """The path of the queue or topic that messages go on to, or None."""
        description = self._queue.description
        parent = self._queue.parent
        if parent is None:
            requested = description.forward_to
        elif self._queue is parent.dead_letter_queue:
            requested = description.forward_dead_lettered_messages_to
        else:
            return None  # what could not be transferred stays for somebody to look at
        return None if requested is None else path_of(requested)

    def check_receivable(self) -> None:
        """Raises ForwardsOn when the entity forwards its messages."""
        target = self.target
        if target is not None:
            raise ForwardsOn(self._queue.path, target)

    def run(self, find: Callable[[str], Entity], now: Instant) -> BrokerError | None:
        """Let what waits go on, but for what the partition it belongs to cannot take now.

        A slice of it at once: the namespace has word of the rest. ``find`` gives the entity of a path, or
        raises EntityNotFound. Returns why it stopped before the end.
        """
        queue, target = self._queue, self.target
        if target is None or queue.status in ("Disabled", "ReceiveDisabled"):
            return None
        if queue.health is Health.DOWN:
            return PartitionUnavailable(queue.path, 0)
        forwarded = 0
        while (message := queue.next_to_forward(now)) is not None:
            if forwarded == SLICE:
                queue.requeue(message, now)  # which leaves word
                break
            forwarded += 1
            try:
                self._send(message, find, target, now)
            except (PartitionUnavailable, ServerBusy, Rerouting) as error:  # its key says which
                queue.requeue(message, now)
                return error
            except BrokerError as error:
                self._fail(message, error, now)
            else:
                queue.forwarded(message)
        queue.worked(forwarded)
        return None

    def _send(self, message: StoredMessage, find: Callable[[str], Entity], target: str, now: Instant) -> None:
        if message.hops >= MAX_HOPS:
            raise HopsExceeded(target, MAX_HOPS)
        destination = find(target)
        limit = destination.description.max_message_size
        if message.size > limit + message.overhead:
            raise MessageTooLarge(message.size, limit)
        copy = message.copy()
        copy.hops = message.hops + 1
        if self._queue.parent is not None:  # said of a dead letter that went on, and of no other
            copy.dead_letter_source = self._queue.parent.path
        destination.enqueue_all((copy,), now)

    def _fail(self, message: StoredMessage, error: BrokerError, now: Instant) -> None:
        queue = self._queue
        if self._to_transfer_dlq and queue.transfer_dead_letter_queue is not None:
            queue.forwarded(message)
            queue.dead_letter_untransferred(message.copy(), error, now)
        elif not queue.dead_letter_unforwardable(message, *reason_of(error), now):
            self._unforwardable.append(message)

    def changed(self, now: Instant) -> None:
        """The queue follows another description: what was set aside may go on, or be received."""
        waiting, self._unforwardable = self._unforwardable, []
        for message in waiting:
            self._queue.requeue(message, now)
