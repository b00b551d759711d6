"""The journal of one namespace: what its witness saw, in the files of an audit.

What happens within a few milliseconds is written together: a line for each message would cost the broker
half as much again as the message itself. So a broker that is killed may not have told its last moment, and
its journal, which has no last record then, proves nothing by its silence. With a store, what is told is on
the disk before. A broker that was stopped and is started again is another writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sbpair.observation import Journal, JournalError, PairLabels, Role

from ..entities.witness import Witness
from ..errors import BrokerError
from ..faces.rule_form import RuleForm

TOGETHER = 0.02  # seconds


class Chronicle:
    """What becomes of each message of the namespace ``name``, written to ``directory``."""

    def __init__(self, directory: Path, name: str) -> None:
        self.witness = Witness(RuleForm())
        self._directory = directory
        self._pair = PairLabels(name, "")
        self._journal: Journal | None = None
        self._soon: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin a journal. Raises BrokerError where none can be written."""
        try:
            self._journal = Journal(self._directory, role=Role.BROKER, pair=self._pair)
        except JournalError as error:
            raise BrokerError(str(error)) from error

    def write_soon(self, is_early: Callable[[], bool]) -> None:
        """Write what happened in a moment; not while it ``is_early``: whoever says so asks again."""
        if self._soon is None and self._journal is not None and not self.witness.is_empty:
            self._soon = asyncio.get_running_loop().call_later(TOGETHER, self._moment_passed, is_early)

    def _moment_passed(self, is_early: Callable[[], bool]) -> None:
        self._soon = None
        if not is_early():
            self.write()

    def write(self) -> None:
        """Have written what happened since the last time. Never raises: what fails, the journal tells."""
        if self.witness.is_empty or self._journal is None:
            return
        for event in self.witness.take():
            self._journal.write(event)

    def close(self) -> None:
        """End it, whole."""
        self.write()
        journal = self._end()
        if journal is not None:
            journal.close()

    def forsake(self) -> None:
        """End it without its last record: what the store did last is not known."""
        self.witness.take()
        journal = self._end()
        if journal is not None:
            journal.forsake()

    def _end(self) -> Journal | None:
        if self._soon is not None:
            self._soon.cancel()
        journal, self._journal, self._soon = self._journal, None, None
        return journal
