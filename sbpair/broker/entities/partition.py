"""Partitions of an entity: keys, health, and the layout of a namespace.

    UP --- take_down ---> DOWN        its messages wait; senders are rerouted from ``known_from`` on (Q-16)
     ^                      |
     '------ bring_up ------+-------- THROTTLED    refuses sends, delivers the messages it has

Each partition of an entity depends on the namespace's store of the same index and is down while it is.

    Basic, Standard    each entity chooses; 16 partitions; its size is 16 times the requested size (Q-2)
    Premium            chosen for the namespace: 1, 2 or 4 partitions for every entity; the size is shared

An entity's first message without a key goes to partition ``first``, the next one to the partition after
(Q-5).
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING
from zlib import crc32

from ..errors import InvalidDescription, NotAllowed, PartitionUnavailable, ServerBusy
from .descriptions import STANDARD_SIZES, Description
from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .queue_context import QueueContext

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


LARGEST_PARTITIONED_MESSAGE = 1024  # kilobytes, on a partitioned namespace
MAX_PARTITIONED = 100  # on Basic and Standard


class Layout:
    """The partitions of one namespace; ``premium`` is their number on a partitioned Premium one, else None.

    Raises InvalidDescription for a number that is none of 1, 2 and 4, or a ``first`` below 0.
    """

    def __init__(self, premium: int | None = None, first: int = 0) -> None:
        if premium is not None and premium not in PREMIUM_PARTITIONS:
            raise InvalidDescription(
                f"A partitioned Premium namespace has {premium!r} partitions: one of {PREMIUM_PARTITIONS}."
            )
        if first < 0:
            raise InvalidDescription(f"The first partition is {first}: at least 0 is needed.")
        self.is_premium = premium is not None
        self.first = first
        self.stores = tuple(Partition(index) for index in range(premium or PARTITIONS))

    @property
    def most_partitioned(self) -> int | None:
        """How many entities may be partitioned; None for all of them."""
        return None if self.is_premium else MAX_PARTITIONED

    def settled(self, requested: Description) -> Description:
        """What was requested, with the size of one partition's share. Raises InvalidDescription.

        An update gives the size that a get has shown: it is read back as what was requested.
        """
        if self.is_premium:
            return self._settled_premium(requested)
        if not requested.enable_partitioning:
            return requested
        size, rest = divmod(requested.max_size_in_megabytes, PARTITIONS)
        if rest or size not in STANDARD_SIZES:
            size = requested.max_size_in_megabytes
        if size not in STANDARD_SIZES:
            raise InvalidDescription(
                f"max_size_in_megabytes is {size!r}: one of {STANDARD_SIZES} on a partitioned entity."
            )
        return replace(requested, max_size_in_megabytes=size)

    def _settled_premium(self, requested: Description) -> Description:
        if not requested.enable_partitioning:
            raise InvalidDescription(
                "Non-partitioned entities are not allowed in partitioned namespace. "
                "The property EnablePartitioning must be set to true."
            )
        if requested.max_size_in_megabytes < len(self.stores):
            raise InvalidDescription(
                f"max_size_in_megabytes is {requested.max_size_in_megabytes}: at least {len(self.stores)}, "
                "one for each partition."
            )
        if (requested.max_message_size_in_kilobytes or 0) > LARGEST_PARTITIONED_MESSAGE:
            raise InvalidDescription(
                f"max_message_size_in_kilobytes is {requested.max_message_size_in_kilobytes}: "
                f"at most {LARGEST_PARTITIONED_MESSAGE} on a partitioned namespace."
            )
        return requested

    def of_whole(self, settled: Description) -> Description:
        """What a partitioned entity tells of itself."""
        if self.is_premium:
            return settled
        return replace(settled, max_size_in_megabytes=settled.max_size_in_megabytes * PARTITIONS)

    def of_partition(self, settled: Description) -> Description:
        """What each of its partitions follows."""
        if not self.is_premium:
            return settled
        return replace(settled, max_size_in_megabytes=settled.max_size_in_megabytes // len(self.stores))

    def spread(self, context: QueueContext) -> list[QueueContext]:
        """``context`` for each partition of a new entity."""
        return [context.of(Partition(store.index, store)) for store in self.stores]

    def check_creatable(self, path: str) -> None:
        """Raises PartitionUnavailable while a store is down: a partitioned entity needs all (Q-17)."""
        for store in self.stores:
            store.check_up(path)
