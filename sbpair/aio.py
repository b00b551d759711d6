"""The same names for asyncio, as ``azure.servicebus.aio`` has them.

Only the client and its senders differ from those of ``sbpair``; the rest is the same objects.
"""

from __future__ import annotations

from . import __version__
from .pair import public as shared
from .pair.paired_client.aio import PairedServiceBusClient
from .pair.pairing.aio.sender import PairedServiceBusSender
from .pair.public import *  # noqa: F403  (its __all__ says which)

__all__ = ["PairedServiceBusClient", "PairedServiceBusSender", "__version__"]
__all__ += shared.__all__
