"""The usual forms of two message sections, read directly: properties and application properties.

The general decoder makes an object of every value and a dataclass of the section. These functions return the lists
that become columns. What they do not read themselves raises :class:`UnusualSection`, or another of ``UNUSUAL``, and is
left to the general decoder, which also has the last word about malformed sections. Performs no I/O.
"""

from __future__ import annotations

from sbpair.amqp.decoding import decode
from sbpair.amqp.errors import DecodeError
from sbpair.amqp.sections import value_end

from .typed_values import text_of, type_name

Entries = tuple[list[str], list[str], list[str | None]]
"""The names of application properties, their types, and their values as text."""

NO_ENTRIES: Entries = ([], [], [])
TEXT, SYMBOL, TIME, OTHER = range(4)
FIELDS = (
    ("message_id", TEXT),
    ("user_id", OTHER),
    ("to", TEXT),
    ("subject", TEXT),
    ("reply_to", TEXT),
    ("correlation_id", TEXT),
    ("content_type", SYMBOL),
    ("content_encoding", SYMBOL),
    ("absolute_expiry_time", TIME),
    ("creation_time", TIME),
    ("session_id", TEXT),
    ("group_sequence", OTHER),
    ("reply_to_session_id", TEXT),
)
"""The fields of the properties section in order (3.2.4), with what is read of each; of OTHER only null."""

_KINDS = tuple(kind for _, kind in FIELDS)
_PROPERTIES, _APPLICATION = b"\x00\x53\x73", b"\x00\x53\x74"
_LIST8, _LIST32, _MAP8, _MAP32 = 0xC0, 0xD0, 0xC1, 0xD1
_NULL, _STRING8, _STRING32, _SYMBOL8, _TIMESTAMP = 0x40, 0xA1, 0xB1, 0xA3, 0x83


class UnusualSection(Exception):
    """A section in a form that only the general decoder reads."""


UNUSUAL = (UnusualSection, DecodeError, IndexError, UnicodeDecodeError)


def fields_of(section: bytes) -> list[str | int | None]:
    """The values of a properties section, in the order of ``FIELDS``; absent ones at the end are left out.

    Times are milliseconds since the epoch. Raises one of UNUSUAL.
    """
    at, count = _open(section, _PROPERTIES, _LIST8, _LIST32)
    if count > len(_KINDS):
        raise UnusualSection
    values: list[str | int | None] = []
    for kind in _KINDS[:count]:
        code = section[at]
        if code == _NULL:
            values.append(None)
            at += 1
        elif kind == TEXT and code == _STRING8:
            start = at + 2
            at = start + section[at + 1]
            values.append(section[start:at].decode())
        elif kind == TEXT and code == _STRING32:
            start = at + 5
            at = start + int.from_bytes(section[at + 1 : start], "big")
            values.append(section[start:at].decode())
        elif kind == SYMBOL and code == _SYMBOL8:
            start = at + 2
            at = start + section[at + 1]
            values.append(section[start:at].decode("ascii"))
        elif kind == TIME and code == _TIMESTAMP:
            values.append(int.from_bytes(section[at + 1 : at + 9], "big", signed=True))
            at += 9
        else:
            raise UnusualSection
    if at != len(section):
        raise UnusualSection
    return values


def entries_of(section: bytes) -> Entries:
    """The entries of an application-properties section. Raises one of UNUSUAL."""
    at, count = _open(section, _APPLICATION, _MAP8, _MAP32)
    end = len(section)
    names: list[str] = []
    kinds: list[str] = []
    texts: list[str | None] = []
    for _ in range(count >> 1):
        if section[at] != _STRING8:
            raise UnusualSection
        start = at + 2
        at = start + section[at + 1]
        names.append(section[start:at].decode())
        code = section[at]
        if code == _STRING8:
            start = at + 2
            at = start + section[at + 1]
            kinds.append("string")
            texts.append(section[start:at].decode())
        elif code in _INTEGERS:
            width, kind, is_signed = _INTEGERS[code]
            start = at + 1
            at = start + width
            kinds.append(kind)
            texts.append(str(int.from_bytes(section[start:at], "big", signed=is_signed)))
        else:
            start, at = at, value_end(section, at, end)
            value = decode(section[start:at])[0]
            kinds.append(type_name(value))
            texts.append(text_of(value))
    if at != end or count & 1 or len({*names}) < len(names):
        raise UnusualSection
    return names, kinds, texts


_INTEGERS = {
    0x44: (0, "ulong", False),
    0x50: (1, "ubyte", False),
    0x53: (1, "ulong", False),
    0x54: (1, "int", True),
    0x55: (1, "long", True),
    0x71: (4, "int", True),
    0x80: (8, "ulong", False),
    0x81: (8, "long", True),
}
"""For format codes of integers: the width in bytes, the type, and whether it is signed."""


def whole_number(encoded: bytes) -> int | None:
    """The value of an encoded integer or timestamp; None for values of other types. Raises DecodeError."""
    code = encoded[0]
    if code in _SIGNED:
        return int.from_bytes(encoded[1:], "big", signed=True)
    value = decode(encoded)[0]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else None


_SIGNED = frozenset((0x54, 0x55, 0x71, 0x81, 0x83))


def _open(section: bytes, head: bytes, narrow: int, wide: int) -> tuple[int, int]:
    """The offset of the first value of a section, and the number of values."""
    form = section[3]
    if section[:3] == head:
        if form == narrow:
            return 6, section[5]
        if form == wide:
            return 12, int.from_bytes(section[8:12], "big")
    raise UnusualSection
