"""Which message is it? The id its sender gave it, read from the bytes of a message."""

from __future__ import annotations

from sbpair.amqp.sections import split
from sbpair.amqp.types import DecodeError, decode

from .raw import split_fields


def message_id_of(payload: bytes) -> str:
    """The message-id (3.2.4) as text; "" when there is none, or none can be read."""
    try:
        properties = split(payload).properties
        fields = split_fields(properties) if properties else []
        value = decode(fields[0])[0] if fields else None
    except (DecodeError, IndexError):
        return ""
    match value:
        case None:
            return ""
        case bytes():
            return value.hex()
    return str(value)
