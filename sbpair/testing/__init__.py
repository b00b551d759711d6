"""Test utilities: a delivery ledger, a fault-injecting proxy, a broker process, and the types of fixtures.

pytest loads the plugin ``sbpair.testing.plugin`` automatically, with the fixtures ``servicebus_namespace``,
``servicebus_pair`` and others. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker_process import BrokerNotStartedError, BrokerProcess
    from .chaos_proxy import ChaosProxy
    from .frames import Action, ActiveRule, FrameRule
    from .ledger import Inversion, Ledger, LedgerReport
    from .pair import BearerCredential, NamespacePair
    from .processor import RunningProcessor

_HOMES = {
    "Action": "sbpair.testing.frames",
    "ActiveRule": "sbpair.testing.frames",
    "BearerCredential": "sbpair.testing.pair",
    "BrokerNotStartedError": "sbpair.testing.broker_process",
    "BrokerProcess": "sbpair.testing.broker_process",
    "ChaosProxy": "sbpair.testing.chaos_proxy",
    "FrameRule": "sbpair.testing.frames",
    "Inversion": "sbpair.testing.ledger",
    "Ledger": "sbpair.testing.ledger",
    "LedgerReport": "sbpair.testing.ledger",
    "NamespacePair": "sbpair.testing.pair",
    "RunningProcessor": "sbpair.testing.processor",
}
__all__ = [
    "Action",
    "ActiveRule",
    "BearerCredential",
    "BrokerNotStartedError",
    "BrokerProcess",
    "ChaosProxy",
    "FrameRule",
    "Inversion",
    "Ledger",
    "LedgerReport",
    "NamespacePair",
    "RunningProcessor",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
