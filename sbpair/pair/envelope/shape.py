"""A cache of message shapes: restores a message like an earlier one without walking it.

    parked    header | annotations | properties | application properties | one body
    constant    all     all but the contents of the values        `--------- any
    forward   header' + annotations' | the same |  head' | kept entries | the same

Messages of one sender usually have the same keys, types and sizes before the body, and these determine every position.
For a message that was restored at length, its shape holds the constant bytes and the positions of the aliases and of
the kept properties. For each combination of alias values it holds the beginning of the forwarded message. A message
whose properties change, that has a deadline, or that keeps annotations of its own is restored at length every time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import itemgetter
from typing import NamedTuple

from sbpair.pair.amqp.sections import Section, Sections, locate

from .scan import FIELD_WEIGHT, MAX_BYTES, SectionLayout

VIEWED_FROM = 16_384  # bytes of a message from which a view is cheaper than copies of its parts
MAX_SHAPES = 512
MAX_LESSONS = 32  # shapes learned of one length; further ones are restored at length
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
    """The constant bytes of a message, and the positions of its aliases and kept parts."""

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
    """The last shape for each offset of the body."""

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
