"""State of the daily audit between runs: facts, positions, and mentions of messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ..judge.folding import Found
from ..judge.grouping import Bools
from ..judge.order import SessionCounts
from ..read.facts import Facts
from ..read.mentions import Mentions
from ..read.packets import gather, scatter
from ..result.survey import SurveyedFile
from . import plain
from .state_folder import StateFolder

VERSION = 4
STATE, OPEN = "_state/state", "_state/open"
Hashes: TypeAlias = npt.NDArray[np.uint64]  # said to be one: without numpy, mypy would take it for a variable


@dataclass
class DayFound:
    """The findings about messages of one day.

    ``one_way``: by primary, the clock differences shown by messages that are recorded along their whole way.
    """

    found: Found = field(default_factory=Found)
    one_way: dict[str, dict[tuple[str, str], int]] = field(default_factory=dict)


@dataclass
class KnownFile:
    """A journal file as of its last reading, up to ``position``, and the facts in it."""

    seen: SurveyedFile
    position: int = 0
    facts: Facts = field(default_factory=Facts)


@dataclass
class State:
    """The state after a run.

    ``files`` has the known files by key (:func:`..survey.key_of`), ``forgotten`` reasons by key.
    """

    settings: tuple[object, ...]
    files: dict[str, KnownFile] = field(default_factory=dict)
    forgotten: dict[str, str] = field(default_factory=dict)
    shifts: Mapping[str, int] = field(default_factory=dict)
    quiet: set[str] = field(default_factory=set)  # primaries with messages that are settled as accepted
    days: set[int] = field(default_factory=set)  # with settled messages; days since the epoch
    open: dict[int, DayFound] = field(default_factory=dict)
    orders: set[int] = field(default_factory=set)  # days on which sessions began
    now: dict[int, DayFound] = field(default_factory=dict)  # settled in this run, by day
    version: int = VERSION


class ForeignStateError(ValueError):
    """This audit cannot continue with the directory."""


class StateFiles:
    """The files of the state."""

    def __init__(self, folder: StateFolder) -> None:
        self._folder = folder

    def state(self, settings: tuple[object, ...]) -> State:
        """The state of the last run; an empty one if there is none.

        Raises ForeignStateError for a state with other settings, of another version, or in a directory with other
        files.
        """
        path = self._folder.path
        if not self._folder.number:
            if others := self._folder.others():
                raise ForeignStateError(
                    f"{path} holds {others[0]!r}, which is not of a daily audit; choose another directory"
                )
            return State(settings)
        try:
            found = self._read(STATE)
        except ValueError as error:
            raise ForeignStateError(f"{path} holds a state that cannot be read: {error}") from error
        if not isinstance(found, State) or found.version != VERSION:
            raise ForeignStateError(
                f"{path} is of another version of sbpair; start anew in another directory"
            )
        if found.settings != settings:
            raise ForeignStateError(
                f"{path} is of an audit with another skew or other aliases; choose another directory"
            )
        return found

    def save(self, state: State) -> None:
        self._write(STATE, state)

    def open(self) -> Mentions | None:
        """The mentions of open messages."""
        return self._mentions(OPEN)

    def save_open(self, mentions: Mentions | None) -> None:
        self._save_mentions(OPEN, mentions)

    def has_any(self, day: int, ids: Hashes) -> bool:
        """Whether a message settled for ``day`` has an id with one of these hashes."""
        return bool(is_among(self._hashes(f"{_day(day)}/ids.npy"), ids).any())

    def settled_mentions(self, day: int) -> Mentions | None:
        return self._mentions(f"{_day(day)}/mentions")

    def day_found(self, day: int) -> DayFound:
        found = self._read(f"{_day(day)}/found")
        return found if isinstance(found, DayFound) else DayFound()

    def save_settled(self, day: int, mentions: Mentions | None, ids: Hashes, found: DayFound) -> None:
        self._save_mentions(f"{_day(day)}/mentions", mentions)
        np.save(self._folder.stage(f"{_day(day)}/ids.npy"), ids)
        self._write(f"{_day(day)}/found", found)

    def are_sessions_of(self, day: int, sessions: Hashes) -> Bools:
        """Return which of these sessions began on ``day``."""
        return is_among(self._hashes(f"{_sessions(day)}/sessions.npy"), sessions)

    def has_message_of_session(self, day: int, ids: Hashes) -> bool:
        """Whether a session that began on ``day`` has a message with one of these hashes."""
        return bool(is_among(self._hashes(f"{_sessions(day)}/ids.npy"), ids).any())

    def session_rows(self, day: int) -> pa.Table:
        """The messages of sessions that began on ``day``."""
        return pq.read_table(self._folder.current / f"{_sessions(day)}/rows.parquet")

    def save_session_rows(self, day: int, rows: pa.Table, sessions: Hashes, ids: Hashes) -> None:
        pq.write_table(rows, self._folder.stage(f"{_sessions(day)}/rows.parquet"))
        np.save(self._folder.stage(f"{_sessions(day)}/sessions.npy"), sessions)
        np.save(self._folder.stage(f"{_sessions(day)}/ids.npy"), ids)

    def session_counts(self, day: int) -> SessionCounts:
        found = self._read(f"{_sessions(day)}/counts")
        return found if isinstance(found, SessionCounts) else SessionCounts()

    def save_session_counts(self, day: int, counts: SessionCounts) -> None:
        self._write(f"{_sessions(day)}/counts", counts)

    def forget_sessions(self, day: int) -> None:
        for name in ("rows.parquet", "sessions.npy", "ids.npy", "counts"):
            self._folder.remove(f"{_sessions(day)}/{name}")

    def _hashes(self, name: str) -> Hashes:
        found: Hashes = np.load(self._folder.current / name, mmap_mode="r")
        return found

    def _mentions(self, name: str) -> Mentions | None:
        path = self._folder.current / name
        return gather(iter([path.read_bytes()])) if path.exists() else None

    def _save_mentions(self, name: str, mentions: Mentions | None) -> None:
        if mentions is None or not len(mentions.message):
            self._folder.remove(name)
            return
        for _, content in scatter(mentions, 1):
            self._folder.stage(name).write_bytes(content)

    def _read(self, name: str) -> object:
        path: Path = self._folder.current / name
        return plain.loads(path.read_bytes()) if path.exists() else None

    def _write(self, name: str, content: object) -> None:
        self._folder.stage(name).write_bytes(plain.dumps(content))


def _day(day: int) -> str:
    return f"_state/days/{day}"


def _sessions(day: int) -> str:
    return f"_state/sessions/{day}"


def is_among(known: Hashes, values: Hashes) -> Bools:
    """Which ``values`` are among ``known``, which is sorted."""
    if not len(known):
        return np.zeros(len(values), bool)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    found: Bools = known[places] == values
    return found
