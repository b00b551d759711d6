"""The daily audit: each run reads only the new lines of the journals, and replaces only the days that change.

    new lines  --read-->  mentions --.
    open messages of earlier runs  --+--fold--> settled, by day   --> current/messages/day=2026-11-25/settled.parquet
    settled ones that are mentioned anew '        '--> open       --> current/messages/day=2026-11-25/open.parquet

A message is settled when no further journal can change its verdict without mentioning it. A later mention opens it
again.
"""

from __future__ import annotations

from .gathering import UnknownFileError
from .job import DailyResult, Terms, audit_daily
from .kept import ForeignStateError
from .state_folder import StateInUseError

__all__ = ["DailyResult", "ForeignStateError", "StateInUseError", "Terms", "UnknownFileError", "audit_daily"]
