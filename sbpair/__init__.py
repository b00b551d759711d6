"""Paired-namespace high availability for Azure Service Bus.

The names are loaded when they are first used: importing the package alone loads neither the SDK nor an
HTTP library.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .pairing.batch import PairedMessageBatch
    from .pairing.bond import SideState
    from .pairing.client import PairedServiceBusClient
    from .pairing.errors import (
        BacklogUnavailableError,
        PairFaultedError,
        PairingError,
        ParkedMessageTooLargeError,
        ParkedScheduleError,
        PartlyParkedError,
        ReservedPropertyError,
        SpoolError,
        SpoolFullError,
    )
    from .pairing.events import (
        BacklogReturned,
        BacklogsCreated,
        BacklogsNotCreated,
        BacklogWithdrawn,
        ClassifierFailed,
        EntityFailedOver,
        EntityRecovered,
        EntitySuspected,
        HeadroomShort,
        LinkProbed,
        MessageParked,
        MessageSpooled,
        PairFaulted,
        PairingDisabled,
        PairingEvent,
        PingFailed,
        PingSent,
        SendRaised,
        SideClosed,
        SideFaulted,
        SideRecovered,
        SpooledMessageRefused,
        SpoolReplayed,
    )
    from .pairing.failure import Failure
    from .pairing.health import EntityState
    from .pairing.observation import ObservationOptions
    from .pairing.options import PairedNamespaceOptions
    from .pairing.receipt import Place, Rest, SendReceipt
    from .pairing.sender import PairedServiceBusSender

_HOME = {
    "ObservationOptions": "observation",
    "SideState": "bond",
    "SideRecovered": "events",
    "SideFaulted": "events",
    "SideClosed": "events",
    "PairFaultedError": "errors",
    "PairFaulted": "events",
    "BacklogReturned": "events",
    "BacklogUnavailableError": "errors",
    "BacklogWithdrawn": "events",
    "BacklogsCreated": "events",
    "BacklogsNotCreated": "events",
    "ClassifierFailed": "events",
    "EntityFailedOver": "events",
    "EntityRecovered": "events",
    "EntityState": "health",
    "EntitySuspected": "events",
    "Failure": "failure",
    "HeadroomShort": "events",
    "LinkProbed": "events",
    "MessageParked": "events",
    "MessageSpooled": "events",
    "PairedMessageBatch": "batch",
    "PairedNamespaceOptions": "options",
    "PairedServiceBusClient": "client",
    "PairedServiceBusSender": "sender",
    "PairingDisabled": "events",
    "PairingError": "errors",
    "PairingEvent": "events",
    "ParkedMessageTooLargeError": "errors",
    "ParkedScheduleError": "errors",
    "PartlyParkedError": "errors",
    "PingFailed": "events",
    "PingSent": "events",
    "Place": "receipt",
    "ReservedPropertyError": "errors",
    "Rest": "receipt",
    "SendReceipt": "receipt",
    "SpoolError": "errors",
    "SpoolFullError": "errors",
    "SendRaised": "events",
    "SpoolReplayed": "events",
    "SpooledMessageRefused": "events",
}

__all__ = [
    "BacklogReturned",
    "BacklogUnavailableError",
    "BacklogWithdrawn",
    "BacklogsCreated",
    "BacklogsNotCreated",
    "ClassifierFailed",
    "EntityFailedOver",
    "EntityRecovered",
    "EntityState",
    "EntitySuspected",
    "Failure",
    "HeadroomShort",
    "LinkProbed",
    "MessageParked",
    "MessageSpooled",
    "ObservationOptions",
    "PairFaulted",
    "PairFaultedError",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairedServiceBusClient",
    "PairedServiceBusSender",
    "PairingDisabled",
    "PairingError",
    "PairingEvent",
    "ParkedMessageTooLargeError",
    "ParkedScheduleError",
    "PartlyParkedError",
    "PingFailed",
    "PingSent",
    "Place",
    "ReservedPropertyError",
    "Rest",
    "SendRaised",
    "SendReceipt",
    "SideClosed",
    "SideFaulted",
    "SideRecovered",
    "SideState",
    "SpoolError",
    "SpoolFullError",
    "SpoolReplayed",
    "SpooledMessageRefused",
    "__version__",
]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".pairing.{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
