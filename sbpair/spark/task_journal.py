"""The journal of one task: as long as the task, so that it is whole when the task was.

Workers are ended by Spark without a word, so a journal as long as a worker would never have its last record.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING

from sbpair.observation import Journal, PairLabels, Role
from sbpair.observation.attach import Source, attach
from sbpair.pairing.names import namespace_label

if TYPE_CHECKING:
    from .given import Given
    from .reach import PairReach


def directory_of(given: Given) -> str | None:
    """The option ``journal``. Raises ValueError: tasks run in directories of their own."""
    journal = given.text("journal")
    if journal is not None and not os.path.isabs(journal):
        raise given.wrong("journal must be an absolute path: tasks run in directories of their own")
    return journal


def keep(stack: ExitStack, directory: str, role: Role, pair: PairReach, source: Source) -> Journal:
    """A journal of what ``source`` tells, closed when ``stack`` ends."""
    primary = pair.primary_namespace_name or pair.primary.label
    labels = PairLabels(namespace_label(primary), pair.secondary.label)
    journal = stack.enter_context(Journal(directory, role=role, pair=labels))
    stack.callback(attach(source, journal))
    return journal
