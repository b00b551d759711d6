"""qpid-proton asks what an SDK asks of $management, in plain AMQP: request, reply, and a status in it."""

from __future__ import annotations

import uuid
from typing import Any

from proton import UNDESCRIBED, Array, Data, Delivery, Message, int32, symbol, timestamp
from proton.reactor import Filter, ReceiverOption
from proton.utils import BlockingConnection, BlockingReceiver

SESSION = symbol("com.microsoft:session-filter")
REPLIES = "replies"


class To(ReceiverOption):
    """The address that replies are sent to."""

    def apply(self, receiver: Any) -> None:
        receiver.target.address = REPLIES


class Management:
    """The `$management` of one entity, over a connection that may hold its sessions."""

    def __init__(self, connection: BlockingConnection, entity: str) -> None:
        self.requests = connection.create_sender(f"{entity}/$management")
        self.replies = connection.create_receiver(f"{entity}/$management", credit=9, options=To())

    def ask(self, operation: str, **fields: Any) -> dict[str, Any]:
        """The body of the answer; the names of fields are said with dashes. Fails unless it is a success."""
        body = {name.replace("_", "-"): value for name, value in fields.items()}
        named = {"operation": f"com.microsoft:{operation}"}
        self.requests.send(Message(body=body, properties=named, id=str(uuid.uuid4()), reply_to=REPLIES))
        reply = self.replies.receive(10)
        assert reply.properties["statusCode"] in (200, 204), reply.properties
        found: dict[str, Any] = owned(reply.body)
        return found

    def peek(self) -> list[Message]:
        found = self.ask("peek-message", from_sequence_number=1, message_count=int32(9))
        return [decoded(entry["message"]) for entry in found.get("messages", [])]

    def schedule(self, message: Message, at_ms: int) -> int:
        message.annotations = {symbol("x-opt-scheduled-enqueue-time"): timestamp(at_ms)}
        entry = {"message-id": message.id, "message": message.encode()}
        (number,) = self.ask("schedule-message", messages=[entry])["sequence-numbers"].elements
        return int(number)

    def cancel(self, number: int) -> None:
        self.ask("cancel-scheduled-message", sequence_numbers=longs(number))

    def receive_deferred(self, number: int) -> tuple[Message, uuid.UUID]:
        found = self.ask("receive-by-sequence-number", sequence_numbers=longs(number))
        (entry,) = found["messages"]
        return decoded(entry["message"]), entry["lock-token"]

    def renew(self, token: uuid.UUID) -> int:
        """Until when, in milliseconds since the epoch."""
        (until,) = self.ask("renew-lock", lock_tokens=uuids(token))["expirations"].elements
        return int(until)

    def complete(self, token: uuid.UUID) -> None:
        self.ask("update-disposition", disposition_status="completed", lock_tokens=uuids(token))


def modify(receiver: BlockingReceiver, *, failed: bool = False, undeliverable: bool = False) -> None:
    """Settle what was received last: 3.4.5, which proton's own `release` says without its fields."""
    delivery = receiver.fetcher.unsettled[0]
    delivery.local.failed, delivery.local.undeliverable = failed, undeliverable
    receiver.settle(Delivery.MODIFIED)


def owned(value: Any) -> Any:
    """The same value without views into a message's memory: proton frees that with the message."""
    if isinstance(value, memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {owned(key): owned(item) for key, item in value.items()}
    if isinstance(value, list):
        return [owned(item) for item in value]
    return value


def longs(*numbers: int) -> Array:
    return Array(UNDESCRIBED, Data.LONG, *numbers)


def uuids(*tokens: uuid.UUID) -> Array:
    return Array(UNDESCRIBED, Data.UUID, *tokens)


def decoded(data: bytes) -> Message:
    message = Message()
    message.decode(bytes(data))
    return message


def of_session(name: str | None) -> Filter:
    """Asks for a session by its name, or for the next one."""
    return Filter({SESSION: name})
