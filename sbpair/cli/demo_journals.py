"""Who writes journals in the demo, when asked to? Sender, syphon and receiver, each its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from sbpair.cli.demo_stage import PRIMARY_NAME, SECONDARY_NAME
from sbpair.cli.errors import CommandError
from sbpair.cli.exit_codes import ExitCode

if TYPE_CHECKING:
    from sbpair.observation import Role

Write = Callable[[object], None]


class Journals:
    """The journals of one story, closed with ``pieces``; without a directory, nothing is written."""

    def __init__(self, directory: Path | None, pieces: ExitStack) -> None:
        self._directory = directory
        self._pieces = pieces

    @property
    def is_wanted(self) -> bool:
        return self._directory is not None

    def of(self, role: Role) -> Write:
        """What writes an event into a new journal. Raises CommandError when the directory cannot be used."""
        if self._directory is None:
            return lambda event: None
        from sbpair.observation import Journal, JournalError, PairLabels

        try:
            journal = Journal(self._directory, role=role, pair=PairLabels(PRIMARY_NAME, SECONDARY_NAME))
        except JournalError as error:
            raise CommandError(str(error), ExitCode.CONFIGURATION) from error
        return self._pieces.enter_context(journal).write
