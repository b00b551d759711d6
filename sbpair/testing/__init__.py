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
    "Action": "frames",
    "ActiveRule": "frames",
    "BearerCredential": "pair",
    "BrokerNotStartedError": "broker_process",
    "BrokerProcess": "broker_process",
    "ChaosProxy": "chaos_proxy",
    "FrameRule": "frames",
    "Inversion": "ledger",
    "Ledger": "ledger",
    "LedgerReport": "ledger",
    "NamespacePair": "pair",
    "RunningProcessor": "processor",
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
    return getattr(import_module(f".{home}", __name__), name)
