"""Readers for the values of aliases.

sbpair writes ISO 8601 strings. Other senders that park may write integers (milliseconds), timestamps, or
.NET's described time span and date-time offset (ticks of 100 ns); all of these are read. Every reader raises
AliasError, naming the property and the type, for another type or a value out of range.
"""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

from sbpair.pair.amqp.types import Char, Described, Symbol, Timestamp

from .aliases import parse_duration, parse_instant

TICKS_PER_MILLISECOND = 10_000
EPOCH_TICKS = 621_355_968_000_000_000  # 1970-01-01 in ticks since the year 1
FOREVER_MS = 922_337_203_685_477  # .NET's TimeSpan.MaxValue: the service means no limit
LAST_INSTANT_MS = 253_402_300_799_999  # the end of the year 9999
YEAR_1_MS = EPOCH_TICKS // TICKS_PER_MILLISECOND + 86_400_000  # plus a day, for local times
MAX_KEY_LENGTH = 128  # the service's limit on a session id and on a partition key

TIME_SPAN, DATE_TIME_OFFSET = "com.microsoft:timespan", "com.microsoft:datetime-offset"
_TICK_CODES = {TIME_SPAN: 0x13700000002, DATE_TIME_OFFSET: 0x13700000001}

_TYPE_NAMES: dict[type, str] = {
    bool: "boolean",
    bytes: "binary",
    float: "double",
    int: "long",
    str: "string",
    dict: "map",
    list: "list",
    UUID: "uuid",
    type(None): "null",
}


class AliasError(ValueError):
    """An alias cannot be read; the message names the property and the problem."""


def type_name(value: object) -> str:
    """Return the AMQP name of the type of ``value``, for error messages."""
    if isinstance(value, Described):
        return f"described {str(value.descriptor)[:64]}"
    return _TYPE_NAMES.get(type(value), type(value).__name__.lower())


def read_text(name: str, value: object) -> str:
    """Read a string, such as a path."""
    if not isinstance(value, str) or isinstance(value, (Symbol, Char)):
        raise AliasError(f"{name} must be a string, not {type_name(value)}")
    return value


def read_key(name: str, value: object) -> str:
    """Read a session id or partition key: a string of at most 128 characters."""
    text = read_text(name, value)
    if len(text) > MAX_KEY_LENGTH:
        raise AliasError(f"{name} must have at most {MAX_KEY_LENGTH} characters, not {len(text)}")
    return text


def read_partition_key(name: str, value: object) -> str | bytes:
    """Read a partition key: at most 128 characters, or at most 128 bytes where the sender gave binary."""
    if not isinstance(value, bytes):
        return read_key(name, value)
    if len(value) > MAX_KEY_LENGTH:
        raise AliasError(f"{name} must have at most {MAX_KEY_LENGTH} bytes, not {len(value)}")
    return value


def read_duration(name: str, value: object) -> int | None:
    """Read a time span: milliseconds, at least 1, or None for no limit."""
    span = _read(name, value, parse_duration, TIME_SPAN, lambda ticks: ticks // TICKS_PER_MILLISECOND)
    if not 0 < span <= FOREVER_MS:
        raise AliasError(f"{name} must lie between 1 ms and 10675199 days: {span} ms ({type_name(value)})")
    return None if span == FOREVER_MS else span


def read_instant(name: str, value: object) -> int:
    """Read an instant: milliseconds since the epoch."""
    return _in_range(name, value, _instant(name, value))


def read_schedule(name: str, value: object) -> int | None:
    """Read an enqueue time: milliseconds since the epoch; None for a time before 1970, such as .NET's default value."""
    instant = _instant(name, value)
    return None if -YEAR_1_MS <= instant < 0 else _in_range(name, value, instant)


def _instant(name: str, value: object) -> int:
    return _read(
        name,
        value,
        parse_instant,
        DATE_TIME_OFFSET,
        lambda ticks: (ticks - EPOCH_TICKS) // TICKS_PER_MILLISECOND,
    )


def _in_range(name: str, value: object, instant: int) -> int:
    if not 0 <= instant <= LAST_INSTANT_MS:
        raise AliasError(f"{name} must lie between 1970 and 9999: {instant} ms ({type_name(value)})")
    return instant


def _read(
    name: str, value: object, parse: Callable[[str], int], described: str, from_ticks: Callable[[int], int]
) -> int:
    match value:
        case bool() | Symbol() | Char():
            pass
        case str():
            try:
                return parse(value)
            except (ValueError, OverflowError) as error:
                raise AliasError(f"{name} is a string that is not ISO 8601: {value[:64]!r}") from error
        case Timestamp() if described == TIME_SPAN:
            pass  # an instant, not a span
        case int():
            return int(value)
        case Described(descriptor=descriptor, value=int(ticks)) if _names(descriptor, described):
            return from_ticks(ticks)
    raise AliasError(f"{name} cannot be a {type_name(value)}")


def _names(descriptor: object, described: str) -> bool:
    return descriptor == described or descriptor == _TICK_CODES[described]
