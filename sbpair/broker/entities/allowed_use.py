"""Checks before a send or a receive: entities that refuse it because of their kind or their status."""

from __future__ import annotations

from ..errors import EntityDisabledError, NotAllowedError, ReceivedFromTopicError
from .queue import Queue
from .topic import Subscription, Topic


def check_sent_to(queue: Queue) -> None:
    """Raise NotAllowedError if messages cannot be sent to the entity."""
    if queue.parent is not None:
        raise NotAllowedError(f"A message cannot be sent to the sub-queue '{queue.path}'.")
    if isinstance(queue, Subscription):
        raise NotAllowedError(queue.send_refusal)


def check_received_from(queue: Queue) -> None:
    """Check that messages can be received from the entity.

    Raises ReceivedFromTopicError, ForwardingEntityError, EntityDisabledError.
    """
    if isinstance(queue, Topic):
        raise ReceivedFromTopicError(queue.path)
    check_enabled(queue, "ReceiveDisabled")
    queue.check_receivable()


def check_enabled(queue: Queue, barred: str) -> None:
    """Raise EntityDisabledError if the entity's status is ``Disabled`` or ``barred``."""
    if queue.status in ("Disabled", barred):
        raise EntityDisabledError(queue.path, queue.status)
