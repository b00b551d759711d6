"""A directory whose files are replaced together by one rename, so that readers see those of one run.

DIR/_versions/17   the files of the last run; unchanged ones are links to those of the run before
DIR/_versions/18   the files of a run in progress, or of one that was killed
DIR/current        a link to the last complete version; replacing it is the commit
DIR/current/changes.json  its number, and that of the run that last changed each table, or day of a table
"""

from __future__ import annotations

import filecmp
import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CURRENT, VERSIONS, DRAFT, LOCK = "current", "_versions", "_current", "_lock"
CHANGES, TABLE = "changes.json", ".parquet"


class StateInUseError(ValueError):
    """Another run is using the directory, or the directory cannot be locked."""


class StateFolder:
    """The files of the daily audit below ``path``. Use only within :meth:`held`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.current = path / CURRENT
        self.number = 0  # of the last complete version; 0 without one
        self._gone: set[str] = set()

    @property
    def _next(self) -> Path:
        return self.path / VERSIONS / str(self.number + 1)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Lock the directory, and remove all versions except the last complete one.

        Raises StateInUseError, also on Windows, and OSError.
        """
        if sys.platform == "win32":
            raise StateInUseError(
                "a daily audit keeps no state on Windows, where nothing locks its directory"
            )
        import fcntl  # late: the other audit also runs on systems without it

        (self.path / VERSIONS).mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise StateInUseError(f"another audit is using {self.path}") from error
            self.number = int(self.current.readlink().name) if self.current.is_symlink() else 0
            for each in (self.path / VERSIONS).iterdir():
                if each.name != str(self.number):
                    shutil.rmtree(each)
            self._next.mkdir()
            yield

    def others(self) -> list[str]:
        """The names of files and folders that were not created by a run."""
        ours = {VERSIONS, DRAFT, LOCK} | ({CURRENT} if self.current.is_symlink() else set())
        return sorted(path.name for path in self.path.iterdir() if path.name not in ours)

    def stage(self, name: str) -> Path:
        """Return the path at which to write the new file ``name``."""
        found = self._next / name
        found.parent.mkdir(parents=True, exist_ok=True)
        return found

    def remove(self, name: str) -> None:
        """Remove the file ``name`` with the commit, if it exists."""
        self._gone.add(name)

    def commit(self) -> None:
        """Replace the files by the staged ones."""
        before = {_name(file, self.current.resolve()): file for file in self._files_before()}
        staged = {_name(file, self._next): file for file in _files(self._next)}
        same = {
            name
            for name, file in staged.items()
            if name in before and filecmp.cmp(file, before[name], shallow=False)
        }
        self._tell({*staged, *(self._gone & before.keys())} - same)
        for file in _files(self._next):
            with file.open("rb") as opened:
                os.fsync(opened.fileno())
        for name in before.keys() - staged.keys() - self._gone - {CHANGES}:
            _link(self.stage(name), before[name])
        draft = self.path / DRAFT
        draft.unlink(missing_ok=True)
        draft.symlink_to(Path(VERSIONS, self._next.name))
        draft.replace(self.current)

    def _files_before(self) -> list[Path]:
        return _files(self.current.resolve()) if self.number else []

    def _tell(self, changed: set[str]) -> None:
        """Write which run last changed each table, or day of a table."""
        file = self.current / CHANGES
        tables = json.loads(file.read_text("utf-8"))["tables"] if self.number else {}
        for name in sorted(changed):
            folder, _, kind = name.rpartition("/")
            if kind.endswith(TABLE) and not folder.startswith("_"):
                table, _, day = folder.partition("/day=")
                tables.setdefault(table, {})[day] = self.number + 1
        told = json.dumps({"run": self.number + 1, "tables": tables}, separators=(",", ":"))
        self.stage(CHANGES).write_text(told + "\n", "utf-8")


def _name(file: Path, folder: Path) -> str:
    return file.relative_to(folder).as_posix()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _link(new: Path, old: Path) -> None:
    try:
        new.hardlink_to(old)
    except OSError:  # a file system without hard links
        shutil.copy2(old, new)
