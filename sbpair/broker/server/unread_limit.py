"""The limit of unread answers of all clients of a namespace, above which the slowest is disconnected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

MAX_UNREAD_IN_ALL = 64 * 2**20  # bytes

Client = TypeVar("Client")


class UnreadLimit(Generic[Client]):
    """Tracks clients with unread answers; ``disconnect`` is called with the client that has had some for longest."""

    def __init__(self, disconnect: Callable[[Client], None]) -> None:
        self._disconnect = disconnect
        self._sizes: dict[Client, int] = {}  # in the order in which they stopped reading
        self.total = 0
        """Bytes of unread answers."""

    def note(self, client: Client, size: int) -> None:
        """Report the size of a client's unread answers, 0 when it has read them or is gone."""
        before = self._sizes.get(client, 0)
        if size == before:
            return
        self.total += size - before
        if size:
            self._sizes[client] = size
        else:
            del self._sizes[client]
        while self.total > MAX_UNREAD_IN_ALL:
            slowest = next(iter(self._sizes))
            self.total -= self._sizes.pop(slowest)
            self._disconnect(slowest)
