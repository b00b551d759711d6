"""Which queues of a secondary namespace are the backlog of one primary, and which are odd? (P-10, P-13)

    asked for: contoso, 3      queues on the secondary             sorted out
                               contoso/x-servicebus-transfer/0     present
                               contoso/x-servicebus-transfer/2     present; 1 is missing
                               contoso/x-servicebus-transfer/7     extra: left alone, but nobody drains it
                               fabrikam/x-servicebus-transfer/0    another pairing's
                               orders                              no backlog queue

Pure: the standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from .names import backlog_queue_name, is_backlog_queue, path_key


@dataclass(frozen=True, slots=True)
class Inventory:
    """The backlog queues of one pairing, as they were found on the secondary."""

    present: tuple[str, ...]
    """Of those asked for, in the order of their index."""

    missing: tuple[str, ...]
    """Asked for, and not there."""

    extra: tuple[str, ...]
    """There, but with an index that senders and syphon of this count never use (P-13)."""

    others: dict[str, int]
    """How many backlog queues each other primary has on this secondary."""


def take_inventory(queues: Iterable[str], namespace: str, count: int) -> Inventory:
    """Sort out the names of ``queues`` for a pairing of ``count`` backlog queues."""
    backlogs = {path_key(name): name for name in queues if is_backlog_queue(name)}
    wanted = [backlog_queue_name(namespace, index) for index in range(count)]
    keys = {path_key(name) for name in wanted}
    prefix = path_key(backlog_queue_name(namespace, 0)).rpartition("/")[0] + "/"
    extra = [name for key, name in backlogs.items() if key.startswith(prefix) and key not in keys]
    others = Counter(key.partition("/")[0] for key in backlogs if not key.startswith(prefix))
    return Inventory(
        present=tuple(name for name in wanted if path_key(name) in backlogs),
        missing=tuple(name for name in wanted if path_key(name) not in backlogs),
        extra=tuple(sorted(extra, key=lambda name: (index_of(name), name))),
        others=dict(sorted(others.items())),
    )


def index_of(backlog: str) -> int:
    """The number at the end of a backlog queue's name."""
    return int(backlog.rpartition("/")[2])
