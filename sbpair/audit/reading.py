"""The first step of an audit: journals are read, and become facts and mentions by message id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from .columns import LINE_CHECKSUM, arrow_schema
from .engine import Packet, TaskResult
from .facts import Facts, facts
from .journal_files import FileRange, nothing, pack, ranges, whole_lines
from .journal_lines import batches, unread_rows
from .journal_listing import Unread, list_files
from .mentions import block, mentions
from .packets import join, scatter

READ = (
    "ahead", "ambiguous", "at", "backlog", "backlog_queue", "cause", "checksum", "completed", "count", "dead_lettered",
    "event", "how", "is_last", "lost", "message_id", "message_ids", "mono", "ordinal", "pair",
    "path", "reason", "receives", "released", "stored_in", "role", "sequence_numbers", "session_id",
    "session_ids", "side", "writer",
)  # fmt: skip
"""The columns of a journal that an audit needs."""

SCHEMA = arrow_schema(READ).append(pa.field(LINE_CHECKSUM, pa.int64()))

TASK_BYTES = 32 * 1024 * 1024  # of journals per task, at least
PART_BYTES = 64 * 1024 * 1024  # of journals per part of the messages, at least
MAX_BYTES = 128 * 1024 * 1024  # of journals per task or part, as long as there are few parts
SHARES = 32  # tasks or parts, before they grow: Spark spends some time on each, however small
MAX_PARTS = 2000


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """The plan: the ranges of files for each task, their size, and the files that are not read."""

    tasks: list[tuple[FileRange, ...]]
    size: int
    unread: tuple[Unread, ...]
    directory: str = ""  # where the journals are

    @property
    def parts(self) -> int:
        """The number of parts that the messages are divided into; each is folded in memory."""
        return min(MAX_PARTS, 1 + self.size // _share(self.size, PART_BYTES))


def plan(directory: str) -> ReadPlan:
    """Plan the reading of the journals below ``directory``. Raises OSError when it cannot be listed."""
    available = whole_lines(directory)
    empty = (Unread(name, "it has no complete line") for name, end in available.items() if not end)
    most = _share(sum(available.values()), TASK_BYTES)
    tasks = [tuple(each) for each in pack(ranges(directory, nothing, available, most), most)]
    size = sum(each.end - each.start for task in tasks for each in task)
    return ReadPlan(tasks, size, (*list_files(directory).unread, *empty), directory)


def _share(size: int, least: int) -> int:
    """The bytes of a task or part when there are ``size`` bytes of journals."""
    return max(least, min(size // SHARES, MAX_BYTES))


@dataclass(frozen=True, slots=True)
class Read:
    """The work of a task: returns the Facts of its files, and packets of mentions."""

    parts: int

    def __call__(self, pieces: Sequence[FileRange]) -> Iterator[TaskResult | Packet]:
        schema, found, several = SCHEMA, Facts(), []
        for piece in pieces:
            for rows in batches(piece, schema):
                each = block(rows)
                found.add(facts(each, piece.name))
                several.append(mentions(each))
        yield TaskResult(found)
        if several:
            yield from (Packet(part, content) for part, content in scatter(join(several), self.parts))


def facts_of_unread(files: Sequence[Unread]) -> Facts:
    """The facts of files that are not read."""
    return facts(block(unread_rows(files, SCHEMA)), "") if files else Facts()
