"""Discovery of journal files in a directory or at a URI, and byte ranges of their complete lines.

    DIR/sender-a-000001.jsonl           read, in folders of any depth
    DIR/host-7/sender-b-000001.jsonl.gz read, unless the same file exists without .gz
    DIR/sender-c-000001.jsonl.zst       reported as unread: it may contain records

A file is identified by its final name, whether open or closed, so that a position survives the rename at closing.
An incomplete last line is not part of the file yet. A compressed file is read in one piece, from the position
reached in its uncompressed predecessor. Files that may be journals but are not read are reported, since an audit
that skipped them could not claim that every message is accounted for.
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

from .object_storage import files_below, is_uri, open_file

INFLATES = 10  # estimated ratio of the uncompressed to the compressed size of a journal
TAIL = 64 * 1024  # bytes per step of the backward search for the last newline
PLAIN, GZIPPED = ".jsonl", ".jsonl.gz"
AUDIT_OUTPUT = {"report.html", "summary.json"}
BINARY = "a binary file, which may contain compressed or encrypted journals"
SNIFFED = 4096  # bytes read to distinguish a journal from other files


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
        return _open(self.directory, self.name, _unpacked if is_gzipped(self.name) else _plain)


def whole_lines(directory: str) -> dict[str, int]:
    """The end of the last complete line of each journal below ``directory``, by final name.

    For a compressed journal, the size of the file. Raises NotADirectoryError or FileNotFoundError when
    ``directory`` cannot be listed.
    """
    return {name: _last_line_end(directory, name) for name in list_files(directory).journals}


def _plain(directory: str, name: str) -> BinaryIO:
    return open_file(directory, name) if is_uri(directory) else Path(directory, name).open("rb")


def _unpacked(directory: str, name: str) -> BinaryIO:
    if is_uri(directory):
        return cast(BinaryIO, gzip.GzipFile(fileobj=open_file(directory, name)))
    return cast(BinaryIO, gzip.open(Path(directory, name), "rb"))


def _open(directory: str, name: str, opened: Callable[[str, str], BinaryIO] = _plain) -> BinaryIO:
    folder, slash, file = name.rpartition("/")
    try:
        return opened(directory, folder + slash + OPEN_PREFIX + file)
    except FileNotFoundError:  # closed, possibly since it was listed
        pass
    try:
        return opened(directory, name)
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
    """The end of the line that contains byte ``at - 1``."""
    with _open(directory, name) as file:
        file.seek(at - 1)
        return at - 1 + len(file.readline())


def ranges(
    directory: str, start: Mapping[str, int], end: Mapping[str, int], most: int
) -> Iterator[FileRange]:
    """The data between two offsets, in ranges of about ``most`` bytes."""
    for name, stop in sorted(end.items()):
        if not is_gzipped(name):
            yield from cut(directory, name, start.get(name, 0), stop, most)
        elif name not in start:
            begun = start.get(plain_of(name), 0)
            yield FileRange(directory, name, begun, begun + stop * INFLATES)


def cut(directory: str, name: str, start: int, end: int, most: int) -> Iterator[FileRange]:
    """A range of an uncompressed file, cut at line boundaries into ranges of about ``most`` bytes."""
    while end - start > most:
        middle = min(_line_end(directory, name, start + most), end)
        yield FileRange(directory, name, start, middle)
        start = middle
    if start < end:
        yield FileRange(directory, name, start, end)


def packed(pieces: Iterable[FileRange], most: int) -> Iterator[list[FileRange]]:
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


def admit(
    directory: str, start: dict[str, int], available: dict[str, int], most: int | None
) -> dict[str, int]:
    """The end offset of the next batch: all of ``available``, or about ``most`` bytes after ``start``.

    Ends are on line boundaries. Compressed files are admitted whole; the first one is admitted even if it
    exceeds ``most``, so that a stream always advances.
    """
    end = dict(start)
    budget = most
    for name, size in available.items():
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
    """A file or folder that may contain journals but is not read: its relative path, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The journals of a directory, ``{final name: path}`` relative to it, and the files that are not read."""

    journals: dict[str, str]
    unread: tuple[Unread, ...]


def list_files(directory: str) -> Listing:
    """List ``directory`` recursively, following links and visiting each folder once.

    Raises NotADirectoryError or FileNotFoundError when ``directory`` itself cannot be listed.
    """
    paths: dict[str, str] = {}
    unread: list[Unread] = []
    for name, found in _below_uri(directory) if is_uri(directory) else _below(directory):
        if isinstance(found, Unread):
            unread.append(found)
        elif name.endswith((PLAIN, GZIPPED)) and not Path(name).name.startswith("."):
            paths[_final(name)] = min(name, paths.get(_final(name), name))
        elif why := _why_unread(directory, name):
            unread.append(Unread(name, why))
    copies = {name for name in paths if is_gzipped(name) and plain_of(name) in paths}
    journals = {name: path for name, path in sorted(paths.items()) if name not in copies}
    return Listing(journals, tuple(sorted(unread, key=lambda each: each.name)))


def is_gzipped(name: str) -> bool:
    return name.endswith(GZIPPED)


def plain_of(name: str) -> str:
    """The name of a compressed journal before compression."""
    return name.removesuffix(".gz")


def _final(name: str) -> str:
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.removeprefix(OPEN_PREFIX)


def _below_uri(uri: str) -> Iterator[tuple[str, Unread | None]]:
    """Yield the path of each file below ``uri``, without those of an earlier audit."""
    names = files_below(uri)
    folders: dict[str, set[str]] = {}
    for name in names:
        folder, _, file = name.rpartition("/")
        folders.setdefault(folder, set()).add(file)
    audits = tuple(f"{folder}/" for folder, files in folders.items() if folder and files >= AUDIT_OUTPUT)
    yield from ((name, None) for name in names if not name.startswith(audits))


def _below(directory: str) -> Iterator[tuple[str, Unread | None]]:
    """Yield the path of each regular file, and an Unread for each entry that cannot be read."""
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
        if set(entries) >= AUDIT_OUTPUT:
            continue  # the output of an earlier audit
        for entry in entries:
            name = f"{folder}/{entry}" if folder else entry
            try:
                mode = os.stat(os.path.join(directory, name)).st_mode
            except FileNotFoundError:
                if os.path.islink(os.path.join(directory, name)):
                    yield name, Unread(name, "a dangling link")
                continue  # renamed since the listing, as a journal is when it is closed
            except OSError as error:
                yield name, Unread(name, error.strerror or "its status cannot be read")
                continue
            if stat.S_ISDIR(mode):
                folders.append(name)
            elif stat.S_ISREG(mode):
                yield name, None
            else:
                yield name, Unread(name, "not a regular file")


def _why_unread(directory: str, name: str) -> str | None:
    """The reason to report a file that may be a journal; None for text that is not JSON, and hidden files."""
    file_name = Path(name).name
    if PLAIN in file_name.lower():
        return "its name does not end in .jsonl or .jsonl.gz"
    if file_name.startswith("."):
        return None
    try:
        with _plain(directory, name) as file:
            begin = file.read(SNIFFED)
    except OSError as error:
        return error.strerror or "it cannot be opened"
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(begin)
    except UnicodeDecodeError:
        return BINARY
    if "\0" in text:
        return BINARY
    return "it may be a journal under another name" if text.lstrip().startswith("{") else None
