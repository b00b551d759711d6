"""New journal lines since the last run, and earlier results that this run must revise.

    a file that grew                      read from the last position on
    the same file in another folder       recognised by its name: nothing is new
    a damaged file that was replaced      its mentions are removed, and it is read again
    a vanished copy, or other file        its mentions are removed
    a file to forget                      its mentions are removed; its writer lacks nothing but proves nothing

Journals that have vanished still count: they may be removed once they were read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..engine import Engine, Packet, TaskResult
from ..read.facts import Facts
from ..read.journal_files import FileRange, pack, ranges
from ..read.journal_listing import Unread, is_gzipped, plain_of
from ..read.mentions import Mentions
from ..read.packets import gather
from ..read.reading import TASK_BYTES, Read
from ..read.writers import NOT_MENDED, Run, WriterFacts, merge_runs
from ..result.survey import EMPTY, Survey, SurveyedFile, key_of, survey
from .kept import KnownFile, State

SHORTER = "it is shorter than it was when it was read"


class UnknownFileError(ValueError):
    """A file to forget was never read by this audit."""


@dataclass(frozen=True)
class Gathered:
    """The new mentions, the keys of files whose earlier mentions are removed, and the files that are not read."""

    mentions: list[Mentions]
    dropped: frozenset[str]
    unread: tuple[Unread, ...]


@dataclass
class Gathering:
    """Reads the journals for one run, and updates ``state.files``."""

    journal: str
    state: State
    engine: Engine
    _dropped: set[str] = field(default_factory=set)

    def gather(self, forget: tuple[str, ...], reason: str) -> Gathered:
        """Gather the new journal lines. Raises UnknownFileError, and OSError if the journals cannot be listed."""
        found = survey(self.journal)
        self._forget(forget, reason, found)
        troubled = self._troubled()
        self._take_back_gone(found)  # first, while the content that a copy repeats is still known
        self._take_back_replaced(found, troubled)
        mentions = self._read(found)
        shrunk = [
            Unread(file.name, SHORTER)
            for key, file in found.files.items()
            if not is_gzipped(file.name) and file.end < self._position(key)
        ]
        empty = [each for each in found.unread if each.reason == EMPTY and self._position(key_of(each.name))]
        shrunk += [Unread(each.name, SHORTER) for each in empty]
        unread = (*(each for each in found.unread if each not in empty), *shrunk)
        return Gathered(
            mentions,
            frozenset(self._dropped),
            tuple(each for each in unread if each.name not in self.state.forgotten),
        )

    def _position(self, key: str) -> int:
        known = self.state.files.get(key)
        return 0 if known is None else known.position

    def _forget(self, files: tuple[str, ...], reason: str, found: Survey) -> None:
        names = {*found.files, *self.state.files, *(each.name for each in found.unread)}
        for name in files:
            key = name if name in names else key_of(name)
            if key not in names:
                raise UnknownFileError(f"{name} is no file of these journals: nothing is forgotten")
            self.state.forgotten[key] = reason
            if key in self.state.files:
                known = self.state.files[key]
                self.state.files[key] = replace(known, facts=_pardoned(known.facts, reason))
                self._dropped.add(key)

    def _troubled(self) -> set[str]:
        """Return the writers whose journals have missing or damaged parts that another copy of a file could replace."""
        facts = facts_of_files(self.state.files)
        return {name for name, writer in facts.writers.items() if writer.reason in NOT_MENDED}

    def _take_back_replaced(self, found: Survey, troubled: set[str]) -> None:
        for key, file in found.files.items():
            known = self.state.files.get(key)
            if known is None or key in self.state.forgotten or not troubled & known.facts.writers.keys():
                continue
            if (file.size, file.changed_at) != (known.seen.size, known.seen.changed_at):
                self._drop(key)

    def _take_back_gone(self, found: Survey) -> None:
        for key in self.state.files.keys() - found.files.keys() - self.state.forgotten.keys():
            if self._is_of_no_use(key):
                self._drop(key)

    def _is_of_no_use(self, key: str) -> bool:
        """Whether every record in a file is also in other files of its writer."""
        others: dict[str, list[Run]] = {}
        for other, known in self.state.files.items():
            for name, writer in known.facts.writers.items() if other != key else ():
                others[name] = merge_runs((*others.get(name, ()), *writer.runs))
        own = self.state.files[key].facts.writers
        return all(
            any(one <= first and last <= end for one, end in others.get(name, ()))
            for name, writer in own.items()
            for first, last in writer.runs
        )

    def _drop(self, key: str) -> None:
        del self.state.files[key]
        self._dropped.add(key)

    def _read(self, found: Survey) -> list[Mentions]:
        wanted = {key: file for key, file in found.files.items() if key not in self.state.forgotten}
        tasks = [tuple(group) for group in pack(self._pieces(wanted), TASK_BYTES)]
        for key, file in wanted.items():
            known = self.state.files.setdefault(key, KnownFile(file))
            is_read = is_gzipped(file.name) or file.end >= known.position
            known.seen = file if is_read else replace(known.seen, name=file.name)
            known.position = max(file.end, known.position)
        mentions = []
        if tasks:
            read = self.engine.scatter(tasks, Read(1), 1)
            for of_files in read.answers():
                for key, facts in of_files.items():
                    facts.flows = {}
                    self.state.files[key].facts.add(facts)
            collected = read.regroup(_Collect())
            mentions = [each for content in collected.answers() if (each := gather(iter([content])))]
            collected.close()
            read.close()
        return mentions

    def _pieces(self, wanted: Mapping[str, SurveyedFile]) -> Iterator[FileRange]:
        """Yield the new content of these files; a compressed file continues where the uncompressed one ended."""
        reached: dict[str, int] = {}
        ends: dict[str, int] = {}
        for key, file in wanted.items():
            known = self.state.files.get(key)
            if known is not None and is_gzipped(file.name):
                if is_gzipped(known.seen.name):
                    continue
                reached[plain_of(file.name)] = known.position
            elif known is not None:
                if is_gzipped(known.seen.name):
                    continue  # unpacked since it was read
                reached[file.name] = known.position
            ends[file.name] = file.end
        return ranges(self.journal, reached.get, ends, TASK_BYTES)


@dataclass(frozen=True, slots=True)
class _Collect:
    """Passes the packets of a part on to the caller."""

    def __call__(self, part: int, packets: Iterator[bytes]) -> Iterator[TaskResult | Packet]:
        yield from map(TaskResult, packets)


def facts_of_files(files: Mapping[str, KnownFile]) -> Facts:
    """Return the facts of all files together."""
    found = Facts()
    for known in files.values():
        found.add(known.facts)
    found.hold_against({key: known.seen for key, known in files.items()})
    return found


def _pardoned(facts: Facts, reason: str) -> Facts:
    """Return only the fact that a file existed: its records do not count as missing, its writer proves nothing."""
    found = Facts()
    for name, each in facts.writers.items():
        if each.runs:
            runs = [(each.runs[0][0], each.runs[-1][1])]
            stub = WriterFacts(name, each.role, each.primary, each.first_at, each.last_at, runs)
            stub.lines, stub.has_end, stub.announced = stub.records, each.has_end, each.announced
            stub.sends, stub.file, stub.pardoned = each.sends, each.file, reason
            found.writers[name] = stub
    return found
