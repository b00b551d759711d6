"""A directory whose files are replaced together: a run that is killed leaves the old ones or, once repeated, the new.

DIR/_next/...      written first
DIR/_next/COMMIT   then this: from here on the files are moved into place, by the next run if need be
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEXT, COMMIT, LOCK = "_next", "COMMIT", "_lock"


class StateInUse(ValueError):
    """Another run is using the directory, or nothing can keep it away."""


class StateFolder:
    """The files of the daily audit below ``path``. Use only within :meth:`held`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path / NEXT
        self._gone: list[str] = []

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the directory, and finish or undo what a killed run left.

        Raises StateInUse, also on Windows, and OSError.
        """
        if sys.platform == "win32":
            raise StateInUse("a daily audit keeps no state on Windows, where nothing locks its directory")
        import fcntl  # late: the other audit also runs on systems without it

        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StateInUse(f"another audit is using {self.path}") from error
            if (self._next / COMMIT).exists():
                self._move()
            shutil.rmtree(self._next, ignore_errors=True)
            self._next.mkdir()
            yield
            shutil.rmtree(self._next, ignore_errors=True)

    def others(self) -> list[str]:
        """The names of files and folders that are not the lock, nor being written."""
        return sorted(path.name for path in self.path.iterdir() if path.name not in (NEXT, LOCK))

    def staged(self, name: str) -> Path:
        """Where to write the new file ``name``."""
        found = self._next / name
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def remove(self, name: str) -> None:
        """Remove the file ``name`` with the commit, if it exists."""
        self._gone.append(name)

    def commit(self) -> None:
        """Replace the files by the staged ones."""
        for file in self._files():
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        draft = self._next / "draft"
        draft.write_text(json.dumps(self._gone), "utf-8")
        draft.rename(self._next / COMMIT)
        self._gone = []
        self._move()

    def _files(self) -> list[Path]:
        return sorted(path for path in self._next.rglob("*") if path.is_file() and path.name != COMMIT)

    def _move(self) -> None:
        for name in json.loads((self._next / COMMIT).read_text("utf-8")):
            (self.path / name).unlink(missing_ok=True)
        for file in self._files():
            target = self.path / file.relative_to(self._next)
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
        (self._next / COMMIT).unlink()
