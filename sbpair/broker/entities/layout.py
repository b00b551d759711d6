"""How does a namespace spread its entities over partitions, and what does that do to what was asked?

    Basic, Standard    each entity chooses, 16 partitions, its size is 16 times what was asked (Q-2)
    Premium            the namespace chose: 1, 2 or 4 partitions for every entity; the size is shared

An entity's first message without a key goes to partition ``first``, the next to the one after (Q-5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from ..errors import InvalidDescription
from .description import STANDARD_SIZES, QueueDescription
from .partition import PARTITIONS, PREMIUM_PARTITIONS, Partition
from .surroundings import Surroundings
from .topic_description import TopicDescription

LARGEST_PARTITIONED_MESSAGE = 1024  # kilobytes, on a partitioned namespace
MOST_PARTITIONED = 100  # on Basic and Standard
Asked = TypeVar("Asked", QueueDescription, TopicDescription)


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
        return None if self.is_premium else MOST_PARTITIONED

    def settled(self, asked: Asked) -> Asked:
        """What was asked, with the size of one partition's share. Raises InvalidDescription.

        An update gives the size that a get has shown: it is read back as what was asked.
        """
        if self.is_premium:
            return self._settled_premium(asked)
        if not asked.enable_partitioning:
            return asked
        size, rest = divmod(asked.max_size_in_megabytes, PARTITIONS)
        if rest or size not in STANDARD_SIZES:
            size = asked.max_size_in_megabytes
        if size not in STANDARD_SIZES:
            raise InvalidDescription(
                f"max_size_in_megabytes is {size!r}: one of {STANDARD_SIZES} on a partitioned entity."
            )
        return replace(asked, max_size_in_megabytes=size)

    def _settled_premium(self, asked: Asked) -> Asked:
        if not asked.enable_partitioning:
            raise InvalidDescription(
                "Non-partitioned entities are not allowed in partitioned namespace. "
                "The property EnablePartitioning must be set to true."
            )
        if asked.max_size_in_megabytes < len(self.stores):
            raise InvalidDescription(
                f"max_size_in_megabytes is {asked.max_size_in_megabytes}: at least {len(self.stores)}, "
                "one for each partition."
            )
        if (asked.max_message_size_in_kilobytes or 0) > LARGEST_PARTITIONED_MESSAGE:
            raise InvalidDescription(
                f"max_message_size_in_kilobytes is {asked.max_message_size_in_kilobytes}: "
                f"at most {LARGEST_PARTITIONED_MESSAGE} on a partitioned namespace."
            )
        return asked

    def of_whole(self, settled: Asked) -> Asked:
        """What a partitioned entity tells of itself."""
        if self.is_premium:
            return settled
        return replace(settled, max_size_in_megabytes=settled.max_size_in_megabytes * PARTITIONS)

    def of_partition(self, settled: Asked) -> Asked:
        """What each of its partitions follows."""
        if not self.is_premium:
            return settled
        return replace(settled, max_size_in_megabytes=settled.max_size_in_megabytes // len(self.stores))

    def spread(self, surroundings: Surroundings) -> list[Surroundings]:
        """``surroundings`` for each partition of a new entity."""
        return [surroundings.of(Partition(store.index, store)) for store in self.stores]

    def check_creatable(self, path: str) -> None:
        """Raises PartitionUnavailable while a store is down: a partitioned entity needs all (Q-17)."""
        for store in self.stores:
            store.check_up(path)
