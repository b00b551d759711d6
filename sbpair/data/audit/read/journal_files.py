"""Byte ranges of the complete lines of journal files.

An incomplete last line is not part of the file yet. A compressed file is read in one piece, from the position
reached in its uncompressed predecessor.
"""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from sbpair.pair.observation.journal_reading import OPEN_PREFIX

from .journal_listing import FileStatus, is_gzipped, list_journals, open_plain, plain_of
from .object_storage import is_uri, without_secret

INFLATES = 10  # estimated ratio of the uncompressed to the compressed size of a journal
TAIL = 64 * 1024  # bytes per step of the backward search for the last newline
REQUESTS = 16  # files that are opened at a time at a URI, where an answer takes long

Reached = Callable[[str], int | None]
"""The position up to which a journal was read, by final name; None if it was not."""


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes ``start`` to ``end`` of a file, both on line boundaries.

    In a compressed file ``start`` is an offset in the uncompressed data, the range extends to the end of the file,
    and ``end`` is only an estimate of the amount of work.
    """

    directory: str
    name: str
    start: int
    end: int

    def open(self) -> BinaryIO:
        """Open the file under its current name, decompressing it. Raises FileNotFoundError when it is gone."""
        return _open(self.directory, self.name, _open_unpacked if is_gzipped(self.name) else open_plain)


def nothing(name: str) -> int | None:
    """Return the position in a file that was not read yet: None."""
    return None


class LineEnds:
    """The ends of the last complete lines of the journals below ``directory``.

    A file is opened again only if its size or modification time has changed since the last poll.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._seen: dict[str, tuple[FileStatus, int]] = {}

    def poll(self) -> dict[str, int]:
        """Return the ends by final name; for a compressed journal, the size of the file.

        Raises NotADirectoryError or FileNotFoundError when the directory cannot be listed.
        """
        return self.ends_of(list_journals(self._directory))

    def ends_of(self, journals: Mapping[str, FileStatus]) -> dict[str, int]:
        """Return the ends of these files, from a listing just made."""
        seen = self._seen
        ends = {name: found.size for name, found in journals.items() if is_gzipped(name)}
        for name, (before, end) in seen.items():
            if name in journals and before[1:] == journals[name][1:]:
                ends[name] = end
        changed = [name for name in journals if name not in ends]
        ends.update(zip(changed, self._ends_of(changed), strict=True))
        self._seen = {name: (found, ends[name]) for name, found in journals.items()}
        return {name: ends[name] for name in journals}

    def _ends_of(self, names: list[str]) -> Iterable[int]:
        def end_of(name: str) -> int:
            return _last_line_end(self._directory, name)

        if not is_uri(self._directory):
            return map(end_of, names)
        with ThreadPoolExecutor(REQUESTS) as threads:
            return list(threads.map(end_of, names))


def whole_lines(directory: str) -> dict[str, int]:
    """The ends of the journals below ``directory``, as :meth:`LineEnds.poll` finds them."""
    return LineEnds(directory).poll()


def _open_unpacked(directory: str, name: str) -> BinaryIO:
    if is_uri(directory):
        return cast(BinaryIO, gzip.GzipFile(fileobj=open_plain(directory, name)))
    return cast(BinaryIO, gzip.open(Path(directory, name), "rb"))


def _open(directory: str, name: str, opened: Callable[[str, str], BinaryIO] = open_plain) -> BinaryIO:
    folder, slash, file = name.rpartition("/")
    for current in (name, folder + slash + OPEN_PREFIX + file, name):  # it may be closed between two attempts
        try:
            return opened(directory, current)
        except FileNotFoundError:
            pass
    raise FileNotFoundError(f"the journal file {name} is no longer in {without_secret(directory)}")


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
        return size


def _line_end(directory: str, name: str, at: int) -> int:
    """The end of the line that contains byte ``at - 1``."""
    with _open(directory, name) as file:
        file.seek(at - 1)
        return at - 1 + len(file.readline())


def ranges(directory: str, reached: Reached, end: Mapping[str, int], most: int) -> Iterator[FileRange]:
    """The data from the positions reached to ``end``, in ranges of about ``most`` bytes."""
    for name, stop in sorted(end.items()):
        if not is_gzipped(name):
            yield from cut(directory, name, reached(name) or 0, stop, most)
        elif reached(name) is None:
            begun = reached(plain_of(name)) or 0
            yield FileRange(directory, name, begun, begun + stop * INFLATES)


def cut(directory: str, name: str, start: int, end: int, most: int) -> Iterator[FileRange]:
    """A range of an uncompressed file, cut at line boundaries into ranges of about ``most`` bytes."""
    while end - start > most:
        middle = min(_line_end(directory, name, start + most), end)
        yield FileRange(directory, name, start, middle)
        start = middle
    if start < end:
        yield FileRange(directory, name, start, end)


def pack(pieces: Iterable[FileRange], most: int) -> Iterator[list[FileRange]]:
    """Group small ranges up to about ``most`` bytes, since a task costs more than reading a small file."""
    group: list[FileRange] = []
    size = 0
    for piece in pieces:
        if group and size + piece.end - piece.start > most:
            yield group
            group, size = [], 0
        group.append(piece)
        size += piece.end - piece.start
    if group:
        yield group


def admit(directory: str, reached: Reached, available: Mapping[str, int], most: int | None) -> dict[str, int]:
    """The positions to which the next batch advances in each journal: all data, or about ``most`` bytes.

    Ends are on line boundaries. Compressed files are admitted whole; the first one is admitted even if it
    exceeds ``most``, so that a stream always advances.
    """
    ends: dict[str, int] = {}
    budget = most
    for name, size in available.items():
        begun = reached(name)
        if is_gzipped(name):
            cost = size * INFLATES
            if begun is not None or not (budget is None or budget >= cost or budget == most):
                continue
            ends[name] = size
        else:
            begun = begun or 0
            if size <= begun or budget == 0:
                continue
            is_whole = budget is None or size - begun <= budget
            end = size if is_whole else min(_line_end(directory, name, begun + (budget or 0)), size)
            cost, ends[name] = end - begun, end
        budget = None if budget is None else max(0, budget - cost)
    return ends
