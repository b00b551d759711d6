"""A spooled message in the JSON form of `sbpair send --json` and `receive --json`. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from uuid import UUID

from azure.servicebus.amqp import AmqpMessageBodyType

from sbpair.pair.amqp.message import Body, DataBody, Header, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.cli.form import as_object
from sbpair.pair.cli.output import instant_text
from sbpair.pair.pairing.spool.codec import from_bytes

if TYPE_CHECKING:
    from azure.servicebus.amqp import AmqpAnnotatedMessage

    from sbpair.pair.pairing.spool.store import Spooled

TEXTS = (
    "message_id", "correlation_id", "subject", "to", "reply_to", "content_type", "group_id", "reply_to_group_id",
)  # fmt: skip
PLAIN = (bool, int, float, str, bytes, UUID)


def as_json(spooled: Spooled, refused: str | None) -> dict[str, object]:
    """Return the message, its destination, the time it was spooled, and why it was refused.

    A damaged message, or one with values that JSON cannot show, has the field ``unreadable`` instead.
    """
    told: dict[str, object] = {"destination": spooled.path, "spooled_at": instant_text(spooled.spooled_at)}
    if refused is not None:
        told["refused"] = refused
    if not spooled.is_intact:
        return {"message_id": spooled.message_id, **told, "unreadable": "its checksum is wrong"}
    try:
        shown = as_object(_message(from_bytes(spooled.message)).encode())
    except (TypeError, ValueError) as error:
        return {"message_id": spooled.message_id, **told, "unreadable": str(error)}
    shown.pop("state", None)
    shown.setdefault("message_id", spooled.message_id)
    return shown | told


def _message(message: AmqpAnnotatedMessage) -> Message:
    given, header = message.properties, message.header
    texts = {name: _text(getattr(given, name, None)) for name in TEXTS}
    own: dict[object, object] = {
        _text(key): _value(value) for key, value in (message.application_properties or {}).items()
    }
    annotations: dict[object, object] = {
        Symbol(_text(key) or ""): _value(value) for key, value in (message.annotations or {}).items()
    }
    return Message(
        header=None if header is None or header.time_to_live is None else Header(ttl=header.time_to_live),
        message_annotations=annotations,
        properties=Properties(**texts),  # type: ignore[arg-type]  # all of them strings
        application_properties=own,
        body=_body(message),
    )


def _body(message: AmqpAnnotatedMessage) -> Body:
    match message.body_type:
        case AmqpMessageBodyType.DATA:
            return DataBody((b"".join(map(bytes, message.body)),))
        case AmqpMessageBodyType.SEQUENCE:
            return SequenceBody(tuple([_value(each) for each in part] for part in message.body))
    return ValueBody(_value(message.body))


def _text(value: object) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _value(value: object) -> object:
    """Return the value in a type that the codec accepts: it knows fewer types than the SDK."""
    match value:
        case None:
            return None
        case datetime():
            aware = value if value.tzinfo else value.replace(tzinfo=UTC)
            return Timestamp(round(aware.timestamp() * 1000))
        case Mapping():
            return {_text(key): _value(each) for key, each in value.items()}
        case list():
            return [_value(each) for each in value]
        case (_, inner) if isinstance(value, tuple):  # a value with its AMQP type, as the SDK takes it
            return _value(inner)
    return value if isinstance(value, PLAIN) else str(value)
