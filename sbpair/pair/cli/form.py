"""Messages as JSON: what `receive --json` and `peek --json` print, and `send --json` reads.

    {"body": "two shoes", "session_id": "cart-7", "application_properties": {"amount": 5}}

Names are those of the SDK for Python. A body that is not UTF-8 text is ``body_base64``, a body of AMQP values is
``body`` with ``body_type``. JSON has fewer types than AMQP, so some values are objects:
``{"$timestamp": "2026-11-23T07:00:00Z"}``, ``{"$uuid": "..."}``, ``{"$binary": "base64"}``. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.message import (
    Body,
    DataBody,
    Header,
    Message,
    Properties,
    SequenceBody,
    ValueBody,
)
from sbpair.pair.amqp.types import Symbol, Timestamp

MAX_TTL = 2**32 - 1  # milliseconds: the header's field has 32 bits
SCHEDULED, PARTITION_KEY = Symbol("x-opt-scheduled-enqueue-time"), Symbol("x-opt-partition-key")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d)", re.ASCII)
UNITS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}  # milliseconds
STATES = {0: "active", 1: "deferred", 2: "scheduled"}

# JSON name -> field of the properties section
TEXTS = {
    "message_id": "message_id",
    "correlation_id": "correlation_id",
    "subject": "subject",
    "to": "to",
    "reply_to": "reply_to",
    "content_type": "content_type",
    "session_id": "group_id",
    "reply_to_session_id": "reply_to_group_id",
}
# JSON name -> message annotation
ANNOTATED = {
    "sequence_number": "x-opt-sequence-number",
    "enqueued_time_utc": "x-opt-enqueued-time",
    "locked_until_utc": "x-opt-locked-until",
    "partition_key": "x-opt-partition-key",
    "scheduled_enqueue_time_utc": "x-opt-scheduled-enqueue-time",
    "dead_letter_source": "x-opt-deadletter-source",
}
# JSON name -> application property, set when the message is dead-lettered
DEAD_LETTERED = {
    "dead_letter_reason": "DeadLetterReason",
    "dead_letter_error_description": "DeadLetterErrorDescription",
}
BROKERS = {"sequence_number", "enqueued_time_utc", "locked_until_utc", "dead_letter_source", "delivery_count"}
BROKERS |= {"state", *DEAD_LETTERED}
BROKERS |= {"destination", "spooled_at", "refused"}
"""Fields that only a received or spooled message has; ignored when sending."""
SENT = ("body", "body_base64", *TEXTS, "partition_key", "time_to_live", "scheduled_enqueue_time_utc")
SENT += ("application_properties",)


# Received messages.


def as_object(payload: bytes) -> dict[str, object]:
    """Return an encoded message as a JSON object; with ``unreadable`` and ``raw_base64`` if it is not valid AMQP."""
    try:
        message = Message.decode(payload)
    except (DecodeError, IndexError) as error:
        return {"unreadable": str(error), "raw_base64": base64.b64encode(payload).decode()}
    properties, header = message.properties or Properties(), message.header or Header()
    own = dict(message.application_properties)
    found: dict[str, object] = {
        "sequence_number": message.message_annotations.get(ANNOTATED["sequence_number"]),
        **_body(message.body),
        **{name: getattr(properties, field) for name, field in TEXTS.items()},
        **{name: message.message_annotations.get(key) for name, key in ANNOTATED.items()},
        **{name: own.pop(key, None) for name, key in DEAD_LETTERED.items()},
        "time_to_live": None if header.ttl is None else header.ttl / 1000,
        "delivery_count": header.delivery_count,
        "state": STATES.get(_whole(message.message_annotations.get("x-opt-message-state")) or 0),
    }
    shown = {name: _plain(value, name) for name, value in found.items() if value is not None}
    if own:
        shown["application_properties"] = {str(key): _typed_form(value) for key, value in own.items()}
    return shown


def as_line(payload: bytes) -> str:
    """Return an encoded message as one readable line: number, time, id, special properties, and its body."""
    shown = as_object(payload)
    if "unreadable" in shown:
        return f"unreadable: {shown['unreadable']}"
    special = [f"session {shown['session_id']}"] if "session_id" in shown else []
    special += [str(shown["state"])] if shown["state"] != "active" else []
    if "dead_letter_reason" in shown:
        special.append(f"dead-lettered: {shown['dead_letter_reason']}")
    cells = (
        f"{shown.get('sequence_number', '-'):>6}",
        str(shown.get("enqueued_time_utc", "-")),
        str(shown.get("message_id", "-")),
        *(f"[{each}]" for each in special),
        str(shown.get("body", shown.get("body_base64", ""))),
    )
    return "  ".join(cells).rstrip()


def body_bytes(payload: bytes) -> bytes:
    """Return the body of an encoded message: its bytes, or a value as JSON. Raises DecodeError."""
    body = Message.decode(payload).body
    if isinstance(body, DataBody):
        return body.data
    shown = _body(body).get("body", "")
    return (shown if isinstance(shown, str) else json.dumps(shown)).encode()


def _body(body: Body | None) -> dict[str, object]:
    match body:
        case None:
            return {}
        case DataBody():
            try:
                return {"body": body.data.decode()}
            except UnicodeDecodeError:
                return {"body_base64": base64.b64encode(body.data).decode()}
        case SequenceBody(lists):
            return {"body": [_typed_form(each) for part in lists for each in part], "body_type": "sequence"}
        case ValueBody(value):
            return {"body": _typed_form(value), "body_type": "value"}


def _plain(value: object, name: str) -> object:
    """Return the value of a named field; a time is plain text, because the name already says that it is a time."""
    if isinstance(value, Timestamp) and name.endswith("_utc"):
        return _time_text(value)
    return value if name in ("body", "application_properties") else _typed_form(value)


def _typed_form(value: object) -> object:
    match value:
        case None | bool() | float():
            return value
        case Timestamp():
            return {"$timestamp": _time_text(value)}
        case int():
            return int(value)
        case str():
            return str(value)
        case bytes():
            return {"$binary": base64.b64encode(value).decode()}
        case UUID():
            return {"$uuid": str(value)}
        case dict():
            return {str(key): _typed_form(each) for key, each in value.items()}
        case list():
            return [_typed_form(each) for each in value]
    return str(value)


def _time_text(milliseconds: int) -> str:
    try:
        found = EPOCH + timedelta(milliseconds=int(milliseconds))
    except OverflowError:
        return f"{int(milliseconds)} ms"
    return found.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _whole(value: object) -> int | None:
    return int(value) if isinstance(value, int) else None


# Messages to send.


def to_send(given: Mapping[str, object], now: datetime, new_id: str) -> bytes:
    """Encode the message that ``given`` describes.

    A relative schedule begins at ``now``; ``new_id`` is the id of a message that has none.

    Raises ValueError naming the field and what it must be.
    """
    _check_names(given)
    ttl, scheduled = given.get("time_to_live"), given.get("scheduled_enqueue_time_utc")
    annotations: dict[object, object] = {}
    if scheduled is not None:
        annotations[SCHEDULED] = Timestamp(_instant(scheduled, now))
    if (key := _text(given, "partition_key")) is not None:
        annotations[PARTITION_KEY] = key
    body, is_json = _body_to_send(given)
    texts = {field: _text(given, name) for name, field in TEXTS.items()}
    texts["message_id"] = texts["message_id"] or new_id
    texts["content_type"] = texts["content_type"] or ("application/json" if is_json else None)
    own = given.get("application_properties", {})
    if not isinstance(own, Mapping):
        raise ValueError("application_properties must be an object")
    message = Message(
        header=None if ttl is None else Header(ttl=_ttl(ttl)),
        message_annotations=annotations,
        properties=Properties(**texts),  # type: ignore[arg-type]  # all of them strings
        application_properties={str(name): _value(each, name) for name, each in own.items()},
        body=DataBody((body,)),
    )
    try:
        return message.encode()
    except (EncodeError, UnicodeEncodeError) as error:
        raise ValueError(f"a value cannot be encoded: {error}") from error


def _check_names(given: Mapping[str, object]) -> None:
    unknown = [name for name in given if name not in SENT and name not in BROKERS and name != "body_type"]
    if unknown:
        raise ValueError(f"unknown name {unknown[0]!r:.60}; there are: {', '.join(SENT)}")
    if "body_type" in given:
        raise ValueError("only bodies of bytes can be sent, not body_type value or sequence")


def _body_to_send(given: Mapping[str, object]) -> tuple[bytes, bool]:
    """Return the bytes of the body, and whether they are a JSON value rather than text."""
    if "body_base64" in given:
        return _bytes(given["body_base64"], "body_base64"), False
    body = given.get("body", "")
    if isinstance(body, str):
        return body.encode("utf-8", "surrogatepass"), False
    return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(), True


def _text(given: Mapping[str, object], name: str) -> str | None:
    value = given.get(name)
    if isinstance(value, Mapping) and list(value) == ["$uuid"]:
        value = value["$uuid"]
    if isinstance(value, int) and not isinstance(value, bool) and name.endswith("_id"):
        value = str(value)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} must be text, not {value!r:.60}")
    return value


def _ttl(value: object) -> int:
    milliseconds = _span(value)
    if milliseconds is None or not 1 <= milliseconds <= MAX_TTL:
        raise ValueError(
            f"time_to_live must be seconds or a duration such as 90s, up to 49d, not {value!r:.60}"
        )
    return milliseconds


def _instant(value: object, now: datetime) -> int:
    """Return an ISO 8601 time, or a duration from ``now``, in milliseconds since the epoch. Raises ValueError."""
    span = _span(value)
    if span is not None:
        return int((now - EPOCH) / timedelta(milliseconds=1)) + span
    try:
        found = datetime.fromisoformat(value) if isinstance(value, str) else None
    except ValueError:
        found = None
    if found is None:
        text = "a time such as 2026-11-23T07:00:00Z or a duration from now such as 10m"
        raise ValueError(f"scheduled_enqueue_time_utc must be {text}, not {value!r:.60}")
    aware = found if found.tzinfo else found.replace(tzinfo=UTC)
    return int((aware - EPOCH) / timedelta(milliseconds=1))


def _span(value: object) -> int | None:
    """Return a number of seconds, or text such as `90s`, in milliseconds; None when it is neither or out of range."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return round(value * 1000) if 0 <= value <= MAX_TTL else None
    match = SPAN.fullmatch(value) if isinstance(value, str) else None
    return round(float(match[1]) * UNITS[match[2]]) if match else None


READ: dict[str, Callable[[str], object]] = {
    "$timestamp": lambda text: Timestamp(_instant(text, EPOCH)),
    "$uuid": UUID,
    "$binary": lambda text: base64.b64decode(text, validate=True),
}


def _value(value: object, name: object) -> object:
    """Return the value of an application property. Raises ValueError."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping) and len(value) == 1:
        ((kind, text),) = value.items()
        if kind in READ and isinstance(text, str):
            try:
                return READ[kind](text)
            except ValueError as error:
                raise ValueError(
                    f"application property {name!r:.60}: {kind} cannot be read: {error}"
                ) from error
    kinds = ", ".join(READ)
    raise ValueError(
        f"application property {name!r:.60} must be text, a number, true, false, null or one of {kinds}"
    )


def _bytes(value: object, name: str) -> bytes:
    try:
        return base64.b64decode(value, validate=True)  # type: ignore[arg-type]
    except (TypeError, binascii.Error, ValueError) as error:
        raise ValueError(f"{name} must be base64 text") from error


def property_of(text: str) -> tuple[str, object]:
    """Read `name=value`: the value as JSON if it is a number, true, false or a quoted text, else as text.

    Raises ValueError when ``text`` has no name or no equals sign.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{text!r:.60} is not NAME=VALUE")
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return name, value
    return name, found if isinstance(found, bool | int | float | str) else value
