"""The gauges of a syphon: the sides that refuse it, and what is in its backlogs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Protocol

from .metrics import Metrics

SIDES = ("primary", "secondary")


class Level(Protocol):
    """The messages waiting in one backlog."""

    @property
    def depth(self) -> int: ...

    def age(self, now: float) -> float:
        """Return the age of the oldest message in seconds; ``now`` in seconds since the epoch."""


class Shown(Protocol):
    """The state of a syphon, as shown by the gauges."""

    @property
    def refusals(self) -> Mapping[str, str]: ...

    @property
    def levels(self) -> Mapping[str, Level]: ...

    @property
    def backlogs(self) -> tuple[str, ...]: ...

    @property
    def missing_backlogs(self) -> set[str]: ...

    @property
    def dead_letters(self) -> Mapping[str, int]: ...

    @property
    def stranded(self) -> Mapping[str, bool]: ...

    @property
    def untransferred(self) -> Mapping[str, int]: ...

    @property
    def paces(self) -> Mapping[tuple[str, ...], float]: ...


def show_syphon(metrics: Metrics, syphon: Shown) -> None:
    """Add gauges for the sides that refuse ``syphon`` and for the messages in its backlogs."""

    def refusals() -> dict[str, float]:
        return {side: float(side in syphon.refusals) for side in SIDES}

    def depths() -> dict[str, float]:
        return {backlog: float(level.depth) for backlog, level in syphon.levels.items()}

    def ages() -> dict[str, float]:
        now = time.time()
        return {backlog: level.age(now) for backlog, level in syphon.levels.items()}

    def missing() -> dict[str, float]:
        return {backlog: float(backlog in syphon.missing_backlogs) for backlog in syphon.backlogs}

    def dead_letters() -> dict[str, float]:
        return {backlog: float(count) for backlog, count in syphon.dead_letters.items()}

    def stranded_backlogs() -> dict[str, float]:
        return {backlog: float(holds) for backlog, holds in syphon.stranded.items()}

    def untransferred_counts() -> dict[str, float]:
        return {backlog: float(count) for backlog, count in syphon.untransferred.items()}

    for name, read in (
        ("side_refused", refusals),
        ("backlog_depth", depths),
        ("backlog_oldest_seconds", ages),
        ("backlog_missing", missing),
        ("backlog_dead_letters", dead_letters),
        ("backlog_stranded", stranded_backlogs),
        ("backlog_untransferred", untransferred_counts),
    ):
        metrics.read_gauge(f"sbpair_syphon_{name}", read)
    metrics.read_gauge("sbpair_syphon_pace", lambda: syphon.paces)
