"""The syphon: forwards parked messages from the backlogs on the secondary to their entities on the primary.

Modules that open connections are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .pair.syphon.options import SyphonOptions
from .pair.syphon.status import SyphonCounters, SyphonState, SyphonStatus

if TYPE_CHECKING:
    from sbpair.pair.client.errors import (
        ClientError,
        ConnectionLostError,
        LinkRefusedError,
        NamespaceUnusableError,
        TokenRefusedError,
    )

    from .pair.syphon.daemon import Syphon

__all__ = [
    "ClientError",
    "ConnectionLostError",
    "LinkRefusedError",
    "NamespaceUnusableError",
    "Syphon",
    "SyphonCounters",
    "SyphonOptions",
    "SyphonState",
    "SyphonStatus",
    "TokenRefusedError",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from sbpair.pair.client import errors

    from .pair.syphon import daemon

    return daemon.Syphon if name == "Syphon" else getattr(errors, name)
