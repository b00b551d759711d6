"""What our users' tests import: the ledger that says what was lost, and a proxy that breaks things.

The pytest plugin (fixtures ``servicebus_namespace``, ``servicebus_pair`` …) is in ``sbpair.testing.plugin``,
and loads itself. Names are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .chaos_proxy import ChaosProxy
    from .credential import BearerCredential
    from .frame_rule import Action, ActiveRule, FrameRule
    from .ledger import Ledger, LedgerReport

_HOMES = {
    "Action": "frame_rule",
    "ActiveRule": "frame_rule",
    "BearerCredential": "credential",
    "ChaosProxy": "chaos_proxy",
    "FrameRule": "frame_rule",
    "Ledger": "ledger",
    "LedgerReport": "ledger",
}
__all__ = ["Action", "ActiveRule", "BearerCredential", "ChaosProxy", "FrameRule", "Ledger", "LedgerReport"]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{home}", __name__), name)
