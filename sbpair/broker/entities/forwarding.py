"""Auto-forwarding: the destination of a message, and what happens to one that cannot be forwarded.

    orders ---- forward_to ----> all ---- forward_to ----> archive          at most four hops
      |  '- failures ---.
      |                 v
      '- dead-lettered: $DeadLetterQueue -- forward_dead_lettered_messages_to --> failures

Forwarding acts as a receiver that always listens: nobody else can receive from an entity that forwards, and its expired
messages are handled as usual. A message is removed from its source only after its destination has stored it. A message
that cannot be forwarded is dead-lettered with a reason. In a dead-letter queue it stays instead. While the target is
missing, disabled or full, it blocks the messages behind it, and is retried whenever the target or the queue's
description changes or the target gets room. Each partition of a partitioned source forwards its own messages, and the
key of a message selects the partition at the destination again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ..errors import (
    BrokerError,
    EntityDisabledError,
    EntityNotFoundError,
    ForwardingEntityError,
    HopsExceededError,
    MessageTooLargeError,
    PartitionUnavailableError,
    QuotaExceededError,
    ReroutingError,
    ServerBusyError,
    SessionRequiredError,
)
from .descriptions import path_of
from .partition import Health
from .queue_context import SLICE
from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .queue import Queue
    from .queue_partition import QueuePartition

MAX_HOPS = 4
REASONS: dict[type[BrokerError], str] = {
    HopsExceededError: "MaxTransferHopCountExceeded",
    SessionRequiredError: "Session ID is null",
    EntityNotFoundError: "MessagingEntityNotFoundException",
    EntityDisabledError: "MessagingEntityDisabledException",
    QuotaExceededError: "QuotaExceededException",
    MessageTooLargeError: "MessageSizeExceededException",
}
"""Dead-letter reasons by error; the dead-letter description is the text of the error."""

OF_TARGET = (EntityNotFoundError, EntityDisabledError, QuotaExceededError)
"""Errors that are due to the target alone, so that the next message would meet with the same."""

WITHOUT_SESSION = "Session enabled entity doesn't allow a message whose session identifier is null."
OTHER_REASON = "MessagingException"


def reason_of(error: BrokerError) -> tuple[str, str]:
    """Return the dead-letter reason and description for ``error``."""
    text = WITHOUT_SESSION if isinstance(error, SessionRequiredError) else str(error)
    return next((REASONS[kind] for kind in type(error).__mro__ if kind in REASONS), OTHER_REASON), text


class Forwarding:
    """Forwards the messages of ``queue``, which may be a dead-letter queue, while it has a target."""

    __slots__ = ("_again", "_obstacle", "_queue", "_to_transfer_dlq", "_unforwardable", "_waits")

    def __init__(self, queue: QueuePartition, *, to_transfer_dlq: bool) -> None:
        self._queue = queue
        self._to_transfer_dlq = to_transfer_dlq
        self._unforwardable: list[StoredMessage] = []
        self._waits = self._again = False  # for the target to change; with all messages, as it has changed
        self._obstacle = ""

    @property
    def stranded(self) -> tuple[int, str]:
        """How many messages can neither be forwarded now nor received, and why; (0, "") if there are none."""
        count = self._queue.held if self._waits else len(self._unforwardable)
        return (count, self._obstacle) if count and self.target is not None else (0, "")

    @property
    def target(self) -> str | None:
        """The path of the queue or topic to forward to, or None."""
        description = self._queue.description
        parent = self._queue.parent
        if parent is None:
            requested = description.forward_to
        elif self._queue is parent.dead_letter_queue:
            requested = description.forward_dead_lettered_messages_to
        else:
            return None  # the transfer dead-letter queue is never forwarded
        return None if requested is None else path_of(requested)

    def check_receivable(self) -> None:
        """Raise ForwardingEntityError if the queue forwards its messages."""
        target = self.target
        if target is not None:
            raise ForwardingEntityError(self._queue.path, target)

    def run(self, find: Callable[[str], Queue], now: Instant) -> BrokerError | None:
        """Forward a slice of the waiting messages; the queue is reported again if there are more.

        ``find`` returns the entity at a path or raises EntityNotFoundError. Returns the error that stopped forwarding
        for now, else None: a partition or namespace is unavailable or busy, or dead letters wait for their target.
        """
        queue, target = self._queue, self.target
        if target is None or queue.status in ("Disabled", "ReceiveDisabled"):
            return None
        if queue.health is Health.DOWN:
            return PartitionUnavailableError(queue.path, 0)
        if self._again:
            self.changed(now)
        forwarded, self._waits = 0, False
        while (message := queue.next_to_forward(now)) is not None:
            if forwarded == SLICE:
                queue.requeue(message, now)  # reports the queue again
                break
            forwarded += 1
            try:
                self._send(message, find, target, now)
            except (PartitionUnavailableError, ServerBusyError, ReroutingError) as error:
                queue.requeue(message, now)  # another message's key may select another partition
                return error
            except BrokerError as error:
                if queue.parent is not None and isinstance(error, OF_TARGET):
                    queue.requeue(message, now)
                    self._waits, self._obstacle = True, str(error)
                    queue.await_target(target)
                    return error
                self._fail(message, error, now)
            else:
                queue.forwarded(message)
        queue.worked(forwarded)
        return None

    def _send(self, message: StoredMessage, find: Callable[[str], Queue], target: str, now: Instant) -> None:
        if message.hops >= MAX_HOPS:
            raise HopsExceededError(target, MAX_HOPS)
        destination = find(target)
        limit = destination.description.max_message_size
        if message.size > limit + message.overhead:
            raise MessageTooLargeError(message.size, limit)
        copy = message.copy()
        copy.hops = message.hops + 1
        if self._queue.parent is not None:  # set on forwarded dead letters only
            copy.dead_letter_source = self._queue.parent.path
        destination.enqueue_all((copy,), now)

    def _fail(self, message: StoredMessage, error: BrokerError, now: Instant) -> None:
        queue = self._queue
        if self._to_transfer_dlq and queue.transfer_dead_letter_queue is not None:
            queue.forwarded(message)
            queue.dead_letter_untransferred(message.copy(), error, now)
        elif not queue.dead_letter_unforwardable(message, *reason_of(error), now):
            self._unforwardable.append(message)
            self._obstacle = str(error)
            if (target := self.target) is not None:
                queue.await_target(target)

    def changed(self, now: Instant) -> None:
        """Requeue messages that could not be forwarded, after the description of queue or target has changed."""
        self._again = False
        waiting, self._unforwardable = self._unforwardable, []
        for message in waiting:
            self._queue.requeue(message, now)

    def target_changed(self) -> None:
        """Retry all messages that could not be forwarded, at the next :meth:`run`."""
        self._again = True
