"""Discovery of journal files in a directory or at a URI.

    DIR/sender-a-000001.jsonl           read, in folders of any depth
    DIR/host-7/sender-b-000001.jsonl.gz read, unless the same file exists without .gz
    DIR/sender-c-000001.jsonl.zst       reported as unread: it may contain records

A file is identified by its final name, whether open or closed, so that a position survives the rename at closing.
Files that may be journals but are not read are reported, since an audit that skipped them could not claim that every
message is accounted for.
"""

from __future__ import annotations

import codecs
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from sbpair.pair.observation.journal_reading import OPEN_PREFIX

from .object_storage import files_below, is_uri, open_file

PLAIN, GZIPPED = ".jsonl", ".jsonl.gz"
AUDIT_OUTPUT = {"report.html", "summary.json"}
BINARY = "a binary file, which may contain compressed or encrypted journals"
SNIFFED = 4096  # bytes read to distinguish a journal from other files


class FileStatus(NamedTuple):
    """A file: its path below the directory, its size in bytes, and when it was changed (ns since the epoch)."""

    path: str
    size: int
    changed_at: int


@dataclass(frozen=True, slots=True)
class Unread:
    """A file or folder that may contain journals but is not read: its relative path, and the reason."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The journals of a directory by final name, and the files that are not read."""

    journals: dict[str, FileStatus]
    unread: tuple[Unread, ...]
    packed: frozenset[str] = frozenset()
    """The compressed files that are not read because the same file is there without .gz."""


def list_files(directory: str) -> Listing:
    """List ``directory`` recursively, following links and visiting each folder once.

    Opens files whose names are not those of journals, to report the ones that may be. Raises NotADirectoryError or
    FileNotFoundError when ``directory`` itself cannot be listed.
    """
    unread: list[Unread] = []

    def other(each: FileStatus | Unread) -> None:
        if isinstance(each, Unread):
            unread.append(each)
        elif why := _why_unread(directory, each.path):
            unread.append(Unread(each.path, why))

    found = _journals(directory, other)
    packed = _packed(found)
    journals = {name: each for name, each in found.items() if name not in packed}
    return Listing(journals, tuple(sorted(unread, key=lambda each: each.name)), packed)


def list_journals(directory: str) -> dict[str, FileStatus]:
    """Like :func:`list_files`, but only the journals; opens no file."""
    found = _journals(directory, lambda other: None)
    packed = _packed(found)
    return {name: each for name, each in found.items() if name not in packed}


def open_plain(directory: str, name: str) -> BinaryIO:
    """Open the file ``name`` below ``directory`` for reading. Raises FileNotFoundError when there is none."""
    return open_file(directory, name) if is_uri(directory) else Path(directory, name).open("rb")


def is_gzipped(name: str) -> bool:
    return name.endswith(GZIPPED)


def plain_of(name: str) -> str:
    """The name of a compressed journal before compression."""
    return name.removesuffix(".gz")


def _journals(directory: str, other: Callable[[FileStatus | Unread], None]) -> dict[str, FileStatus]:
    """The journals by final name; ``other`` is called with every other file."""
    found: dict[str, FileStatus] = {}
    for each in _at_uri(directory) if is_uri(directory) else _below(directory):
        if isinstance(each, Unread) or not _is_journal(each.path):
            other(each)
        else:
            final = _final(each.path)
            if final not in found or each.path == final:  # a closed file takes precedence over its open form
                found[final] = each
    return dict(sorted(found.items()))


def _packed(found: Mapping[str, FileStatus]) -> frozenset[str]:
    return frozenset(name for name in found if is_gzipped(name) and plain_of(name) in found)


def _is_journal(path: str) -> bool:
    return path.endswith((PLAIN, GZIPPED)) and not path.rpartition("/")[2].startswith(".")


def _final(path: str) -> str:
    folder, slash, file = path.rpartition("/")
    return folder + slash + file.removeprefix(OPEN_PREFIX)


def _at_uri(uri: str) -> Iterator[FileStatus]:
    """Yield the files below ``uri``, without those of an earlier audit."""
    files = [FileStatus(*each) for each in files_below(uri)]
    folders: dict[str, set[str]] = {}
    for each in files:
        folder, _, file = each.path.rpartition("/")
        folders.setdefault(folder, set()).add(file)
    audits = tuple(f"{folder}/" for folder, names in folders.items() if folder and names >= AUDIT_OUTPUT)
    yield from (each for each in files if not each.path.startswith(audits))


def _below(directory: str) -> Iterator[FileStatus | Unread]:
    """Yield each regular file below ``directory``, and an Unread for each entry that cannot be read."""
    seen: set[tuple[int, int]] = set()
    folders = [""]
    while folders:
        folder = folders.pop()
        here = os.path.join(directory, folder)
        try:
            status = os.stat(here)
            with os.scandir(here) as opened:
                entries = sorted(opened, key=lambda each: each.name)
        except OSError as error:
            if not folder:
                raise
            yield Unread(folder, error.strerror or "it cannot be listed")
            continue
        if (status.st_dev, status.st_ino) in seen:
            continue
        seen.add((status.st_dev, status.st_ino))
        if {entry.name for entry in entries} >= AUDIT_OUTPUT:
            continue  # the output of an earlier audit
        for entry in entries:
            found = _entry(f"{folder}/{entry.name}" if folder else entry.name, entry)
            if isinstance(found, str):
                folders.append(found)
            elif found is not None:
                yield found


def _entry(path: str, entry: os.DirEntry[str]) -> FileStatus | Unread | str | None:
    """The entry of a folder; its path if it is a folder itself, None if it is gone."""
    try:
        status = entry.stat()
    except FileNotFoundError:
        # renamed since the listing, as a journal is when it is closed, unless it is a link
        return Unread(path, "a dangling link") if entry.is_symlink() else None
    except OSError as error:
        return Unread(path, error.strerror or "its status cannot be read")
    if stat.S_ISDIR(status.st_mode):
        return path
    if stat.S_ISREG(status.st_mode):
        return FileStatus(path, status.st_size, status.st_mtime_ns)
    return Unread(path, "not a regular file")


def _why_unread(directory: str, path: str) -> str | None:
    """The reason to report a file that may be a journal; None for text that is not JSON, and hidden files."""
    file_name = path.rpartition("/")[2]
    if PLAIN in file_name.lower():
        return "its name does not end in .jsonl or .jsonl.gz"
    if file_name.startswith("."):
        return None
    try:
        with open_plain(directory, path) as file:
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
