"""Creating, finding and deleting the entities of a run, over the SDK's administration client. Blocking."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from azure.core.exceptions import ResourceNotFoundError

from sbpair.pair.ground import entity_settings as settings
from sbpair.pair.pairing.shared.partitions import create_as_the_namespace_asks

from .entry import Entity, Queue, Subscription, Topic
from .naming import is_ours
from .target import Target

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

IDLE = timedelta(hours=1)  # the service deletes leftovers that --clean does not reach, unless they forward


SETTINGS = {
    "lock": settings.LOCK_DURATION,
    "time_to_live": settings.TIME_TO_LIVE,
    "duplicates_within": settings.DUPLICATE_WINDOW,
    "sessions": settings.SESSIONS,
    "max_deliveries": settings.MAX_DELIVERIES,
    "dead_letters_expired": settings.DEAD_LETTER_EXPIRED,
    "max_megabytes": settings.SIZE,
    "forward_to": settings.FORWARD_TO,
    "forward_dead_letters_to": settings.FORWARD_DEAD_LETTERS_TO,
}
"""The SDK's names of the settings that an entity may have."""


def create(administration: ServiceBusAdministrationClient, entity: Entity, names: Mapping[str, str]) -> None:
    """Create an entity under its name in ``names``, by label. Raises AzureError."""
    given = settings_of(entity, names)
    if isinstance(entity, Subscription):
        administration.create_subscription(names[entity.topic], entity.label, **given)
        return
    make = administration.create_queue if isinstance(entity, Queue) else administration.create_topic
    create_as_the_namespace_asks(
        lambda is_partitioned: make(
            names[entity.label],
            auto_delete_on_idle=IDLE,
            enable_partitioning=is_partitioned if entity.partitioned is None else entity.partitioned,
            **given,
        )
    )


def settings_of(entity: Entity, names: Mapping[str, str]) -> dict[str, Any]:
    """The settings of an entity by the SDK's names, without those left to the service."""
    found: dict[str, Any] = {}
    for name, setting in SETTINGS.items():
        value = getattr(entity, name, None)
        if value is not None and value is not False:
            span = timedelta(seconds=value) if setting.kind is settings.ValueKind.SPAN else value
            found |= setting.set_to(names[value] if setting in settings.TARGETS else span)
    if settings.DUPLICATE_WINDOW.name in found:
        found |= settings.DUPLICATE_DETECTION.set_to(True)
    return found


def delete(administration: ServiceBusAdministrationClient, entity: Entity, name: str) -> None:
    """Delete a queue or topic if it exists; its subscriptions are deleted with a topic. Raises AzureError."""
    try:
        if isinstance(entity, Queue):
            administration.delete_queue(name)
        elif isinstance(entity, Topic):
            administration.delete_topic(name)
    except ResourceNotFoundError:
        pass


@dataclass(frozen=True, slots=True)
class Leftover:
    """A queue or topic that a run created."""

    entity: Entity
    name: str


def leftovers(target: Target, run: str | None = None) -> list[Leftover]:
    """Return the entities left in a namespace by earlier runs, or only by ``run``. Raises AzureError."""
    with target.administration() as administration:
        found = [Leftover(Queue(), each.name) for each in administration.list_queues()]
        found += [Leftover(Topic(), name) for name in _topics(administration)]
    return [each for each in found if is_ours(each.name, run)]


def clean(target: Target, found: list[Leftover]) -> None:
    """Delete these leftovers. Raises AzureError."""
    if found:
        with target.administration() as administration:
            for each in found:
                delete(administration, each.entity, each.name)


def _topics(administration: ServiceBusAdministrationClient) -> list[str]:
    from azure.core.exceptions import HttpResponseError

    try:
        return [each.name for each in administration.list_topics()]
    except HttpResponseError as refusal:  # Basic has no topics
        if refusal.status_code in (400, 404):
            return []
        raise
