"""Test utilities: a delivery ledger, a fault-injecting proxy, a broker process, and the types of fixtures.

pytest loads the plugin ``sbpair.broker.testing.plugin`` automatically, with the fixtures ``servicebus_namespace``,
``servicebus_pair`` and others. Names are imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .broker.testing.broker_process import BrokerNotStartedError, BrokerProcess
    from .broker.testing.chaos_proxy import ChaosProxy
    from .broker.testing.frames import Action, ActiveRule, FrameRule
    from .broker.testing.ledger import Inversion, Ledger, LedgerReport
    from .broker.testing.pair import BearerCredential, NamespacePair
    from .broker.testing.processor import RunningProcessor

_HOMES = {
    "Action": "sbpair.broker.testing.frames",
    "ActiveRule": "sbpair.broker.testing.frames",
    "BearerCredential": "sbpair.broker.testing.pair",
    "BrokerNotStartedError": "sbpair.broker.testing.broker_process",
    "BrokerProcess": "sbpair.broker.testing.broker_process",
    "ChaosProxy": "sbpair.broker.testing.chaos_proxy",
    "FrameRule": "sbpair.broker.testing.frames",
    "Inversion": "sbpair.broker.testing.ledger",
    "Ledger": "sbpair.broker.testing.ledger",
    "LedgerReport": "sbpair.broker.testing.ledger",
    "NamespacePair": "sbpair.broker.testing.pair",
    "RunningProcessor": "sbpair.broker.testing.processor",
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
