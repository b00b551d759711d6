"""Partitions of an entity: keys, health, and the layout of a namespace.

    UP --- take_down ---> DOWN        its messages wait; senders are rerouted from ``known_from`` on
     ^                      |
     '------ bring_up ------+-------- THROTTLED    refuses sends, still delivers its messages

Each partition of an entity depends on the namespace's store of the same index and is down while it is.

    Basic, Standard    set for each entity; 16 partitions; the size is 16 times the requested size
    Premium            set for the namespace: 1, 2 or 4 partitions for every entity, which share the size

An entity's messages without a key go to the partitions in turn, beginning with ``first``.
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum
from typing import TYPE_CHECKING
from zlib import crc32

from ..errors import InvalidDescriptionError, NotAllowedError, PartitionUnavailableError, ServerBusyError
from .descriptions import STANDARD_SIZES, Description, QueueDescription, TopicDescription
from .stored_message import Instant, StoredMessage

if TYPE_CHECKING:
    from .queue_context import QueueContext

PARTITIONS = 16
"""Partitions of a partitioned entity in a Basic or Standard namespace."""

PARTITIONS_BY_SUBSCRIPTION = 116
"""By this the service multiplies the size of a topic whose subscriptions are partitioned as well."""

PREMIUM_PARTITIONS = (1, 2, 4)
"""Numbers of partitions that a Premium namespace can be created with."""

INDEX_SHIFT = 48
"""A sequence number contains the index of its partition above this many bits."""


class Health(Enum):
    """The health of a partition."""

    UP = "up"
    DOWN = "down"
    THROTTLED = "throttled"


class Partition:
    """The partition ``index``, from 0, of an entity; ``store`` is the namespace's store that it depends on.

    A store itself is represented in the same way, with ``store`` None.
    """

    __slots__ = ("_known_from", "_own", "health", "index", "store")

    def __init__(self, index: int, store: Partition | None = None) -> None:
        self.index = index
        self.store = store
        self.health: Health  # the worse of its own and its store's, set by refresh()
        self._own = Health.UP
        self._known_from: Instant = 0
        self.refresh()

    @property
    def known_from(self) -> Instant:
        """When senders without a key are first rerouted around the partition while it is down."""
        if self._own is Health.UP and self.store is not None:
            return self.store._known_from
        return self._known_from

    def set(self, health: Health, known_from: Instant = 0) -> None:
        """Set the health. The caller must call :meth:`refresh` on the partitions that depend on this one."""
        self._own = health
        self._known_from = known_from
        self.refresh()

    def refresh(self) -> None:
        """Update ``health`` after the health of the store has changed."""
        store = self.store
        if self._own is Health.DOWN or store is None or store.health is Health.UP:
            self.health = self._own
        else:
            self.health = store.health

    def check_up(self, path: str) -> None:
        """Raise PartitionUnavailableError if the partition is down."""
        if self.health is Health.DOWN:
            raise PartitionUnavailableError(path, self.index)

    def check_accepts(self, path: str) -> None:
        """Raise PartitionUnavailableError if the partition is down, ServerBusyError if it is throttled."""
        self.check_up(path)
        if self.health is Health.THROTTLED:
            raise ServerBusyError


WHOLE = Partition(0)
"""The place of the only partition of every entity that is not partitioned; always up."""


def key_of(message: StoredMessage, *, detects_duplicates: bool) -> str | None:
    """Return the key that selects the partition of ``message``, or None."""
    if message.session_id is not None:
        return message.session_id
    if message.partition_key is not None or not detects_duplicates:
        return message.partition_key
    name = message.message_id
    return None if name is None else name if isinstance(name, str) else f"{type(name).__name__}:{name!r}"


def check_keys(message: StoredMessage) -> None:
    """Raise NotAllowedError if session id and partition key are both set and differ; an empty id may."""
    session, key = message.session_id, message.partition_key
    if session and key is not None and session != key:
        raise NotAllowedError(
            f"The session id '{session}' and the partition key '{key}' of a message differ: "
            "set one of them, or both to the same value."
        )


def index_of(key: str, partitions: int) -> int:
    """Return the index of the partition for ``key``; stable across processes and releases."""
    return crc32(key.encode("utf-8", "surrogatepass")) % partitions


def index_of_number(number: int) -> int:
    """Return the index of the partition that assigned a sequence number."""
    return number >> INDEX_SHIFT


MAX_PARTITIONED_MESSAGE = 1024  # kilobytes, in a partitioned namespace
MAX_PARTITIONED = 100  # entities of a Basic or Standard namespace


def _times(described: QueueDescription | TopicDescription) -> int:
    """Return how many times the requested size a partitioned entity reports as its own."""
    is_by_subscription = (
        isinstance(described, TopicDescription) and described.enable_subscription_partitioning
    )
    return PARTITIONS_BY_SUBSCRIPTION if is_by_subscription else PARTITIONS


class Layout:
    """The partitions of one namespace.

    ``premium`` is their number in a partitioned Premium namespace, else None; ``first`` is the partition that
    gets the first message without a key.

    Raises InvalidDescriptionError when ``premium`` is not 1, 2 or 4, or ``first`` is below 0.
    """

    def __init__(self, premium: int | None = None, first: int = 0) -> None:
        if premium is not None and premium not in PREMIUM_PARTITIONS:
            raise InvalidDescriptionError(
                f"A partitioned Premium namespace cannot have {premium!r} partitions: use one of "
                f"{PREMIUM_PARTITIONS}."
            )
        if first < 0:
            raise InvalidDescriptionError(f"The first partition is {first}: use 0 or more.")
        self.is_premium = premium is not None
        self.first = first
        self.stores = tuple(Partition(index) for index in range(premium or PARTITIONS))

    @property
    def max_partitioned(self) -> int | None:
        """The maximum number of partitioned entities; None for no limit."""
        return None if self.is_premium else MAX_PARTITIONED

    def resolve(self, requested: Description) -> Description:
        """Return a requested description with the size converted to that of one partition.

        An update may send back the size that a get has returned, 16 times the requested one; it is divided
        again.

        Raises InvalidDescriptionError when the description is not allowed in this layout.
        """
        if self.is_premium:
            return self._resolve_premium(requested)
        if not requested.enable_partitioning:
            return requested
        size, remainder = divmod(requested.max_size_in_megabytes, _times(requested))
        if remainder or size not in STANDARD_SIZES:
            size = requested.max_size_in_megabytes
        if size not in STANDARD_SIZES:
            raise InvalidDescriptionError(
                f"max_size_in_megabytes is {size!r}: use one of {STANDARD_SIZES} for a partitioned entity."
            )
        return replace(requested, max_size_in_megabytes=size)

    def _resolve_premium(self, requested: Description) -> Description:
        if not requested.enable_partitioning:
            raise InvalidDescriptionError(
                "Non-partitioned entities are not allowed in partitioned namespace. "
                "The property EnablePartitioning must be set to true."
            )
        if requested.max_size_in_megabytes < len(self.stores):
            raise InvalidDescriptionError(
                f"max_size_in_megabytes is {requested.max_size_in_megabytes}: use at least {len(self.stores)}, "
                "one for each partition."
            )
        if (requested.max_message_size_in_kilobytes or 0) > MAX_PARTITIONED_MESSAGE:
            raise InvalidDescriptionError(
                f"max_message_size_in_kilobytes is {requested.max_message_size_in_kilobytes}: "
                f"at most {MAX_PARTITIONED_MESSAGE} on a partitioned namespace."
            )
        return requested

    def reported_description(self, resolved: Description) -> Description:
        """Return the description that an entity reports."""
        if self.is_premium or not resolved.enable_partitioning:
            return resolved
        return replace(resolved, max_size_in_megabytes=resolved.max_size_in_megabytes * _times(resolved))

    def partition_description(self, resolved: Description) -> Description:
        """Return the description of each of its partitions."""
        if not self.is_premium:
            return resolved
        return replace(resolved, max_size_in_megabytes=resolved.max_size_in_megabytes // len(self.stores))

    def partition_contexts(self, resolved: Description, context: QueueContext) -> list[QueueContext]:
        """Return a queue context for each partition of a new entity: one, unless it is partitioned."""
        if not resolved.enable_partitioning:
            return [context]
        return [context.for_partition(Partition(store.index, store)) for store in self.stores]

    def check_creatable(self, path: str) -> None:
        """Raise PartitionUnavailableError while a store is down: creation needs all stores."""
        for store in self.stores:
            store.check_up(path)
