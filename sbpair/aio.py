"""The same names for asyncio, as ``azure.servicebus.aio`` has them.

Only the client and its senders differ from those of ``sbpair``; the rest is the same objects.
"""

from __future__ import annotations

from . import (
    BacklogReturned,
    BacklogsCreated,
    BacklogsNotCreated,
    BacklogUnavailableError,
    BacklogWithdrawn,
    EntityFailedOver,
    EntityRecovered,
    EntityState,
    EntitySuspected,
    MessageParked,
    MessageSpooled,
    PairedMessageBatch,
    PairedNamespaceOptions,
    PairingError,
    PairingEvent,
    ParkedMessageTooLargeError,
    ParkedScheduleError,
    PingFailed,
    PingSent,
    ReservedPropertyError,
    Rest,
    SendRaised,
    SendReceipt,
    SpooledMessageRefused,
    SpoolError,
    SpoolFullError,
    SpoolReplayed,
    __version__,
)
from .pairing.aio_client import PairedServiceBusClient
from .pairing.aio_sender import PairedServiceBusSender

__all__ = [
    "BacklogReturned",
    "BacklogUnavailableError",
    "BacklogWithdrawn",
    "BacklogsCreated",
    "BacklogsNotCreated",
    "EntityFailedOver",
    "EntityRecovered",
    "EntityState",
    "EntitySuspected",
    "MessageParked",
    "MessageSpooled",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairedServiceBusClient",
    "PairedServiceBusSender",
    "PairingError",
    "PairingEvent",
    "ParkedMessageTooLargeError",
    "ParkedScheduleError",
    "PingFailed",
    "PingSent",
    "ReservedPropertyError",
    "Rest",
    "SendRaised",
    "SendReceipt",
    "SpoolError",
    "SpoolFullError",
    "SpoolReplayed",
    "SpooledMessageRefused",
    "__version__",
]
