"""Edit one field of a section, or one entry, and leave the others bit for bit.

A section of a message is a descriptor and a list of fields (header, properties) or a map of entries
(annotations, application properties); 1.4, 1.6.22, 1.6.23. Nothing is decoded here but the lengths, so what
is not edited keeps its bytes, and with them its AMQP type and the width it was written in.
"""

from __future__ import annotations

from typing import NamedTuple

from sbpair.amqp.types import DecodeError, skip

from .layout import Layout, Layouts, Span, layout_of

NULL = b"\x40"
LIST0, LIST8, LIST32, MAP8, MAP32 = 0x45, 0xC0, 0xD0, 0xC1, 0xD1
NARROW_TEXT, WIDE_TEXT = frozenset((0xA1, 0xA3)), frozenset((0xB1, 0xB3))  # string and symbol

# How long a value is, by the upper half of its constructor (1.6): fixed, or told by 1 or 4 bytes.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_COUNTED = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_SIZE = [_FIXED.get(code >> 4, -_COUNTED.get(code >> 4, 0) or -9) for code in range(256)]


# How many bytes of a value say what it is and how long, before its content begins.
_HEAD = [1 + max(0, -size) if size > -9 else 1 for size in _SIZE]
_LAYOUTS = Layouts()


class Parted(NamedTuple):
    """A map taken apart: the raw values of the keys asked for, and all other entries as they stood."""

    found: dict[bytes, bytes]
    kept: bytes
    kept_values: int  # keys and values counted one by one, as a map counts them


NOTHING = Parted({}, b"", 0)


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
    at, count = _open(section, LIST0, LIST8, LIST32)
    end = len(section)
    fields = []
    for _ in range(count):
        stop = value_end(section, at, end)
        fields.append(section[at:stop])
        at = stop
    if at != end:
        raise DecodeError(f"{end - at} bytes behind the last field of a section")
    return fields


def join_fields(descriptor: int, fields: list[bytes], wide: bool) -> bytes:
    """The section of the code ``descriptor``, trailing nulls left out; b"" when all are null.

    It is written small where it can be, unless ``wide`` says that its writer never does.
    """
    while fields and fields[-1] == NULL:
        fields.pop()
    return _section(descriptor, LIST8, b"".join(fields), len(fields), wide) if fields else b""


def part_entries(section: bytes, wanted: frozenset[bytes]) -> Parted:
    """Take the entries whose key is a text of ``wanted`` out of a section that is a map; b"" has none.

    Raises DecodeError, IndexError.
    """
    if not section:
        return NOTHING
    kind = len(section), wanted
    layout = _LAYOUTS.find(kind)
    if layout is None or not layout.fits(section):
        layout = walk_entries(section, wanted)
        if _LAYOUTS.wants(kind):
            _LAYOUTS.learn(kind, layout)
    found = {key: section[start:stop] for key, start, stop in layout.found}
    return Parted(found, b"".join([section[start:stop] for start, stop in layout.kept]), layout.kept_values)


def walk_fields(section: bytes) -> Layout:
    """The layout of a section that is a list; b"" has none. Raises DecodeError, IndexError."""
    fields = split_fields(section) if section else []
    at = len(section) - sum(map(len, fields))
    contents: list[Span] = []
    for each in fields:
        start, at = at + _HEAD[each[0]], at + len(each)
        if each[0] and start < at:
            contents.append((start, at))
    return layout_of(section, contents, (), (), len(fields))


def walk_entries(section: bytes, wanted: frozenset[bytes]) -> Layout:
    """The layout of a section that is a map; b"" has none. Raises DecodeError, IndexError."""
    if not section:
        return layout_of(section, (), (), (), 0)
    at, count = _open(section, -1, MAP8, MAP32)
    end, run = len(section), at
    contents: list[Span] = []
    found: list[tuple[bytes, int, int]] = []
    kept: list[Span] = []
    for _ in range(count // 2):
        start = at
        if section[at] in NARROW_TEXT:
            stop = at + 2 + section[at + 1]
            key: bytes | None = section[at + 2 : stop]
        else:
            stop = value_end(section, at, end)
            key = section[at + 5 : stop] if section[at] in WIDE_TEXT else None
        at = value_end(section, stop, end)
        content = stop + _HEAD[section[stop]]
        if section[stop] and content < at:
            contents.append((content, at))
        if key in wanted:
            if run < start:
                kept.append((run, start))
            run = at
            found.append((key, stop, at))
    if at != end or count % 2:
        raise DecodeError("a map that does not end with its last entry")
    if run < end:
        kept.append((run, end))
    return layout_of(section, contents, found, kept, count - 2 * len(found))


def join_entries(descriptor: int, kept: bytes, values: int, wide: bool) -> bytes:
    """The map of ``values`` keys and values, counted one by one; b"" without entries."""
    return _section(descriptor, MAP8, kept, values, wide) if values else b""


def _open(section: bytes, empty: int, narrow: int, wide: int) -> tuple[int, int]:
    """Where the values of a section begin, and how many there are."""
    end = len(section)
    at = value_end(section, 1, end)  # behind the descriptor, which follows a 0x00
    constructor = section[at]
    if constructor == empty:
        return at + 1, 0
    if constructor == narrow:
        count, at = section[at + 2], at + 3
    elif constructor == wide:
        count, at = int.from_bytes(section[at + 5 : at + 9], "big"), at + 9
    else:
        raise DecodeError(f"a section with the constructor 0x{constructor:02x}")
    if count > end - at:
        raise DecodeError(f"a section of {end} bytes with {count} values")
    return at, count


def _section(descriptor: int, narrow: int, body: bytes, values: int, wide: bool) -> bytes:
    size = len(body)
    if size < 255 and values < 256 and not wide:
        return bytes((0x00, 0x53, descriptor, narrow, size + 1, values)) + body
    head = bytes((0x00, 0x53, descriptor, narrow | 0x10))
    return head + (size + 4).to_bytes(4, "big") + values.to_bytes(4, "big") + body


def is_needlessly_wide(section: bytes) -> bool:
    """Whether a section that fits the small form was written in the large: its writer knows no other."""
    if not 8 < len(section) < 255:
        return False
    at = 3 if section[1] == 0x53 else value_end(section, 1, len(section))
    return section[at] in (LIST32, MAP32)
