"""Which elements tell of a topic, of a subscription, of a rule? Tables, in the service's order."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from ..entities import SubscriptionDescription, TopicDescription
from ..entities.kinds import AnySubscription, AnyTopic
from ..entities.subscription import DEFAULT_RULE
from ..errors import NotImplementedHere
from . import atom
from .fields import (
    BOOLEAN,
    DURATION,
    INTEGER,
    OPTIONAL,
    TEXT,
    Report,
    Row,
    Setting,
    count_details,
    read_fields,
    shown,
    write_fields,
)

TOPIC, SUBSCRIPTION, RULE = "TopicDescription", "SubscriptionDescription", "RuleDescription"
TOPIC_ELEMENTS: tuple[Row[AnyTopic], ...] = (
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("MaxSizeInMegabytes", "max_size_in_megabytes", INTEGER),
    Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOLEAN),
    Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", DURATION),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    shown("SizeInBytes", lambda _, counts: str(counts.size_in_bytes)),
    Setting("FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", BOOLEAN),
    shown("IsAnonymousAccessible", lambda *_: "false"),
    shown("AuthorizationRules", lambda *_: ""),
    Setting("Status", "status", TEXT),
    shown("CreatedAt", lambda topic, _: atom.instant(topic.created_at)),
    shown("UpdatedAt", lambda topic, _: atom.instant(topic.updated_at)),
    shown("AccessedAt", lambda topic, _: atom.instant(topic.accessed_at)),
    Setting("SupportOrdering", "support_ordering", BOOLEAN),
    Report("CountDetails", count_details),
    shown("SubscriptionCount", lambda topic, _: str(len(topic.subscriptions))),
    shown("SqlFilterCount", lambda *_: "0"),
    shown("CorrelationFilterCount", lambda *_: "0"),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    Setting("EnablePartitioning", "enable_partitioning", BOOLEAN),
    shown("EntityAvailabilityStatus", lambda topic, _: topic.availability),
    Setting("EnableSubscriptionPartitioning", "enable_subscription_partitioning", BOOLEAN),
    Setting("EnableExpress", "enable_express", BOOLEAN),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
    Setting("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", INTEGER),
)
_DEFAULT_RULE = "DefaultRuleDescription"
SUBSCRIPTION_ELEMENTS: tuple[Row[AnySubscription], ...] = (
    Setting("LockDuration", "lock_duration", DURATION),
    Setting("RequiresSession", "requires_session", BOOLEAN),
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", BOOLEAN),
    Setting(
        "DeadLetteringOnFilterEvaluationExceptions",
        "dead_lettering_on_filter_evaluation_exceptions",
        BOOLEAN,
    ),
    shown("MessageCount", lambda _, counts: str(counts.total)),
    Setting("MaxDeliveryCount", "max_delivery_count", INTEGER),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    Setting("Status", "status", TEXT),
    Setting("ForwardTo", "forward_to", OPTIONAL),
    shown("CreatedAt", lambda subscription, _: atom.instant(subscription.created_at)),
    shown("UpdatedAt", lambda subscription, _: atom.instant(subscription.updated_at)),
    shown("AccessedAt", lambda subscription, _: atom.instant(subscription.accessed_at)),
    Report("CountDetails", count_details),
    Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", OPTIONAL),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    shown("EntityAvailabilityStatus", lambda subscription, _: subscription.availability),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
)


def read_topic_description(fields: Mapping[str, Element], base: TopicDescription) -> TopicDescription:
    """``base`` with what ``fields`` set. Raises InvalidDescription, NotSupported."""
    return read_fields(TOPIC, TOPIC_ELEMENTS, fields, base)


def write_topic_description(topic: AnyTopic, now: int) -> str:
    """The whole description of ``topic`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(TOPIC, TOPIC_ELEMENTS, topic, topic.asked, now)


def read_subscription_description(
    fields: Mapping[str, Element], base: SubscriptionDescription
) -> SubscriptionDescription:
    """``base`` with what ``fields`` set.

    Raises InvalidDescription, NotSupported, and NotImplementedHere for a first rule that is another.
    """
    rule = fields.get(_DEFAULT_RULE)
    if rule is not None:
        _check_usual(rule)
    others = {name: field for name, field in fields.items() if name != _DEFAULT_RULE}
    return read_fields(SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, others, base)


def write_subscription_description(subscription: AnySubscription, now: int) -> str:
    """The whole description of ``subscription`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, subscription, subscription.asked, now)


def write_default_rule(subscription: AnySubscription) -> str:
    """The description of the rule that every subscription has: it takes all, and changes nothing (3.8)."""
    condition = atom.element("SqlExpression", "1=1") + atom.element("CompatibilityLevel", "20")
    return atom.description(
        RULE,
        (
            atom.element("Filter", condition, {"i:type": "TrueFilter"}),
            atom.element("Action", "", {"i:type": "EmptyRuleAction"}),
            atom.element("CreatedAt", atom.instant(subscription.created_at)),
            atom.element("Name", DEFAULT_RULE),
        ),
    )


def _check_usual(rule: Element) -> None:
    kind = f"{{{atom.INSTANCE}}}type"
    for name, usual in (("Filter", "TrueFilter"), ("Action", "EmptyRuleAction")):
        found = rule.find(f"{{{atom.SERVICE_BUS}}}{name}")
        given = usual if found is None else found.get(kind, usual).rpartition(":")[2]
        if given != usual:
            raise NotImplementedHere(f"A first rule with a {given[:100]} is not implemented by this broker.")
    name = rule.findtext(f"{{{atom.SERVICE_BUS}}}Name") or DEFAULT_RULE
    if name != DEFAULT_RULE:
        raise rule_not_implemented(name)


def rule_not_implemented(name: str) -> NotImplementedHere:
    """What is said to who wants to create, change or delete a rule."""
    return NotImplementedHere(
        f"The rule '{name[:100]}' is not implemented by this broker: a subscription has the rule "
        f"{DEFAULT_RULE}, which takes all messages, and no other."
    )
