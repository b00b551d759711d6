"""Paths as labels of metrics, bounded where senders choose the paths."""

from __future__ import annotations

MAX_PATHS = 200  # with a label of their own
OTHERS = "(others)"  # no entity has this name


class PathLabels:
    """The label of each path: the path itself, or :data:`OTHERS` for those beyond ``MAX_PATHS``."""

    def __init__(self) -> None:
        self._paths: set[str] = set()

    def of(self, path: str) -> str:
        """Return the label of ``path``."""
        if path not in self._paths and len(self._paths) >= MAX_PATHS:
            return OTHERS
        self._paths.add(path)
        return path

    def forget(self, path: str) -> bool:
        """Forget a path that names no entity; return whether it had a label of its own."""
        had_one = path in self._paths
        self._paths.discard(path)
        return had_one
