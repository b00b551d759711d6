"""Raw editing of message sections: change one field or entry, keep the others bit for bit.

A section is a descriptor and a list of fields (header, properties) or a map of entries (annotations, application
properties); see AMQP part 1, 1.4, 1.6.22 and 1.6.23. Only lengths are decoded, so an unedited value keeps its
bytes, and with them its AMQP type and encoding width.

Maps of one sender usually share a layout: keys, types and sizes, in bytes that stay the same while the contents
of the values differ.

    section    | head, key, type, size | content | key, type, size | content |
    layout     |       the same        |   any   |    the same     |   any   |

One comparison in C tells whether a section has a known layout. A section that does not is walked, and its
layout is cached, unless sections of its length and wanted keys keep differing.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from sbpair.amqp.decoding import skip
from sbpair.amqp.errors import DecodeError

NULL = b"\x40"
LIST0, LIST8, LIST32, MAP8, MAP32 = 0x45, 0xC0, 0xD0, 0xC1, 0xD1
NARROW_TEXT, WIDE_TEXT = frozenset((0xA1, 0xA3)), frozenset((0xB1, 0xB3))  # string and symbol

# The size of a value by the upper half of its constructor (AMQP part 1, 1.6): fixed, or in 1 or 4 bytes.
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_COUNTED = {0xA: 1, 0xC: 1, 0xE: 1, 0xB: 4, 0xD: 4, 0xF: 4}
_SIZE = [_FIXED.get(code >> 4, -_COUNTED.get(code >> 4, 0) or -9) for code in range(256)]


# The number of bytes before the content of a value: constructor and size.
_HEAD = [1 + max(0, -size) if size > -9 else 1 for size in _SIZE]

MAX_LAYOUTS = 512
MAX_BYTES = 8 * 1024 * 1024  # of all layouts, about: senders choose how many and how large they are
FIELD_WEIGHT = 128  # bytes of memory for a constant field
MAX_LESSONS = 32  # cached layouts of one kind of section; from then on each is walked

Span = tuple[int, int]


class SectionLayout(NamedTuple):
    """The constant bytes of a section, and the positions of its wanted and kept entries."""

    constant: struct.Struct
    bytes_there: tuple[bytes, ...]
    found: tuple[tuple[bytes, int, int], ...]
    kept: tuple[Span, ...]
    kept_values: int

    @property
    def weight(self) -> int:
        """About how many bytes of memory it takes."""
        return FIELD_WEIGHT * len(self.bytes_there) + self.constant.size

    def fits(self, section: bytes) -> bool:
        """Whether ``section``, which has the same length, has this layout."""
        return self.constant.unpack(section) == self.bytes_there


def layout_of(
    section: bytes,
    contents: Sequence[Span],
    found: Sequence[tuple[bytes, int, int]],
    kept: Sequence[Span],
    kept_values: int,
) -> SectionLayout:
    """Return the layout of a walked section; ``contents`` are the spans whose bytes may differ."""
    form, at = [">"], 0
    for start, stop in contents:
        form.append(f"{start - at}s{stop - start}x")
        at = stop
    form.append(f"{len(section) - at}s")
    constant = struct.Struct("".join(form))
    return SectionLayout(constant, constant.unpack(section), tuple(found), tuple(kept), kept_values)


class Layouts:
    """A cache of the last layout of each kind of section: its length and the wanted keys."""

    __slots__ = ("_bytes", "_layouts", "_lessons")

    def __init__(self) -> None:
        self._layouts: dict[tuple[int, object], SectionLayout] = {}
        self._lessons: dict[tuple[int, object], int] = {}
        self._bytes = 0

    def find(self, kind: tuple[int, object]) -> SectionLayout | None:
        """Return the last layout of this kind, if any."""
        return self._layouts.get(kind)

    def wants(self, kind: tuple[int, object]) -> bool:
        """Whether layouts of this kind are still cached: it has not differed too often."""
        return self._lessons.get(kind, 0) < MAX_LESSONS

    def learn(self, kind: tuple[int, object], layout: SectionLayout) -> None:
        """Cache the layout of a walked section; forget all others first where they would be too many bytes (S-25)."""
        if len(self._layouts) >= MAX_LAYOUTS or self._bytes + layout.weight > MAX_BYTES:
            self._layouts.clear()
            self._lessons.clear()
            self._bytes = 0
        self._bytes += layout.weight
        self._layouts[kind] = layout
        self._lessons[kind] = self._lessons.get(kind, 0) + 1


_LAYOUTS = Layouts()


class Parted(NamedTuple):
    """A map split into the raw values of the wanted keys, and all other entries unchanged."""

    found: dict[bytes, bytes]
    kept: bytes
    kept_values: int  # keys plus values, as a map counts them


NOTHING = Parted({}, b"", 0)


def value_end(data: bytes, at: int, end: int) -> int:
    """Where the value at ``at`` ends. Raises DecodeError, IndexError."""
    size = _SIZE[data[at]]
    if size >= 0:
        stop = at + 1 + size
    elif size == -1:
        stop = at + 2 + data[at + 1]
    elif size == -4:
        stop = at + 5 + int.from_bytes(data[at + 1 : at + 5], "big")
    else:
        return skip(data, at, end)  # described, or malformed
    if stop > end:
        raise DecodeError("a value extends beyond its section")
    return stop


def split_fields(section: bytes) -> list[bytes]:
    """Return the raw fields of a list section. Raises DecodeError, IndexError."""
    at, count = _open(section, LIST0, LIST8, LIST32)
    end = len(section)
    fields = []
    for _ in range(count):
        stop = value_end(section, at, end)
        fields.append(section[at:stop])
        at = stop
    if at != end:
        raise DecodeError(f"{end - at} bytes after the last field of a section")
    return fields


def join_fields(descriptor: int, fields: list[bytes], wide: bool) -> bytes:
    """Return a list section with this descriptor code, without trailing nulls; b"" when all fields are null.

    Uses the 8-bit form if it fits, unless ``wide``.
    """
    while fields and fields[-1] == NULL:
        fields.pop()
    return _section(descriptor, LIST8, b"".join(fields), len(fields), wide) if fields else b""


def part_entries(section: bytes, wanted: frozenset[bytes]) -> Parted:
    """Split a map section into the entries whose key is in ``wanted`` and the rest; b"" is an empty map.

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


def walk_fields(section: bytes) -> SectionLayout:
    """Return the layout of a list section; b"" is an empty list. Raises DecodeError, IndexError."""
    fields = split_fields(section) if section else []
    at = len(section) - sum(map(len, fields))
    contents: list[Span] = []
    for each in fields:
        start, at = at + _HEAD[each[0]], at + len(each)
        if each[0] and start < at:
            contents.append((start, at))
    return layout_of(section, contents, (), (), len(fields))


def walk_entries(section: bytes, wanted: frozenset[bytes]) -> SectionLayout:
    """Return the layout of a map section; b"" is an empty map. Raises DecodeError, IndexError."""
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
        raise DecodeError("a map section does not end with its last entry")
    if run < end:
        kept.append((run, end))
    return layout_of(section, contents, found, kept, count - 2 * len(found))


def join_entries(descriptor: int, kept: bytes, values: int, wide: bool) -> bytes:
    """Return a map section of ``values`` keys plus values; b"" without entries."""
    return _section(descriptor, MAP8, kept, values, wide) if values else b""


def _open(section: bytes, empty: int, narrow: int, wide: int) -> tuple[int, int]:
    """Return the offset of the first value of a section, and the number of values."""
    end = len(section)
    at = value_end(section, 1, end)  # after the descriptor, which follows a 0x00
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
    """Whether a section that fits the 8-bit form uses the 32-bit form: some encoders have no other."""
    if not 8 < len(section) < 255:
        return False
    at = 3 if section[1] == 0x53 else value_end(section, 1, len(section))
    return section[at] in (LIST32, MAP32)
