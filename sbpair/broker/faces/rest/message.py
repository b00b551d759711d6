"""How does a message sent over HTTP become one of AMQP, and how is a received one told in HTTP?

    Content-Type: text/plain                        properties.content-type
    BrokerProperties: {"MessageId": "7", ...}       properties, header and annotations
    Priority: "High"                                an application property
    the body                                        one data section

Of a batch each entry is a JSON object with Body, BrokerProperties and UserProperties. What REST sends is
received over AMQP and the other way round: both make the same bytes, and both are read by ``message_form``.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ....amqp.message import Body, DataBody, Header, Message, Properties, Section, SequenceBody, ValueBody
from ....amqp.types import DecodeError, Described, EncodeError, Symbol, Timestamp, encode
from ...entities.entity import Entity
from ...entities.stored_message import Instant, StoredMessage
from ...errors import InvalidArgument
from ..administration.http_messages import Request
from ..message_form import PARTITION_KEY, SCHEDULED, UINT_MAX, VIA_PARTITION_KEY, delivered, told_span
from .values import read_header, read_instant, read_span, write_header, write_instant

BROKER_PROPERTIES = "brokerproperties"
BATCH_TYPE = "application/vnd.microsoft.servicebus.json"
MOST_IN_BATCH = 4_500

# What HTTP itself, those it passes through, and the service have headers for; every other is a property.
_HEADERS = """
    accept accept-charset accept-encoding accept-language authorization brokerproperties
    cache-control connection content-encoding content-language content-length content-location
    content-md5 content-range content-type cookie date dnt expect forwarded from host if-match
    if-modified-since if-none-match if-range if-unmodified-since keep-alive max-forwards origin
    pragma proxy-authorization proxy-connection range referer servicebusauthorization te trailer
    transfer-encoding upgrade user-agent via warning x-forwarded-for x-forwarded-host
    x-forwarded-proto x-ms-retrypolicy
"""
_NOT_PROPERTIES = frozenset(_HEADERS.split())
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")  # RFC 9110, 5.6.2
_TEXTS = {
    "MessageId": "message_id",
    "CorrelationId": "correlation_id",
    "Label": "subject",
    "ReplyTo": "reply_to",
    "To": "to",
    "SessionId": "group_id",
    "ReplyToSessionId": "reply_to_group_id",
    "ContentType": "content_type",
}
_KEYS = {"PartitionKey": PARTITION_KEY, "ViaPartitionKey": VIA_PARTITION_KEY}


# -- in


@dataclass(slots=True)
class _Parts:
    texts: dict[str, str] = field(default_factory=dict)
    annotations: dict[object, object] = field(default_factory=dict)
    time_to_live: int | None = None

    def message(self, user: Mapping[object, object], body: bytes, now: Instant) -> bytes:
        properties = Properties(**self.texts)  # type: ignore[arg-type]
        ttl = self.time_to_live
        if ttl is not None and ttl >= UINT_MAX:  # longer than a header can say: two instants
            properties = replace(properties, creation_time=now, absolute_expiry_time=now + ttl)
            ttl = None
        try:
            return Message(
                header=None if ttl is None else Header(ttl=ttl),
                message_annotations=self.annotations,
                properties=properties,
                application_properties=dict(user),
                body=DataBody((body,)),
            ).encode()
        except EncodeError as error:
            raise InvalidArgument(f"A property of the message cannot be sent: {error}.") from None


def read_message(request: Request, now: Instant) -> bytes:
    """The AMQP message that a request with its headers and body is. Raises InvalidArgument."""
    parts = _parts(
        _json(request.headers.get(BROKER_PROPERTIES, "{}"), "BrokerProperties"), "BrokerProperties"
    )
    if kind := request.headers.get("content-type"):
        parts.texts["content_type"] = _ascii("Content-Type", kind)
    user: dict[object, object] = {
        request.spelt.get(name, name): read_header(_text_of(value))
        for name, value in request.headers.items()
        if name not in _NOT_PROPERTIES
    }
    return parts.message(user, request.body, now)


def read_batch(body: bytes, now: Instant) -> bytes:
    """The batch, as AMQP has it, that a JSON array of messages is. Raises InvalidArgument."""
    entries = _json(body, "The body")
    if not isinstance(entries, list) or not 0 < len(entries) <= MOST_IN_BATCH:
        raise InvalidArgument(f"The body is not a JSON array of 1 to {MOST_IN_BATCH} messages.")
    messages = (_entry(entry, f"Message {number}", now) for number, entry in enumerate(entries))
    return b"".join(encode(Described(Section.DATA, message)) for message in messages)


def _entry(entry: object, where: str, now: Instant) -> bytes:
    if not isinstance(entry, dict):
        raise InvalidArgument(f"{where} is not a JSON object with a Body.")
    body, user = entry.get("Body", ""), entry.get("UserProperties") or {}
    if not isinstance(body, str):
        raise InvalidArgument(f"{where}: Body is not a text.")
    if not isinstance(user, dict):
        raise InvalidArgument(f"{where}: UserProperties is not a JSON object.")
    for name, value in user.items():
        if not isinstance(value, str | int | float | None):
            raise InvalidArgument(f"{where}: UserProperties.{name:.60} is no text, number or truth value.")
    parts = _parts(entry.get("BrokerProperties") or {}, f"{where}: BrokerProperties")
    return parts.message(dict(user), body.encode("utf-8", "surrogatepass"), now)


def _parts(given: object, where: str) -> _Parts:
    if not isinstance(given, dict):
        raise InvalidArgument(f"{where} is not a JSON object.")
    parts = _Parts()
    for name, value in given.items():
        if value is None:
            continue
        if name in _TEXTS:
            text = _text(f"{where}.{name}", value)
            parts.texts[_TEXTS[name]] = _ascii(name, text) if name == "ContentType" else text
        elif name in _KEYS:
            parts.annotations[Symbol(_KEYS[name])] = _text(f"{where}.{name}", value)
        elif name in ("TimeToLive", "TimeToLiveTimeSpan"):
            parts.time_to_live = read_span(f"{where}.{name}", value)
        elif name == "ScheduledEnqueueTimeUtc":
            parts.annotations[Symbol(SCHEDULED)] = Timestamp(_instant(f"{where}.{name}", value))
    return parts  # what is none of these is ignored, as documented


def _json(text: str | bytes, what: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidArgument(f"{what} is not JSON.") from None
    return value


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgument(f"{name} is {value!r:.60}: a text is expected.")
    return value


def _ascii(name: str, text: str) -> str:
    if not text.isascii():
        raise InvalidArgument(f"{name} is not ASCII.")
    return text


def _instant(name: str, value: object) -> Instant:
    try:
        return read_instant(_text(name, value).strip())
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{name} is {value!r:.60}: an instant such as 'Sun, 06 Nov 1994 08:49:37 GMT' is expected."
        ) from None


def _text_of(raw: str) -> str:
    """A header's value: UTF-8, whatever the server took it for."""
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- out


def told(message: StoredMessage, queue: Entity) -> tuple[dict[str, str], bytes]:
    """Headers and body that tell of a message just received; one that is no AMQP inside, as its bytes."""
    try:
        sent = Message.decode(delivered(message, queue))
    except DecodeError:  # only its sections were looked at when it was stored
        sent = Message(body=DataBody((message.bare,)))
    headers = {
        name: text
        for name, value in sent.application_properties.items()
        if isinstance(name, str) and _TOKEN.fullmatch(name) and name.lower() not in _NOT_PROPERTIES
        if (text := write_header(value)) is not None
    }
    properties = sent.properties or Properties()
    headers["BrokerProperties"] = json.dumps(
        _broker_properties(message, properties, told_span(message, queue))
    )
    headers["Content-Type"] = _printable(properties.content_type or "application/octet-stream")
    headers["Date"] = write_instant(message.enqueued_at)
    return headers, _body(sent.body)


def message_reference(message: StoredMessage) -> str:
    """How its address names a message: by its id where that is a text, else by its number."""
    return message.message_id if isinstance(message.message_id, str) else str(message.sequence_number)


def _broker_properties(message: StoredMessage, properties: Properties, ttl: int | None) -> dict[str, object]:
    is_locked = message.lock_token is not None
    told: dict[str, object] = {
        "DeliveryCount": message.delivery_count + 1,
        "EnqueuedSequenceNumber": message.enqueued_sequence_number,
        "EnqueuedTimeUtc": write_instant(message.enqueued_at),
        "LockToken": str(lock_id(message)) if is_locked else None,
        "LockedUntilUtc": write_instant(message.locked_until) if is_locked else None,
        "PartitionKey": message.partition_key,
        "SequenceNumber": message.sequence_number,
        "State": "Active",
        "TimeToLive": None if ttl is None else ttl / 1000,
        "DeadLetterSource": message.dead_letter_source,
        **{
            name: _id_text(getattr(properties, field))
            for name, field in _TEXTS.items()
            if name != "ContentType"
        },
    }
    return {name: value for name, value in told.items() if value is not None}


def lock_id(message: StoredMessage) -> uuid.UUID | None:
    """The lock as a GUID."""
    return None if message.lock_token is None else uuid.UUID(bytes_le=message.lock_token)


def _id_text(value: object) -> str | None:
    if isinstance(value, bytes):
        return value.hex()
    return None if value is None else str(value)


def _printable(text: str) -> str:
    return "".join(each for each in text if " " <= each <= "~")


def _body(body: Body | None) -> bytes:
    match body:
        case DataBody():
            return body.data
        case ValueBody(bytes(data)):
            return data
        case ValueBody(str(text)):
            return text.encode("utf-8", "replace")
        case ValueBody(value):
            return _as_json(value)
        case SequenceBody(sections):
            return _as_json([item for section in sections for item in section])
        case _:
            return b""


def _as_json(value: object) -> bytes:
    """A body that HTTP has no form for, for a reader's eye."""
    try:
        return json.dumps(value, default=_plain, skipkeys=True).encode()
    except (TypeError, ValueError):
        return str(value).encode("utf-8", "replace")


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
