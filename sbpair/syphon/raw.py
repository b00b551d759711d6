"""Edit one field of a section, or one entry, and leave the others bit for bit.

A section of a message is a descriptor and a list of fields (header, properties) or a map of entries
(annotations, application properties); 1.4, 1.6.22, 1.6.23. Nothing is decoded here but the lengths, so what
is not edited keeps its bytes, and with them its AMQP type and the width it was written in.
"""

from __future__ import annotations

from sbpair.amqp.types import DecodeError, skip

NULL = b"\x40"
LIST0, LIST8, LIST32, MAP8, MAP32 = 0x45, 0xC0, 0xD0, 0xC1, 0xD1
TEXT_WIDTHS = {0xA1: 1, 0xA3: 1, 0xB1: 4, 0xB3: 4}  # string and symbol: the bytes of their length

# How long a value is, by the upper half of its constructor (1.6): fixed, or told by 1 or 4 bytes.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_COUNTED = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_SIZE = [_FIXED.get(code >> 4, -_COUNTED.get(code >> 4, 0) or -9) for code in range(256)]

Entry = tuple[bytes | None, bytes, bytes]  # the key's text (None: not a text), the raw key, the raw value


def value_end(data: bytes, at: int, end: int) -> int:
    # How long a value is, by the upper half of its constructor (1.6): fixed, or told by 1 or 4 bytes.
    size = _SIZE[data[at]]
    if size >= 0:
        stop = at + 1 + size
    elif size == -1:
        stop = at + 2 + data[at + 1]
    elif size == -4:
        stop = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        return skip(data, at, end)  # described, or no value at all
    if stop > end:
        raise DecodeError("a value reaches beyond its section")
    return stop


def split_fields(section: bytes) -> list[bytes]:
    """The raw fields of a section that is a list. Raises DecodeError, IndexError."""
    return _values(section, LIST0, LIST8, LIST32)


def join_fields(descriptor: int, fields: list[bytes], like: bytes) -> bytes:
    """The section of the code ``descriptor``, trailing nulls left out; b"" when all are null.

    ``like`` is the section it comes from: a writer that writes small sections wide is followed in that.
    """
    while fields and fields[-1] == NULL:
        fields.pop()
    return _section(descriptor, LIST8, fields, like) if fields else b""


def split_entries(section: bytes) -> list[Entry]:
    """The entries of a section that is a map; none of b"". Raises DecodeError, IndexError."""
    if not section:
        return []
    values = _values(section, -1, MAP8, MAP32)
    if len(values) % 2:
        raise DecodeError("a map with a key that has no value")
    keys = values[::2]
    return [(_text(key), key, value) for key, value in zip(keys, values[1::2], strict=True)]


def join_entries(descriptor: int, entries: list[Entry], like: bytes) -> bytes:
    """The section of the code ``descriptor``, written in the manner of ``like``; b"" without entries."""
    values = [part for _, key, value in entries for part in (key, value)]
    return _section(descriptor, MAP8, values, like) if values else b""


def _values(section: bytes, empty: int, narrow: int, wide: int) -> list[bytes]:
    end = len(section)
    at = value_end(section, 1, end)  # behind the descriptor, which follows a 0x00
    constructor = section[at]
    if constructor == empty:
        return []
    if constructor == narrow:
        count, at = section[at + 2], at + 3
    elif constructor == wide:
        count, at = int.from_bytes(section[at + 5 : at + 9], "big"), at + 9
    else:
        raise DecodeError(f"a section with the constructor 0x{constructor:02x}")
    if count > end - at:
        raise DecodeError(f"a section of {end} bytes with {count} values")
    values = []
    for _ in range(count):
        stop = value_end(section, at, end)
        values.append(section[at:stop])
        at = stop
    if at != end:
        raise DecodeError(f"{end - at} bytes behind the last value of a section")
    return values


def _text(key: bytes) -> bytes | None:
    width = TEXT_WIDTHS.get(key[0])
    return None if width is None else key[1 + width :]


def _section(descriptor: int, narrow: int, values: list[bytes], like: bytes) -> bytes:
    body = b"".join(values)
    if not _is_wide_by_habit(like, narrow) and len(body) < 255 and len(values) < 256:
        return bytes((0x00, 0x53, descriptor, narrow, len(body) + 1, len(values))) + body
    head = bytes((0x00, 0x53, descriptor, narrow | 0x10))
    return head + (len(body) + 4).to_bytes(4, "big") + len(values).to_bytes(4, "big") + body


def _is_wide_by_habit(like: bytes, narrow: int) -> bool:
    if not 8 < len(like) < 255:
        return False
    return like[value_end(like, 1, len(like))] == narrow | 0x10
