"""The XML fields of queue, topic and subscription descriptions, and of their authorization rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from ...auth import SharedAccessPolicy
from ...entities import QueueDescription, SubscriptionDescription, TopicDescription
from ...entities.descriptions import RIGHTS, AccessRule
from ...entities.queue import Queue
from ...entities.rules import DEFAULT_RULE, Rule, RuleSet
from ...entities.topic import Subscription, Topic
from ...errors import InvalidDescriptionError
from . import atom
from .fields import (
    BOOLEAN,
    DURATION,
    INTEGER,
    OPTIONAL,
    TEXT,
    Nested,
    Report,
    Row,
    Setting,
    count_details,
    read_fields,
    text_report,
    write_fields,
)
from .rule_fields import read_rule

RULES = "AuthorizationRules"
_RULE, _RIGHT = "AuthorizationRule", "AccessRights"
_RULE_TYPE = {"i:type": "SharedAccessAuthorizationRule"}


def read_access_rules(found: Element) -> tuple[AccessRule, ...]:
    """Return the rules in the element, unvalidated. Raises InvalidDescriptionError for other elements in it."""
    return tuple(_read(child) for child in found)


def _read(rule: Element) -> AccessRule:
    texts = {child.tag.rpartition("}")[2]: (child.text or "").strip() for child in rule}
    name = texts.get("KeyName", "")
    if rule.tag.rpartition("}")[2] != _RULE or not name:
        raise InvalidDescriptionError(f"The element {RULES} must hold only {_RULE} elements with a KeyName.")
    found = {(right.text or "").strip() for right in rule.iter() if right.tag.rpartition("}")[2] == _RIGHT}
    rights = tuple(right for right in RIGHTS if right in found)
    fresh = SharedAccessPolicy.generate()  # missing keys are generated
    return AccessRule(
        name,
        (*rights, *sorted(found.difference(RIGHTS))),
        texts.get("PrimaryKey") or fresh.primary_key,
        texts.get("SecondaryKey") or fresh.secondary_key,
    )


def write_access_rules(rules: Sequence[AccessRule]) -> str:
    """Return the element with the rules."""
    return atom.element(RULES, "".join(_write(rule) for rule in rules))


def _write(rule: AccessRule) -> str:
    rights = "".join(atom.element(_RIGHT, atom.plain(right)) for right in rule.rights)
    parts = (
        atom.element("ClaimType", "SharedAccessKey"),
        atom.element("ClaimValue", "None"),
        atom.element("Rights", rights),
        atom.element("KeyName", atom.plain(rule.name)),
        atom.element("PrimaryKey", atom.plain(rule.primary_key)),
        atom.element("SecondaryKey", atom.plain(rule.secondary_key)),
    )
    return atom.element(_RULE, "".join(parts), _RULE_TYPE)


KIND = "QueueDescription"
ELEMENTS: tuple[Row[Queue], ...] = (
    Setting("LockDuration", "lock_duration", DURATION),
    Setting("MaxSizeInMegabytes", "max_size_in_megabytes", INTEGER),
    Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOLEAN),
    Setting("RequiresSession", "requires_session", BOOLEAN),
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", BOOLEAN),
    Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", DURATION),
    Setting("MaxDeliveryCount", "max_delivery_count", INTEGER),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    text_report("SizeInBytes", lambda _, counts: str(counts.size_in_bytes)),
    text_report("MessageCount", lambda _, counts: str(counts.total)),
    text_report("IsAnonymousAccessible", lambda *_: "false"),
    Nested(RULES, "authorization_rules", read_access_rules, write_access_rules),
    Setting("Status", "status", TEXT),
    text_report("CreatedAt", lambda queue, _: atom.instant(queue.created_at)),
    text_report("UpdatedAt", lambda queue, _: atom.instant(queue.updated_at)),
    text_report("AccessedAt", lambda queue, _: atom.instant(queue.accessed_at)),
    text_report("SupportOrdering", lambda *_: "true"),
    Report("CountDetails", count_details),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    Setting("EnablePartitioning", "enable_partitioning", BOOLEAN),
    text_report("EntityAvailabilityStatus", lambda queue, _: queue.availability),
    Setting("EnableExpress", "enable_express", BOOLEAN),
    Setting("ForwardTo", "forward_to", OPTIONAL),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
    Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", OPTIONAL),
    Setting("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", INTEGER),
)


def read_queue_description(fields: Mapping[str, Element], base: QueueDescription) -> QueueDescription:
    """Return ``base`` with the values in ``fields``. Raises InvalidDescriptionError."""
    return read_fields(KIND, ELEMENTS, fields, base)


def write_queue_description(queue: Queue, now: int) -> str:
    """Return the whole description of ``queue`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(KIND, ELEMENTS, queue, queue.description, now)


def _sum(topic: Topic, count: Callable[[RuleSet], int]) -> int:
    return sum(count(subscription.rules) for subscription in topic.subscriptions.values())


TOPIC, SUBSCRIPTION = "TopicDescription", "SubscriptionDescription"
TOPIC_ELEMENTS: tuple[Row[Topic], ...] = (
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("MaxSizeInMegabytes", "max_size_in_megabytes", INTEGER),
    Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOLEAN),
    Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", DURATION),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    text_report("SizeInBytes", lambda _, counts: str(counts.size_in_bytes)),
    Setting("FilteringMessagesBeforePublishing", "filtering_messages_before_publishing", BOOLEAN),
    text_report("IsAnonymousAccessible", lambda *_: "false"),
    Nested(RULES, "authorization_rules", read_access_rules, write_access_rules),
    Setting("Status", "status", TEXT),
    text_report("CreatedAt", lambda topic, _: atom.instant(topic.created_at)),
    text_report("UpdatedAt", lambda topic, _: atom.instant(topic.updated_at)),
    text_report("AccessedAt", lambda topic, _: atom.instant(topic.accessed_at)),
    Setting("SupportOrdering", "support_ordering", BOOLEAN),
    Report("CountDetails", count_details),
    text_report("SubscriptionCount", lambda topic, _: str(len(topic.subscriptions))),
    text_report(  # true and false filters count as SQL
        "SqlFilterCount",
        lambda topic, _: str(_sum(topic, lambda rules: len(rules) - rules.correlation_filters)),
    ),
    text_report(
        "CorrelationFilterCount", lambda topic, _: str(_sum(topic, lambda rules: rules.correlation_filters))
    ),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    Setting("EnablePartitioning", "enable_partitioning", BOOLEAN),
    text_report("EntityAvailabilityStatus", lambda topic, _: topic.availability),
    Setting("EnableSubscriptionPartitioning", "enable_subscription_partitioning", BOOLEAN),
    Setting("EnableExpress", "enable_express", BOOLEAN),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
    Setting("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", INTEGER),
)
DEFAULT_RULE_ELEMENT = "DefaultRuleDescription"
SUBSCRIPTION_ELEMENTS: tuple[Row[Subscription], ...] = (
    Setting("LockDuration", "lock_duration", DURATION),
    Setting("RequiresSession", "requires_session", BOOLEAN),
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", BOOLEAN),
    Setting(
        "DeadLetteringOnFilterEvaluationExceptions",
        "dead_lettering_on_filter_evaluation_exceptions",
        BOOLEAN,
    ),
    text_report("MessageCount", lambda _, counts: str(counts.total)),
    Setting("MaxDeliveryCount", "max_delivery_count", INTEGER),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    Setting("Status", "status", TEXT),
    Setting("ForwardTo", "forward_to", OPTIONAL),
    text_report("CreatedAt", lambda subscription, _: atom.instant(subscription.created_at)),
    text_report("UpdatedAt", lambda subscription, _: atom.instant(subscription.updated_at)),
    text_report("AccessedAt", lambda subscription, _: atom.instant(subscription.accessed_at)),
    Report("CountDetails", count_details),
    Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", OPTIONAL),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    text_report("EntityAvailabilityStatus", lambda subscription, _: subscription.availability),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
)


def read_topic_description(fields: Mapping[str, Element], base: TopicDescription) -> TopicDescription:
    """Return ``base`` with the values in ``fields``. Raises InvalidDescriptionError."""
    return read_fields(TOPIC, TOPIC_ELEMENTS, fields, base)


def write_topic_description(topic: Topic, now: int) -> str:
    """Return the whole description of ``topic`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(TOPIC, TOPIC_ELEMENTS, topic, topic.requested, now)


def read_subscription_description(
    fields: Mapping[str, Element], base: SubscriptionDescription
) -> SubscriptionDescription:
    """Return ``base`` with the values in ``fields``. Raises InvalidDescriptionError."""
    others = {name: field for name, field in fields.items() if name != DEFAULT_RULE_ELEMENT}
    return read_fields(SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, others, base)


def read_first_rule(fields: Mapping[str, Element], now: int) -> Rule | None:
    """Return the rule to create a subscription with; None for the default one. Raises as ``read_rule``."""
    found = fields.get(DEFAULT_RULE_ELEMENT)
    if found is None:
        return None
    inner = {child.tag.rpartition("}")[2]: child for child in found}
    name = inner["Name"].text if "Name" in inner else None
    return read_rule(inner, name or DEFAULT_RULE, now)


def write_subscription_description(subscription: Subscription, now: int) -> str:
    """Return the whole description of ``subscription`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, subscription, subscription.requested, now)
