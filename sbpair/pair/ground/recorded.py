"""Journal fields of a message besides its ids: its enqueued time and a checksum of its body."""

from __future__ import annotations

from datetime import datetime
from zlib import crc32

NO_CHECKSUM = -1


def enqueued_of(message: object) -> int:
    """Return when the broker enqueued a message, in milliseconds since the epoch; 0 if unknown or scheduled."""
    at = getattr(message, "enqueued_time_utc", None)  # of every message of the SDK and of a processor
    if not isinstance(at, datetime) or getattr(message, "scheduled_enqueue_time_utc", None) is not None:
        return 0
    return round(at.timestamp() * 1000)


def checksum_of(message: object) -> int:
    """Return the CRC-32 of a data body; NO_CHECKSUM for other bodies, whose encoding may change on the way."""
    kind = getattr(message, "body_type", None)  # as above
    if getattr(kind, "value", None) != "data":
        return NO_CHECKSUM
    return crc32(b"".join(getattr(message, "body", None) or ()))
