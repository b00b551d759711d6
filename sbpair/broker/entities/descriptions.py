"""Descriptions of queues, topics and subscriptions: their settings, defaults and validation.

The fields are those of Service Bus's QueueDescription, TopicDescription and SubscriptionDescription.
Durations are whole milliseconds; ``None`` means never, or the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from ..errors import (
    FieldOutOfRangeError,
    FixedAtCreationError,
    ForwardingSessionsError,
    InvalidDescriptionError,
    NotSupportedError,
)
from .paths import path_of, split_address

RIGHTS = ("Manage", "Send", "Listen")
MAX_RULES = 12
MAX_RULE_NAME, MAX_KEY = 256, 256


@dataclass(frozen=True, slots=True)
class AccessRule:
    """A named pair of keys with some of the rights Manage, Send and Listen; its repr shows neither key."""

    name: str
    rights: tuple[str, ...]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)


def check_access_rules(rules: object) -> None:
    """Raise InvalidDescriptionError unless ``rules`` are valid authorization rules of an entity."""
    if not isinstance(rules, tuple) or not all(isinstance(rule, AccessRule) for rule in rules):
        raise InvalidDescriptionError(
            f"authorization_rules is a {type(rules).__name__}: use a tuple of AccessRule."
        )
    if len(rules) > MAX_RULES:
        raise InvalidDescriptionError(
            f"An entity has at most {MAX_RULES} authorization rules, not {len(rules)}."
        )
    names: Sequence[str] = [rule.name.casefold() for rule in rules]
    for rule in rules:
        if not 0 < len(rule.name) <= MAX_RULE_NAME or names.count(rule.name.casefold()) > 1:
            raise InvalidDescriptionError(
                f"The authorization rule name {rule.name[:100]!r} is empty, too long or used twice."
            )
        if not all(0 < len(key) <= MAX_KEY for key in (rule.primary_key, rule.secondary_key)):
            raise InvalidDescriptionError(
                f"A key of the authorization rule '{rule.name}' is empty or too long."
            )
        check_rights(rule.name, rule.rights)


def check_rights(name: str, rights: Iterable[str]) -> None:
    """Raise InvalidDescriptionError unless ``rights`` are valid for the rule or policy ``name``."""
    given = set(rights)
    if not given or not given <= set(RIGHTS):
        raise InvalidDescriptionError(
            f"The authorization rule '{name}' needs at least one right of {', '.join(RIGHTS)}, and no others."
        )
    if "Manage" in given and given != set(RIGHTS):
        raise InvalidDescriptionError(
            f"The authorization rule '{name}' has Manage, which should also include Send and Listen."
        )


@dataclass(frozen=True, slots=True)
class Leftover:
    """An element of a client's description that is kept as text and given back, but not in force.

    ``name``: of a setting that came after a later element, so it was not read; "" for an unknown element.
    ``after``: the last element that was read before it, "" at the start. ``markup``: the whole element.
    """

    name: str
    after: str
    markup: str


@dataclass(frozen=True, slots=True)
class KeptText:
    """What the administration API gives back of a client's description beyond the values that are in force.

    ``texts``: of elements whose text says more than the broker uses, such as a time span with a fraction of a
    millisecond.
    """

    leftovers: tuple[Leftover, ...] = ()
    texts: tuple[tuple[str, str], ...] = ()

    def text_of(self, element: str) -> str | None:
        """Return the text that was sent for an element, if it is kept."""
        return dict(self.texts).get(element)

    @property
    def late(self) -> tuple[Leftover, ...]:
        """The elements of the description that came too late to be read."""
        return tuple(each for each in self.leftovers if each.name)


SECOND = 1_000
MINUTE = 60 * SECOND
DAY = 24 * 60 * MINUTE
MAX_SPAN = 922_337_203_685_477
"""Milliseconds in the largest signed 64-bit tick count; stored as ``None``, as are larger values."""

INT_MAX = 2**31 - 1
MEGABYTE = 1024 * 1024
USUAL_MESSAGE = 256  # kilobytes
STANDARD_SIZES = (1024, 2048, 3072, 4096, 5120)  # megabytes
PREMIUM_SIZES = (*STANDARD_SIZES, 10240, 20480, 40960, 81920)
STATUSES = ("Active", "Disabled", "SendDisabled", "ReceiveDisabled")


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue's settings; the defaults are the service's.

    Units and ranges, checked by :meth:`normalize`:

    * ``lock_duration``: ms, 5 s to 5 min.
    * ``max_size_in_megabytes``: 1 to 5120 (Premium: 81920). The administration API, as the service's, accepts
      1024, 2048 … 5120 (Premium: also 10240 … 81920). Partitioning multiplies it by 16.
    * ``default_message_time_to_live``: ms, at least 1 s; None for never.
    * ``duplicate_detection_history_time_window``: ms, 20 s to 7 d.
    * ``max_delivery_count``: 1 to 2^31-1.
    * ``auto_delete_on_idle``: ms, at least 5 min; None for never, as for every entity that forwards.
    * ``max_message_size_in_kilobytes``: 1 to 256 (Premium: 102400); None for 256 (Premium: 1024).
    * ``enable_partitioning``, ``requires_session``, ``requires_duplicate_detection``: fixed at creation.
    * ``status``: Active, Disabled, SendDisabled or ReceiveDisabled.
    * ``forward_to``, ``forward_dead_lettered_messages_to``: path of a queue or topic, or None.
    * ``user_metadata``: up to 1024 characters.
    * ``authorization_rules``: at most 12 rules, valid for this entity only.
    """

    lock_duration: int = MINUTE
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    duplicate_detection_history_time_window: int = 10 * MINUTE
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: str = "Active"
    forward_to: str | None = None
    auto_delete_on_idle: int | None = None
    enable_partitioning: bool = False
    forward_dead_lettered_messages_to: str | None = None
    user_metadata: str | None = None
    enable_express: bool = False
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AccessRule, ...] = ()

    def normalize(self) -> QueueDescription:
        """Return this description with maximum durations replaced by None.

        Raises InvalidDescriptionError when a field is out of range.
        """
        resolved = replace(
            self,
            default_message_time_to_live=_none_if_max(self.default_message_time_to_live),
            auto_delete_on_idle=_none_if_max(self.auto_delete_on_idle),
            forward_to=canonical_target(self.forward_to),
            forward_dead_lettered_messages_to=canonical_target(self.forward_dead_lettered_messages_to),
        )
        for name in _RANGES:
            value = getattr(resolved, name)
            if expected := range_of(name, value):
                raise FieldOutOfRangeError(
                    name, value, expected, _told(name, value, expected), _written(name, value)
                )
        check_access_rules(resolved.authorization_rules)
        if resolved.forward_to is not None and resolved.requires_session:
            raise ForwardingSessionsError
        if resolved.forward_to is not None:  # it is never idle: the service switches the deletion off
            resolved = replace(resolved, auto_delete_on_idle=None)
        return resolved

    def check_successor_of(self, current: QueueDescription, kind: str = "Queue") -> None:
        """Raise InvalidDescriptionError if a setting that is fixed at creation differs from ``current``.

        ``kind`` of entity, in the service's text.
        """
        for name, title in _FIXED_AT_CREATION.items():
            if getattr(self, name) != getattr(current, name):
                raise FixedAtCreationError(
                    f"The value for the {title} property of an existing {kind} cannot be changed."
                )
        if self.enable_partitioning != current.enable_partitioning:
            raise FixedAtCreationError(f"Partitioning cannot be changed for {kind}. ")

    @property
    def quota_in_bytes(self) -> int:
        """The maximum bytes of the queue and its dead-letter queues together."""
        return self.max_size_in_megabytes * MEGABYTE

    @property
    def max_message_size(self) -> int:
        """The maximum size of a message, in bytes."""
        return (self.max_message_size_in_kilobytes or USUAL_MESSAGE) * 1024

    @property
    def max_batch_size(self) -> int:
        """The maximum size of a batch, in bytes: at most one megabyte, even where a message may be larger."""
        return min(self.max_message_size, MEGABYTE)


_FIXED_AT_CREATION = {
    "requires_session": "RequiresSession",
    "requires_duplicate_detection": "RequiresDuplicateDetection",
}


def canonical_target(name: str | None) -> str | None:
    """Return a forwarding target with its scheme and host, if any, in lower case; None for an empty one."""
    if not name or not isinstance(name, str):
        return name or None
    path = split_address(name)[1]
    return name[: len(name) - len(path)].lower() + path


def _none_if_max(span: int | None) -> int | None:
    return None if span is None or span >= MAX_SPAN else span


def _whole(low: int, high: int) -> Callable[[object], bool]:
    return lambda value: type(value) is int and low <= value <= high


def _whole_or_none(low: int, high: float = math.inf) -> Callable[[object], bool]:
    return lambda value: value is None or (type(value) is int and low <= value <= high)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


def _path_or_none(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(path_of(value)))


def _metadata(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= 1024)


SPANS = frozenset(
    (
        "lock_duration",
        "default_message_time_to_live",
        "duplicate_detection_history_time_window",
        "auto_delete_on_idle",
    )
)
_RANGES: dict[str, tuple[Callable[[object], bool], str]] = {
    "lock_duration": (
        _whole(5 * SECOND, 5 * MINUTE),
        "from 5 seconds (5000) to the allowed maximum of '5' minutes (300000)",
    ),
    "requires_duplicate_detection": (_flag, "True or False"),
    "requires_session": (_flag, "True or False"),
    "enable_partitioning": (_flag, "True or False"),
    "max_size_in_megabytes": (_whole(1, PREMIUM_SIZES[-1]), f"a whole number from 1 to {PREMIUM_SIZES[-1]}"),
    "default_message_time_to_live": (_whole_or_none(SECOND), "at least 1 second (1000), or None"),
    "dead_lettering_on_message_expiration": (_flag, "True or False"),
    "duplicate_detection_history_time_window": (_whole(20 * SECOND, 7 * DAY), "from 20 s to 7 days"),
    "max_delivery_count": (_whole(1, INT_MAX), f"a whole number from 1 to {INT_MAX}"),
    "enable_batched_operations": (_flag, "True or False"),
    "status": (STATUSES.__contains__, f"one of {', '.join(STATUSES)}"),
    "auto_delete_on_idle": (_whole_or_none(5 * MINUTE), "at least 5 minutes (300000), or None"),
    "forward_to": (_path_or_none, "the path of a queue or topic, or None"),
    "forward_dead_lettered_messages_to": (_path_or_none, "the path of a queue or topic, or None"),
    "user_metadata": (_metadata, "text of at most 1024 characters, or None"),
    "enable_express": (_flag, "True or False"),
    "max_message_size_in_kilobytes": (
        _whole_or_none(1, 102_400),
        "a whole number from 1 to 102400, or None",
    ),
}


_LONGEST = "10675199.02:48:05.4775807"
# those of the lock and of duplicate detection were seen, the others are inferred
_TOLD = {
    "lock_duration": "The value supplied must be between 00:00:05 and 00:05:00.",
    "duplicate_detection_history_time_window": "The value supplied must be between 00:00:20 and 7.00:00:00.",
    "default_message_time_to_live": f"The value supplied must be between 00:00:01 and {_LONGEST}.",
    "auto_delete_on_idle": f"The value supplied must be between 00:05:00 and {_LONGEST}.",
    "user_metadata": "The value supplied must have at most 1024 characters.",
    "forward_to": "The value supplied must be the path of a queue or topic.",
    "forward_dead_lettered_messages_to": "The value supplied must be the path of a queue or topic.",
}
_LOCK_TOO_LONG = (
    "The supplied lock time exceeds the allowed maximum of '5' minutes. "
    "To know more visit https://aka.ms/sbResourceMgrExceptions. "
)


def _told(name: str, value: object, expected: str) -> str:
    """Return the words of the administration API about a field that is out of range."""
    if name == "lock_duration" and (value is None or (type(value) is int and value > 5 * MINUTE)):
        return _LOCK_TOO_LONG
    return _TOLD.get(name) or f"The value supplied must be {expected}."


def _written(name: str, value: object) -> str:
    """Return a value as the administration API writes it in errors: a time span as 25.00:00:00."""
    if name in SPANS and value is None:
        return _LONGEST
    if name not in SPANS or type(value) is not int:
        return str(value)
    seconds, part = divmod(value, SECOND)
    days, rest = divmod(seconds, DAY // SECOND)
    clock = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}" + (f".{part:03}" if part else "")
    return f"{days}.{clock}" if days else clock


def range_of(name: str, value: object) -> str | None:
    """Return the range of a field if ``value`` is outside of it, else None; of a span in milliseconds too."""
    holds, expected = _RANGES.get(name, (None, ""))
    return expected if holds is not None and not holds(value) else None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's settings; units, ranges and defaults are those of QueueDescription.

    ``max_size_in_megabytes`` limits the topic and all of its subscriptions together. ``support_ordering`` and
    ``enable_subscription_partitioning`` have no effect: messages are always ordered, and a subscription is
    partitioned as its topic is.
    """

    default_message_time_to_live: int | None = None
    max_size_in_megabytes: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_detection_history_time_window: int = 10 * MINUTE
    enable_batched_operations: bool = True
    filtering_messages_before_publishing: bool = False
    status: str = "Active"
    support_ordering: bool = True
    auto_delete_on_idle: int | None = None
    enable_partitioning: bool = False
    enable_subscription_partitioning: bool = False
    enable_express: bool = False
    user_metadata: str | None = None
    max_message_size_in_kilobytes: int | None = None
    authorization_rules: tuple[AccessRule, ...] = ()

    def normalize(self) -> TopicDescription:
        """Return this description with maximum durations replaced by None.

        Raises NotSupportedError for features that the broker does not implement, InvalidDescriptionError when a field
        is out of range.
        """
        if self.filtering_messages_before_publishing:
            raise NotSupportedError("filtering_messages_before_publishing")
        for name in ("support_ordering", "enable_subscription_partitioning"):
            _check_flag(name, getattr(self, name))
        checked = self.as_queue().normalize()
        return replace(self, **{name: getattr(checked, name) for name in _SPANS})

    def as_queue(self) -> QueueDescription:
        """Return the topic's own queue settings, for scheduled messages and duplicate detection."""
        return _queue_description(self, _TOPIC_FIELDS)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription's settings; units, ranges and defaults are those of QueueDescription.

    ``dead_lettering_on_filter_evaluation_exceptions`` dead-letters the messages on which a rule fails.
    """

    lock_duration: int = MINUTE
    requires_session: bool = False
    default_message_time_to_live: int | None = None
    dead_lettering_on_message_expiration: bool = False
    dead_lettering_on_filter_evaluation_exceptions: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    status: str = "Active"
    forward_to: str | None = None
    user_metadata: str | None = None
    forward_dead_lettered_messages_to: str | None = None
    auto_delete_on_idle: int | None = None

    def normalize(self) -> SubscriptionDescription:
        """Return this description with maximum durations replaced by None.

        Raises InvalidDescriptionError when a field is out of range.
        """
        name = "dead_lettering_on_filter_evaluation_exceptions"
        _check_flag(name, self.dead_lettering_on_filter_evaluation_exceptions)
        checked = _queue_description(self, _SUBSCRIPTION_FIELDS).normalize()
        return replace(self, **{name: getattr(checked, name) for name in (*_SPANS, *TARGETS)})

    def under(self, topic: TopicDescription) -> QueueDescription:
        """Return the description in effect for a subscription of ``topic``."""
        spans = (self.default_message_time_to_live, topic.default_message_time_to_live)
        return replace(
            _queue_description(self, _SUBSCRIPTION_FIELDS),
            default_message_time_to_live=min((span for span in spans if span is not None), default=None),
            max_size_in_megabytes=topic.max_size_in_megabytes,
            max_message_size_in_kilobytes=topic.max_message_size_in_kilobytes,
            enable_partitioning=topic.enable_partitioning,
        )


Description = TypeVar("Description", QueueDescription, TopicDescription)
"""A description of a queue or of a topic."""

TARGETS = ("forward_to", "forward_dead_lettered_messages_to")
_SPANS = ("default_message_time_to_live", "auto_delete_on_idle")
_QUEUE_FIELDS = {field.name for field in fields(QueueDescription)}
_TOPIC_FIELDS = tuple(field.name for field in fields(TopicDescription) if field.name in _QUEUE_FIELDS)
_SUBSCRIPTION_FIELDS = tuple(
    field.name for field in fields(SubscriptionDescription) if field.name in _QUEUE_FIELDS
)


def _queue_description(
    requested: TopicDescription | SubscriptionDescription, names: tuple[str, ...]
) -> QueueDescription:
    return QueueDescription(**{name: getattr(requested, name) for name in names})


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidDescriptionError(f"{name} is {value!r}: True or False.")
