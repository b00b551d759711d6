"""The audit: verdicts on every message, derived from the journals of senders, syphons, receivers and brokers.

    events --+--> writers     one row per journal: is it complete?
             +--> messages    one row per message, with its verdict
             |       +--> duplicates, order, waits
             +--> timeline    the failovers of each entity
             '--> bill        operations, counted in two ways

Only an event proves that something happened; that it did not happen follows only from a complete journal without
such an event. All modules but ``job`` transform DataFrames and perform no I/O.
"""

from __future__ import annotations

from .audit import Audit, audit, journals
from .verdict import Verdict

__all__ = ["Audit", "Verdict", "audit", "journals"]
