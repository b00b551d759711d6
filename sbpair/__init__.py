"""Paired-namespace high availability for Azure Service Bus.

Public names are loaded on first use, so importing the package alone loads neither the SDK nor an HTTP
library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .pair import public as shared
    from .pair.paired_client.blocking import PairedServiceBusClient
    from .pair.pairing.blocking.sender import PairedServiceBusSender
    from .pair.public import *  # noqa: F403  (its __all__ says which)

    __all__ = ["PairedServiceBusClient", "PairedServiceBusSender", "__version__"]
    __all__ += shared.__all__


def __getattr__(name: str) -> object:
    if name.startswith("_") and name != "__all__":  # names the import system looks up
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = _public()
    if name not in found:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals().update(found)
    return found[name]


def _public() -> dict[str, object]:
    from .pair.paired_client.blocking import PairedServiceBusClient
    from .pair.pairing.blocking.sender import PairedServiceBusSender

    # "from . import shared" would ask __getattr__ for the name
    shared = import_module("sbpair.pair.public")
    found: dict[str, object] = {name: getattr(shared, name) for name in shared.__all__}
    for public in (PairedServiceBusClient, PairedServiceBusSender):
        found[public.__name__] = public
    return found | {"__all__": sorted([*found, "__version__"])}


def __dir__() -> list[str]:
    return sorted({*globals(), *_public()})
