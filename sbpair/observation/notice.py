"""Which events is a webhook called for, and what does it say?

A notice is a journal record with two fields in front: ``kind``, and ``id``, the same at every attempt. Its
``ordinal`` counts the notices of this webhook, so the receiver sees when one is missing. Pure, but for the
lock around what it remembers of the entities.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum

from .entities import EntityStates, Watched
from .record import Instant, Origin, event_name, to_record


class WebhookKind(Enum):
    """What a webhook can be called for."""

    FAILOVER = "failover"  # an entity's messages are parked from now on
    FAILBACK = "failback"  # they go to the primary again
    DEAD_LETTER = "dead-letter"  # the syphon set a parked message aside
    BACKLOG_AGE = "backlog-age"  # a parked message has waited for too long; and when none does any more


_KIND_OF = {
    "message_set_aside": WebhookKind.DEAD_LETTER,
    "backlog_aged": WebhookKind.BACKLOG_AGE,
    "backlog_overdue": WebhookKind.BACKLOG_AGE,
    "backlog_caught_up": WebhookKind.BACKLOG_AGE,
}


class Kinds:
    """Tells the kind of each event; remembers the entities, for a false alarm is no failback."""

    def __init__(self) -> None:
        self._states = EntityStates()

    def of(self, event: object) -> WebhookKind | None:
        """The kind of an event, or None when no webhook is called for it."""
        change = self._states.told(event)
        if change is None:
            return _KIND_OF.get(event_name(type(event)))
        _, before, after = change
        if after is Watched.FAILED_OVER:
            return WebhookKind.FAILOVER
        came_back = before is Watched.FAILED_OVER and after is Watched.HEALTHY
        return WebhookKind.FAILBACK if came_back else None


@dataclass(frozen=True, slots=True)
class Notice:
    """What is posted: the body as bytes, since it is bytes that are signed."""

    kind: WebhookKind
    id: str
    body: bytes


def to_notice(kind: WebhookKind, event: object, origin: Origin, number: int, now: Instant) -> Notice:
    """The notice of an event. Raises what :func:`sbpair.observation.record.to_record` raises."""
    identity = f"{origin.writer}-{number}"
    said = {"kind": kind.value, "id": identity, **to_record(event, origin, number, now)}
    return Notice(kind, identity, json.dumps(said, separators=(",", ":")).encode("ascii"))
