"""$management of messages: look, schedule, receive what was delivered, renew and settle from anywhere."""

from __future__ import annotations

import uuid

from ....amqp.types import Array, Int, Timestamp
from ...entities.entity import Entity
from ...entities.queue import DESCRIPTION, REASON
from ...entities.settlement import Verb
from ...entities.stored_message import StoredMessage
from ...entities.tier import Tier
from ...errors import InvalidArgument, MessageTooLarge, OutOfRange
from ..message_form import delivered, peeked, stored_messages
from .management_call import Body, ManagementCall, nothing, ok
from .request_node import Answer

_LONG, _TIMESTAMP = 0x81, 0x83
MOST_PEEKED = 256
MOST_DELETED = {Tier.BASIC: 500, Tier.STANDARD: 500, Tier.PREMIUM: 4000}  # 3.9
MOST_PEEKED_BYTES = 1_000_000  # a response is one message: the rest is for the next peek


def peek(call: ManagementCall) -> Answer:
    """Messages from a number on, of one session if one is named; nothing changes."""
    start, most = call.whole("from-sequence-number"), call.count("message-count", 1)
    messages: list[object] = []
    size = 0
    for message in call.queue.peek(start, min(most, MOST_PEEKED), call.now, call.session_id()):
        encoded = peeked(message)
        size += len(encoded)
        if messages and size > MOST_PEEKED_BYTES:
            break
        messages.append({"message": encoded})
    call.charge(len(messages) - 1)
    return ok({"messages": messages}) if messages else nothing()


def schedule(call: ManagementCall) -> Answer:
    """Take messages, each with its scheduled time in it, all or none; their sequence numbers (3.6)."""
    call.connection.face.check_room()
    messages = [_scheduled(entry, call.queue) for entry in call.items("messages")]
    call.connection.face.namespace.credits.charge_messages(call.queue, len(messages), call.now)
    return ok({"sequence-numbers": Array(_LONG, tuple(call.send(messages)))})


def _scheduled(entry: object, queue: Entity) -> StoredMessage:
    encoded = entry.get("message") if isinstance(entry, dict) else None
    if not isinstance(encoded, bytes):
        raise InvalidArgument("messages is not a list of maps with a binary each as their message.")
    limit = queue.description.max_message_size
    if len(encoded) > limit:
        raise MessageTooLarge(len(encoded), limit)
    (message,) = stored_messages(encoded, 0)
    return message


def cancel_scheduled(call: ManagementCall) -> Answer:
    """Take scheduled messages back, all or none."""
    call.queue.cancel_scheduled(call.sequence_numbers(), call.now)
    return ok({})


def receive_by_sequence_number(call: ManagementCall) -> Answer:
    """Deferred messages, locked or, with receiver-settle-mode 0, gone; all or none."""
    deletes = call.body.get("receiver-settle-mode") == 0
    numbers, session = call.sequence_numbers(), call.session_lock()
    received = call.queue.receive_deferred(numbers, call.now, session, delete=deletes)
    return ok({"messages": [_received(message, call.queue) for message in received]})


def _received(message: StoredMessage, queue: Entity) -> dict[object, object]:
    entry: dict[object, object] = {"message": delivered(message, queue)}
    if message.lock_token is not None:
        entry["lock-token"] = uuid.UUID(bytes_le=message.lock_token)
    return entry


def renew_lock(call: ManagementCall) -> Answer:
    """Restart the locks; until when each holds."""
    until = tuple(Timestamp(call.renew(token)) for token in call.lock_tokens())
    return ok({"expirations": Array(_TIMESTAMP, until)})


def update_disposition(call: ManagementCall) -> Answer:
    """Settle: what was received over any link, or by its number."""
    disposition = call.body.get("disposition-status")
    verb = _DISPOSITIONS.get(disposition) if isinstance(disposition, str) else None
    if verb is None:
        raise InvalidArgument(
            f"disposition-status is {disposition!r:.60}: one of {', '.join(_DISPOSITIONS)}."
        )
    call.session_lock()
    properties = {**_changes(call.body), **(_reasons(call.body) if verb is Verb.DEAD_LETTER else {})}
    for token in call.lock_tokens():
        call.settle(token, verb, properties)
    return ok({})


def batch_delete(call: ManagementCall) -> Answer:
    """Delete the oldest messages that wait, up to a count; with an instant, those enqueued before it."""
    tier = call.connection.face.namespace.tier
    most, asked = MOST_DELETED[tier], call.whole("message-count")
    if not 1 <= asked <= most:
        raise OutOfRange(f"message-count is {asked}: 1 to {most} in a namespace of the {tier.value} tier.")
    before = call.body.get("enqueued-time-utc")
    if before is not None and not isinstance(before, Timestamp):
        raise InvalidArgument(f"enqueued-time-utc is {before!r:.60}: a timestamp is needed.")
    deleted = call.queue.delete_waiting(asked, before, call.now, call.session_lock())
    return ok({"message-count": Int(deleted)}) if deleted else nothing()


# the keys are the wire's spelling, "defered" too
_DISPOSITIONS = {
    "completed": Verb.COMPLETE,
    "abandoned": Verb.ABANDON,
    "defered": Verb.DEFER,
    "suspended": Verb.DEAD_LETTER,
}


def _reasons(body: Body) -> dict[str, object]:
    given = {REASON: body.get("deadletter-reason"), DESCRIPTION: body.get("deadletter-description")}
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _changes(body: Body) -> dict[str, object]:
    changes = body.get("properties-to-modify")
    if not isinstance(changes, dict):
        return {}
    return {key: value for key, value in changes.items() if isinstance(key, str)}
