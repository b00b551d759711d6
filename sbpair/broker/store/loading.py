"""What was there when the file was last written? Entities are made again, then each part is filled."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from typing import Any, cast

from ...amqp.types import DecodeError
from ..entities.access_rule import AccessRule
from ..entities.description import QueueDescription
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..entities.queue import Queue
from ..entities.stored_message import Instant
from ..entities.topic_description import SubscriptionDescription, TopicDescription
from ..errors import BrokerError, StoreDamaged, StoreError
from .columns import identity_of
from .rows import ChecksumDiffers, Row, unsealed
from .rule_rows import decoded
from .sqlite import SqliteStore, stores_of

_DAMAGE = (ChecksumDiffers, DecodeError, ValueError, TypeError, KeyError, IndexError, sqlite3.DatabaseError)


def load(store: SqliteStore, namespace: Namespace, now: Instant) -> None:
    """Fill an empty namespace; what is locked was given up with the process.

    Idleness counts from ``now`` on: nothing is deleted for a time in which it could not be used. Raises
    StoreDamaged, and StoreError where the namespace was of another kind.
    """
    try:
        _check_settings(store, namespace)
        namespace.created_at = int(store.setting("created_at", str(namespace.created_at)))
        queues = _entities(store, namespace, now)
        _fill(store, queues)
    except StoreError:
        raise
    except BrokerError as error:
        raise StoreDamaged(store.path, str(error)) from error
    except _DAMAGE as error:
        raise StoreDamaged(store.path, str(error) or "a checksum differs") from error
    store.journal.take()  # what was told while it was filled is written already


def _check_settings(store: SqliteStore, namespace: Namespace) -> None:
    kind = f"{namespace.tier.value} with {len(namespace.layout.stores)} partitions"
    found = store.setting("kind", kind)
    if found != kind:
        raise StoreError(
            f"The namespace in {store.path} is {found}, and not {kind}: start the broker as it was made."
        )


def _parts(store: SqliteStore) -> dict[int, list[tuple[int, int, Instant | None]]]:
    """Of each entity its parts in order: row id, last number, last access."""
    rows = (unsealed(row) for row in store.connection.execute("SELECT * FROM part ORDER BY entity, place"))
    return {
        cast(int, entity): [cast("tuple[int, int, int | None]", (row[0], row[3], row[4])) for row in mine]
        for entity, mine in groupby(rows, itemgetter(1))
    }


def _entity(namespace: Namespace, row: Row) -> tuple[int, Entity]:
    number, kind, topic, name, text, rules, created_at, updated_at = cast("tuple[Any, ...]", row)
    fields = json.loads(text)
    entity = _MAKERS[kind](namespace, topic, name, fields, rules, created_at)
    for queue in stores_of(entity):
        queue.updated_at = updated_at
    return number, entity


_MAKERS: dict[str, Callable[[Namespace, str, str, dict[str, Any], bytes, Instant], Entity]] = {
    "queue": lambda namespace, _, name, fields, rules, at: namespace.restore_queue(
        name, QueueDescription(**_described(fields)), at
    ),
    "topic": lambda namespace, _, name, fields, rules, at: namespace.restore_topic(
        name, TopicDescription(**_described(fields)), at
    ),
    "subscription": lambda namespace, topic, name, fields, rules, at: namespace.restore_subscription(
        topic, name, SubscriptionDescription(**fields), decoded(rules), at
    ),
}


def _described(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a queue or topic: its rules were written as what they are made of."""
    rules = fields.pop("authorization_rules", ())
    made = (AccessRule(**{**rule, "rights": tuple(rule["rights"])}) for rule in rules)
    return {**fields, "authorization_rules": tuple(made)}


def _entities(store: SqliteStore, namespace: Namespace, now: Instant) -> dict[int, Queue]:
    """Make the entities; their parts, by number."""
    parts, queues = _parts(store), dict[int, Queue]()
    for row in store.connection.execute("SELECT * FROM entity ORDER BY id"):
        number, entity = _entity(namespace, unsealed(row))
        mine = parts.pop(number, [])
        store.took(entity, number, [part for part, *_ in mine])
        for queue, (part, last, accessed_at) in zip(stores_of(entity), mine, strict=True):
            queues[part] = queue
            queue.go_on_after(last)
            queue.accessed_at = accessed_at
        if entity.description.auto_delete_on_idle is not None:
            entity.touch(now)
    if parts:
        raise KeyError(f"the entity {min(parts)} is missing")
    return queues


def _fill(store: SqliteStore, queues: dict[int, Queue]) -> None:
    """Each table is read whole, not by queue: so no row is passed over where an inner page lies."""
    execute = store.connection.execute
    store.fill(queues)
    for row in execute("SELECT * FROM accepted ORDER BY part, at, number"):
        part, at, number, message_id = cast("tuple[int, int, int, bytes]", unsealed(row))
        queues[part].restore_accepted(identity_of(message_id), number, at)
    for row in execute("SELECT * FROM session"):
        part, session_id, state, set_at = cast("tuple[int, str, bytes, int]", unsealed(row))
        sessions = queues[part].sessions
        if sessions is None:
            raise KeyError(f"the sessions of '{queues[part].path}' are missing")
        sessions.restore(session_id, state, set_at)
