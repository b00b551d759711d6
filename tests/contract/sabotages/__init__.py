"""Brokers that behave otherwise, one sentence of the contract at a time: each shows that entries can fail, and why.

sabotage      what a sabotage is, and the broker at which one is at work
keeping       what the broker stores and gives out
timing        locks, time to live, schedules
serving       links, transfers, tokens, errors
grouping      sessions, topics, forwarding, transactions, partitions
asking        the administration API, and settings of entities that are ignored
"""

from __future__ import annotations

from . import asking, grouping, keeping, serving, timing
from .sabotage import Sabotage

SABOTAGES: dict[str, Sabotage] = {
    **asking.SABOTAGES,
    **keeping.SABOTAGES,
    **timing.SABOTAGES,
    **grouping.SABOTAGES,
    **serving.SABOTAGES,
}
"""By what the broker does."""
