"""The names of everything that a run creates; leftovers are found by them."""

from __future__ import annotations

from uuid import uuid4

PREFIX = "sbpair-verify-"


def new_run() -> str:
    """Return the id of a new run: eight hexadecimal digits."""
    return uuid4().hex[:8]


def name_of(run: str, entry_id: str, label: str) -> str:
    """Return the name of an entity of an entry; ``label`` may have slashes."""
    return f"{PREFIX}{run}-{entry_id}-{label}"


def is_ours(name: str, run: str | None = None) -> bool:
    """Whether a run created the entity or message of this name; with ``run``, whether this run did."""
    return name.startswith(PREFIX if run is None else f"{PREFIX}{run}-")
