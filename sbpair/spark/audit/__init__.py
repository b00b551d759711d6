"""Was every message accounted for? What the journals of senders, syphons and receivers prove.

    events --+--> writers     is each journal whole? what is not whole proves nothing by its silence
             +--> messages    one row a message: where it was told to be, and the verdict
             |       +--> duplicates, order, waits
             +--> timeline    the failovers of each entity
             '--> bill        operations, by two meters

Columns only: no file is read or written in here, but in ``job``.
"""

from __future__ import annotations

from .audit import Audit, audit, journals
from .verdict import Verdict

__all__ = ["Audit", "Verdict", "audit", "journals"]
