"""The timeline of each entity: suspect, failed over, recovered.

The story of one writer in the order of its ordinals: few rows, told in Python.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from .clocks import micros, moment

STORY = ("entity_suspected", "entity_failed_over", "entity_recovered")
LONGEST_CAUSE = 200  # characters


@dataclass(frozen=True, slots=True)
class Episode:
    """One failover, or a suspicion that came to nothing, of one entity in one process.

    An instant is None when it did not come while the journal was written.
    """

    primary: str
    path: str
    writer: str
    suspected_at: datetime | None
    failed_over_at: datetime | None
    recovered_at: datetime | None
    cause: str


@dataclass(frozen=True, slots=True)
class Told:
    """One event of the story."""

    primary: str
    path: str
    writer: str
    event: str
    at: datetime
    cause: str


def told(events: DataFrame) -> list[Told]:
    """The events of the story, in the order of each writer."""
    rows = (
        events.where(F.col("event").isin(*STORY))
        .select(
            F.col("pair.primary").alias("primary"),
            "path",
            "writer",
            "ordinal",
            "event",
            micros("at"),
            "cause",
        )
        .orderBy("writer", "ordinal")
        .collect()
    )
    return [
        Told(row.primary, row.path, row.writer, row.event, moment(row.at), row.cause or "") for row in rows
    ]


def timeline(story: Iterable[Told]) -> list[Episode]:
    """The episodes, by when they began."""
    return sorted(_episodes(story), key=_begun)


def _begun(episode: Episode) -> datetime:
    began = episode.suspected_at or episode.failed_over_at or episode.recovered_at
    assert began is not None  # noqa: S101  (an episode begins with an event)
    return began


def _episodes(story: Iterable[Told]) -> Iterator[Episode]:
    under_way: dict[tuple[str, str, str], Episode] = {}
    for each in story:
        key = (each.writer, each.primary, each.path.lower())
        episode = under_way.pop(key, None) or Episode(
            each.primary, each.path, each.writer, None, None, None, each.cause[:LONGEST_CAUSE]
        )
        match each.event:
            case "entity_suspected":
                under_way[key] = replace(episode, suspected_at=each.at)
            case "entity_failed_over":
                under_way[key] = replace(episode, failed_over_at=each.at)
            case _:
                yield replace(episode, recovered_at=each.at)
    yield from under_way.values()
