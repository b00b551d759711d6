"""The first step of an audit: journals are read, and become facts and mentions by message id."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ..columns import LINE_CHECKSUM, arrow_schema
from ..engine import Packet, TaskResult
from ..result.survey import SurveyedFile, key_of, survey
from .facts import Facts, facts
from .journal_files import FileRange, nothing, pack, ranges
from .journal_lines import batches, unread_rows
from .journal_listing import Unread
from .mentions import block, mentions
from .packets import join, scatter

READ = (
    "ahead", "ambiguous", "at", "backlog", "backlog_queue", "cause", "checksum", "checksums", "completed", "count",
    "dead_lettered", "enqueued", "event", "how", "is_last", "lock_lost", "lost", "message_id", "message_ids", "mono",
    "ordinal", "pair", "path", "pending", "reason", "receives", "released", "stored_in", "role", "sequence_numbers",
    "session_id", "session_ids", "side", "writer",
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
    """The plan: the ranges of files for each task, their size, the files, and those that are not read."""

    tasks: list[tuple[FileRange, ...]]
    size: int
    files: Mapping[str, SurveyedFile]
    unread: tuple[Unread, ...]
    directory: str = ""  # where the journals are

    @property
    def parts(self) -> int:
        """The number of parts that the messages are divided into; each is folded in memory."""
        return min(MAX_PARTS, 1 + self.size // _share(self.size, PART_BYTES))


def plan(directory: str) -> ReadPlan:
    """Plan the reading of the journals below ``directory``. Raises OSError when it cannot be listed."""
    found = survey(directory)
    ends = found.ends
    most = _share(sum(ends.values()), TASK_BYTES)
    tasks = [tuple(each) for each in pack(ranges(directory, nothing, ends, most), most)]
    size = sum(each.end - each.start for task in tasks for each in task)
    return ReadPlan(tasks, size, found.files, found.unread, directory)


def _share(size: int, least: int) -> int:
    """The bytes of a task or part when there are ``size`` bytes of journals."""
    return max(least, min(size // SHARES, MAX_BYTES))


@dataclass(frozen=True, slots=True)
class Read:
    """The work of a task: returns the Facts of each file by its key, and packets of mentions."""

    parts: int

    def __call__(self, pieces: Sequence[FileRange]) -> Iterator[TaskResult | Packet]:
        schema, found, several = SCHEMA, defaultdict[str, Facts](Facts), []
        for piece in pieces:
            key = key_of(piece.name)
            for rows in batches(piece, schema):
                each = block(rows)
                found[key].add(facts(each, piece.name))
                several.append(mentions(each, key))
        yield TaskResult(dict(found))
        if several:
            yield from (Packet(part, content) for part, content in scatter(join(several), self.parts))


def facts_of_unread(files: Sequence[Unread]) -> Facts:
    """The facts of files that are not read."""
    return facts(block(unread_rows(files, SCHEMA)), "") if files else Facts()
