"""The entities for which a side accepted the syphon, which tell a refused key from one path that it does not cover.

What a key covers cannot be asked for, and senders choose the paths of parked messages: anyone with the Send right on
one backlog can invent some. The refusal of a path that was never accepted is therefore that path's alone.
"""

from __future__ import annotations

from sbpair.pair.envelope.names import path_key

MAX_OWN = 64  # paths


class OwnPaths:
    """The paths that the primary has accepted, the latest last. Pure."""

    def __init__(self) -> None:
        self.is_for_namespace = False
        """Whether the key was accepted for the whole namespace at the last connection."""
        self._paths: dict[str, str] = {}  # by key
        self._refused: set[str] = set()  # keys of those that were refused since

    @property
    def paths(self) -> tuple[str, ...]:
        """At most ``MAX_OWN`` paths that were accepted, the latest first."""
        return tuple(reversed(self._paths.values()))

    def accepted(self, path: str) -> None:
        """Record that a claim or a link for ``path`` was accepted."""
        key = path_key(path)
        self._refused.discard(key)
        self._paths.pop(key, None)
        self._paths[key] = path
        if len(self._paths) > MAX_OWN:
            oldest = next(iter(self._paths))
            del self._paths[oldest]
            self._refused.discard(oldest)

    def note_refusal(self, path: str, *, others_are_open: bool) -> bool:
        """Record that a link to ``path`` was refused; return whether the side refuses the syphon as a whole.

        That is so when it accepted no path so far or ``path`` itself, and no link to another is open; with a key that
        is not for the namespace, only when each path that it accepted has been refused since.
        """
        key = path_key(path)
        is_own = key in self._paths
        if is_own:
            self._refused.add(key)
        if others_are_open or (self._paths and not is_own):
            return False
        return self.is_for_namespace or len(self._refused) == len(self._paths)
