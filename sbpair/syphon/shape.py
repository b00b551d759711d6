"""Messages of one sender are shaped alike: how is the next one restored without taking it apart?

    parked    header | annotations | properties | application properties | one body
    constant    all     all but the contents of the values        `--------- any
    forward   header' + annotations' | the same |  head' | what is kept | the same

What stands before the body says by its keys, types and sizes where everything in it is. So of a message that
was taken apart is remembered what is constant of it, and where the aliases and what is kept stand; for each
combination of aliases, what the forwarded message begins with. A message whose properties change, that has a
deadline, or that keeps annotations of its own, is restored at length each time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from sbpair.amqp.message import Sections

from .layout import Layout

MOST_SHAPES = 512
MOST_LESSONS = 32  # of one length: then those that differ are restored at length
MOST_PLANS = 256  # combinations of aliases of one shape

_HEAD = struct.Struct(">II").unpack_from
_LOCK = struct.Struct(">q").unpack_from
_LIST8, _LIST32, _MAP8, _MAP32, _TIMESTAMP = 0xC0, 0xD0, 0xC1, 0xD1, 0x83
_SMALL_BODY, _BODY = 0x005375A0, 0x005375B0  # one data section
# How a section before the body begins: its head, and the bits that are not its size.
_USUAL = {
    0x00530000 | code << 8 | form: (5, 24) if form in (_LIST8, _MAP8) else (8, 0)
    for code, forms in {
        0x70: (_LIST8, _LIST32),
        0x71: (_MAP8, _MAP32),
        0x72: (_MAP8, _MAP32),
        0x73: (_LIST8, _LIST32),
        0x74: (_MAP8, _MAP32),
    }.items()
    for form in forms
}


class Plan(NamedTuple):
    """What the aliases of a message say: where it goes, and what it begins with there."""

    path: str
    beginning: bytes


class Parts(NamedTuple):
    """A message that was taken apart."""

    sections: Sections
    layouts: tuple[Layout, Layout, Layout]  # of annotations, properties and application properties
    lock_key: bytes
    kept_head: bytes  # what the application properties that are kept stand behind


@dataclass(frozen=True, slots=True)
class Shape:
    """Where in a message its constant bytes stand, and where what is wanted of it."""

    constant: struct.Struct
    bytes_there: tuple[bytes, ...]
    aliases: Callable[[bytes], object]
    rest: Callable[[bytes], tuple[bytes, bytes, bytes]]  # properties, what is kept, body
    kept_head: bytes
    lock_at: int | None
    plans: dict[object, Plan] = field(default_factory=dict)

    def fits(self, payload: bytes) -> bool:
        """Whether a message whose body begins where this one's does is shaped so."""
        return self.constant.unpack_from(payload) == self.bytes_there

    def forward(self, payload: bytes, plan: Plan) -> bytes:
        """The message that goes on."""
        properties, kept, body = self.rest(payload)
        return b"".join((plan.beginning, properties, self.kept_head, kept, body))

    def locked_until(self, payload: bytes) -> int | None:
        """Milliseconds since the epoch; None when the broker did not say."""
        return None if self.lock_at is None else int(_LOCK(payload, self.lock_at)[0])


class Shapes:
    """The shapes seen last, one for each length of what stands before the body."""

    __slots__ = ("_lessons", "_shapes")

    def __init__(self) -> None:
        self._shapes: dict[int, Shape] = {}
        self._lessons: dict[int, int] = {}

    def find(self, payload: bytes) -> Shape | None:
        """The shape of ``payload``, where it is known."""
        shape = self._shapes.get(_body_at(payload))
        return shape if shape is not None and shape.fits(payload) else None

    def learn(self, payload: bytes, plan: Plan, take_apart: Callable[[], Parts]) -> None:
        """Remember how ``payload`` was restored, unless what is so long proves never to be shaped alike."""
        shape = self.find(payload) or self._lesson(payload, take_apart)
        if shape is not None and len(shape.plans) < MOST_PLANS:
            shape.plans[shape.aliases(payload)] = plan

    def _lesson(self, payload: bytes, take_apart: Callable[[], Parts]) -> Shape | None:
        body_at = _body_at(payload)
        lessons = self._lessons.get(body_at, 0)
        if body_at < 0 or lessons >= MOST_LESSONS:
            return None
        if len(self._lessons) >= MOST_SHAPES:
            self._shapes.clear()
            self._lessons.clear()
        self._lessons[body_at] = lessons + 1
        shape = _shape_of(payload, body_at, take_apart())
        if shape is not None:
            self._shapes[body_at] = shape
        return shape


def _body_at(payload: bytes) -> int:
    """Where the body begins; -1 unless it is one section of data, and the last of the message."""
    at = 0
    try:
        word, size = _HEAD(payload)
        while usual := _USUAL.get(word):
            at += usual[0] + (size >> usual[1])
            word, size = _HEAD(payload, at)
    except struct.error:
        return -1
    stop = at + 8 + size if word == _BODY else at + 5 + (size >> 24) if word == _SMALL_BODY else -1
    return at if stop == len(payload) else -1


def _shape_of(payload: bytes, body_at: int, parts: Parts) -> Shape | None:
    """None for a message that is not put together in the usual way."""
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
    told = min(delivery, 4)  # of the delivery annotations only that there are some, and of which form
    forms = [each.constant.format[1:] for each in parts.layouts]
    constant = struct.Struct(f">{header}s{told}s{delivery - told}x{''.join(forms)}")
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
