"""Messages of one sender are laid out alike: how is the next one taken apart without walking it again?

A map's keys, types and sizes say where everything in it stands; the contents of its values say nothing about
that. So the layout of a section is its bytes without those contents:

    section    | head, key, type, size | content | key, type, size | content |
    layout     |       the same        |   any   |    the same     |   any   |

One comparison in C tells whether a section is laid out like one that was walked before. What does not fit is
walked, and remembered, unless its kind of section (its length, and what is wanted of it) proves unsteady.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

MOST_LAYOUTS = 512
MOST_LESSONS = 32  # of one kind of section: then it is walked each time

Span = tuple[int, int]


class Layout(NamedTuple):
    """Where in a section its constant bytes stand, and where what is wanted of it."""

    constant: struct.Struct
    bytes_there: tuple[bytes, ...]
    found: tuple[tuple[bytes, int, int], ...]
    kept: tuple[Span, ...]
    kept_values: int

    def fits(self, section: bytes) -> bool:
        """Whether a section of this length is laid out so."""
        return self.constant.unpack(section) == self.bytes_there


def layout_of(
    section: bytes,
    contents: Sequence[Span],
    found: Sequence[tuple[bytes, int, int]],
    kept: Sequence[Span],
    kept_values: int,
) -> Layout:
    """The layout of a section that was walked; ``contents`` are the spans that may be other bytes."""
    form, at = [">"], 0
    for start, stop in contents:
        form.append(f"{start - at}s{stop - start}x")
        at = stop
    form.append(f"{len(section) - at}s")
    constant = struct.Struct("".join(form))
    return Layout(constant, constant.unpack(section), tuple(found), tuple(kept), kept_values)


class Layouts:
    """The layouts seen last, one for each kind of section."""

    __slots__ = ("_layouts", "_lessons")

    def __init__(self) -> None:
        self._layouts: dict[tuple[int, object], Layout] = {}
        self._lessons: dict[tuple[int, object], int] = {}

    def find(self, kind: tuple[int, object]) -> Layout | None:
        """The layout that the last section of this kind had."""
        return self._layouts.get(kind)

    def wants(self, kind: tuple[int, object]) -> bool:
        """Whether there is a point in learning the layout of one more section of this kind."""
        return self._lessons.get(kind, 0) < MOST_LESSONS

    def learn(self, kind: tuple[int, object], layout: Layout) -> None:
        """Remember the layout of a section that was walked."""
        if len(self._layouts) >= MOST_LAYOUTS:
            self._layouts.clear()
            self._lessons.clear()
        self._layouts[kind] = layout
        self._lessons[kind] = self._lessons.get(kind, 0) + 1
