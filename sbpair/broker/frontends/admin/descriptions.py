"""Entity descriptions by kind: how requests create, update and show queues, topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from ...entities import Namespace, QueueDescription, SubscriptionDescription, TopicDescription
from ...entities.descriptions import Description
from ...entities.queue import Queue
from ...entities.quotas import MAX_PREMIUM_MESSAGE, USUAL_PREMIUM_MESSAGE, Tier
from ...entities.topic import Subscription, Topic
from ...errors import InvalidDescriptionError
from .entity_fields import (
    SUBSCRIPTION,
    TOPIC,
    read_first_rule,
    read_queue_description,
    read_subscription_description,
    read_topic_description,
    write_queue_description,
    write_subscription_description,
    write_topic_description,
)

QUEUE = "QueueDescription"
Fields = Mapping[str, Element]


@dataclass(frozen=True, slots=True)
class Change:
    """Creates or updates an entity: in a namespace, at a path, from fields, at a time in milliseconds."""

    create: Callable[[Namespace, str, Fields, int], Queue]
    update: Callable[[Namespace, str, Fields, int], Queue]


def _create_queue(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    usual = QueueDescription(enable_partitioning=namespace.layout.is_premium)
    requested = read_queue_description(fields, usual)
    return namespace.create_queue(path, _check_sizes(namespace, requested, usual), now)


def _update_queue(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    current = namespace.queue(path).description
    return namespace.update_queue(
        path, _check_sizes(namespace, read_queue_description(fields, current), current), now
    )


def _create_topic(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    usual = TopicDescription(enable_partitioning=namespace.layout.is_premium)
    requested = read_topic_description(fields, usual)
    return namespace.create_topic(path, _check_sizes(namespace, requested, usual), now)


def _update_topic(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    current = namespace.topic(path).requested
    return namespace.update_topic(
        path, _check_sizes(namespace, read_topic_description(fields, current), current), now
    )


def _check_sizes(namespace: Namespace, requested: Description, current: Description) -> Description:
    """Return ``requested``.

    Raises InvalidDescriptionError for a message or entity size that the service does not offer.

    An unchanged size is accepted, since a test may have set another one.
    """
    size = requested.max_message_size_in_kilobytes
    usual = (current.max_message_size_in_kilobytes, namespace.tier.usual_message)
    if namespace.tier is not Tier.PREMIUM and size not in usual:
        raise InvalidDescriptionError(
            f"MaxMessageSizeInKilobytes is {size}: only the Premium tier lets you choose it."
        )
    if size is not None and size not in usual and not USUAL_PREMIUM_MESSAGE <= size <= MAX_PREMIUM_MESSAGE:
        raise InvalidDescriptionError(
            "The specified value for 'MaxMessageSizeInKilobytes' must be between "
            f"{USUAL_PREMIUM_MESSAGE} and {MAX_PREMIUM_MESSAGE}."
        )
    megabytes = requested.max_size_in_megabytes
    sizes: tuple[int, ...] = namespace.tier.sizes
    # the size of a partitioned entity is checked against the layout
    is_partitioned = requested.enable_partitioning and namespace.tier is not Tier.PREMIUM
    if not is_partitioned and megabytes not in sizes and megabytes != current.max_size_in_megabytes:
        raise InvalidDescriptionError(f"max_size_in_megabytes is {megabytes}: use one of {sizes}.")
    return requested


CHANGES: Mapping[str, Change] = {
    QUEUE: Change(_create_queue, _update_queue),
    TOPIC: Change(_create_topic, _update_topic),
}


def create_subscription(namespace: Namespace, topic: str, name: str, fields: Fields, now: int) -> Queue:
    """Create a subscription of ``topic``.

    Raises as :meth:`Namespace.create_subscription`, and InvalidDescriptionError for unreadable fields.
    """
    requested = read_subscription_description(fields, SubscriptionDescription())
    return namespace.create_subscription(topic, name, requested, now, read_first_rule(fields, now))


def update_subscription(namespace: Namespace, topic: str, name: str, fields: Fields, now: int) -> Queue:
    """Replace a subscription's description. Raises as :func:`create_subscription`."""
    current = namespace.subscription(topic, name).requested
    requested = read_subscription_description(fields, current)
    return namespace.update_subscription(topic, name, requested, now)


def write_description(entity: Queue, now: int) -> str:
    """Return the description of an entity of any kind, with its counts at ``now`` (ms since the epoch)."""
    if isinstance(entity, Topic):
        return write_topic_description(entity, now)
    if isinstance(entity, Subscription):
        return write_subscription_description(entity, now)
    return write_queue_description(entity, now)


def title_of(entity: Queue) -> str:
    """Return the title of the entity's entry, from which SDKs take a subscription's name and a queue's path."""
    return entity.name if isinstance(entity, Subscription) else entity.path


__all__ = [
    "CHANGES",
    "QUEUE",
    "SUBSCRIPTION",
    "TOPIC",
    "create_subscription",
    "title_of",
    "update_subscription",
    "write_description",
]
