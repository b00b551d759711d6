"""Reading journals: one file, or the records added since the last call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .record import Record

OPEN_PREFIX = "_open-"
"""Marks the names of files being written. Readers such as Spark skip names with a leading underscore."""

INITIAL_BYTES = 4 * 1024 * 1024  # read from the end of each file that exists at the first call
MAX_BYTES_PER_CALL = 8 * 1024 * 1024  # per file; the rest is left for the next call


class JournalError(ValueError):
    """A journal cannot be opened, or a file is not a journal file."""


def journal_files(directory: str | Path, *, with_open: bool = False) -> list[Path]:
    """Return the closed files of a directory, each writer's in order; ``with_open`` adds those being written."""
    found = Path(directory).glob("*.jsonl")
    is_wanted = (path for path in found if with_open or not path.name.startswith(OPEN_PREFIX))
    return sorted(is_wanted, key=lambda path: path.name.removeprefix(OPEN_PREFIX))


def read(path: str | Path) -> Iterator[Record]:
    """Iterate over the records of one file, open or closed. Skips a torn last line, which a killed writer leaves.

    Raises JournalError, naming file and line, for any other malformed line.
    """
    with Path(path).open("rb") as file:
        torn: int | None = None
        for number, line in enumerate(file, 1):
            if torn is not None:
                raise JournalError(f"{path}, line {torn}: not a record")
            record = _parse(line)
            if record is None:
                torn = number
            else:
                yield record


class JournalTail:
    """Follows the journals of ``directory``, which need not exist yet. Not thread-safe.

    The first call begins near the end of each existing file. A file that is renamed when it is complete is not read
    again.
    """

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._read: dict[str, int] = {}  # final file name to bytes read

    def new_records(self) -> list[Record]:
        """Return the records added since the last call. Unreadable files are skipped."""
        found: list[Record] = []
        for path in journal_files(self._directory, with_open=True):
            try:
                found += self._new_of(path)
            except OSError:
                continue  # renamed meanwhile; read at the next call
        return found

    def _new_of(self, path: Path) -> list[Record]:
        name = path.name.removeprefix(OPEN_PREFIX)
        with path.open("rb") as file:
            if name not in self._read:
                size = path.stat().st_size
                self._read[name] = max(0, size - INITIAL_BYTES)
                file.seek(self._read[name])
                if self._read[name]:
                    self._read[name] += len(file.readline())  # a partial line
            file.seek(self._read[name])
            data = file.read(MAX_BYTES_PER_CALL)
        whole = data[: data.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        return [record for line in whole.splitlines(keepends=True) if (record := _parse(line)) is not None]


def _parse(line: bytes) -> Record | None:
    """Return the record of a line; None if the line is torn or malformed."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
