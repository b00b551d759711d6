"""Situations that many runs together must reach: a simulation that never fails over proves nothing about failover."""

from __future__ import annotations

from collections import Counter

from sbpair.pair.envelope import restore
from sbpair.pair.syphon.forward import in_flight

POISON_REASONS = (
    restore.UNREADABLE,
    restore.MISSING_PATH,
    restore.INVALID_PATH,
    restore.PATH_NOT_ALLOWED,
    restore.INVALID_ALIAS,
    restore.EXPIRED,
)
DEAD_LETTER_REASONS = frozenset((*POISON_REASONS, *in_flight.DEAD_LETTER_REASONS.values()))
"""Every reason for which the syphon sets a message aside, as its code has them."""

MUST_REACH = (
    "failover",
    "failback",
    "eviction",
    "all backlogs down",
    "busy",
    "retried",
    "backlog missing",
    "backlog created",
    "lock lost",
    "locked again",
    "duplicate",
    "re-routed",
    "delivered twice by a topic, to two",
    "expired at the primary",
    "expired in a backlog",
    "sender's ack lost",
    "syphon's ack lost",
    "sender crashed in a send",
    "spooled",
    "landed",
    "landed in a transaction",
    "landing began",
    "landing ended",
    "landing refused",
    "ack of a landing lost",
    "link detached",
    "link of a landing detached",
    "replayed from the spool",
    "expired in the spool",
    "sender crashed with messages in its spool",
    "sender crashed with an unsynced spool",
    "sender crashed between a replay and its deletion",
    "syphon crashed with messages in hands",
    "broker crashed with unsynced writes",
    "broker crashed before it answered",
    "came back from disk",
    "ordered sessions that arrived",
    "ordered messages in a batch",
    "fence seen empty",
    "fence held",
    "fence not proved",
    "ordered sender died in a session",
    "handled",
    "handled on the secondary",
    "handled again",
    "handled for longer than a lock",
    "handler failed",
    "duplicate completed without its handler",
    "processor's ack lost",
    "processor's lock lost",
    "processor crashed with messages in hands",
    "client's rejection by share",
    "client's busy with a hint",
    "client's late answer",
    "client's answer withheld",
    "client's send lost",
    "client's link detached in a send",
    "client without a token",
    "syphon's rejection by share",
    "syphon's busy with a hint",
    "syphon's late answer",
    "syphon's answer withheld",
    "syphon's send lost",
    "syphon's link detached in a send",
    "syphon's settlement: late answer",
    "syphon's settlement: answer withheld",
    "syphon without a token",
    "waited as long as the hint said",
    "failover by share",
    "returned by trial",
    "trial failed",
    "primary was slow",
    "key set aside",
    *sorted(f"dead letter {reason}" for reason in DEAD_LETTER_REASONS),
)


def missed(reached: Counter[str]) -> list[str]:
    """What was not met."""
    return [name for name in MUST_REACH if not reached[name]]
