"""The files to read, each journal once, with the directory's information about them.

    sender-a-000001.jsonl, old/sender-a-000001.jsonl     one file: its name has writer and number; the copy is reported
    sender-a-000001.jsonl, sender-a-000001.jsonl.gz      one file, if the first is whole
    _open-sender-a-000002.jsonl                          its writer is writing, or was killed

A writer gives its file the closed name after the closing record. So a file with a closed name but without that record
was cut, and one with anything after that record was changed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sbpair.pair.observation.journal_reading import OPEN_PREFIX

from ..read.journal_files import LineEnds
from ..read.journal_listing import FileStatus, Unread, is_gzipped, list_files, plain_of

EMPTY = "it has no complete line"
_OF_JOURNAL = re.compile(r"[a-z]+-.+-\d+\.jsonl")


@dataclass(frozen=True, slots=True)
class SurveyedFile:
    """A file of a journal. ``name`` is its path below the directory, as a closed file."""

    name: str
    end: int  # of its complete lines, in bytes; of a compressed file, its size
    size: int
    changed_at: int
    is_open: bool
    packed: str = ""  # the compressed file of the same name beside it

    @property
    def has_tail(self) -> bool:
        """Whether something follows the last complete line."""
        return self.size > self.end


@dataclass(frozen=True, slots=True)
class Survey:
    """The files by :func:`key_of`, and those that may be journals but are not read."""

    files: dict[str, SurveyedFile]
    unread: tuple[Unread, ...]

    @property
    def ends(self) -> dict[str, int]:
        """The ends by name."""
        return {each.name: each.end for each in self.files.values()}


def key_of(name: str) -> str:
    """The identity of a file: a journal's name in any folder, compressed or not; the path of any other."""
    plain = plain_of(name)
    file = plain.rpartition("/")[2]
    return file if _OF_JOURNAL.fullmatch(file) else plain


def survey(directory: str) -> Survey:
    """List ``directory``, and find the ends of its journals. Raises OSError when it cannot be listed."""
    listing = list_files(directory)
    ends = LineEnds(directory).ends_of(listing.journals)
    files: dict[str, SurveyedFile] = {}
    unread = list(listing.unread)
    for name, status in sorted(listing.journals.items(), key=lambda each: (-each[1].size, each[0])):
        if not ends[name]:
            unread.append(Unread(name, EMPTY))
        elif (key := key_of(name)) in files:
            unread.append(Unread(name, f"a file of this name was read: {files[key].name}"))
        else:
            packed = f"{name}.gz" if f"{name}.gz" in listing.packed else ""
            files[key] = _surveyed(name, ends[name], status, packed)
    unread.sort(key=lambda each: each.name)
    return Survey(dict(sorted(files.items())), tuple(unread))


def _surveyed(name: str, end: int, status: FileStatus, packed: str) -> SurveyedFile:
    is_open = status.path.rpartition("/")[2].startswith(OPEN_PREFIX)
    size = end if is_gzipped(name) else status.size
    return SurveyedFile(name, end, size, status.changed_at, is_open, packed)
