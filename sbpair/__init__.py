"""Paired-namespace high availability for Azure Service Bus.

The names are loaded when the first of them is used: importing the package alone loads neither the SDK nor
an HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from . import shared
    from .pairing.client import PairedServiceBusClient
    from .pairing.sender import PairedServiceBusSender
    from .shared import *  # noqa: F403  (its __all__ says which)

    __all__ = ["PairedServiceBusClient", "PairedServiceBusSender", "__version__"]
    __all__ += shared.__all__


def __getattr__(name: str) -> object:
    if name.startswith("_") and name != "__all__":  # what the import system looks for
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _public()
    if name not in found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(found)
    return found[name]


def _public() -> dict[str, object]:
    shared = import_module(".shared", __name__)
    found: dict[str, object] = {name: getattr(shared, name) for name in shared.__all__}
    for home, name in (("client", "PairedServiceBusClient"), ("sender", "PairedServiceBusSender")):
        found[name] = getattr(import_module(f".pairing.{home}", __name__), name)
    return found | {"__all__": sorted([*found, "__version__"])}


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()})
