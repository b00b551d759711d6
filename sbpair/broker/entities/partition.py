"""One of the stores that a partitioned entity is spread over: is it well, and who knows?

    UP --- take_down ---> DOWN        what is in it waits; senders learn of it at ``known_from`` (Q-16)
     ^                      |
     '------ bring_up ------+-------- THROTTLED    takes no message, hands out those it has

An entity's partition stands on the namespace's store of the same index: where that one is down, it is.
"""

from __future__ import annotations

from enum import Enum
from zlib import crc32

from ..errors import NotAllowed, PartitionUnavailable, ServerBusy
from .stored_message import Instant, StoredMessage

PARTITIONS = 16
"""How many a partitioned entity of a Basic or Standard namespace has (Q-2)."""

PREMIUM_PARTITIONS = (1, 2, 4)
"""How many a Premium namespace may be made with (Q-2)."""

INDEX_SHIFT = 48
"""The partition's index is above these bits of a sequence number (Q-10)."""


class Health(Enum):
    """What a partition does for those who ask."""

    UP = "up"
    DOWN = "down"
    THROTTLED = "throttled"


class Partition:
    """A partition by its ``index``, from 0; ``store`` is the namespace's, None for that itself."""

    __slots__ = ("_known_from", "_own", "health", "index", "store")

    def __init__(self, index: int, store: Partition | None = None) -> None:
        self.index = index
        self.store = store
        self.health: Health  # the worse of its own and its store's: see refresh
        self._own = Health.UP
        self._known_from: Instant = 0
        self.refresh()

    @property
    def known_from(self) -> Instant:
        """From when on senders without a key are led around it, if it is down."""
        if self._own is Health.UP and self.store is not None:
            return self.store._known_from
        return self._known_from

    def set(self, health: Health, known_from: Instant = 0) -> None:
        """Be in this state from now on; what stands on it is to be refreshed."""
        self._own = health
        self._known_from = known_from
        self.refresh()

    def refresh(self) -> None:
        """Follow the store."""
        store = self.store
        if self._own is Health.DOWN or store is None or store.health is Health.UP:
            self.health = self._own
        else:
            self.health = store.health

    def check_up(self, path: str) -> None:
        """Raises PartitionUnavailable when it is down."""
        if self.health is Health.DOWN:
            raise PartitionUnavailable(path, self.index)

    def check_takes(self, path: str) -> None:
        """Raises PartitionUnavailable when it is down, ServerBusy when it is throttled (Q-4)."""
        self.check_up(path)
        if self.health is Health.THROTTLED:
            raise ServerBusy


def key_of(message: StoredMessage, *, detects_duplicates: bool) -> str | None:
    """What decides the partition of ``message`` (Q-6); None when nothing does."""
    if message.session_id is not None:
        return message.session_id
    if message.partition_key is not None or not detects_duplicates:
        return message.partition_key
    name = message.message_id
    return None if name is None else name if isinstance(name, str) else f"{type(name).__name__}:{name!r}"


def check_keys(message: StoredMessage) -> None:
    """Raises NotAllowed when session id and partition key are both set and differ (Q-7)."""
    session, key = message.session_id, message.partition_key
    if session is not None and key is not None and session != key:
        raise NotAllowed(
            f"The session id '{session}' and the partition key '{key}' of a message differ: "
            "where both are set, they must be the same."
        )


def index_of(key: str, partitions: int) -> int:
    """The partition that ``key`` belongs to: the same one in every process, for ever (Q-4)."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions


def index_of_number(number: int) -> int:
    """The partition that gave a message its sequence number (Q-10)."""
    return number >> INDEX_SHIFT
