"""What is asked of every message before an entity takes it, and of every entity before it is reached?

One answer for links and for requests over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.events import MessageReceived
from ...amqp.types import DecodeError
from ..entities.entity import Entity
from ..entities.kinds import AnySubscription, AnyTopic
from ..entities.queue import Queue
from ..entities.stored_message import Instant, StoredMessage
from ..errors import BrokerError, EntityDisabled, MessageTooLarge, NotAllowed
from .message_form import stored_message, stored_messages
from .namespace_face import NamespaceFace


def check_sent_to(queue: Entity) -> None:
    """Raises NotAllowed where nobody may send."""
    if queue.parent is not None:
        raise NotAllowed(f"A message cannot be sent to the sub-queue '{queue.path}'.")
    if isinstance(queue, AnySubscription):
        raise NotAllowed(queue.not_sent_to)


def check_received_from(queue: Entity) -> None:
    """Raises NotAllowed, ForwardsOn, EntityDisabled where nobody may receive."""
    if isinstance(queue, AnyTopic):
        raise NotAllowed(queue.not_received_from)
    check_enabled(queue, "ReceiveDisabled")
    queue.check_receivable()


def check_enabled(queue: Entity, barred: str) -> None:
    """Raises EntityDisabled where the status bars it."""
    if queue.status in ("Disabled", barred):
        raise EntityDisabled(queue.path, queue.status)


def messages_of(
    face: NamespaceFace,
    queue: Entity,
    payload: bytes,
    message_format: int,
    now: Instant,
    visible_at: Instant | None = None,
) -> list[StoredMessage]:
    """The messages of one delivery, not to be seen before ``visible_at``.

    Raises StoreFull, ServerBusy, MessageTooLarge, and as ``stored_messages``.
    """
    face.check_room()
    face.namespace.credits.check(now)
    limit = queue.description.max_message_size
    if len(payload) > limit:
        raise MessageTooLarge(len(payload), limit)
    messages = stored_messages(payload, message_format)
    face.namespace.credits.charge_messages(queue, len(messages), now)
    if visible_at is not None:
        for message in messages:
            message.scheduled_for = max(message.scheduled_for or 0, visible_at)
    return messages


def messages_of_run(
    face: NamespaceFace, queue: Entity, events: Sequence[MessageReceived]
) -> list[StoredMessage] | None:
    """The messages of deliveries that came together, at half the cost; None when one needs a look of its own.

    So it is when a fault may strike each or each costs credits, when a partition or subscriptions are to be
    found for each, for a batch, inside a transaction, and when one is refused: then the others may not be.
    """
    if face.is_each_weighed or type(queue) is not Queue:
        return None
    limit = queue.description.max_message_size
    for event in events:
        if event.message_format or event.state is not None or len(event.payload) > limit:
            return None
    try:
        face.check_room()
        return [stored_message(event.payload) for event in events]
    except (BrokerError, DecodeError):
        return None
