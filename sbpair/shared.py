"""The public names that the blocking and the asyncio package have in common: the same objects."""

from __future__ import annotations

from .pairing.batch import PairedMessageBatch
from .pairing.bond import SideState
from .pairing.errors import (
    BacklogUnavailableError,
    CaFileError,
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

__all__ = [
    "BacklogReturned",
    "BacklogUnavailableError",
    "BacklogWithdrawn",
    "BacklogsCreated",
    "BacklogsNotCreated",
    "CaFileError",
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
]
