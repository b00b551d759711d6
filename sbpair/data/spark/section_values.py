"""The usual forms of two message sections, read directly: properties and application properties.

The general decoder makes an object of every value and a dataclass of the section. These functions return the lists that
become columns. For other forms they raise :class:`UnusualSectionError`, or another of ``UNUSUAL``; these are left to
the general decoder, which also decides what is malformed. Performs no I/O.
"""

from __future__ import annotations

from sbpair.pair.amqp.decoding import decode
from sbpair.pair.amqp.errors import DecodeError
from sbpair.pair.amqp.message import PLACES, usual_values
from sbpair.pair.amqp.sections import LISTS, MAPS, open_section, value_end

from .typed_values import text_of, type_name

Entries = tuple[list[str], list[str], list[str | None]]
"""The names of application properties, their types, and their values as text."""

NO_ENTRIES: Entries = ([], [], [])
OUR_NAMES = {"group_id": "session_id", "reply_to_group_id": "reply_to_session_id"}
FIELDS = tuple(OUR_NAMES.get(name, name) for name in PLACES)
"""The fields of the properties section in order, by the names of their columns."""

_STRING8 = 0xA1


class UnusualSectionError(Exception):
    """A section in a form that only the general decoder reads."""


UNUSUAL = (UnusualSectionError, DecodeError, IndexError, UnicodeDecodeError)


def fields_of(section: bytes) -> list[str | int | None]:
    """The values of a properties section, in the order of ``FIELDS``; absent ones at the end are left out.

    Times are milliseconds since the epoch. Raises one of UNUSUAL.
    """
    at, count = open_section(section, LISTS)
    values = usual_values(section, at, 0, count)
    if values is None:
        raise UnusualSectionError
    return values


def entries_of(section: bytes) -> Entries:
    """The entries of an application-properties section. Raises one of UNUSUAL."""
    at, count = open_section(section, MAPS)
    end = len(section)
    names: list[str] = []
    kinds: list[str] = []
    texts: list[str | None] = []
    for _ in range(count >> 1):
        if section[at] != _STRING8:
            raise UnusualSectionError
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
    if at != end or len({*names}) < len(names):
        raise UnusualSectionError
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
