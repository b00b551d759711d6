"""How does the service put an error into words? (3.10)

Every text ends with a tracking id, the entity and the time, as the cloud's do: clients show them, and
support scripts parse them.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from ...amqp.performatives import Condition
from ..errors import BrokerError


def tracked(text: str, tracker: str, now: int) -> str:
    """``text`` with TrackingId, SystemTracker and Timestamp (``now`` in milliseconds)."""
    at = datetime.fromtimestamp(now / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text} TrackingId:{uuid.uuid4()}_B0, SystemTracker:{tracker}, Timestamp:{at}"


def condition_of(error: BrokerError, tracker: str, now: int) -> Condition:
    """The AMQP error that tells a client of ``error``."""
    return Condition(error.condition, tracked(str(error), tracker, now))
