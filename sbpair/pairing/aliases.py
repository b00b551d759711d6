"""Under which names does a parked message carry what was cleared from it? (P-20)

Pure: the standard library only, so that the syphon reads the same list the sender writes.
"""

from __future__ import annotations

PATH = "x-ms-path"
SESSION_ID = "x-ms-sessionid"
TIME_TO_LIVE = "x-ms-timetolive"
SCHEDULED = "x-ms-scheduledenqueuetimeutc"
PARTITION_KEY = "x-sbpair-partitionkey"
DEADLINE = "x-sbpair-deadline"
ABSOLUTE_EXPIRY = "x-sbpair-absoluteexpirytime"
VERSION = "x-sbpair-version"

ENVELOPE_VERSION = "1"
"""What VERSION says: the layout of the names above."""

RESERVED = frozenset(
    {PATH, SESSION_ID, TIME_TO_LIVE, SCHEDULED, PARTITION_KEY, DEADLINE, ABSOLUTE_EXPIRY, VERSION}
)
"""An application may not use these names itself, and a restored message carries none of them (P-21)."""

ANNOTATION_SCHEDULED = "x-opt-scheduled-enqueue-time"
ANNOTATION_PARTITION_KEY = "x-opt-partition-key"

PING_CONTENT_TYPE = "application/vnd.ms-servicebus-ping"  # P-30
