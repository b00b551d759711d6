"""The entities of a run: what each is for, where their messages are read, and how many they hold."""

from __future__ import annotations

from dataclasses import replace

from sbpair.broker.clock import SystemClock
from sbpair.broker.entities.descriptions import QueueDescription
from sbpair.broker.entities.queue import Queue

from .plan import TOPIC

CLOCK = SystemClock()
READ_FROM = {TOPIC: (TOPIC, f"{TOPIC}/Subscriptions/all", f"{TOPIC}/Subscriptions/audit")}
"""Where what was sent to an entity waits, if not in itself."""

AUDIT = READ_FROM[TOPIC][-1]
TINY, CLOSED, PICKY, SECRET = "tiny", "closed", "picky", "secret"  # they refuse, each in its own way
BACKLOG = QueueDescription(  # P-11
    max_size_in_megabytes=5120, max_delivery_count=2**31 - 1, dead_lettering_on_message_expiration=True
)
BURIES = QueueDescription(dead_lettering_on_message_expiration=True, max_delivery_count=2**31 - 1)
ENTITIES = {
    "orders": BURIES,
    "ordered": replace(BURIES, requires_session=True),
    "parts": replace(BURIES, enable_partitioning=True),
    "parts-ordered": replace(BURIES, enable_partitioning=True, requires_session=True),
    TINY: replace(BURIES, max_message_size_in_kilobytes=1),
    CLOSED: replace(BURIES, status="Disabled"),
    PICKY: replace(BURIES, requires_session=True),
    SECRET: BURIES,
}


def readable(path: str) -> tuple[str, ...]:
    """Where what was sent to an entity waits."""
    return READ_FROM.get(path, (path,))


def held(queue: Queue) -> int:
    counts = queue.counts(CLOCK.now())
    return counts.active + counts.scheduled
