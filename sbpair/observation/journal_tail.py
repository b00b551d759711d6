"""What was written to a directory of journals since somebody last looked?

Who looks for the first time begins near the end of each file; a file that is renamed when it is complete
stays the same file.
"""

from __future__ import annotations

import json
from pathlib import Path

from .journal_file import OPEN_PREFIX
from .journal_reading import journal_files
from .record import Record

FIRST_LOOK = 4 * 1024 * 1024  # bytes of each file that was there before
ONE_LOOK = 8 * 1024 * 1024  # bytes of each file at a time; the rest is for the next look


class JournalTail:
    """The journals of ``directory``, which may come later; not thread-safe."""

    def __init__(self, directory: str | Path) -> None:
        self._directory = Path(directory)
        self._read: dict[str, int] = {}  # by the name that the file has, or will have

    def new_records(self) -> list[Record]:
        """The records that came since the last call, each once; of a file that cannot be read, none."""
        found: list[Record] = []
        for path in journal_files(self._directory, with_open=True):
            try:
                found += self._new_of(path)
            except OSError:
                continue  # renamed just now: next time
        return found

    def _new_of(self, path: Path) -> list[Record]:
        name = path.name.removeprefix(OPEN_PREFIX)
        with path.open("rb") as file:
            if name not in self._read:
                size = path.stat().st_size
                self._read[name] = max(0, size - FIRST_LOOK)
                file.seek(self._read[name])
                if self._read[name]:
                    self._read[name] += len(file.readline())  # half a line
            file.seek(self._read[name])
            data = file.read(ONE_LOOK)
        whole = data[: data.rfind(b"\n") + 1]
        self._read[name] += len(whole)
        return [record for line in whole.splitlines() if (record := _record(line)) is not None]


def _record(line: bytes) -> Record | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
