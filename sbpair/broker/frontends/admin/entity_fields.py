"""The XML fields of queue, topic and subscription descriptions, and of their authorization rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from xml.etree.ElementTree import Element

from sbpair.pair.ground.entity_settings import SETTINGS, ValueKind

from ...auth import SharedAccessPolicy
from ...entities.descriptions import RIGHTS, AccessRule
from ...entities.queue import Queue
from ...entities.rules import DEFAULT_RULE, Rule, RuleSet
from ...entities.topic import Subscription, Topic
from ...errors import InvalidDescriptionError
from . import atom
from .fields import (
    ALWAYS,
    BEFORE_2021,
    BOOLEAN,
    DURATION,
    INTEGER,
    ON_READING,
    OPTIONAL,
    READ_SINCE_2024,
    SINCE_2021,
    STAMPED,
    TEXT,
    USUALLY,
    Echoed,
    Form,
    Nested,
    Placed,
    Report,
    Row,
    Setting,
    Versions,
    count_details,
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


QUEUE, TOPIC, SUBSCRIPTION = "QueueDescription", "TopicDescription", "SubscriptionDescription"
_NOT_YET = "0001-01-01T00:00:00"


def _no(_: Queue) -> str:
    return "false"


def _orders(queue: Queue) -> str:
    return "false" if queue.is_partitioned and not queue.layout.is_premium else "true"


def _sum(topic: Topic, count: Callable[[RuleSet], int]) -> str:
    return str(sum(count(subscription.rules) for subscription in topic.subscriptions.values()))


def _setting(element: str, versions: Versions = USUALLY) -> Setting:
    """Return the row of a setting, with the attribute and the type of the one table of settings."""
    setting = _BY_ELEMENT[element]
    return Setting(element, setting.name, _TYPES[setting.kind], versions)


_BY_ELEMENT = {each.element: each for each in SETTINGS.values()}
_TYPES = {
    ValueKind.FLAG: BOOLEAN,
    ValueKind.WHOLE: INTEGER,
    ValueKind.SPAN: DURATION,
    ValueKind.TEXT: OPTIONAL,
    ValueKind.WORD: TEXT,
    ValueKind.TARGET: OPTIONAL,
}

# The order and the versions of elements are those of answers of the service that were published. A user's text was
# seen behind AccessedAt, in both kinds.
QUEUE_ELEMENTS: tuple[Row[Queue], ...] = (
    _setting("LockDuration", ALWAYS),
    _setting("MaxSizeInMegabytes", ALWAYS),
    _setting("RequiresDuplicateDetection", ALWAYS),
    _setting("RequiresSession", ALWAYS),
    _setting("DefaultMessageTimeToLive", ALWAYS),
    _setting("DeadLetteringOnMessageExpiration", ALWAYS),
    _setting("DuplicateDetectionHistoryTimeWindow", ALWAYS),
    _setting("MaxDeliveryCount", ALWAYS),
    _setting("EnableBatchedOperations", ALWAYS),
    Report("SizeInBytes", lambda _, counts: str(counts.size_in_bytes), ALWAYS),
    Report("MessageCount", lambda _, counts: str(counts.total), ALWAYS),
    Echoed("IsAnonymousAccessible", _no),
    Nested(RULES, "authorization_rules", read_access_rules, write_access_rules),
    _setting("Status"),
    _setting("ForwardTo"),
    Report("CreatedAt", lambda queue, _: atom.instant(queue.created_at), STAMPED),
    Report("UpdatedAt", lambda queue, _: atom.instant(queue.updated_at), STAMPED),
    Report("AccessedAt", lambda queue, _: atom.instant(queue.accessed_at), ON_READING),
    _setting("UserMetadata"),
    Echoed("SupportOrdering", _orders),
    Report("CountDetails", count_details, ON_READING, is_markup=True),
    _setting("AutoDeleteOnIdle"),
    _setting("EnablePartitioning"),
    Report("EntityAvailabilityStatus", lambda queue, _: queue.availability),
    _setting("ForwardDeadLetteredMessagesTo"),
    _setting("EnableExpress"),
    _setting("MaxMessageSizeInKilobytes", SINCE_2021),
)
TOPIC_ELEMENTS: tuple[Row[Topic], ...] = (
    _setting("DefaultMessageTimeToLive", ALWAYS),
    _setting("MaxSizeInMegabytes", ALWAYS),
    _setting("RequiresDuplicateDetection", ALWAYS),
    _setting("DuplicateDetectionHistoryTimeWindow", ALWAYS),
    _setting("EnableBatchedOperations", ALWAYS),
    Report("SizeInBytes", lambda _, counts: str(counts.size_in_bytes), ALWAYS),
    _setting("FilteringMessagesBeforePublishing"),
    Echoed("IsAnonymousAccessible", _no),
    Nested(RULES, "authorization_rules", read_access_rules, write_access_rules),
    _setting("Status"),
    Report("CreatedAt", lambda topic, _: atom.instant(topic.created_at), STAMPED),
    Report("UpdatedAt", lambda topic, _: atom.instant(topic.updated_at), STAMPED),
    Report("AccessedAt", lambda topic, _: atom.instant(topic.accessed_at), ON_READING),
    _setting("UserMetadata"),
    _setting("SupportOrdering"),
    Report("CountDetails", count_details, ON_READING, is_markup=True),
    Report("SubscriptionCount", lambda topic, _: str(len(topic.subscriptions)), ON_READING),
    Report(  # true and false filters count as SQL; no answer with these counts was published
        "SqlFilterCount",
        lambda topic, _: _sum(topic, lambda rules: len(rules) - rules.correlation_filters),
        READ_SINCE_2024,
    ),
    Report(
        "CorrelationFilterCount",
        lambda topic, _: _sum(topic, lambda rules: rules.correlation_filters),
        READ_SINCE_2024,
    ),
    _setting("AutoDeleteOnIdle"),
    _setting("EnablePartitioning"),
    Echoed("IsExpress", _no, BEFORE_2021),
    Report("EntityAvailabilityStatus", lambda topic, _: topic.availability),
    _setting("EnableSubscriptionPartitioning"),
    _setting("EnableExpress"),
    _setting("MaxMessageSizeInKilobytes", SINCE_2021),
)
DEFAULT_RULE_ELEMENT = "DefaultRuleDescription"
SUBSCRIPTION_ELEMENTS: tuple[Row[Subscription], ...] = (
    _setting("LockDuration", ALWAYS),
    _setting("RequiresSession", ALWAYS),
    _setting("DefaultMessageTimeToLive", ALWAYS),
    _setting("DeadLetteringOnMessageExpiration", ALWAYS),
    _setting("DeadLetteringOnFilterEvaluationExceptions", ALWAYS),
    Placed(DEFAULT_RULE_ELEMENT),  # read, never written
    Report("MessageCount", lambda _, counts: str(counts.total), ALWAYS),
    _setting("MaxDeliveryCount", ALWAYS),
    _setting("EnableBatchedOperations", ALWAYS),
    _setting("Status"),
    _setting("ForwardTo"),
    Report("CreatedAt", lambda subscription, _: atom.instant(subscription.created_at)),
    Report("UpdatedAt", lambda subscription, _: atom.instant(subscription.updated_at)),
    Report("AccessedAt", lambda subscription, _: atom.instant(subscription.accessed_at), on_change=_NOT_YET),
    _setting("UserMetadata"),
    Report("CountDetails", count_details, ON_READING, is_markup=True),
    _setting("ForwardDeadLetteredMessagesTo"),
    _setting("AutoDeleteOnIdle"),
    Report("EntityAvailabilityStatus", lambda subscription, _: subscription.availability),
    Echoed("IsClientAffine", _no, SINCE_2021),
)


def read_first_rule(fields: Mapping[str, Element], now: int) -> Rule | None:
    """Return the rule to create a subscription with; None for the default one. Raises as ``read_rule``."""
    found = fields.get(DEFAULT_RULE_ELEMENT)
    if found is None:
        return None
    inner = {child.tag.rpartition("}")[2]: child for child in found}
    name = inner["Name"].text if "Name" in inner else None
    return read_rule(inner, name or DEFAULT_RULE, now)


def write_description(entity: Queue, form: Form) -> str:
    """Return the description of an entity of any kind in that form."""
    if isinstance(entity, Topic):
        return write_fields(TOPIC, TOPIC_ELEMENTS, entity, entity.requested, form)
    if isinstance(entity, Subscription):
        return write_fields(SUBSCRIPTION, SUBSCRIPTION_ELEMENTS, entity, entity.requested, form)
    return write_fields(QUEUE, QUEUE_ELEMENTS, entity, entity.description, form)
