"""Finding and deleting what runs left behind, by the prefix of its name. Blocking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from sbpair.side import Side

from .administration import delete, left_behind
from .entry import Entity
from .target import Target


@dataclass(frozen=True, slots=True)
class Leftover:
    """A queue or topic that a run created."""

    side: Side
    entity: Entity
    name: str


def leftovers(targets: Mapping[Side, Target], run: str | None = None) -> list[Leftover]:
    """What runs, or this one, left in both namespaces. Raises AzureError."""
    found = []
    for side, target in targets.items():
        with target.administration() as administration:
            found += [Leftover(side, entity, name) for entity, name in left_behind(administration, run)]
    return found


def clean(targets: Mapping[Side, Target], found: Iterable[Leftover]) -> None:
    """Delete them. Raises AzureError."""
    for each in found:
        with targets[each.side].administration() as administration:
            delete(administration, each.entity, each.name)
