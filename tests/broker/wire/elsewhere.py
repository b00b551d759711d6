"""Adapt a namespace elsewhere to the tests on the wire, through its administration API.

A test that needs a broker in this process, for its clock, faults or counters, is skipped.
"""

from __future__ import annotations

import itertools
import os
import re
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NoReturn, cast

import certifi
import pytest
from azure.core.exceptions import ResourceNotFoundError
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import NamespaceControl

TARGET = os.environ.get("SBPAIR_TEST_CONNECTION_STRING")
"""Another namespace to run against, the cloud's or a broker's; None for our own, in this process."""
TRUST = os.environ.get("SBPAIR_TEST_CA_FILE") or certifi.where()
PREFIX = f"sbpair-{int(time.time())}-{uuid.uuid4().hex[:8]}"
FORGOTTEN = 86_400  # seconds; a later run removes what a killed run created
_NUMBERS = itertools.count()
_SUBSCRIPTIONS = "/Subscriptions/"


def fresh(what: str) -> str:
    """Return a name that is unique to this test and run, with the prefix by which leftovers are removed."""
    return f"{PREFIX}-{what}-{next(_NUMBERS)}"


def entity_time(namespace: NamespaceControl | Elsewhere) -> datetime:
    """The time by which a namespace's entities live: tests advance that of our own."""
    if isinstance(namespace, Elsewhere):
        return datetime.now(UTC)
    return datetime.fromtimestamp(namespace.server.read_clocks().entity / 1000, UTC)


def is_forgotten(name: str, now: float) -> bool:
    """Whether an entity was created by a run that began more than a day ago."""
    first, _, rest = name.partition("-")
    begun = rest.partition("-")[0]
    return first == "sbpair" and begun.isdigit() and int(begun) + FORGOTTEN < now


@dataclass(frozen=True, slots=True)
class Counts:
    """Like QueueCounts; the service reports deferred messages only as the rest."""

    active: int
    dead_letter: int
    scheduled: int
    total: int

    @property
    def deferred(self) -> int:
        return self.total - self.active - self.dead_letter - self.scheduled


class Elsewhere:
    """The part of NamespaceControl that the administration API can provide."""

    def __init__(self, target: str) -> None:
        self.connection_string = target
        self._client = ServiceBusAdministrationClient.from_connection_string(target, connection_verify=TRUST)
        self._made: list[Callable[[], None]] = []
        self._topics: set[str] = set()

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"needs the broker's own control: {name}")

    @property
    def port(self) -> int:
        """The port of a broker on this machine, which also serves plain HTTP."""
        local = re.match(r"Endpoint=sb://(?:localhost|127\.0\.0\.1):(\d+)", self.connection_string)
        if local is None:
            pytest.skip("needs plain HTTP, which the service does not speak")
        return int(local[1])

    def create_queue(self, path: str, **fields: object) -> None:
        self._client.create_queue(path, **_spelt(fields))
        self._made.append(lambda: self._client.delete_queue(path))

    def create_topic(self, path: str, **fields: object) -> None:
        self._client.create_topic(path, **_spelt(fields))
        self._topics.add(path)
        self._made.append(lambda: self._client.delete_topic(path))

    def create_subscription(self, topic: str, name: str, **fields: object) -> None:
        self._client.create_subscription(topic, name, **_spelt(fields))

    def delete_queue(self, path: str) -> None:
        self._client.delete_queue(path)

    def delete_topic(self, path: str) -> None:
        self._client.delete_topic(path)

    def queue_names(self) -> list[str]:
        return [each.name for each in self._client.list_queues()]

    def topic_names(self) -> list[str]:
        return [each.name for each in self._client.list_topics()]

    def counts(self, path: str) -> Counts:
        topic, is_subscription, name = path.partition(_SUBSCRIPTIONS)
        if is_subscription:
            told = self._client.get_subscription_runtime_properties(topic, name)
            scheduled = 0
        elif path in self._topics:
            told = self._client.get_topic_runtime_properties(path)
            return Counts(0, 0, told.scheduled_message_count, told.scheduled_message_count)
        else:
            told = self._client.get_queue_runtime_properties(path)
            scheduled = told.scheduled_message_count
        active, dead = told.active_message_count, told.dead_letter_message_count
        return Counts(active, dead, scheduled, told.total_message_count)

    def sweep(self) -> None:
        """Remove what earlier runs left behind."""
        now = time.time()
        for names, delete in (
            (self.queue_names(), self.delete_queue),
            (self.topic_names(), self.delete_topic),
        ):
            for name in names:
                if is_forgotten(name, now):
                    delete(name)

    def close(self) -> None:
        """Remove what was created, in reverse order."""
        for remove in reversed(self._made):
            with suppress(ResourceNotFoundError):  # a test removed it
                remove()
        for names, delete in (
            (self.queue_names(), self.delete_queue),
            (self.topic_names(), self.delete_topic),
        ):
            for name in names:
                if name.startswith(PREFIX):  # made by a test's own administration client
                    delete(name)
        self._client.close()


class BrokerElsewhere:
    """The part of Broker that a client can observe."""

    ca_file = Path(TRUST)

    def __init__(self, namespace: Elsewhere) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> NoReturn:
        pytest.skip(f"needs the broker's own control: {name}")

    def namespace(self, name: str) -> Elsewhere:
        """Return the only namespace, whatever its name."""
        return self._namespace


SPANS = {
    "lock_duration",
    "default_message_time_to_live",
    "duplicate_detection_history_time_window",
    "auto_delete_on_idle",
}


def _spelt(fields: dict[str, object]) -> dict[str, object]:
    """Convert the broker's field names to those of the administration client."""
    if "max_message_size_in_kilobytes" in fields or "max_message_size" in fields:
        pytest.skip("needs a namespace of the Premium tier")
    if cast(int, fields.get("max_size_in_megabytes", 1024)) < 1024:
        pytest.skip("needs a namespace that takes small sizes")
    return {
        name: timedelta(milliseconds=value) if name in SPANS and isinstance(value, int) else value
        for name, value in fields.items()
        if value is not None
    }
