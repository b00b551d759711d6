"""When a broker enqueued a message, as receivers record it."""

from __future__ import annotations

from datetime import datetime


def enqueued_of(message: object) -> int:
    """When the broker enqueued a message, in milliseconds since the epoch; 0 if unknown, or if it was scheduled."""
    at = getattr(message, "enqueued_time_utc", None)  # of every message of the SDK and of a processor
    if not isinstance(at, datetime) or getattr(message, "scheduled_enqueue_time_utc", None) is not None:
        return 0
    return round(at.timestamp() * 1000)
