"""Checks on entities and messages that links and HTTP requests share."""

from __future__ import annotations

from collections.abc import Sequence

from ...amqp.errors import DecodeError
from ...amqp.events import MessageReceived
from ..entities.entity import Entity
from ..entities.partitioned_entities import AnySubscription, AnyTopic
from ..entities.queue import Queue
from ..entities.stored_message import Instant, StoredMessage
from ..errors import BrokerError, EntityDisabled, MessageTooLarge, NotAllowed
from ..faults import Operation
from .namespace_frontend import NamespaceFrontend
from .received_message import BATCH, stored_message, stored_messages

TOLERANCE = 32
"""Bytes by which a delivery may exceed the limit: the envelope of the SDK's full batches does."""


def check_sent_to(queue: Entity) -> None:
    """Raise NotAllowed if messages cannot be sent to the entity."""
    if queue.parent is not None:
        raise NotAllowed(f"A message cannot be sent to the sub-queue '{queue.path}'.")
    if isinstance(queue, AnySubscription):
        raise NotAllowed(queue.send_refusal)


def check_received_from(queue: Entity) -> None:
    """Raise NotAllowed, ForwardsOn or EntityDisabled if messages cannot be received from the entity."""
    if isinstance(queue, AnyTopic):
        raise NotAllowed(queue.receive_refusal)
    check_enabled(queue, "ReceiveDisabled")
    queue.check_receivable()


def check_enabled(queue: Entity, barred: str) -> None:
    """Raise EntityDisabled if the entity's status is ``Disabled`` or ``barred``."""
    if queue.status in ("Disabled", barred):
        raise EntityDisabled(queue.path, queue.status)


def messages_of(
    frontend: NamespaceFrontend,
    queue: Entity,
    payload: bytes,
    message_format: int,
    now: Instant,
    visible_at: Instant | None = None,
) -> list[StoredMessage]:
    """Return the messages of one delivery, hidden until ``visible_at`` if given (ms of entity time).

    Raises StoreFull, ServerBusy, MessageTooLarge, and everything ``stored_messages`` raises.
    """
    frontend.check_room()
    credits = frontend.namespace.credits
    if credits.per_second is not None:
        credits.check(now)
    description = queue.description
    limit = description.max_batch_size if message_format == BATCH else description.max_message_size
    if len(payload) > limit + TOLERANCE:
        raise MessageTooLarge(len(payload), limit)
    messages = stored_messages(payload, message_format)
    if credits.per_second is not None:
        credits.charge_messages(queue, len(messages), now)
    if visible_at is not None:
        for message in messages:
            message.scheduled_for = max(message.scheduled_for or 0, visible_at)
    return messages


def messages_of_run(
    frontend: NamespaceFrontend, queue: Entity, events: Sequence[MessageReceived]
) -> list[StoredMessage] | None:
    """Return the messages of deliveries that arrived together, at half the cost; None to process them one by one.

    None when a fault may apply to each or each costs credits, when the entity is partitioned or a topic, for
    a batch, inside a transaction, and when one is refused, because then the others may not be.
    """
    if type(queue) is not Queue or frontend.needs_single_messages(Operation.SEND, queue.path):
        return None
    limit = queue.description.max_message_size + TOLERANCE
    messages: list[StoredMessage] = []
    try:
        frontend.check_room()
        for _link, _number, _tag, payload, _settled, message_format, state in events:
            if message_format or state is not None or len(payload) > limit:
                return None
            messages.append(stored_message(payload))
    except (BrokerError, DecodeError):
        return None
    return messages
