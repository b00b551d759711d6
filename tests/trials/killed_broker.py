"""`sbpair broker`, which kills itself at a chosen step of its nth commit.

python -m tests.trials.killed_broker STEP NTH broker --data DIR ...

begin          before anything of it is written (B1)      rows       before its first row
commit         before it is committed (B2)                committed  behind it, before it is answered (B4)
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
from typing import Any

STEPS = ("begin", "rows", "commit", "committed")


def killing(step: str, nth: int) -> type[sqlite3.Connection]:
    """A connection on which the ``nth`` transaction ends with the process, at ``step``."""

    class Killing(sqlite3.Connection):
        begun = 0

        def execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
            self.begun += statement == "BEGIN IMMEDIATE"
            self._die(statement == "BEGIN IMMEDIATE" and step == "begin")
            self._die(statement == "COMMIT" and step == "commit")
            cursor = super().execute(statement, *values)
            self._die(statement == "COMMIT" and step == "committed")
            return cursor

        def executemany(self, *arguments: Any) -> sqlite3.Cursor:
            self._die(step == "rows")
            return super().executemany(*arguments)

        def _die(self, is_there: bool) -> None:
            if is_there and self.begun >= nth:
                os.kill(os.getpid(), signal.SIGKILL)

    return Killing


def main() -> None:
    step, nth, *arguments = sys.argv[1:]
    connect, kind = sqlite3.connect, killing(step, int(nth))

    def connect_to_die(*args: Any, **settings: Any) -> sqlite3.Connection:
        return connect(*args, factory=kind, **settings)

    sqlite3.connect = connect_to_die  # type: ignore[assignment]
    sys.argv[1:] = arguments
    from sbpair.pair.cli.__main__ import main as run

    run()


if __name__ == "__main__":
    main()
