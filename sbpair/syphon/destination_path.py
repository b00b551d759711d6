"""May the syphon send to the path a parked message names?

Whoever may send to a backlog queue could otherwise make the syphon, which may send to everything on the
primary, deliver anywhere: so a path is looked at before it is used (F-74). Nothing here does I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from sbpair.pairing.names import TRANSFER_SEGMENT

MAX_PATH_LENGTH = 260  # the service's limit on an entity path
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\?#%@:*<>|\"]")
_SUBSCRIPTIONS = "subscriptions"


def _has_odd_segment(path: str) -> bool:
    return any(segment in ("", ".", "..") for segment in path.split("/"))


def _is_reserved(path: str) -> bool:
    segments = path.lower().split("/")
    return any(segment.startswith("$") for segment in segments) or _SUBSCRIPTIONS in segments[1:]


def _is_backlog(path: str) -> bool:
    return TRANSFER_SEGMENT in path.lower().split("/")


_RULES: tuple[tuple[Callable[[str], object], str], ...] = (
    (lambda path: not path, "it is empty"),
    (lambda path: len(path) > MAX_PATH_LENGTH, f"it is longer than {MAX_PATH_LENGTH} characters"),
    (lambda path: "://" in path, "it is an absolute address"),
    (_FORBIDDEN.search, "it holds a character no entity path may hold"),
    (_has_odd_segment, "one of its segments is empty, '.' or '..'"),
    (_is_reserved, "it names a reserved or subordinate entity"),
    (_is_backlog, "it is a backlog queue"),
)


@lru_cache(maxsize=4096)  # many messages, few paths
def path_refusal(path: str) -> str | None:
    """Why ``path`` must not be sent to, or None when it may be (F-74)."""
    return next((why for breaks, why in _RULES if breaks(path)), None)
