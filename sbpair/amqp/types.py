"""The AMQP 1.0 type system in one import: the values, and how to write and read them (1.6)."""

from __future__ import annotations

from .decoding import Budget, decode, skip
from .encoding import encode, encode_into
from .errors import DecodeError, EncodeError
from .primitives import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    symbols,
)

__all__ = [
    "Array",
    "Budget",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "DecodeError",
    "Described",
    "EncodeError",
    "Float",
    "Int",
    "Short",
    "Symbol",
    "Timestamp",
    "UByte",
    "UInt",
    "ULong",
    "UShort",
    "decode",
    "encode",
    "encode_into",
    "skip",
    "symbols",
]
