"""The public names that the blocking and the asyncio package have in common: the same objects."""

from __future__ import annotations

from sbpair.pair.pairing.decide.health import EntityState
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.pairing.request.request import PairedMessageBatch

from .pairing.errors import (
    BacklogUnavailableError,
    CaFileError,
    MixedSessionsError,
    PairFaultedError,
    PairingError,
    ParkedMessageTooLargeError,
    ParkedScheduleError,
    PartlyParkedError,
    ReservedPropertyError,
    SpoolError,
    SpoolFullError,
)
from .pairing.options import ObservationOptions, PairedNamespaceOptions
from .pairing.outcome import Failure, Location, SendReceipt, StoredIn

__all__ = [
    "BacklogUnavailableError",
    "CaFileError",
    "EntityState",
    "Failure",
    "Location",
    "MixedSessionsError",
    "ObservationOptions",
    "PairFaultedError",
    "PairedMessageBatch",
    "PairedNamespaceOptions",
    "PairingError",
    "ParkedMessageTooLargeError",
    "ParkedScheduleError",
    "PartlyParkedError",
    "ReservedPropertyError",
    "SendReceipt",
    "SideState",
    "SpoolError",
    "SpoolFullError",
    "StoredIn",
]
