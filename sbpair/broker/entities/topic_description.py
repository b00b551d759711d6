"""What was asked of a topic, or of a subscription, when it was made?

Both keep messages as queues do, so each becomes the QueueDescription that the keeping follows. What a
subscription takes from its topic is joined here: the smaller time to live (T-9), and the size of a message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace

from ..errors import InvalidDescription, NotSupported
from .access_rule import AccessRule
from .description import MINUTE, QueueDescription

LONGEST_NAME = 50
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic's settings; units, ranges and defaults are those of QueueDescription.

    ``max_size_in_megabytes`` bounds what the topic and all of its subscriptions hold together.
    ``support_ordering`` changes nothing: the order is kept either way.
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

    def validated(self) -> TopicDescription:
        """This description with the largest spans turned into None.

        Raises NotSupported for what the broker does not have, InvalidDescription for a field out of range.
        """
        for feature in ("filtering_messages_before_publishing", "enable_subscription_partitioning"):
            if getattr(self, feature):
                raise NotSupported(feature)
        _check_flag("support_ordering", self.support_ordering)
        checked = self.as_queue().validated()
        return replace(self, **{name: getattr(checked, name) for name in _SPANS})

    def as_queue(self) -> QueueDescription:
        """What a topic's own keeping follows: of the messages scheduled, and of the ids seen."""
        return _queue_description(self, _TOPIC_FIELDS)


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription's settings; units, ranges and defaults are those of QueueDescription.

    ``dead_lettering_on_filter_evaluation_exceptions``: what a rule failed on is kept, dead (3.8).
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

    def validated(self) -> SubscriptionDescription:
        """This description with the largest spans turned into None. Raises as that of a topic."""
        name = "dead_lettering_on_filter_evaluation_exceptions"
        _check_flag(name, self.dead_lettering_on_filter_evaluation_exceptions)
        checked = _queue_description(self, _SUBSCRIPTION_FIELDS).validated()
        return replace(self, **{name: getattr(checked, name) for name in (*_SPANS, *TARGETS)})

    def under(self, topic: TopicDescription) -> QueueDescription:
        """What the subscription of such a topic follows (T-9)."""
        spans = (self.default_message_time_to_live, topic.default_message_time_to_live)
        return replace(
            _queue_description(self, _SUBSCRIPTION_FIELDS),
            default_message_time_to_live=min((span for span in spans if span is not None), default=None),
            max_size_in_megabytes=topic.max_size_in_megabytes,
            max_message_size_in_kilobytes=topic.max_message_size_in_kilobytes,
            enable_partitioning=topic.enable_partitioning,
        )


TARGETS = ("forward_to", "forward_dead_lettered_messages_to")
_SPANS = ("default_message_time_to_live", "auto_delete_on_idle")
_OF_A_QUEUE = {field.name for field in fields(QueueDescription)}
_TOPIC_FIELDS = tuple(field.name for field in fields(TopicDescription) if field.name in _OF_A_QUEUE)
_SUBSCRIPTION_FIELDS = tuple(
    field.name for field in fields(SubscriptionDescription) if field.name in _OF_A_QUEUE
)


def _queue_description(
    asked: TopicDescription | SubscriptionDescription, names: tuple[str, ...]
) -> QueueDescription:
    return QueueDescription(**{name: getattr(asked, name) for name in names})


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise InvalidDescription(f"{name} is {value!r}: True or False.")


def validated_name(name: str) -> str:
    """``name`` if a subscription may have it. Raises InvalidDescription, with the reason, if not."""
    if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
        raise InvalidDescription(
            f"The subscription name {name[:100]!r} is not allowed: 1 to {LONGEST_NAME} letters, digits, '.', "
            "'-' and '_'; it begins and ends with a letter or a digit."
        )
    return name
