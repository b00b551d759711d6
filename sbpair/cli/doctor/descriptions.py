"""What do the descriptions of queues say, where the key may see them?"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import (
    QueueProperties,
    QueueRuntimeProperties,
    ServiceBusAdministrationClient,
)

from sbpair.cli.source import Source
from sbpair.pairing.address import SdkSettings
from sbpair.pairing.backlog import differences

from .facts import Backlog, Destination

MEBIBYTE = 1_048_576
LIMITLESS = timedelta(days=10_000_000)


def administration(source: Source, side: str, ca_file: str | None) -> ServiceBusAdministrationClient:
    settings = SdkSettings(connection_verify=ca_file)
    return source.side(side, settings).administration()


def queue_of(client: ServiceBusAdministrationClient, path: str) -> QueueProperties | None:
    try:
        return client.get_queue(path)
    except ResourceNotFoundError:
        return None  # a topic, perhaps


def described_backlog(
    backlog: Backlog, described: dict[str, QueueProperties], sizes: dict[str, QueueRuntimeProperties]
) -> Backlog:
    queue = next(
        (each for name, each in described.items() if name.casefold() == backlog.name.casefold()), None
    )
    if queue is None:
        return backlog
    return replace(
        backlog,
        differences=tuple(differences(queue)),
        time_to_live=_seconds(queue.default_message_time_to_live),
        lock=_seconds(queue.lock_duration),
        capacity=MEBIBYTE * queue.max_size_in_megabytes if queue.max_size_in_megabytes else None,
        used=(sizes[queue.name].size_in_bytes or 0) if queue.name in sizes else 0,
    )


def described_destination(destination: Destination, queue: QueueProperties | None) -> Destination:
    if queue is None:
        return destination
    window = queue.duplicate_detection_history_time_window if queue.requires_duplicate_detection else None
    return replace(
        destination,
        status=str(getattr(queue.status, "value", queue.status)),
        duplicate_window=_seconds(window),
        time_to_live=_seconds(queue.default_message_time_to_live),
    )


def _seconds(span: object) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) and span < LIMITLESS else None
