"""AMQP values of application properties as text with a type, and back. Performs no I/O.

    Int(7)                <->  int, "7"
    Timestamp(0)          <->  timestamp, "1970-01-01T00:00:00Z"
    b"\\x01"               <->  binary, "01"

The SDK encodes a value by its Python type, which has no widths; a pair of type and value selects the AMQP type.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sbpair.pair.amqp import types

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_INSTANT, LAST_INSTANT = (
    -9_223_372_036_854,
    9_223_372_036_854,
)  # ms: the range of pandas, which counts nanoseconds
NEVER = 253_402_214_400_000  # ms: the last day of the year 9999, which .NET calls never
NAMES: tuple[tuple[type, str], ...] = (
    (bool, "boolean"),
    (types.UByte, "ubyte"),
    (types.UShort, "ushort"),
    (types.UInt, "uint"),
    (types.ULong, "ulong"),
    (types.Byte, "byte"),
    (types.Short, "short"),
    (types.Int, "int"),
    (types.Timestamp, "timestamp"),
    (int, "long"),
    (types.Float, "float"),
    (float, "double"),
    (types.Decimal32, "decimal32"),
    (types.Decimal64, "decimal64"),
    (types.Decimal128, "decimal128"),
    (bytes, "binary"),
    (types.Char, "char"),
    (types.Symbol, "symbol"),
    (str, "string"),
    (UUID, "uuid"),
    (type(None), "null"),
)
"""The AMQP type of each Python class; a class comes before those that it derives from."""

SPARK_TYPES = {
    "string": "string",
    "boolean": "boolean",
    "tinyint": "byte",
    "smallint": "short",
    "int": "int",
    "bigint": "long",
    "float": "float",
    "double": "double",
    "binary": "binary",
    "timestamp": "timestamp",
}
"""The AMQP type of a property for each Spark type."""


def type_name(value: object) -> str:
    """The AMQP type of a decoded value; ``described`` for values of other types."""
    found = type(value)
    name = _NAMES.get(found)
    if name is None:
        name = _NAMES[found] = next((name for kind, name in NAMES if issubclass(found, kind)), "described")
    return name


_NAMES: dict[type, str] = {}  # as found, of the few classes that a decoded value can have


def text_of(value: object) -> str | None:
    """A decoded value as text; None for null."""
    match value:
        case None:
            return None
        case bool():
            return "true" if value else "false"
        case bytes():
            return value.hex()
        case types.Timestamp():
            moment = instant(int(value))
            return str(int(value)) if moment is None else moment.isoformat().replace("+00:00", "Z")
        case int():
            return str(int(value))  # the repr of AMQP integer types includes their width
        case float():
            return repr(float(value))
    return str(value)


def instant(milliseconds: int | None) -> datetime | None:
    """The UTC time; None if there is none, or it is beyond what datetime can represent."""
    try:
        return None if milliseconds is None else EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return None


def storable(milliseconds: int | None) -> int | None:
    """Return a time in milliseconds since the epoch; None for no time, for *never*, and if it cannot be stored."""
    return milliseconds if is_storable(milliseconds) else None


def is_storable(milliseconds: int | None) -> bool:
    """Whether Spark, Python in every time zone, and pandas can represent the time."""
    return milliseconds is not None and FIRST_INSTANT <= milliseconds <= LAST_INSTANT


def is_beyond(milliseconds: int | None) -> bool:
    """Whether a time cannot be stored, and is not the one that means never."""
    return milliseconds is not None and not is_storable(milliseconds) and milliseconds < NEVER


def in_utc(moment: datetime) -> datetime:
    """``moment`` in UTC. Spark passes timestamps to Python as naive datetimes in local time."""
    return (moment.astimezone() if moment.tzinfo is None else moment).astimezone(UTC)


def _milliseconds(value: object) -> int:
    if isinstance(value, str):
        if value.lstrip("-").isdigit():
            return int(value)
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if not isinstance(value, datetime):
        raise TypeError(f"not a time: {value!r}")
    return (in_utc(value) - EPOCH) // timedelta(milliseconds=1)


def _boolean(value: object) -> bool:
    if value in (True, "true"):
        return True
    if value in (False, "false"):
        return False
    raise ValueError(f"neither true nor false: {value!r}")


def _binary(value: object) -> bytes:
    return bytes.fromhex(value) if isinstance(value, str) else bytes(value)  # type: ignore[call-overload]


def _whole(least: int, most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        number = int(value)  # type: ignore[call-overload]
        if not least <= number <= most:
            raise ValueError(f"{number} is not from {least} to {most}")
        return int(number)

    return read


def _signed_check(bits: int) -> Callable[[object], int]:
    return _whole(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def _unsigned_check(bits: int) -> Callable[[object], int]:
    return _whole(0, 2**bits - 1)


def _real(value: object) -> float:
    return float(value)  # type: ignore[arg-type]


ENCODED: Mapping[str, tuple[str, Callable[[object], object]]] = {
    "boolean": ("BOOL", _boolean),
    "ubyte": ("UBYTE", _unsigned_check(8)),
    "ushort": ("USHORT", _unsigned_check(16)),
    "uint": ("UINT", _unsigned_check(32)),
    "ulong": ("ULONG", _unsigned_check(64)),
    "byte": ("BYTE", _signed_check(8)),
    "short": ("SHORT", _signed_check(16)),
    "int": ("INT", _signed_check(32)),
    "long": ("LONG", _signed_check(64)),
    "float": ("FLOAT", _real),
    "double": ("DOUBLE", _real),
    "timestamp": ("TIMESTAMP", _milliseconds),
    "uuid": ("UUID", lambda value: UUID(str(value))),
    "binary": ("BINARY", _binary),
    "symbol": ("SYMBOL", str),
    "string": ("STRING", str),
}
"""For each AMQP type that can be sent: its name in the SDK, and the conversion from text or a Spark value."""


def sendable(kind: str, value: object) -> object:
    """Return ``value``, a text or a Spark value, as the SDK's value of the AMQP type ``kind``; None stays None.

    Raises ValueError for a type that cannot be sent, and for a value that is not of the type.
    """
    if value is None or kind == "null":
        return None
    if kind == "string":
        return str(value)
    found = ENCODED.get(kind)
    if found is None:
        raise ValueError(f"the type {kind!r} cannot be sent; the types are {', '.join(ENCODED)}")
    name, read = found
    try:
        return {"TYPE": name, "VALUE": read(value)}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{str(value)[:60]!r} is not of the type {kind}: {error}") from None
