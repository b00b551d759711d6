"""The same names for asyncio, as ``azure.servicebus.aio`` has them.

Only the client and its senders differ from those of ``sbpair``; the rest is the same objects.
"""

from __future__ import annotations

from . import __version__, shared
from .paired_client.aio import PairedServiceBusClient
from .pairing.aio_sender import PairedServiceBusSender
from .shared import *  # noqa: F403  (its __all__ says which)

__all__ = ["PairedServiceBusClient", "PairedServiceBusSender", "__version__"]
__all__ += shared.__all__
