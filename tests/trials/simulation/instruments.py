"""Instruments that record the actions of the brokers' entities: copies stored, locked, completed, dead-lettered."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol
from unittest.mock import patch

from sbpair.broker.entities.message_store import REASON
from sbpair.broker.entities.namespace import Namespace
from sbpair.broker.entities.queue_partition import QueuePartition
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.entities.timers import Call
from sbpair.broker.errors import PartitionUnavailableError


class Watcher(Protocol):
    def stored(self, queue: QueuePartition, message: StoredMessage) -> None: ...
    def completed(self, queue: QueuePartition, message: StoredMessage) -> None: ...
    def not_completed(self, queue: QueuePartition, message: StoredMessage) -> None: ...
    def set_aside(self, path: str, message_id: str, reason: str) -> None: ...
    def locked(self, path: str, message: StoredMessage) -> None: ...
    def later(self) -> AbstractContextManager[None]: ...


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """Tell the watcher of what every queue does, partitions among them.

    What a namespace puts off (Q-16) is done within ``watcher.later()``, asked for when it is put off.
    """
    held: dict[object, StoredMessage] = {}
    enqueue_all, lock_all, complete, complete_all, dead_letter = (
        QueuePartition.enqueue_all,
        QueuePartition._lock_all,
        QueuePartition.complete,
        QueuePartition.complete_all,
        QueuePartition.dead_letter,
    )

    def enqueue(self: QueuePartition, messages: Sequence[StoredMessage], now: int) -> list[int]:
        numbers = enqueue_all(self, messages, now)
        for message in messages:
            watcher.stored(self, message)
        return numbers

    def hold(self: QueuePartition, messages: Sequence[StoredMessage], *args: object) -> None:
        lock_all(self, messages, *args)  # type: ignore[arg-type]
        for message in messages:
            held[message.lock_token] = message
            watcher.locked(self.path, message)

    def done(self: QueuePartition, token: object, now: int) -> None:
        try:
            complete(self, token, now)  # type: ignore[arg-type]
        except PartitionUnavailableError:
            watcher.not_completed(self, held[token])
            raise
        watcher.completed(self, held.pop(token))

    def done_all(self: QueuePartition, tokens: Sequence[object], now: int) -> bool:
        are_done = complete_all(self, tokens, now)  # type: ignore[arg-type]
        for token in tokens if are_done else ():
            watcher.completed(self, held.pop(token))
        return are_done

    def bury(self: QueuePartition, token: object, now: int, properties: dict[str, object]) -> None:
        dead_letter(self, token, now, properties)  # type: ignore[arg-type]
        message_id = str(held.pop(token).message_id)
        watcher.set_aside(self.path, message_id, str(properties.get(REASON, "")))

    replaced: dict[str, Callable[..., object]] = {
        "enqueue_all": enqueue,
        "_lock_all": hold,
        "complete": done,
        "complete_all": done_all,
        "dead_letter": bury,
    }
    call_at = Namespace.call_at

    def put_off(self: Namespace, at: int, call: Call) -> None:
        resumed = watcher.later()

        def resume(now: int) -> None:
            with resumed:
                call(now)

        call_at(self, at, resume)

    with ExitStack() as stack:
        stack.enter_context(patch.object(Namespace, "call_at", put_off))
        for name, instead in replaced.items():
            stack.enter_context(patch.object(QueuePartition, name, instead))
        yield
