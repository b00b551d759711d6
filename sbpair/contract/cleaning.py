"""Finding and deleting what runs left behind, by the prefix of its name. Blocking."""

from __future__ import annotations

from dataclasses import dataclass

from .administration import delete, left_behind
from .entry import Entity
from .target import Target


@dataclass(frozen=True, slots=True)
class Leftover:
    """A queue or topic that a run created."""

    entity: Entity
    name: str


def leftovers(target: Target, run: str | None = None) -> list[Leftover]:
    """What runs, or this one, left in a namespace. Raises AzureError."""
    with target.administration() as administration:
        return [Leftover(entity, name) for entity, name in left_behind(administration, run)]


def clean(target: Target, found: list[Leftover]) -> None:
    """Delete them. Raises AzureError."""
    if found:
        with target.administration() as administration:
            for each in found:
                delete(administration, each.entity, each.name)
