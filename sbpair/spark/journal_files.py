"""The files of a journal directory: which are journals, and which bytes of them are complete lines.

    DIR/sender-a-000001.jsonl           read, in folders of any depth
    DIR/host-7/sender-b-000001.jsonl.gz read, unless the same file exists without .gz
    DIR/sender-c-000001.jsonl.zst       reported as unread: it may contain records

A file is known by its final name, open or closed, so that a reader finds its position again after a rename. A
torn last line is not yet part of the file. A compressed file is read at once, from where its uncompressed
predecessor was read to. Files that may be journals are reported, not skipped: an audit must not claim that every
message is accounted for when it has not read them all.
"""

from __future__ import annotations

import codecs
import gzip
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from sbpair.observation.journal_reading import OPEN_PREFIX

INFLATES = 10  # unpacked size of a compressed journal, as a factor
TAIL = 64 * 1024  # bytes searched from the end for the last newline
PLAIN, GZIPPED = ".jsonl", ".jsonl.gz"
OF_AUDIT = {"report.html", "summary.json"}
LOOK = 4096  # bytes read to tell other text files from journals


@dataclass(frozen=True, slots=True)
class FileRange:
    """Bytes ``start`` to ``end`` of a file, both at the beginning of a line or at the end of the last.

    Of a compressed file, ``start`` counts what it unpacks to, all behind it belongs to the range, and ``end``
    only says how much work that is.
    """

    directory: str
    name: str
    start: int
    end: int

    def open(self) -> BinaryIO:
        """The file, unpacked, under the name it has now. Raises FileNotFoundError when it is gone."""
        return _open(self.directory, self.name, _unpacked if is_gzipped(self.name) else _plain)


def whole_lines(directory: str) -> dict[str, int]:
    """For each journal below the directory, by its final name: up to which byte there are whole lines.

    Of a compressed one, its size. Raises NotADirectoryError, FileNotFoundError.
    """
    return {name: _last_line_end(directory, name) for name in listed(directory).journals}


def _plain(path: Path) -> BinaryIO:
    return path.open("rb")


def _unpacked(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path, "rb"))


def _open(directory: str, name: str, opened: Callable[[Path], BinaryIO] = _plain) -> BinaryIO:
    folder, slash, file = name.rpartition("/")
    try:
        return opened(Path(directory, folder + slash + OPEN_PREFIX + file))
    except FileNotFoundError:  # closed, perhaps since we looked
        pass
    try:
        return opened(Path(directory, name))
    except FileNotFoundError:
        raise FileNotFoundError(f"the journal file {name} is no longer in {directory}") from None


def _last_line_end(directory: str, name: str) -> int:
    with _open(directory, name) as file:
        size = file.seek(0, os.SEEK_END)
        while size and not is_gzipped(name):
            start = max(0, size - TAIL)
            file.seek(start)
            newline = file.read(size - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            size = start
        return size


def _line_end(directory: str, name: str, at: int) -> int:
    """Where the line ends that byte ``at - 1`` belongs to."""
    with _open(directory, name) as file:
        file.seek(at - 1)
        return at - 1 + len(file.readline())


def ranges(
    directory: str, start: Mapping[str, int], end: Mapping[str, int], most: int
) -> Iterator[FileRange]:
    """What is to be read between two offsets, in pieces of about ``most`` bytes."""
    for name, stop in sorted(end.items()):
        if not is_gzipped(name):
            yield from cut(directory, name, start.get(name, 0), stop, most)
        elif name not in start:
            begun = start.get(plain_of(name), 0)
            yield FileRange(directory, name, begun, begun + stop * INFLATES)


def cut(directory: str, name: str, start: int, end: int, most: int) -> Iterator[FileRange]:
    """A range of a plain file in pieces of about ``most`` bytes, each with whole lines."""
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
    """How far to read now: all there is, or about ``most`` bytes more than ``start``, in whole lines.

    Of a compressed file all or nothing, but one at least where there is nothing else.
    """
    end = dict(start)
    budget = most
    for name, size in there.items():
        begun = start.get(name, 0)
        if is_gzipped(name):
            is_next = name not in start and (budget is None or budget >= size * INFLATES or budget == most)
            if is_next:
                end[name] = size
                budget = None if budget is None else max(0, budget - size * INFLATES)
            continue
        if budget is None or size - begun <= budget:
            end[name] = max(size, begun)
        elif budget > 0:
            end[name] = min(_line_end(directory, name, begun + budget), size)
        else:
            end[name] = begun
        budget = None if budget is None else max(0, budget - (end[name] - begun))
    return end


@dataclass(frozen=True, slots=True)
class Unread:
    """A file or folder that may hold journals and is not read: its path below the directory, and why."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """Of one directory: ``{final name: path}`` of what is read, both below the directory, and what is not."""

    journals: dict[str, str]
    unread: tuple[Unread, ...]


def listed(directory: str) -> Listing:
    """Everything below ``directory``, links followed, each folder once.

    A journal is known by its final name, open or closed. Raises NotADirectoryError, FileNotFoundError.
    """
    paths: dict[str, str] = {}
    unread: list[Unread] = []
    for name, found in _below(directory):
        if isinstance(found, Unread):
            unread.append(found)
        elif name.endswith((PLAIN, GZIPPED)) and not Path(name).name.startswith("."):
            paths[_final(name)] = min(name, paths.get(_final(name), name))
        elif why := _why_unread(Path(directory, name)):
            unread.append(Unread(name, why))
    copies = {name for name in paths if is_gzipped(name) and plain_of(name) in paths}
    journals = {name: path for name, path in sorted(paths.items()) if name not in copies}
    return Listing(journals, tuple(sorted(unread, key=lambda each: each.name)))


def is_gzipped(name: str) -> bool:
    return name.endswith(GZIPPED)


def plain_of(name: str) -> str:
    """What a compressed journal was called before."""
    return name.removesuffix(".gz")


def _final(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.removeprefix(OPEN_PREFIX)


def _below(directory: str) -> Iterator[tuple[str, Unread | None]]:
    """The path of each file below, or what is known not to be read."""
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        here = os.path.join(directory, folder)
        try:
            status = os.stat(here)
            entries = sorted(os.listdir(here))
        except OSError as error:
            if not folder:
                raise
            yield folder, Unread(folder, error.strerror or "it cannot be listed")
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if set(entries) >= OF_AUDIT:
            continue  # what an earlier audit wrote
        for entry in entries:
            name = f"{folder}/{entry}" if folder else entry
            try:
                mode = os.stat(os.path.join(directory, name)).st_mode
            except FileNotFoundError:
                if os.path.islink(os.path.join(directory, name)):
                    yield name, Unread(name, "a link to nothing")
                continue  # renamed since: open files are
            except OSError as error:
                yield name, Unread(name, error.strerror or "it cannot be looked at")
                continue
            if stat.S_ISDIR(mode):
                folders.append(name)
            elif stat.S_ISREG(mode):
                yield name, None
            else:
                yield name, Unread(name, "not a regular file")


def _why_unread(path: Path) -> str | None:
    """Why a file may be a journal and is not read; None where it cannot be one: a text that is no JSON."""
    if PLAIN in path.name.lower():
        return "a journal's name ends in .jsonl or .jsonl.gz"
    if path.name.startswith("."):
        return None
    try:
        with path.open("rb") as file:
            begin = file.read(LOOK)
    except OSError as error:
        return error.strerror or "it cannot be opened"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin)
    except UnicodeDecodeError:
        return "neither a journal nor a text: it may hold journals, packed or encrypted"
    if "\0" in text:
        return "neither a journal nor a text: it may hold journals, packed or encrypted"
    return "it may be a journal under another name" if text.lstrip().startswith("{") else None
