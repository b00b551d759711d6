"""Conversion between HTTP requests and AMQP messages.

    Content-Type: text/plain                        properties.content-type
    BrokerProperties: {"MessageId": "7", ...}       properties, header and annotations
    Priority: "High"                                an application property
    the body                                        one data section

Each entry of a batch is a JSON object with Body, BrokerProperties and UserProperties. Messages sent over REST
can be received over AMQP and the other way round: both produce the same bytes, which ``received_message`` reads.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

from sbpair.pair.amqp.errors import DecodeError, EncodeError
from sbpair.pair.amqp.message import Body, DataBody, Header, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.performatives import MAX_UINT
from sbpair.pair.amqp.sections import data_section
from sbpair.pair.amqp.types import Described, Symbol, Timestamp

from ...entities.queue import Queue
from ...entities.stored_message import Instant, StoredMessage
from ...errors import InvalidArgumentError
from ..admin.http_messages import Request
from ..delivered_message import encode_delivered, first_number, shown_time_to_live
from ..received_message import MAX_IN_BATCH, PARTITION_KEY, SCHEDULED, VIA_PARTITION_KEY

WITHOUT_TYPE = "application/xml; charset=utf-8"
LONGEST_S = 922337203685.47754  # how the service writes that a message never expires
FOREVER_S = 922_337_203_685  # seconds in the largest count of 100 ns ticks: no limit
MAX_WHOLE = 2**63

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?[0-9]{1,30}\.[0-9]{1,30}(?:[eE][+-]?[0-9]{1,3})?")
_INSTANT = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
_SPAN = re.compile(r"(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?")
_TRUTH = {"true": True, "false": False}
_TICKS_PER_MS, _TICKS_AT_EPOCH = 10_000, 621_355_968_000_000_000


def read_header(text: str) -> object:
    """Return the AMQP value of a custom header."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _unquote(text)
    if _WHOLE.fullmatch(text) and -MAX_WHOLE <= int(text) < MAX_WHOLE:
        return int(text)
    if _FRACTION.fullmatch(text):
        return float(text)
    return _TRUTH.get(text.lower(), text)


def _unquote(text: str) -> object:
    try:
        inner = json.loads(text, strict=False)
    except ValueError:  # a lone backslash, for example: only quotes are unescaped
        inner = text[1:-1].replace('\\"', '"')
    if _INSTANT.fullmatch(inner):
        try:
            return Timestamp(read_instant(inner))
        except ValueError:
            return inner
    return inner


def write_header(value: object) -> str | None:
    """Return a property as a header value, in ASCII without control characters.

    None when a header cannot express it.
    """
    match value:
        case bool():
            return "true" if value else "false"
        case Timestamp():
            return f'"{write_instant(value)}"'
        case str() | uuid.UUID():
            return json.dumps(str(value))
        case int() | float():
            return repr(value + 0)
        case Described(descriptor="com.microsoft:timespan", value=int(ticks)):
            return json.dumps(_span_text(ticks))
        case Described(descriptor="com.microsoft:datetime-offset", value=int(ticks)):
            return f'"{write_instant((ticks - _TICKS_AT_EPOCH) // _TICKS_PER_MS)}"'
        case _:
            return None


def read_instant(text: str) -> Instant:
    """Return an instant in RFC 9110 or ISO 8601 format, UTC by default, in ms since the epoch. Raises ValueError."""
    at = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def write_instant(at: Instant) -> str:
    """Return an instant in RFC 9110 format; instants after the year 9999 become its last second."""
    try:
        return format_datetime(_EPOCH + timedelta(milliseconds=at), usegmt=True)
    except OverflowError:
        return "Fri, 31 Dec 9999 23:59:59 GMT"


def read_span(name: str, value: object) -> int | None:
    """Return a number of seconds, or a string ``d.hh:mm:ss.f``, in milliseconds; None for no limit.

    Raises InvalidArgumentError, which names the property, for any other value.
    """
    if isinstance(value, str) and (found := _SPAN.fullmatch(value.strip())):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        milliseconds = whole * 1000 + int((found[5] or "").ljust(3, "0")[:3])
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**62:
        milliseconds = round(value * 1000)
    else:
        raise InvalidArgumentError(
            f"{name} is {value!r:.60}: use seconds above 0, or a duration such as 00:00:40."
        )
    return None if milliseconds >= FOREVER_S * 1000 else milliseconds


def _span_text(ticks: int) -> str:
    seconds, fraction = divmod(abs(ticks), 10_000_000)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    text = f"{days}." if days else ""
    return f"{'-' if ticks < 0 else ''}{text}{hours:02}:{minutes:02}:{seconds:02}" + (
        f".{fraction:07}" if fraction else ""
    )


BROKER_PROPERTIES = "brokerproperties"
BATCH_TYPE = "application/vnd.microsoft.servicebus.json"

# Headers of requests, of proxies and of the service; every other header of a request is a property.
_OF_REQUESTS = """
    accept accept-charset accept-encoding accept-language authorization brokerproperties
    cache-control connection content-encoding content-language content-length content-location
    content-md5 content-range content-type cookie date dnt expect forwarded from host if-match
    if-modified-since if-none-match if-range if-unmodified-since keep-alive max-forwards origin
    pragma proxy-authorization proxy-connection range referer servicebusauthorization te trailer
    transfer-encoding upgrade user-agent via warning x-forwarded-for x-forwarded-host
    x-forwarded-proto x-ms-retrypolicy
"""
_NOT_PROPERTIES = frozenset(_OF_REQUESTS.split())
# Headers that mean something to the client of a response: a property of that name is shown with a prefix.
_OF_RESPONSES = """
    accept-ch accept-patch accept-post accept-ranges age allow alt-svc brokerproperties clear-site-data
    content-disposition content-security-policy content-security-policy-report-only content-style-type
    critical-ch delta-base digest etag expect-ct expires im last-modified link location memento-datetime nel
    observe-browsing-topics p3p permissions-policy feature-policy preference-applied
    public-key-pins referrer-policy refresh report-to reporting-endpoints repr-digest content-digest retry-after
    server server-timing service-worker-allowed set-cookie set-cookie2 set-login sourcemap x-sourcemap speculation-rules
    strict-transport-security supports-loading-mode timing-allow-origin tk vary want-digest www-authenticate
    x-content-type-options x-dns-prefetch-control x-frame-options x-permitted-cross-domain-policies
    x-powered-by x-robots-tag x-xss-protection
"""
_SHOWN_OTHERWISE = _NOT_PROPERTIES | frozenset(_OF_RESPONSES.split())
_FAMILIES = ("access-control-", "cross-origin-", "proxy-", "sec-")
PREFIX = "Property-"
"""Stands before the name of a property that is also the name of a header of HTTP."""
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


# -- requests to messages


@dataclass(slots=True)
class _Parts:
    texts: dict[str, str] = field(default_factory=dict)
    annotations: dict[object, object] = field(default_factory=dict)
    time_to_live: int | None = None

    def message(self, user: Mapping[object, object], body: bytes, now: Instant) -> bytes:
        properties = Properties(**self.texts)  # type: ignore[arg-type]
        ttl = self.time_to_live
        if ttl is not None and ttl >= MAX_UINT:  # too long for the header's ttl: two instants
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
            raise InvalidArgumentError(f"A property of the message cannot be sent: {error}.") from None


def read_message(request: Request, now: Instant) -> bytes:
    """Return the AMQP encoding of the message in a request. Raises InvalidArgumentError."""
    parts = _parts(
        _json(request.headers.get(BROKER_PROPERTIES, "{}"), "BrokerProperties"), "BrokerProperties"
    )
    if kind := request.headers.get("content-type"):
        parts.texts["content_type"] = _ascii("Content-Type", kind)
    user: dict[object, object] = {
        request.header_names.get(name, name): read_header(_text_of(value))
        for name, value in request.headers.items()
        if name not in _NOT_PROPERTIES
    }
    return parts.message(user, request.body, now)


def read_batch(body: bytes, now: Instant) -> bytes:
    """Return the AMQP batch of a JSON array of messages. Raises InvalidArgumentError."""
    entries = _json(body, "The body")
    if not isinstance(entries, list) or not 0 < len(entries) <= MAX_IN_BATCH:
        raise InvalidArgumentError(f"The body is not a JSON array of 1 to {MAX_IN_BATCH} messages.")
    messages = (_entry(entry, f"Message {number}", now) for number, entry in enumerate(entries))
    return b"".join(data_section(message) for message in messages)


def _entry(entry: object, where: str, now: Instant) -> bytes:
    if not isinstance(entry, dict):
        raise InvalidArgumentError(f"{where} is not a JSON object with a Body.")
    body, user = entry.get("Body", ""), entry.get("UserProperties") or {}
    if not isinstance(body, str):
        raise InvalidArgumentError(f"{where}: Body is not a string.")
    if not isinstance(user, dict):
        raise InvalidArgumentError(f"{where}: UserProperties is not a JSON object.")
    for name, value in user.items():
        if not isinstance(value, str | int | float | None):
            raise InvalidArgumentError(
                f"{where}: UserProperties.{name:.60} is not a string, a number, true or false."
            )
    parts = _parts(entry.get("BrokerProperties") or {}, f"{where}: BrokerProperties")
    return parts.message(dict(user), body.encode("utf-8", "surrogatepass"), now)


def _parts(given: object, where: str) -> _Parts:
    if not isinstance(given, dict):
        raise InvalidArgumentError(f"{where} is not a JSON object.")
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
    return parts  # other properties are ignored, as documented


def _json(text: str | bytes, what: str) -> object:
    try:
        value: object = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise InvalidArgumentError(f"{what} is not JSON.") from None
    return value


def _no_constant(name: str) -> object:
    raise ValueError(name)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is {value!r:.60}: use a string.")
    return value


def _ascii(name: str, text: str) -> str:
    if not text.isascii():
        raise InvalidArgumentError(f"{name} is not ASCII.")
    return text


def _instant(name: str, value: object) -> Instant:
    try:
        return read_instant(_text(name, value).strip())
    except (ValueError, OverflowError):
        raise InvalidArgumentError(
            f"{name} is {value!r:.60}: use an instant such as 'Sun, 06 Nov 1994 08:49:37 GMT'."
        ) from None


def _text_of(raw: str) -> str:
    """Return the value of a header, decoded as UTF-8 regardless of the encoding that the server assumed."""
    return raw.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


# -- messages to responses


def response_parts(message: StoredMessage, queue: Queue) -> tuple[dict[str, str], bytes]:
    """Return headers and body of a received message; a body that is not valid AMQP is passed on as bytes."""
    try:
        sent = Message.decode(encode_delivered(message, queue))
    except DecodeError:  # only its section heads were parsed when it was stored
        sent = Message(body=DataBody((message.bare,)))
    headers = {
        _header_named(name): text
        for name, value in sent.application_properties.items()
        if isinstance(name, str) and _TOKEN.fullmatch(name)
        if (text := write_header(value)) is not None
    }
    properties = sent.properties or Properties()
    headers["BrokerProperties"] = json.dumps(_broker_properties(message, properties, queue), sort_keys=True)
    headers["Content-Type"] = _printable(properties.content_type or WITHOUT_TYPE)
    headers["Date"] = write_instant(message.enqueued_at)
    return headers, _body(sent.body)


def _header_named(name: str) -> str:
    """Return the name of the header for the property ``name``, changed if a client would otherwise act on it."""
    lower = name.lower()
    return PREFIX + name if lower in _SHOWN_OTHERWISE or lower.startswith(_FAMILIES) else name


def _broker_properties(message: StoredMessage, properties: Properties, queue: Queue) -> dict[str, object]:
    is_locked = message.lock_token is not None
    ttl = shown_time_to_live(message, queue)
    values: dict[str, object] = {
        "DeliveryCount": message.delivery_count + 1,
        "EnqueuedSequenceNumber": first_number(message, queue),
        "EnqueuedTimeUtc": write_instant(message.enqueued_at),
        "LockToken": str(lock_id(message)) if is_locked else None,
        "LockedUntilUtc": write_instant(message.locked_until) if is_locked else None,
        "PartitionKey": message.partition_key,
        "SequenceNumber": message.sequence_number,
        "State": "Active",
        "TimeToLive": LONGEST_S if ttl is None else ttl // 1000 if ttl % 1000 == 0 else ttl / 1000,
        "DeadLetterSource": message.dead_letter_source,
        **{
            name: _id_text(getattr(properties, field))
            for name, field in _TEXTS.items()
            if name != "ContentType"
        },
    }
    return {name: value for name, value in values.items() if value is not None}


def lock_id(message: StoredMessage) -> uuid.UUID | None:
    """Return the lock token as a GUID, or None."""
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
    """Return a body that has no HTTP form as JSON for a human reader."""
    try:
        return json.dumps(value, default=_plain, skipkeys=True).encode()
    except (TypeError, ValueError):
        return str(value).encode("utf-8", "replace")


def _plain(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
