"""Which bytes of a journal's files are there to be read?

A file is known by its final name, open or closed, so that a reader which remembers how far it has come finds
it again after it was renamed. Only whole lines count: a torn last line is not there yet.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from sbpair.observation.journal_file import OPEN_PREFIX

TAIL = 64 * 1024  # bytes looked at, from the end, for the last line's end


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes ``start`` to ``end`` of a file, both at the beginning of a line or at the end of the last."""

    directory: str
    name: str
    start: int
    end: int

    def open(self) -> BinaryIO:
        """The file, under the name it has now. Raises FileNotFoundError when it is gone."""
        return _open(self.directory, self.name)


def whole_lines(directory: str) -> dict[str, int]:
    """For each file of the directory, by its final name: up to which byte there are whole lines.

    Raises NotADirectoryError, FileNotFoundError.
    """
    with os.scandir(directory) as entries:
        listed = [entry.name for entry in entries if entry.name.endswith(".jsonl") and entry.is_file()]
    names = sorted({entry.removeprefix(OPEN_PREFIX) for entry in listed})
    return {name: _last_line_end(directory, name) for name in names}


def _open(directory: str, name: str) -> BinaryIO:
    try:
        return Path(directory, OPEN_PREFIX + name).open("rb")
    except FileNotFoundError:  # closed, perhaps since we looked
        pass
    try:
        return Path(directory, name).open("rb")
    except FileNotFoundError:
        raise FileNotFoundError(f"the journal file {name} is no longer in {directory}") from None


def _last_line_end(directory: str, name: str) -> int:
    with _open(directory, name) as file:
        size = file.seek(0, os.SEEK_END)
        while size:
            start = max(0, size - TAIL)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
        return 0


def _line_end(directory: str, name: str, at: int) -> int:
    """Where the line ends that byte ``at - 1`` belongs to."""
    with _open(directory, name) as file:
        file.seek(at - 1)
        return at - 1 + len(file.readline())


def cut(directory: str, name: str, start: int, end: int, most: int) -> Iterator[FileRange]:
    """A range in pieces of about ``most`` bytes, each with whole lines."""
    while end - start > most:
        middle = min(_line_end(directory, name, start + most), end)
        yield FileRange(directory, name, start, middle)
        start = middle
    if start < end:
        yield FileRange(directory, name, start, end)


def packed(pieces: Iterable[FileRange], most: int) -> Iterator[list[FileRange]]:
    """Small pieces together, up to about ``most`` bytes: a task costs more than many of them."""
    together: list[FileRange] = []
    size = 0
    for piece in pieces:
        if together and size + piece.end - piece.start > most:
            yield together
            together, size = [], 0
        together.append(piece)
        size += piece.end - piece.start
    if together:
        yield together


def admit(directory: str, start: dict[str, int], there: dict[str, int], most: int | None) -> dict[str, int]:
    """How far to read now: all there is, or about ``most`` bytes more than ``start``, in whole lines."""
    end = dict(start)
    budget = most
    for name, size in there.items():
        begun = start.get(name, 0)
        if budget is None or size - begun <= budget:
            end[name] = max(size, begun)
        elif budget > 0:
            end[name] = min(_line_end(directory, name, begun + budget), size)
        else:
            end[name] = begun
        budget = None if budget is None else max(0, budget - (end[name] - begun))
    return end
