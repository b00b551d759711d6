"""The audit journal of one namespace: writes the recorded events to journal files.

Events of a few milliseconds are written together: a line for each message would cost half as much as the message
itself. A broker that is killed may therefore not have written its last events. Its journal then lacks the closing
record, and an event missing from it proves nothing. With a store, events reach the disk before any answer leaves. A
broker that is stopped and started again is a new writer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from sbpair.pair.observation.journal import Journal
from sbpair.pair.observation.journal_reading import JournalError
from sbpair.pair.observation.record import PairLabels, WriterRole

from ..entities.audit_recorder import AuditRecorder
from ..errors import BrokerError
from ..frontends.rule_form import AmqpPropertyCodec

BATCH_DELAY = 0.02  # seconds


class AuditWriter:
    """Writes what happens to each message of the namespace ``name`` to journal files in ``directory``."""

    def __init__(self, directory: Path, name: str) -> None:
        self.recorder = AuditRecorder(AmqpPropertyCodec())
        self._directory = directory
        self._pair = PairLabels(name, "")
        self._journal: Journal | None = None
        self._soon: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start a journal. Raises BrokerError when it cannot be written."""
        try:
            self._journal = Journal(self._directory, role=WriterRole.BROKER, pair=self._pair)
        except JournalError as error:
            raise BrokerError(str(error)) from error

    def write_soon(self, is_early: Callable[[], bool]) -> None:
        """Write pending events after BATCH_DELAY seconds.

        Writes nothing if ``is_early()`` returns True at that time (their changes are not on disk yet): call again.
        """
        if self._soon is None and self._journal is not None and not self.recorder.is_empty:
            self._soon = asyncio.get_running_loop().call_later(BATCH_DELAY, self._delay_passed, is_early)

    def _delay_passed(self, is_early: Callable[[], bool]) -> None:
        self._soon = None
        if not is_early():
            self.write()

    def write(self) -> None:
        """Write all pending events. Never raises: the journal reports its own failures."""
        if self.recorder.is_empty or self._journal is None:
            return
        for event in self.recorder.take():
            self._journal.write(event)

    def close(self) -> None:
        """Write pending events and close the journal with its last record."""
        self.write()
        journal = self._end()
        if journal is not None:
            journal.close()

    def abandon(self) -> None:
        """Close the journal without its last record, because the outcome of the last commit is unknown."""
        self.recorder.take()
        journal = self._end()
        if journal is not None:
            journal.abandon()

    def _end(self) -> Journal | None:
        if self._soon is not None:
            self._soon.cancel()
        journal, self._journal, self._soon = self._journal, None, None
        return journal
