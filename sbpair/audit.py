"""The audit: verdicts on every message, derived from the journals of senders, syphons, receivers and brokers.

    journals --reading--> facts  (writers, clocks, failovers, operations)          --> evidence
                 '------> mentions of messages, by message id --fold--> messages  --> verdicts --> tables, report

Only an event proves that something happened; that it did not happen follows only from a complete journal without
such an event. ``reading``, ``folding`` and ``order`` are the three steps, done by an engine: threads on this machine,
or the executors of Spark (:mod:`sbpair.spark.audit`). The rules are the same, and so is every line of the result.

Needs pyarrow and matplotlib: ``pip install 'sbpair[audit]'``. Modules are imported on first use: a data source of
journals needs few of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .data.audit.engine import Engine, LocalEngine
    from .data.audit.expected import Expected
    from .data.audit.job import SKEW, ForeignFilesError, audit
    from .data.audit.judge.verdict import Verdict
    from .data.audit.result.summary import Summary

__all__ = ["SKEW", "Engine", "Expected", "ForeignFilesError", "LocalEngine", "Summary", "Verdict", "audit"]

_HOMES = {
    "SKEW": "sbpair.data.audit.job",
    "Engine": "sbpair.data.audit.engine",
    "Expected": "sbpair.data.audit.expected",
    "LocalEngine": "sbpair.data.audit.engine",
    "ForeignFilesError": "sbpair.data.audit.job",
    "Summary": "sbpair.data.audit.result.summary",
    "Verdict": "sbpair.data.audit.judge.verdict",
    "audit": "sbpair.data.audit.job",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found
