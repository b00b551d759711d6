"""What is asked of every message before an entity takes it, and of every entity before it is reached?

One answer for links and for requests over HTTP.
"""

from __future__ import annotations

from ..entities.entity import Entity
from ..entities.kinds import AnySubscription, AnyTopic
from ..entities.stored_message import Instant, StoredMessage
from ..errors import EntityDisabled, MessageTooLarge, NotAllowed
from .message_form import stored_messages
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
