"""Checks before a send or a receive: entities that refuse it because of their kind or their status."""

from __future__ import annotations

from ..errors import EntityDisabled, NotAllowed
from .queue import Queue
from .topic import Subscription, Topic, receive_refusal


def check_sent_to(queue: Queue) -> None:
    """Raise NotAllowed if messages cannot be sent to the entity."""
    if queue.parent is not None:
        raise NotAllowed(f"A message cannot be sent to the sub-queue '{queue.path}'.")
    if isinstance(queue, Subscription):
        raise NotAllowed(queue.send_refusal)


def check_received_from(queue: Queue) -> None:
    """Raise NotAllowed, ForwardsOn or EntityDisabled if messages cannot be received from the entity."""
    if isinstance(queue, Topic):
        raise NotAllowed(receive_refusal(queue.path))
    check_enabled(queue, "ReceiveDisabled")
    queue.check_receivable()


def check_enabled(queue: Queue, barred: str) -> None:
    """Raise EntityDisabled if the entity's status is ``Disabled`` or ``barred``."""
    if queue.status in ("Disabled", barred):
        raise EntityDisabled(queue.path, queue.status)
