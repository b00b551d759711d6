"""Quotas of a namespace: features and sizes by tier, numbers of entities, operations per second.

Basic      queues; no sessions, duplicate detection, topics or forwarding; a time to live of at most 14 days
Standard   all features; messages up to 256 KB and entities up to 5 GB, as on Basic
Premium    all features, no throttling; messages of 1 MB, up to 100 MB on request, entities up to 80 GB;
           partitioning is chosen for the whole namespace (Q-2)
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from ..errors import AdministrationBusy, InvalidDescription, ServerBusy, TooManyEntities
from .descriptions import (
    DAY,
    MAX_SPAN,
    PREMIUM_SIZES,
    STANDARD_SIZES,
    USUAL_MESSAGE,
    Description,
    QueueDescription,
    TopicDescription,
)
from .entity import Entity
from .partition import Layout
from .partitioned_entities import AnySubscription, AnyTopic
from .stored_message import Instant

MAX_SPAN_ON_BASIC = 14 * DAY  # T-8: milliseconds, the default and the most
LARGEST_PREMIUM_MESSAGE, USUAL_PREMIUM_MESSAGE = 102_400, 1024  # kilobytes, over AMQP

_NOT_ON_BASIC = (
    "requires_session",
    "requires_duplicate_detection",
    "forward_to",
    "forward_dead_lettered_messages_to",
)


class Tier(Enum):
    """The tier, as the administration API names it."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def has_credits(self) -> bool:
        """Whether so much a second may be requested for: what is Premium has machines of its own."""
        return self is not Tier.PREMIUM

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes of an entity that its administration takes, in megabytes."""
        return PREMIUM_SIZES if self is Tier.PREMIUM else STANDARD_SIZES

    @property
    def largest_message(self) -> int:
        """In kilobytes."""
        return LARGEST_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    @property
    def usual_message(self) -> int:
        """The largest message of an entity that was not made for another size, in kilobytes."""
        return USUAL_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    def settled(self, requested: Description) -> Description:
        """What was requested, with the tier's own defaults. Raises InvalidDescription for what it has not."""
        self._check_sizes(requested)
        if requested.max_message_size_in_kilobytes is None:
            requested = replace(requested, max_message_size_in_kilobytes=self.usual_message)
        return self._settled_on_basic(requested) if self is Tier.BASIC else requested

    def _check_sizes(self, requested: QueueDescription | TopicDescription) -> None:
        for field, most in (
            ("max_size_in_megabytes", self.sizes[-1]),
            ("max_message_size_in_kilobytes", self.largest_message),
        ):
            size = getattr(requested, field)
            if isinstance(size, int) and size > most:
                raise InvalidDescription(
                    f"{field} is {size}: at most {most} in a namespace of the {self.value} tier."
                )

    def _settled_on_basic(self, requested: Description) -> Description:
        if isinstance(requested, TopicDescription):
            raise InvalidDescription("Topics are not allowed in a namespace of the Basic tier.")
        for field in _NOT_ON_BASIC:
            if getattr(requested, field):
                raise InvalidDescription(f"{field} is not allowed in a namespace of the Basic tier.")
        span = requested.default_message_time_to_live
        if span is None or (isinstance(span, int) and span >= MAX_SPAN):
            return replace(requested, default_message_time_to_live=MAX_SPAN_ON_BASIC)
        if isinstance(span, int) and span > MAX_SPAN_ON_BASIC:
            most = f"at most 14 days ({MAX_SPAN_ON_BASIC}) on the Basic tier"
            raise InvalidDescription(f"default_message_time_to_live is {span}: {most}.")
        return requested


MAX_ENTITIES = 10_000  # queues and topics
MAX_SUBSCRIPTIONS = 2_000  # of one topic


class EntityLimits:
    """The entities of a namespace, counted as they come and go; a partitioned one counts among all."""

    __slots__ = ("_all", "_most_partitioned", "_partitioned")

    def __init__(self, layout: Layout) -> None:
        self._most_partitioned = layout.most_partitioned
        self._all = self._partitioned = 0

    def check(self, is_partitioned: bool) -> None:
        """Raises TooManyEntities when there is no room for one more."""
        if self._all >= MAX_ENTITIES:
            raise TooManyEntities("queues and topics", MAX_ENTITIES)
        most = self._most_partitioned
        if is_partitioned and most is not None and self._partitioned >= most:
            raise TooManyEntities("partitioned entities", most)

    def check_subscriptions(self, path: str, held: int) -> None:
        """Raises TooManyEntities when the topic at ``path`` has no room for one more."""
        if held >= MAX_SUBSCRIPTIONS:
            raise TooManyEntities(f"subscriptions of '{path}'", MAX_SUBSCRIPTIONS)

    def count(self, entity: Entity, change: int) -> None:
        """One came (1) or went (-1); a subscription belongs to its topic."""
        if not isinstance(entity, AnySubscription):
            self._all += change
            self._partitioned += change * entity.description.enable_partitioning


DOCUMENTED = 1_000
"""Credits a second of a Basic or Standard namespace, as documented."""

OF_A_MESSAGE, OF_ADMINISTRATION = 1, 10
SECOND = 1_000  # milliseconds


class Credits:
    """The credits of one namespace, so many a second; None is without limit. Raises InvalidDescription."""

    __slots__ = ("_per_second", "_second", "_used")

    def __init__(self, per_second: int | None = None) -> None:
        if per_second is not None and per_second < 1:
            raise InvalidDescription(f"credits_per_second is {per_second!r}: at least 1, or None.")
        self._per_second = per_second
        self._second: Instant = -1
        self._used = 0

    @property
    def per_second(self) -> int | None:
        """How many there are; None for no limit."""
        return self._per_second

    def charge(self, cost: int, now: Instant) -> None:
        """Take what something costs that is not refused."""
        if self._per_second is not None:
            self._turn(now)
            self._used += cost

    def check(self, now: Instant) -> None:
        """Raises ServerBusy when the credits of this second are gone."""
        if not self._has_any(now):
            raise ServerBusy

    def spend_on_administration(self, namespace: str, now: Instant) -> None:
        """Take what an operation of administration costs. Raises AdministrationBusy when nothing is left."""
        if not self._has_any(now):
            raise AdministrationBusy(namespace)
        self.charge(OF_ADMINISTRATION, now)

    def charge_messages(self, queue: Entity, count: int, now: Instant) -> None:
        """Take what it costs that ``count`` messages were sent to ``queue``."""
        if self._per_second is not None:
            self.charge(count * (OF_A_MESSAGE + _filters_of(queue)), now)

    def _has_any(self, now: Instant) -> bool:
        self._turn(now)
        return self._per_second is None or self._used < self._per_second

    def _turn(self, now: Instant) -> None:
        second = now // SECOND
        if second != self._second:
            self._second, self._used = second, 0


def _filters_of(queue: Entity) -> int:
    """How many filters look at a message that is sent to ``queue``."""
    return sum(len(each.rules) for each in queue.subscriptions.values()) if isinstance(queue, AnyTopic) else 0
