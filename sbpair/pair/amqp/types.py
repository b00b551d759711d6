"""Python values for the AMQP types (1.6).

    null None · boolean bool · long int · double float · binary bytes · string str
    uuid uuid.UUID · list list · map dict · all others: the classes below

Each class subclasses its Python type, so that ``UInt(5) + 1 == 6`` and ``Symbol("a") == "a"``; the class selects
the wire type.
"""

from __future__ import annotations

from dataclasses import dataclass


class _Integer(int):
    __slots__ = ()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self)})"


class UByte(_Integer):
    """0 … 2^8 - 1."""

    __slots__ = ()


class UShort(_Integer):
    """0 … 2^16 - 1."""

    __slots__ = ()


class UInt(_Integer):
    """0 … 2^32 - 1."""

    __slots__ = ()


class ULong(_Integer):
    """0 … 2^64 - 1."""

    __slots__ = ()


class Byte(_Integer):
    """-2^7 … 2^7 - 1."""

    __slots__ = ()


class Short(_Integer):
    """-2^15 … 2^15 - 1."""

    __slots__ = ()


class Int(_Integer):
    """-2^31 … 2^31 - 1."""

    __slots__ = ()


class Timestamp(_Integer):
    """Milliseconds since the epoch, UTC; may be negative (64 bit)."""

    __slots__ = ()


class Float(float):
    """A 32 bit float; a plain float is a double."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Float({float(self)!r})"


class Decimal32(bytes):
    """Four bytes of IEEE 754-2008 decimal32, opaque."""


class Decimal64(bytes):
    """Eight bytes of IEEE 754-2008 decimal64, opaque."""


class Decimal128(bytes):
    """Sixteen bytes of IEEE 754-2008 decimal128, opaque."""


class Char(str):
    """One Unicode scalar value."""

    __slots__ = ()


class Symbol(str):
    """A name from a constrained domain, in ASCII."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A described value of an unknown type (1.3)."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class TypedKey:
    """A map key that Python considers equal to another key of the map, though its AMQP type differs.

    ``{int 1: .., long 1: ..}`` decodes to ``{Int(1): .., TypedKey(1): ..}``.
    """

    kind: type
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """Values that share a constructor (1.6.24): ``code`` is the format code of every element."""

    code: int
    items: tuple[object, ...]
    descriptor: object | None = None


def symbols(*names: str) -> Array:
    """Return an array of symbols, in the short form when every name fits it."""
    longest = max(map(len, names), default=0)
    return Array(0xA3 if longest < 256 else 0xB3, tuple(Symbol(name) for name in names))
