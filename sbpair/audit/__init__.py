"""The audit: verdicts on every message, derived from the journals of senders, syphons, receivers and brokers.

    journals --reading--> facts  (writers, clocks, failovers, operations)          --> evidence
                 '------> mentions of messages, by message id --fold--> messages  --> verdicts --> tables, report

Only an event proves that something happened; that it did not happen follows only from a complete journal without
such an event. ``reading``, ``folding`` and ``order`` are the three steps, done by an engine: threads on this machine,
or the executors of Spark (:mod:`sbpair.spark.audit`). The rules are the same, and so is every line of the result.

Needs pyarrow and matplotlib: ``pip install 'sbpair[audit]'``.
"""

from __future__ import annotations

from .engine import Engine, LocalEngine
from .expected import Expected
from .job import SKEW, NotOurs, audit
from .summary import Summary
from .verdict import Verdict

__all__ = ["SKEW", "Engine", "Expected", "LocalEngine", "NotOurs", "Summary", "Verdict", "audit"]
