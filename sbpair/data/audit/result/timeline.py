"""The timeline of each entity: suspect, failed over, recovered.

State changes are few, so they are collected and combined in the order of each writer's ordinals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

STATE_CHANGES = ("entity_suspected", "entity_failed_over", "entity_recovered")
MAX_CAUSE_LENGTH = 200  # characters


@dataclass(frozen=True, slots=True)
class Episode:
    """One failover of one entity in one process, or a suspicion that ended without one.

    A time is None if the state change is not in the journal.
    """

    primary: str
    path: str
    writer: str
    suspected_at: datetime | None
    failed_over_at: datetime | None
    recovered_at: datetime | None
    cause: str


@dataclass(frozen=True, slots=True)
class StateEvent:
    """One state change of an entity."""

    primary: str
    path: str
    writer: str
    event: str
    at: datetime
    cause: str


def timeline(changes: Iterable[StateEvent]) -> list[Episode]:
    """The episodes, by start time."""
    return sorted(_episodes(changes), key=_start)


def _start(episode: Episode) -> datetime:
    began = episode.suspected_at or episode.failed_over_at or episode.recovered_at
    assert began is not None  # noqa: S101  (every episode has an event)
    return began


def _episodes(changes: Iterable[StateEvent]) -> Iterator[Episode]:
    unfinished: dict[tuple[str, str, str], Episode] = {}
    for each in changes:
        key = (each.writer, each.primary, each.path.lower())
        episode = unfinished.pop(key, None) or Episode(
            each.primary, each.path, each.writer, None, None, None, each.cause[:MAX_CAUSE_LENGTH]
        )
        match each.event:
            case "entity_suspected":
                unfinished[key] = replace(episode, suspected_at=each.at)
            case "entity_failed_over":
                unfinished[key] = replace(episode, failed_over_at=each.at)
            case _:
                yield replace(episode, recovered_at=each.at)
    yield from unfinished.values()
