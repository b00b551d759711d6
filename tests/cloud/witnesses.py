"""What recordings of the service say of the contract's entries."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path

from tests.cloud.exchanges import recordings
from tests.cloud.facts import facts
from tests.cloud.verified import runs

DATA = Path(__file__).parent / "witnesses.toml"


class Standing(StrEnum):
    """Whether a recording of the service says what an entry says."""

    WITNESSED = "witnessed"
    CONTRADICTED = "contradicted"
    UNSEEN = "no witness found"


@cache
def witnessed() -> Mapping[str, Sequence[str]]:
    """Return the facts, exchanges and runs that witness an entry, by its id."""
    published: Mapping[str, Sequence[str]] = tomllib.loads(DATA.read_text("utf-8"))["witnessed"]
    found = {entry: list(names) for entry, names in published.items()}
    for run in runs():
        for entry in run.with_verdict("holds"):
            found.setdefault(entry, []).append(run.label(entry))
    return found


@cache
def contradicted() -> Sequence[str]:
    """Return the entries that a recording contradicts."""
    found: Sequence[str] = tomllib.loads(DATA.read_text("utf-8"))["contradicted"]
    return [*found, *(entry for run in runs() for entry in run.with_verdict("differs"))]


def standing_of(entry: str) -> Standing:
    """Return the standing of an entry, by its id."""
    if entry in contradicted():
        return Standing.CONTRADICTED
    return Standing.WITNESSED if entry in witnessed() else Standing.UNSEEN


@cache
def sources() -> Mapping[str, tuple[str, str]]:
    """Return where each fact and exchange was published, and when it was recorded: a year or a day."""
    found = {each.id: (each.source, str(each.year)) for each in facts()}
    for recording in recordings():
        number = recording.name.partition(" ")[0]
        for step in range(len(recording.exchanges)):
            found[f"{number}#{step}"] = recording.source, recording.date
    for run in runs():
        for line in run.lines:
            found[run.label(line["entry"])] = run.source, run.date
    return found
