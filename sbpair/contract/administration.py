"""Creating, finding and deleting the entities of a run, over the SDK's administration client. Blocking."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceNotFoundError

from sbpair.pairing.partitions import create_as_the_namespace_asks

from .entry import Entity, Queue, Subscription, Topic
from .naming import is_ours

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

IDLE = timedelta(hours=1)  # what even --clean never reaches is deleted by the service, but for what forwards


def create(administration: ServiceBusAdministrationClient, entity: Entity, names: Mapping[str, str]) -> None:
    """Create an entity under its name in ``names``, by label. Raises AzureError."""
    match entity:
        case Queue():
            _create_queue(administration, entity, names)
        case Topic():
            _create_topic(administration, entity, names)
        case Subscription():
            _create_subscription(administration, entity, names)


def delete(administration: ServiceBusAdministrationClient, entity: Entity, name: str) -> None:
    """Delete a queue or topic, if it exists; subscriptions go with their topic. Raises AzureError."""
    try:
        if isinstance(entity, Queue):
            administration.delete_queue(name)
        elif isinstance(entity, Topic):
            administration.delete_topic(name)
    except ResourceNotFoundError:
        pass


def left_behind(
    administration: ServiceBusAdministrationClient, run: str | None = None
) -> Iterator[tuple[Entity, str]]:
    """The queues and topics that runs, or this one, created, with their names. Raises AzureError."""
    for queue in list(administration.list_queues()):
        if is_ours(queue.name, run):
            yield Queue(), queue.name
    for topic in _topics(administration):
        if is_ours(topic, run):
            yield Topic(), topic


def _topics(administration: ServiceBusAdministrationClient) -> list[str]:
    from azure.core.exceptions import HttpResponseError

    try:
        return [each.name for each in administration.list_topics()]
    except HttpResponseError as refusal:  # Basic has no topics
        if refusal.status_code in (400, 404):
            return []
        raise


def _span(seconds: float | None) -> timedelta | None:
    return None if seconds is None else timedelta(seconds=seconds)


def _create_queue(
    administration: ServiceBusAdministrationClient, queue: Queue, names: Mapping[str, str]
) -> None:
    create_as_the_namespace_asks(
        lambda is_partitioned: administration.create_queue(
            names[queue.label],
            auto_delete_on_idle=IDLE,
            lock_duration=_span(queue.lock),
            default_message_time_to_live=_span(queue.time_to_live),
            requires_session=queue.sessions or None,
            requires_duplicate_detection=queue.duplicates_within is not None or None,
            duplicate_detection_history_time_window=_span(queue.duplicates_within),
            max_delivery_count=queue.max_deliveries,
            dead_lettering_on_message_expiration=queue.dead_letters_expired or None,
            forward_to=None if queue.forward_to is None else names[queue.forward_to],
            forward_dead_lettered_messages_to=(
                None if queue.forward_dead_letters_to is None else names[queue.forward_dead_letters_to]
            ),
            enable_partitioning=is_partitioned if queue.partitioned is None else queue.partitioned,
            max_size_in_megabytes=queue.max_megabytes,
        )
    )


def _create_topic(
    administration: ServiceBusAdministrationClient, topic: Topic, names: Mapping[str, str]
) -> None:
    create_as_the_namespace_asks(
        lambda is_partitioned: administration.create_topic(
            names[topic.label],
            auto_delete_on_idle=IDLE,
            default_message_time_to_live=_span(topic.time_to_live),
            requires_duplicate_detection=topic.duplicates_within is not None or None,
            duplicate_detection_history_time_window=_span(topic.duplicates_within),
            enable_partitioning=is_partitioned if topic.partitioned is None else topic.partitioned,
        )
    )


def _create_subscription(
    administration: ServiceBusAdministrationClient, subscription: Subscription, names: Mapping[str, str]
) -> None:
    administration.create_subscription(
        names[subscription.topic],
        subscription.label,
        lock_duration=_span(subscription.lock),
        default_message_time_to_live=_span(subscription.time_to_live),
        requires_session=subscription.sessions or None,
        max_delivery_count=subscription.max_deliveries,
        dead_lettering_on_message_expiration=subscription.dead_letters_expired or None,
        forward_to=None if subscription.forward_to is None else names[subscription.forward_to],
    )
