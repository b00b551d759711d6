"""How does somebody else read a journal?

By file, one record after another: closed files as they are, open ones up to the last whole line.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from .journal_file import OPEN_PREFIX
from .record import Record


class JournalError(ValueError):
    """A journal cannot be opened where it was told to, or a file is not one."""


def journal_files(directory: str | Path, *, with_open: bool = False) -> list[Path]:
    """The closed files of a journal's directory, in the order of each writer; the open ones too if asked."""
    found = Path(directory).glob("*.jsonl")
    is_wanted = (path for path in found if with_open or not path.name.startswith(OPEN_PREFIX))
    return sorted(is_wanted, key=lambda path: path.name.removeprefix(OPEN_PREFIX))


def read(path: str | Path) -> Iterator[Record]:
    """The records of one file, open or closed. A torn last line, of a writer that was killed, is left out.

    Raises JournalError, which names file and line, for any other line that is no record.
    """
    with Path(path).open("rb") as file:
        torn: int | None = None
        for number, line in enumerate(file, 1):
            if torn is not None:
                raise JournalError(f"{path}, line {torn}: not a record")
            record = _parsed(line)
            if record is None:
                torn = number
            else:
                yield record


def _parsed(line: bytes) -> Record | None:
    if not line.endswith(b"\n"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
