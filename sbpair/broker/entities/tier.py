"""What does a namespace's tier allow?

Basic      queues; no sessions, duplicate detection, topics or forwarding; messages live 14 days at most
Standard   all of it
Premium    all of it, without credits; where it is partitioned, it is so as a whole (Q-2)
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TypeVar

from ..errors import InvalidDescription
from .description import DAY, LARGEST_SPAN, QueueDescription
from .topic_description import TopicDescription

LONGEST_ON_BASIC = 14 * DAY  # T-8: milliseconds, the default and the most
Asked = TypeVar("Asked", QueueDescription, TopicDescription)

_NOT_ON_BASIC = (
    "requires_session",
    "requires_duplicate_detection",
    "forward_to",
    "forward_dead_lettered_messages_to",
)


class Tier(Enum):
    """The tier, as the administration API names it."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def has_credits(self) -> bool:
        """Whether so much a second may be asked for (3.9): what is Premium has machines of its own."""
        return self is not Tier.PREMIUM

    def settled(self, asked: Asked) -> Asked:
        """What was asked, with the tier's own defaults. Raises InvalidDescription for what it has not."""
        if self is not Tier.BASIC:
            return asked
        if isinstance(asked, TopicDescription):
            raise InvalidDescription("Topics are not allowed in a namespace of the Basic tier.")
        for field in _NOT_ON_BASIC:
            if getattr(asked, field):
                raise InvalidDescription(f"{field} is not allowed in a namespace of the Basic tier.")
        span = asked.default_message_time_to_live
        if span is None or (isinstance(span, int) and span >= LARGEST_SPAN):
            return replace(asked, default_message_time_to_live=LONGEST_ON_BASIC)
        if isinstance(span, int) and span > LONGEST_ON_BASIC:
            most = f"at most 14 days ({LONGEST_ON_BASIC}) on the Basic tier"
            raise InvalidDescription(f"default_message_time_to_live is {span}: {most}.")
        return asked
