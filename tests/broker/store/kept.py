"""A stored namespace that tests can close, crash and open again."""

from __future__ import annotations

import shutil
from dataclasses import fields
from pathlib import Path

from sbpair.broker.entities import Namespace, StoredMessage
from sbpair.broker.entities.change_log import ChangeLog
from sbpair.broker.entities.partition import Layout
from sbpair.broker.entities.queue import Queue
from sbpair.broker.entities.queue_partition import QueuePartition
from sbpair.broker.entities.quotas import Tier
from sbpair.broker.entities.topic import Subscription
from sbpair.broker.store.disk import Disk

NOON = 1_800_000_000_000
SMALL = 64 * 1024  # bytes of the reserve
MEANT = tuple(
    field.name
    for field in fields(StoredMessage)
    if field.name not in ("state", "lock_token", "locked_until", "reserved_number")
)


class Kept:
    """The namespace ``contoso`` in the data directory ``path``."""

    def __init__(self, path: Path, now: int = NOON, **settings: object) -> None:
        self.path = path
        self._settings = settings
        self.open(now)

    def open(self, now: int = NOON) -> None:
        settings = {"layout": Layout(), "tier": Tier.STANDARD} | self._settings
        self.namespace = Namespace("contoso", created_at=now, change_log=ChangeLog(), **settings)
        self.disk = Disk(self.path, SMALL)
        try:
            self.store = self.disk.attach(self.namespace, now)
        except BaseException:
            self.disk.close()
            raise

    def close(self) -> None:
        self.disk.close()

    def reopen(self, now: int = NOON) -> None:
        self.close()
        self.open(now)

    def crashed_copy(self, where: Path, now: int = NOON) -> Kept:
        """Open a copy of the files as they are now, as after a kill of this process."""
        shutil.copytree(self.path, where, ignore=shutil.ignore_patterns("reserve"))
        return Kept(where, now, **self._settings)

    @property
    def file(self) -> Path:
        return self.path / "contoso.sqlite"


def contents(namespace: Namespace, now: int) -> dict[str, object]:
    """Return everything that must survive a restart: descriptions, messages, numbers, ids and session states.

    Ids whose duplicate detection window has passed at ``now`` are left out, since they are removed lazily.
    """
    entities: list[Queue] = [*namespace.queues(), *namespace.topics()]
    entities += [each for topic in namespace.topics() for each in namespace.subscriptions(topic.path)]
    found: dict[str, object] = {}
    for entity in entities:
        found[entity.path] = (type(entity).__name__, entity.description, entity.created_at, entity.updated_at)
        if isinstance(entity, Subscription):
            found[f"{entity.path}/Rules"] = list(entity.rules)
        for place, queue in enumerate(entity.all_partitions()):
            found[f"{entity.path}[{place}]"] = _of_store(queue, now)
    return found


def _of_store(queue: QueuePartition, now: int) -> tuple[object, ...]:
    messages = [queue.message(number) for number in queue._messages.numbers_from(0)]
    sessions = {} if queue.sessions is None else queue.sessions._sessions
    states = {
        name: (each.state, each.state_set_at) for name, each in sessions.items() if each.state is not None
    }
    known = () if queue._duplicates is None else queue._duplicates._ids
    window = queue.description.duplicate_detection_history_time_window
    duplicates = [(at, name, queue._duplicates._numbers[name]) for at, name in known if at + window > now]
    return (
        queue.last_number,
        queue.size,
        [_of_message(message) for message in messages if message is not None],
        sorted(states.items()),
        duplicates,
    )


def _of_message(message: StoredMessage) -> dict[str, object]:
    meant = {name: getattr(message, name) for name in MEANT}
    return meant | {
        "rests": "scheduled" if message.state.name == "SCHEDULED" else "deferred" * message.is_deferred
    }
