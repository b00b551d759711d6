"""How are a message's values written where HTTP has only text: in BrokerProperties, and in a header each?

    Priority: "High"                             a text, in quotes; without them what is no other value
    Count: 3        Price: 1.5        Paid: true  numbers and truth, bare
    At: "Sun, 06 Nov 1994 08:49:37 GMT"          an instant

Spans are seconds (TimeToLive) or ``[days.]hh:mm:ss[.fraction]`` (TimeToLiveTimeSpan).
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime, parsedate_to_datetime

from ....amqp.types import Described, Timestamp
from ...entities.stored_message import Instant
from ...errors import InvalidArgument

FOREVER_S = 922_337_203_685  # seconds in the largest count of 100 ns ticks: no time to live at all
LARGEST_WHOLE = 2**63

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_FRACTION = re.compile(r"[+-]?[0-9]{1,30}\.[0-9]{1,30}(?:[eE][+-]?[0-9]{1,3})?")
_INSTANT = re.compile(r"[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT")
_SPAN = re.compile(r"(?:([0-9]{1,8})\.)?([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,7}))?")
_TRUTH = {"true": True, "false": False}
_TICKS_PER_MS, _TICKS_AT_EPOCH = 10_000, 621_355_968_000_000_000


def read_header(text: str) -> object:
    """The value that a header of a sender's own says, as AMQP has it."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return _unquoted(text)
    if _WHOLE.fullmatch(text) and -LARGEST_WHOLE <= int(text) < LARGEST_WHOLE:
        return int(text)
    if _FRACTION.fullmatch(text):
        return float(text)
    return _TRUTH.get(text.lower(), text)


def _unquoted(text: str) -> object:
    try:
        inner = json.loads(text, strict=False)
    except ValueError:  # a lone backslash, say: only quotes are undone
        inner = text[1:-1].replace('\\"', '"')
    if _INSTANT.fullmatch(inner):
        try:
            return Timestamp(read_instant(inner))
        except ValueError:
            return inner
    return inner


def write_header(value: object) -> str | None:
    """A property as a header says it, in ASCII without control characters; None for what it cannot say."""
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
    """Milliseconds of an instant as RFC 9110 or ISO 8601 writes it; UTC unless it says. Raises ValueError."""
    at = parsedate_to_datetime(text) if "," in text else datetime.fromisoformat(text)
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // timedelta(milliseconds=1)


def write_instant(at: Instant) -> str:
    """As RFC 9110 writes it; what lies beyond its years is the last instant there is."""
    try:
        return format_datetime(_EPOCH + timedelta(milliseconds=at), usegmt=True)
    except OverflowError:
        return "Fri, 31 Dec 9999 23:59:59 GMT"


def read_span(name: str, value: object) -> int | None:
    """Milliseconds of a number of seconds, or of a text ``d.hh:mm:ss.f``; None for no end.

    Raises InvalidArgument, which names the property.
    """
    if isinstance(value, str) and (found := _SPAN.fullmatch(value.strip())):
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups()[:4])
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
        milliseconds = whole * 1000 + int((found[5] or "").ljust(3, "0")[:3])
    elif isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 2**62:
        milliseconds = round(value * 1000)
    else:
        raise InvalidArgument(
            f"{name} is {value!r:.60}: seconds above 0, or a span such as 00:00:40, are expected."
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
