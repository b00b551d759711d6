"""A Service Bus namespace to test against: in memory or on disk, on loopback, for unmodified clients.

with Broker({"contoso": 0}) as broker:
    contoso = broker.namespace("contoso")
    contoso.create_queue("orders")
    ...  # connect any client with contoso.connection_string

Public names are loaded on first use: they need the extra `broker`, which the modules beside them do not.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from sbpair.pair.ground.extras import require

if TYPE_CHECKING:
    from . import public
    from .public import *  # noqa: F403  (its __all__ says which)

    __all__: list[str] = []
    __all__ += public.__all__


def __getattr__(name: str) -> object:
    if name != "__all__" and not name[0].isupper():  # a module of the package
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("broker", "sbpair.broker")
    found: object = getattr(import_module("sbpair.broker.public"), name, None)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *import_module("sbpair.broker.public").__all__})
