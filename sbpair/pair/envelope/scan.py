"""Raw editing of messages: take out entries of map sections, keep the others bit for bit; see ``amqp/sections.py``.

Maps of one sender usually share a layout: keys, types and sizes, in bytes that stay the same while the contents
of the values differ.

    section    | head, key, type, size | content | key, type, size | content |
    layout     |       the same        |   any   |    the same     |   any   |

One comparison in C tells whether a section has a known layout. A section that does not is walked, and its
layout is cached, unless sections of its length and wanted keys keep differing. A whole parked message has a *shape* in
the same way.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from sbpair.pair.amqp.sections import VALUE_HEADS, Section, Sections, entry_spans, locate, split_fields

NARROW_TEXT = frozenset((0xA1, 0xA3))  # string and symbol
TEXT = NARROW_TEXT | {0xB1, 0xB3}
MAX_LAYOUTS = 512
MAX_BYTES = 8 * 1024 * 1024  # of all layouts, about: senders choose how many and how large they are
FIELD_WEIGHT = 128  # bytes of memory for a constant field
MAX_LESSONS = 32  # layouts of one kind of section, shapes of one length; further ones are read at length

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
        """The approximate size of the layout in memory, in bytes."""
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
        """Whether to cache a layout of this kind: not once layouts of the kind have differed too often."""
        return self._lessons.get(kind, 0) < MAX_LESSONS

    def learn(self, kind: tuple[int, object], layout: SectionLayout) -> None:
        """Cache the layout of a walked section; first forget all others if they would take too much memory."""
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
        start, at = at + VALUE_HEADS[each[0]], at + len(each)
        if each[0] and start < at:
            contents.append((start, at))
    return layout_of(section, contents, (), (), len(fields))


def walk_entries(section: bytes, wanted: frozenset[bytes]) -> SectionLayout:
    """Return the layout of a map section; b"" is an empty map. Raises DecodeError, IndexError."""
    spans = entry_spans(section) if section else []
    end = len(section)
    run = spans[0][0] if spans else end
    contents: list[Span] = []
    found: list[tuple[bytes, int, int]] = []
    kept: list[Span] = []
    for start, value_at, stop in spans:
        content = value_at + VALUE_HEADS[section[value_at]]
        if section[value_at] and content < stop:
            contents.append((content, stop))
        form = section[start]
        key = section[start + 2 if form in NARROW_TEXT else start + 5 : value_at] if form in TEXT else None
        if key in wanted:
            if run < start:
                kept.append((run, start))
            run = stop
            found.append((key, value_at, stop))
    if run < end:
        kept.append((run, end))
    return layout_of(section, contents, found, kept, 2 * (len(spans) - len(found)))


VIEWED_FROM = 16_384  # bytes of a message from which a view is cheaper than copies of its parts
MAX_SHAPES = 512
MAX_PLANS = 256  # combinations of aliases of one shape
PLAN_WEIGHT = 512  # bytes of memory for a plan beside its texts

_LOCK = struct.Struct(">q").unpack_from
_TIMESTAMP = 0x83


class Plan(NamedTuple):
    """The destination for one combination of alias values, and the beginning of the forwarded message."""

    path: str
    beginning: bytes


class Parts(NamedTuple):
    """The parts of a message that was restored at length."""

    sections: Sections
    layouts: tuple[
        SectionLayout, SectionLayout, SectionLayout
    ]  # of annotations, properties and application properties
    lock_key: bytes
    kept_head: bytes  # precedes the kept application properties


@dataclass(frozen=True, slots=True)
class Shape:
    """The constant bytes of a message, and the positions of its aliases and kept parts.

    For each combination of alias values, the beginning of the message that is forwarded.
    """

    constant: struct.Struct
    bytes_there: tuple[bytes, ...]
    aliases: Callable[[bytes], object]
    rest: Callable[[bytes | memoryview], tuple[bytes, bytes, bytes]]  # properties, kept entries, body
    kept_head: bytes
    lock_at: int | None
    plans: dict[object, Plan] = field(default_factory=dict)

    def fits(self, payload: bytes) -> bool:
        """Whether ``payload``, whose body starts at the same offset, has this shape."""
        return self.constant.unpack_from(payload) == self.bytes_there

    def forward(self, payload: bytes, plan: Plan) -> bytes:
        """Return the message to forward."""
        whole = payload if len(payload) < VIEWED_FROM else memoryview(payload)
        properties, kept, body = self.rest(whole)
        return b"".join((plan.beginning, properties, self.kept_head, kept, body))

    def locked_until(self, payload: bytes) -> int | None:
        """When the lock expires: milliseconds since the epoch, or None if the broker did not set it."""
        return None if self.lock_at is None else int(_LOCK(payload, self.lock_at)[0])


class Shapes:
    """The last shape for each offset of the body: restores a message like an earlier one without walking it.

        parked    header | annotations | properties | application properties | one body
        constant    all     all but the contents of the values        `--------- any
        forward   header' + annotations' | the same |  head' | kept entries | the same

    Messages of one sender usually have the same keys, types and sizes before the body, and these determine every
    position. A message whose properties change, that has a deadline, or that keeps annotations of its own is restored
    at length every time.
    """

    __slots__ = ("_bytes", "_lessons", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[int, Shape] = {}
        self._lessons: dict[int, int] = {}
        self._bytes = 0

    def find(self, payload: bytes) -> Shape | None:
        """Return the shape of ``payload``, if cached."""
        shape = self._shapes.get(_body_at(payload))
        return shape if shape is not None and shape.fits(payload) else None

    def learn(self, payload: bytes, plan: Plan, take_apart: Callable[[], Parts]) -> None:
        """Cache how ``payload`` was restored, unless messages of this length keep differing."""
        shape = self.find(payload) or self._lesson(payload, take_apart)
        if shape is not None and len(shape.plans) < MAX_PLANS:
            self._keep(PLAN_WEIGHT + 2 * len(plan.beginning) + _body_at(payload))
            shape.plans[shape.aliases(payload)] = plan

    def _keep(self, size: int) -> None:
        """Add ``size`` to the bytes in use; first forget everything if they would be too many."""
        if self._bytes + size > MAX_BYTES:
            self._shapes.clear()
            self._lessons.clear()
            self._bytes = 0
        self._bytes += size

    def _lesson(self, payload: bytes, take_apart: Callable[[], Parts]) -> Shape | None:
        body_at = _body_at(payload)
        lessons = self._lessons.get(body_at, 0)
        if body_at < 0 or lessons >= MAX_LESSONS:
            return None
        if len(self._lessons) >= MAX_SHAPES:
            self._shapes.clear()
            self._lessons.clear()
            self._bytes = 0
        self._lessons[body_at] = lessons + 1
        shape = _shape_of(payload, body_at, take_apart())
        if shape is not None:
            self._keep(FIELD_WEIGHT * len(shape.bytes_there) + 2 * body_at)
            self._shapes[body_at] = shape
        return shape


def _body_at(payload: bytes) -> int:
    """Return the offset of the body; -1 unless the body is one data section at the end of the message."""
    at, stop = locate(payload, Section.DATA)
    return at if stop == len(payload) else -1


def _shape_of(payload: bytes, body_at: int, parts: Parts) -> Shape | None:
    """Return the shape of a message; None if its sections are not in the usual form."""
    before = parts.sections[:5]
    annotations, _properties, application = parts.layouts
    if payload[:body_at] != b"".join(before) or annotations.kept or len(application.kept) > 1:
        return None
    header, delivery, *_ = sizes = [len(section) for section in before]
    at_annotations, at_properties, at_application = (sum(sizes[:count]) for count in (2, 3, 4))
    lock_at = None
    for key, start, _stop in annotations.found:
        if key == parts.lock_key:
            if payload[at_annotations + start] != _TIMESTAMP:
                return None
            lock_at = at_annotations + start + 1
    head = min(delivery, 4)  # of the delivery annotations only presence and form are constant
    forms = [each.constant.format[1:] for each in parts.layouts]
    constant = struct.Struct(f">{header}s{head}s{delivery - head}x{''.join(forms)}")
    kept = application.kept[0] if application.kept else (0, 0)
    return Shape(
        constant,
        constant.unpack_from(payload),
        itemgetter(*(slice(at_application + a, at_application + b) for _, a, b in application.found)),
        itemgetter(
            slice(at_properties, at_application),
            slice(at_application + kept[0], at_application + kept[1]),
            slice(body_at, None),
        ),
        parts.kept_head,
        lock_at,
    )
