"""The watchdog of a processor's link, which is that of the syphon's links too (C-14)."""

from __future__ import annotations

from sbpair.client.watchdog import INTERVAL, MAX_INTERVAL_SECONDS, PATIENCE, Watchdog

__all__ = ["INTERVAL", "MAX_INTERVAL_SECONDS", "PATIENCE", "Watchdog"]
