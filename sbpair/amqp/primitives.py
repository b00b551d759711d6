"""Which Python value stands for which AMQP type (1.6)?

    null None · boolean bool · long int · double float · binary bytes · string str
    uuid uuid.UUID · list list · map dict · and for the rest the small classes below.

Each class subclasses what it looks like, so that `UInt(5) + 1` is 6 and `Symbol("a") == "a"`;
the class is only there to say how the value goes on the wire.
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
    """Four bytes of IEEE 754-2008 decimal32, carried and not computed with."""


class Decimal64(bytes):
    """Eight bytes of IEEE 754-2008 decimal64, carried and not computed with."""


class Decimal128(bytes):
    """Sixteen bytes of IEEE 754-2008 decimal128, carried and not computed with."""


class Char(str):
    """One Unicode scalar value."""

    __slots__ = ()


class Symbol(str):
    """A name out of a constrained domain, ASCII."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with its descriptor, for types the reader does not know (1.3)."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one constructor (1.6.24): `code` is the format code all elements are written with."""

    code: int
    items: tuple[object, ...]
    descriptor: object | None = None


def symbols(*names: str) -> Array:
    """An array of symbols, in the form that takes names of any length."""
    longest = max(map(len, names), default=0)
    return Array(0xA3 if longest < 256 else 0xB3, tuple(Symbol(name) for name in names))
