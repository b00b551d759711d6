"""What does a namespace's tier allow?

Basic      queues; no sessions, duplicate detection, topics or forwarding; messages live 14 days at most
Standard   all of it; as on Basic, a message has 256 KB at most and an entity 5 GB
Premium    all of it, without credits; a message has 1 MB unless up to 100 MB are asked for, an entity 80 GB;
           where it is partitioned, it is so as a whole (Q-2)
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TypeVar

from ..errors import InvalidDescription
from .description import DAY, LARGEST_SPAN, PREMIUM_SIZES, STANDARD_SIZES, USUAL_MESSAGE, QueueDescription
from .topic_description import TopicDescription

LONGEST_ON_BASIC = 14 * DAY  # T-8: milliseconds, the default and the most
LARGEST_PREMIUM_MESSAGE, USUAL_PREMIUM_MESSAGE = 102_400, 1024  # kilobytes, over AMQP (3.9)
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

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of an entity that its administration takes, in megabytes (3.9)."""
        return PREMIUM_SIZES if self is Tier.PREMIUM else STANDARD_SIZES

    @property
    def largest_message(self) -> int:
        """In kilobytes (3.9)."""
        return LARGEST_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    @property
    def usual_message(self) -> int:
        """The largest message of an entity that was not made for another size, in kilobytes (3.9)."""
        return USUAL_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    def settled(self, asked: Asked) -> Asked:
        """What was asked, with the tier's own defaults. Raises InvalidDescription for what it has not."""
        self._check_sizes(asked)
        if asked.max_message_size_in_kilobytes is None:
            asked = replace(asked, max_message_size_in_kilobytes=self.usual_message)
        return self._settled_on_basic(asked) if self is Tier.BASIC else asked

    def _check_sizes(self, asked: QueueDescription | TopicDescription) -> None:
        for field, most in (
            ("max_size_in_megabytes", self.sizes[-1]),
            ("max_message_size_in_kilobytes", self.largest_message),
        ):
            size = getattr(asked, field)
            if isinstance(size, int) and size > most:
                raise InvalidDescription(
                    f"{field} is {size}: at most {most} in a namespace of the {self.value} tier."
                )

    def _settled_on_basic(self, asked: Asked) -> Asked:
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
