"""Entity descriptions by kind: how requests create and update queues, topics and subscriptions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from xml.etree.ElementTree import Element

from ...entities import Namespace, QueueDescription, SubscriptionDescription, TopicDescription
from ...entities.descriptions import Description
from ...entities.queue import Queue
from ...entities.quotas import MAX_PREMIUM_MESSAGE, USUAL_PREMIUM_MESSAGE, Tier
from ...errors import (
    FieldOutOfRangeError,
    InvalidDescriptionError,
    MessageSizeNotOfferedError,
)
from .entity_fields import (
    QUEUE,
    QUEUE_ELEMENTS,
    SUBSCRIPTION,
    SUBSCRIPTION_ELEMENTS,
    TOPIC,
    TOPIC_ELEMENTS,
    read_first_rule,
)
from .fields import Row, read_fields

Fields = Mapping[str, Element]


@dataclass(frozen=True, slots=True)
class Change:
    """Creates or updates an entity: in a namespace, at a path, from fields, at a time in milliseconds.

    ``rows``: the elements of its description.
    """

    rows: tuple[Row[Any], ...]
    create: Callable[[Namespace, str, Fields, int], Queue]
    update: Callable[[Namespace, str, Fields, int], Queue]


def _create_queue(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    usual = QueueDescription(enable_partitioning=namespace.layout.is_premium)
    requested = read_fields(QUEUE_ELEMENTS, fields, usual)
    return namespace.create_queue(path, _check_sizes(namespace, requested, usual), now)


def _update_queue(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    current = namespace.queue(path).description
    requested = read_fields(QUEUE_ELEMENTS, fields, current)
    return namespace.update_queue(path, _check_sizes(namespace, requested, current), now)


def _create_topic(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    usual = TopicDescription(enable_partitioning=namespace.layout.is_premium)
    requested = read_fields(TOPIC_ELEMENTS, fields, usual)
    if "SupportOrdering" not in fields and namespace.tier is not Tier.PREMIUM:
        requested = replace(requested, support_ordering=not requested.enable_partitioning)
    return namespace.create_topic(path, _check_sizes(namespace, requested, usual), now)


def _update_topic(namespace: Namespace, path: str, fields: Fields, now: int) -> Queue:
    current = namespace.topic(path).requested
    requested = read_fields(TOPIC_ELEMENTS, fields, current)
    return namespace.update_topic(path, _check_sizes(namespace, requested, current), now)


def _check_sizes(namespace: Namespace, requested: Description, current: Description) -> Description:
    """Return ``requested``.

    Raises InvalidDescriptionError for a message or entity size that the service does not offer.

    An unchanged size is accepted, since a test may have set another one.
    """
    size = requested.max_message_size_in_kilobytes
    usual = (current.max_message_size_in_kilobytes, namespace.tier.usual_message)
    if namespace.tier is not Tier.PREMIUM and size not in usual:
        raise MessageSizeNotOfferedError(
            f"MaxMessageSizeInKilobytes is {size}: only the Premium tier lets you choose it."
        )
    if size is not None and size not in usual and not USUAL_PREMIUM_MESSAGE <= size <= MAX_PREMIUM_MESSAGE:
        limits = f"between {USUAL_PREMIUM_MESSAGE} and {MAX_PREMIUM_MESSAGE}"
        raise FieldOutOfRangeError(
            "max_message_size_in_kilobytes",
            size,
            limits,
            f"The property value for 'MaxMessageSizeInKilobytes' must be {limits} "
            f"when the namespace '{namespace.name}' is using 'Premium' tier.",
            str(size),
        )
    megabytes = requested.max_size_in_megabytes
    sizes: tuple[int, ...] = namespace.tier.sizes
    # the size of a partitioned entity is checked against the layout
    is_partitioned = requested.enable_partitioning and namespace.tier is not Tier.PREMIUM
    if not is_partitioned and megabytes not in sizes and megabytes != current.max_size_in_megabytes:
        raise InvalidDescriptionError(f"max_size_in_megabytes is {megabytes}: use one of {sizes}.")
    return requested


CHANGES: Mapping[str, Change] = {
    QUEUE: Change(QUEUE_ELEMENTS, _create_queue, _update_queue),
    TOPIC: Change(TOPIC_ELEMENTS, _create_topic, _update_topic),
}


def create_subscription(namespace: Namespace, topic: str, name: str, fields: Fields, now: int) -> Queue:
    """Create a subscription of ``topic``.

    Raises as :meth:`Namespace.create_subscription`, and InvalidDescriptionError for unreadable fields.
    """
    requested = read_fields(SUBSCRIPTION_ELEMENTS, fields, SubscriptionDescription()).normalize()
    return namespace.create_subscription(topic, name, requested, now, read_first_rule(fields, now))


def update_subscription(namespace: Namespace, topic: str, name: str, fields: Fields, now: int) -> Queue:
    """Replace a subscription's description. Raises as :func:`create_subscription`."""
    read_fields(SUBSCRIPTION_ELEMENTS, fields, SubscriptionDescription()).normalize()  # said first
    current = namespace.subscription(topic, name).requested
    requested = read_fields(SUBSCRIPTION_ELEMENTS, fields, current)
    return namespace.update_subscription(topic, name, requested, now)


__all__ = [
    "CHANGES",
    "SUBSCRIPTION",
    "SUBSCRIPTION_ELEMENTS",
    "Fields",
    "create_subscription",
    "update_subscription",
]
