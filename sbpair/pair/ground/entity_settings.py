"""The settings of queues, topics and subscriptions: the one table that all read who list, check, copy or show them.

A new setting is a row here, an attribute of the broker's descriptions, and a place in the order of the elements of
the administration API.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from types import MappingProxyType
from typing import Any

SECOND = 1_000  # milliseconds
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
INT_MAX = 2**31 - 1
LARGEST_MEGABYTES, LARGEST_KILOBYTES = 81_920, 102_400  # of an entity and of a message, on Premium
STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")

QUEUE, TOPIC, SUBSCRIPTION = "queue", "topic", "subscription"
EACH = frozenset({QUEUE, TOPIC, SUBSCRIPTION})
STORING = frozenset({QUEUE, TOPIC})
RECEIVED_FROM = frozenset({QUEUE, SUBSCRIPTION})


class ValueKind(Enum):
    """What the values of a setting are."""

    FLAG = auto()
    WHOLE = auto()
    SPAN = auto()
    """A duration: milliseconds in the broker, a timedelta in azure-servicebus, None for never."""

    TEXT = auto()
    WORD = auto()
    """One of STATUSES."""

    TARGET = auto()
    """The path of another queue or topic."""


@dataclass(frozen=True, slots=True)
class EntitySetting:
    """One setting, by its name in azure-servicebus, in configuration files and in the broker's descriptions.

    ``of``: the kinds of entities that have it. ``low`` and ``high``: its range, of a span in milliseconds, of text in
    characters. ``expected``: that range in words, where they are not those of its kind.
    ``label``: what the page calls an entity that has it set.
    ``is_copied``: to a twin; ``is_compared``: with that of a twin, as it decides whether a message fits.
    """

    name: str
    kind: ValueKind
    of: frozenset[str] = EACH
    low: int = 0
    high: float = math.inf
    is_optional: bool = False
    expected: str = ""
    label: str = ""
    is_fixed_at_creation: bool = False
    is_on_basic: bool = True
    is_copied: bool = True
    is_compared: bool = False

    @property
    def element(self) -> str:
        """Its name in the administration API and in the vendor's files, such as LockDuration."""
        return element_name(self.name)

    def value_in(self, described: object) -> object:
        """Return its value in a description, of the broker or of azure-servicebus; None where that has it not."""
        return getattr(described, self.name, None)

    def set_to(self, value: object) -> dict[str, Any]:
        """Return the keyword with which to describe an entity that has this value."""
        return {self.name: value}


def element_name(name: str) -> str:
    """Return the name of a field as the administration API and the vendor's files write it."""
    return "".join(part.title() for part in name.split("_"))


_FLAG, _SPAN, _WHOLE = ValueKind.FLAG, ValueKind.SPAN, ValueKind.WHOLE

SESSIONS = EntitySetting(
    "requires_session",
    _FLAG,
    RECEIVED_FROM,
    label="sessions",
    is_fixed_at_creation=True,
    is_on_basic=False,
    is_compared=True,
)
DUPLICATE_DETECTION = EntitySetting(
    "requires_duplicate_detection",
    _FLAG,
    STORING,
    label="no duplicates",
    is_fixed_at_creation=True,
    is_on_basic=False,
    is_compared=True,
)
DUPLICATE_WINDOW = EntitySetting(
    "duplicate_detection_history_time_window",
    _SPAN,
    STORING,
    low=20 * SECOND,
    high=7 * DAY,
    expected="from 20 s to 7 days",
    is_compared=True,
)
MESSAGE_SIZE = EntitySetting(
    "max_message_size_in_kilobytes",
    _WHOLE,
    STORING,
    low=1,
    high=LARGEST_KILOBYTES,
    is_optional=True,
    is_compared=True,
)
SIZE = EntitySetting(
    "max_size_in_megabytes", _WHOLE, STORING, low=1, high=LARGEST_MEGABYTES, is_compared=True
)
PARTITIONING = EntitySetting(
    "enable_partitioning", _FLAG, STORING, label="partitioned", is_fixed_at_creation=True
)
FORWARD_TO = EntitySetting("forward_to", ValueKind.TARGET, RECEIVED_FROM, is_optional=True, is_on_basic=False)
FORWARD_DEAD_LETTERS_TO = EntitySetting(
    "forward_dead_lettered_messages_to", ValueKind.TARGET, RECEIVED_FROM, is_optional=True, is_on_basic=False
)
LOCK_DURATION = EntitySetting(
    "lock_duration",
    _SPAN,
    RECEIVED_FROM,
    low=5 * SECOND,
    high=5 * MINUTE,
    expected="from 5 seconds (5000) to the allowed maximum of '5' minutes (300000)",
)
TIME_TO_LIVE = EntitySetting(
    "default_message_time_to_live",
    _SPAN,
    low=SECOND,
    is_optional=True,
    expected="at least 1 second (1000), or None",
)
DEAD_LETTER_EXPIRED = EntitySetting("dead_lettering_on_message_expiration", _FLAG, RECEIVED_FROM)
MAX_DELIVERIES = EntitySetting("max_delivery_count", _WHOLE, RECEIVED_FROM, low=1, high=INT_MAX)
DELETE_WHEN_IDLE = EntitySetting(
    "auto_delete_on_idle",
    _SPAN,
    low=5 * MINUTE,
    is_optional=True,
    expected="at least 5 minutes (300000), or None",
)
BATCHED_OPERATIONS = EntitySetting("enable_batched_operations", _FLAG)
STATUS = EntitySetting("status", ValueKind.WORD, is_copied=False)

SETTINGS: Mapping[str, EntitySetting] = MappingProxyType(
    {
        each.name: each
        for each in (
            SESSIONS,
            DUPLICATE_DETECTION,
            DUPLICATE_WINDOW,
            MESSAGE_SIZE,
            SIZE,
            PARTITIONING,
            FORWARD_TO,
            FORWARD_DEAD_LETTERS_TO,
            LOCK_DURATION,
            TIME_TO_LIVE,
            DEAD_LETTER_EXPIRED,
            EntitySetting("dead_lettering_on_filter_evaluation_exceptions", _FLAG, frozenset({SUBSCRIPTION})),
            MAX_DELIVERIES,
            BATCHED_OPERATIONS,
            STATUS,
            DELETE_WHEN_IDLE,
            EntitySetting("user_metadata", ValueKind.TEXT, high=1024, is_optional=True),
            EntitySetting("enable_express", _FLAG, STORING, is_copied=False),
            EntitySetting("filtering_messages_before_publishing", _FLAG, frozenset({TOPIC}), is_copied=False),
            EntitySetting("support_ordering", _FLAG, frozenset({TOPIC})),
            EntitySetting("enable_subscription_partitioning", _FLAG, frozenset({TOPIC}), is_copied=False),
        )
    }
)
"""All of them, by name."""

TARGETS = tuple(each for each in SETTINGS.values() if each.kind is ValueKind.TARGET)
