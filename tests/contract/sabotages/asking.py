"""Brokers with another administration API, and brokers that ignore what is asked of an entity."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.servicebus.management import NamespaceProperties, QueueProperties, ServiceBusAdministrationClient

from sbpair.broker.entities.descriptions import validated_path
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.queue_partition import QueueCounts
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.errors import InvalidDescriptionError

from .sabotage import Sabotage

MOST_DELIVERIES = 2000
SETTINGS = (
    "time_to_live",
    "duplicates_within",
    "max_deliveries",
    "dead_letters_expired",
    "forward_to",
    "forward_dead_letters_to",
    "partitioned",
    "max_megabytes",
)
"""Settings of an entity that a broker might ignore."""


class OtherAdministration:
    """An administration API with other defaults, without conflicts, that finds what is missing."""

    def __init__(self, inner: ServiceBusAdministrationClient) -> None:
        self._inner = inner

    def __enter__(self) -> OtherAdministration:
        return self

    def __exit__(self, *what: object) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_queue(self, name: str, *, forward_to: str | None = None, **settings: object) -> None:
        with suppress(ResourceExistsError):
            self._inner.create_queue(name, **settings)

    def get_queue(self, name: str) -> QueueProperties | None:
        try:
            found = self._inner.get_queue(name)
        except HttpResponseError:
            return next(iter(self._inner.list_queues()), None)
        found.lock_duration = timedelta(seconds=30)
        found.default_message_time_to_live = timedelta(days=7)
        found.auto_delete_on_idle = timedelta(days=7)
        return found

    def get_namespace_properties(self) -> NamespaceProperties:
        found = self._inner.get_namespace_properties()
        found.namespace_type = "Relay"
        return found

    def update_queue(self, queue: QueueProperties) -> None:
        """Change nothing."""


def _without_slash(path: str) -> str:
    if "/" in path:
        raise InvalidDescriptionError(f"The name {path!r} has a slash.")
    return validated_path(path)


def _with_low_limits(tier: Tier, requested: object) -> object:
    if requested.max_delivery_count > MOST_DELIVERIES:
        raise InvalidDescriptionError(f"max_delivery_count is above {MOST_DELIVERIES}.")
    return _resolved(tier, requested)


def _all_active(queue: Queue, now: int) -> QueueCounts:
    counts = _counts(queue, now)
    return replace(counts, active=counts.active + counts.dead_letter)


_resolved, _counts = Tier.resolve, Queue.counts
SABOTAGES = {
    "names with slashes are refused": Sabotage(
        {"names-1": "has a slash"}, {"sbpair.broker.entities.namespace.validated_path": _without_slash}
    ),
    "limits of queues are low": Sabotage(
        {"names-2": "above 2000"},
        {"sbpair.broker.entities.quotas.Tier.resolve": _with_low_limits},
    ),
    "dead letters count as active": Sabotage(
        {"names-11": "2 active"}, {"sbpair.broker.entities.queue.Queue.counts": _all_active}
    ),
    "settings have no ranges": Sabotage(
        {"names-3": "they gave [0, 0, "},
        {"sbpair.broker.entities.descriptions.range_of": lambda *what: None},
    ),
    "the administration is another": Sabotage(
        {
            "names-4": "is 7 days",
            "names-5": "is 7 days",
            "names-8": "gave a success",
            "forwarding-2": "switched it off",
            "forwarding-4": "gave a success",
            "errors-1": "refused with {''}",
            "errors-2": "refused with ''",
            "errors-3": "refused with ''",
            "errors-4": "a send was accepted",
            "names-9": "they gave",
            "names-6": "Standard, Relay",
        },
        administration=OtherAdministration,
    ),
    "settings are ignored": Sabotage(
        {
            "names-7": "dead-lettering is False",
            "locks-8": "a message came that should not",
            "expiry-5": "a message came that should not",
            "duplicates-2": "a message came that should not",
            "duplicates-5": "a message came that should not",
            "duplicates-7": "a message came that should not",
            "duplicates-1": "they came as",
            "sessions-15": "a message was expected",
            "names-12": "max_delivery_count is 10",
            "names-13": "default_message_time_to_live is",
            "topics-14": "a message came that should not",
            "topics-15": "a message was expected",
            "forwarding-8": "switched it off",
            "partitions-9": "the answer is accepted",
            "topics-9": "a message came that should not",
            "topics-11": "a message came that should not",
            "topics-12": "a message was expected",
            "forwarding-1": "switched it off",
            "forwarding-3": "a message was expected",
            "partitions-2": "the partitions are {0}",
            "partitions-3": "the answer is accepted",
            "partitions-5": "a message came that should not",
            "partitions-6": "it was committed",
            "partitions-8": "it is 1024 MB",
        },
        ignores=SETTINGS,
    ),
}
