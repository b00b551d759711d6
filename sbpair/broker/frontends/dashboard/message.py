"""One message as the dashboard shows it: its sections as text, truncated where they are long."""

from __future__ import annotations

from datetime import UTC, datetime

from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import Body, DataBody, Message, SequenceBody
from sbpair.pair.amqp.types import Described, Timestamp

Row = dict[str, object]
MAX_VALUE = 2_000  # characters
MAX_BODY = 16_384  # bytes, or characters
MAX_VALUES = 200
MAX_BYTES_SHOWN = 1_024  # of a binary body


def message_view(encoded: bytes) -> Row:
    """Return the sections of an encoded message as lists of (name, type, text), and its body."""
    try:
        message = Message.decode(encoded)
    except DecodeError as error:
        return {"error": f"The message cannot be shown: {error}."}
    header, properties = message.header, message.properties
    return {
        "header": _fields(header, ("durable", "priority", "ttl", "delivery_count")),
        "properties": _fields(properties, type(properties).__slots__ if properties else ()),
        "application_properties": _entries(message.application_properties),
        "annotations": _entries(message.message_annotations),
        "body": body_view(message.body),
    }


def _fields(section: object, names: tuple[str, ...]) -> list[Row]:
    values = ((name, getattr(section, name, None)) for name in names)
    return [_value(name, value) for name, value in values if value is not None]


def _entries(section: dict[object, object]) -> list[Row]:
    return [_value(str(key)[:MAX_VALUE], value) for key, value in list(section.items())[:MAX_VALUES]]


def _value(name: str, value: object) -> Row:
    return {"name": name, "type": type(value).__name__.lower(), "text": readable(value)}


def readable(value: object) -> str:
    """Return a value in readable form."""
    match value:
        case bool() | None:
            return "null" if value is None else str(value).lower()
        case Timestamp():
            return _instant(value)
        case int():
            return f"{int(value)}"
        case str():
            return str.__str__(value)[:MAX_VALUE]
        case bytes():
            return value[:MAX_VALUE].hex(" ")
        case Described():
            return f"{readable(value.descriptor)}: {readable(value.value)}"[:MAX_VALUE]
        case dict():
            pairs = list(value.items())[:MAX_VALUES]
            return ("{" + ", ".join(f"{readable(k)}: {readable(v)}" for k, v in pairs) + "}")[:MAX_VALUE]
        case list():
            return ("[" + ", ".join(map(readable, value[:MAX_VALUES])) + "]")[:MAX_VALUE]
        case _:
            return str(value)[:MAX_VALUE]


def _instant(value: int) -> str:
    try:
        return datetime.fromtimestamp(value / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3] + " UTC"
    except (ValueError, OverflowError, OSError):
        return f"{value} ms"


def body_view(body: Body | None) -> Row:
    """Return the body as ``text``, or as ``hex`` when it is binary; its ``size``, and whether all of it is shown."""
    match body:
        case None:
            return {"kind": "none", "size": 0, "text": "", "is_whole": True}
        case DataBody():
            return _data(body.data)
        case SequenceBody():
            text = readable([each for section in body.sections for each in section])
            return {
                "kind": "sequence",
                "size": len(text),
                "text": text,
                "is_whole": len(text) < MAX_VALUE,
            }
        case _:
            return _of_value(body.value)


def _data(data: bytes) -> Row:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        is_whole = len(data) <= MAX_BYTES_SHOWN
        shown_part = data[:MAX_BYTES_SHOWN].hex(" ")
        return {"kind": "bytes", "size": len(data), "hex": shown_part, "is_whole": is_whole}
    is_whole = len(text) <= MAX_BODY
    return {"kind": "text", "size": len(data), "text": text[:MAX_BODY], "is_whole": is_whole}


def _of_value(value: object) -> Row:
    text = value if isinstance(value, str) else readable(value)
    part = text[:MAX_BODY]
    return {
        "kind": f"value ({type(value).__name__.lower()})",
        "size": len(text),
        "text": part,
        "is_whole": part == text,
    }
