"""Which element of a QueueDescription is which attribute of ours? One table, in the service's order."""

from __future__ import annotations

from collections.abc import Mapping
from xml.etree.ElementTree import Element

from ...entities import QueueDescription
from ...entities.entity import Entity
from . import atom
from .access_rule_fields import RULES, read_access_rules, write_access_rules
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
    shown,
    write_fields,
)

KIND = "QueueDescription"
ELEMENTS: tuple[Row[Entity], ...] = (
    Setting("LockDuration", "lock_duration", DURATION),
    Setting("MaxSizeInMegabytes", "max_size_in_megabytes", INTEGER),
    Setting("RequiresDuplicateDetection", "requires_duplicate_detection", BOOLEAN),
    Setting("RequiresSession", "requires_session", BOOLEAN),
    Setting("DefaultMessageTimeToLive", "default_message_time_to_live", DURATION),
    Setting("DeadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration", BOOLEAN),
    Setting("DuplicateDetectionHistoryTimeWindow", "duplicate_detection_history_time_window", DURATION),
    Setting("MaxDeliveryCount", "max_delivery_count", INTEGER),
    Setting("EnableBatchedOperations", "enable_batched_operations", BOOLEAN),
    shown("SizeInBytes", lambda _, counts: str(counts.size_in_bytes)),
    shown("MessageCount", lambda _, counts: str(counts.total)),
    shown("IsAnonymousAccessible", lambda *_: "false"),
    Nested(RULES, "authorization_rules", read_access_rules, write_access_rules),
    Setting("Status", "status", TEXT),
    shown("CreatedAt", lambda queue, _: atom.instant(queue.created_at)),
    shown("UpdatedAt", lambda queue, _: atom.instant(queue.updated_at)),
    shown("AccessedAt", lambda queue, _: atom.instant(queue.accessed_at)),
    shown("SupportOrdering", lambda *_: "true"),
    Report("CountDetails", count_details),
    Setting("AutoDeleteOnIdle", "auto_delete_on_idle", DURATION),
    Setting("EnablePartitioning", "enable_partitioning", BOOLEAN),
    shown("EntityAvailabilityStatus", lambda queue, _: queue.availability),
    Setting("EnableExpress", "enable_express", BOOLEAN),
    Setting("ForwardTo", "forward_to", OPTIONAL),
    Setting("UserMetadata", "user_metadata", OPTIONAL),
    Setting("ForwardDeadLetteredMessagesTo", "forward_dead_lettered_messages_to", OPTIONAL),
    Setting("MaxMessageSizeInKilobytes", "max_message_size_in_kilobytes", INTEGER),
)


def read_queue_description(fields: Mapping[str, Element], base: QueueDescription) -> QueueDescription:
    """``base`` with what ``fields`` set. Raises InvalidDescription, NotSupported."""
    return read_fields(KIND, ELEMENTS, fields, base)


def write_queue_description(queue: Entity, now: int) -> str:
    """The whole description of ``queue`` with its counts at ``now`` (ms since the epoch)."""
    return write_fields(KIND, ELEMENTS, queue, queue.description, now)
