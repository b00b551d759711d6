"""Bring the parked messages home: from the backlogs on the secondary to their entities on the primary.

What opens connections is imported when it is first asked for: the options alone cost nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .counters import SyphonCounters, SyphonState, SyphonStatus
from .options import SyphonOptions

if TYPE_CHECKING:
    from .daemon import Syphon
    from .errors import ConnectionLost, LinkRefused, SyphonError, SyphonFaulted, TokenRefused

__all__ = [
    "ConnectionLost",
    "LinkRefused",
    "Syphon",
    "SyphonCounters",
    "SyphonError",
    "SyphonFaulted",
    "SyphonOptions",
    "SyphonState",
    "SyphonStatus",
    "TokenRefused",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import daemon, errors

    return daemon.Syphon if name == "Syphon" else getattr(errors, name)
