"""The backlog queues of one pairing among the queues of its secondary namespace.

    wanted: contoso, 3         queues on the secondary             result
                               contoso/x-servicebus-transfer/0     present
                               contoso/x-servicebus-transfer/2     present; 1 is missing
                               contoso/x-servicebus-transfer/7     extra: left alone, and never drained
                               fabrikam/x-servicebus-transfer/0    of another pairing
                               orders                              not a backlog queue

Standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sbpair.pair.envelope.names import (
    backlog_queue_name,
    is_backlog_queue,
    is_ordered_backlog,
    ordered_backlog_name,
    path_key,
)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The backlog queues found on the secondary."""

    present: tuple[str, ...]
    """Wanted and existing, by index."""

    missing: tuple[str, ...]
    """Wanted, but not existing."""

    extra: tuple[str, ...]
    """Existing, with an index beyond the count that senders and syphon use."""

    others: dict[str, int]
    """Number of backlog queues by other primary."""


def take_inventory(
    queues: Iterable[str], namespace: str, count: int, *, is_ordered: bool = False
) -> Inventory:
    """Classify the names ``queues`` for a pairing of ``count`` backlog queues, or of as many ordered ones."""
    is_one = is_ordered_backlog if is_ordered else is_backlog_queue
    name_of = ordered_backlog_name if is_ordered else backlog_queue_name
    backlogs = {path_key(name): name for name in queues if is_one(name)}
    wanted = [name_of(namespace, index) for index in range(count)]
    keys = {path_key(name) for name in wanted}
    prefix = path_key(name_of(namespace, 0)).rpartition("/")[0] + "/"
    extra = [name for key, name in backlogs.items() if key.startswith(prefix) and key not in keys]
    others = Counter(key.partition("/")[0] for key in backlogs if not key.startswith(prefix))
    return Inventory(
        present=tuple(name for name in wanted if path_key(name) in backlogs),
        missing=tuple(name for name in wanted if path_key(name) not in backlogs),
        extra=tuple(sorted(extra, key=lambda name: (index_of(name), name))),
        others=dict(sorted(others.items())),
    )


def index_of(backlog: str) -> int:
    """The index at the end of a backlog queue's name."""
    return int(backlog.rpartition("/")[2])
