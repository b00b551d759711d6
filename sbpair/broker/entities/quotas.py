"""Quotas of a namespace: features and sizes by tier, numbers of entities, operations per second.

Basic      queues; no sessions, duplicate detection, topics or forwarding; a time to live of at most 14 days
Standard   all features; messages up to 256 KB and entities up to 5 GB, as on Basic
Premium    all features, no throttling; messages of 1 MB, up to 100 MB if requested, entities up to 80 GB;
           partitioning is a setting of the whole namespace
"""

from __future__ import annotations

from dataclasses import replace
from enum import Enum

from sbpair.pair.ground.entity_settings import DAY, LARGEST_KILOBYTES, MESSAGE_SIZE, SECOND, SETTINGS, SIZE

from ..errors import AdministrationBusyError, InvalidDescriptionError, ServerBusyError, TooManyEntitiesError
from .descriptions import (
    MAX_SPAN,
    PREMIUM_SIZES,
    STANDARD_SIZES,
    USUAL_MESSAGE,
    Description,
    QueueDescription,
    TopicDescription,
)
from .partition import Layout
from .queue import Queue
from .stored_message import Instant
from .topic import Subscription, Topic

MAX_SPAN_ON_BASIC = 14 * DAY  # milliseconds, default and maximum
MAX_PREMIUM_MESSAGE, USUAL_PREMIUM_MESSAGE = LARGEST_KILOBYTES, 1024  # kilobytes, over AMQP

_NOT_ON_BASIC = tuple(each for each in SETTINGS.values() if not each.is_on_basic)


class Tier(Enum):
    """The tier, as the administration API names it."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def has_credits(self) -> bool:
        """Whether throttling by credits applies: a Premium namespace has machines of its own."""
        return self is not Tier.PREMIUM

    @property
    def sizes(self) -> tuple[int, ...]:
        """The entity sizes that the administration API accepts, in megabytes."""
        return PREMIUM_SIZES if self is Tier.PREMIUM else STANDARD_SIZES

    @property
    def largest_message(self) -> int:
        """The maximum size of a message, in kilobytes."""
        return MAX_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    @property
    def usual_message(self) -> int:
        """The default maximum size of a message, in kilobytes."""
        return USUAL_PREMIUM_MESSAGE if self is Tier.PREMIUM else USUAL_MESSAGE

    def resolve(self, requested: Description) -> Description:
        """Return a requested description with the tier's defaults.

        Raises InvalidDescriptionError for features and sizes that the tier does not offer.
        """
        self._check_sizes(requested)
        if requested.max_message_size_in_kilobytes is None:
            requested = replace(requested, max_message_size_in_kilobytes=self.usual_message)
        return self._resolve_on_basic(requested) if self is Tier.BASIC else requested

    def _check_sizes(self, requested: QueueDescription | TopicDescription) -> None:
        for setting, limit in ((SIZE, self.sizes[-1]), (MESSAGE_SIZE, self.largest_message)):
            size = setting.value_in(requested)
            if isinstance(size, int) and size > limit:
                raise InvalidDescriptionError(
                    f"{setting.name} is {size}: at most {limit} in a namespace of the {self.value} tier."
                )

    def _resolve_on_basic(self, requested: Description) -> Description:
        if isinstance(requested, TopicDescription):
            raise InvalidDescriptionError("Topics are not allowed in a namespace of the Basic tier.")
        for each in _NOT_ON_BASIC:
            if each.value_in(requested):
                raise InvalidDescriptionError(f"{each.name} is not allowed in a namespace of the Basic tier.")
        span = requested.default_message_time_to_live
        if span is None or (isinstance(span, int) and span >= MAX_SPAN):
            return replace(requested, default_message_time_to_live=MAX_SPAN_ON_BASIC)
        if isinstance(span, int) and span > MAX_SPAN_ON_BASIC:
            limit = f"at most 14 days ({MAX_SPAN_ON_BASIC}) on the Basic tier"
            raise InvalidDescriptionError(f"default_message_time_to_live is {span}: {limit}.")
        return requested


MAX_ENTITIES = 10_000  # queues and topics
MAX_SUBSCRIPTIONS = 2_000  # of one topic


class EntityLimits:
    """Counts the entities of a namespace against its limits."""

    __slots__ = ("_all", "_max_partitioned", "_partitioned")

    def __init__(self, layout: Layout) -> None:
        self._max_partitioned = layout.max_partitioned
        self._all = self._partitioned = 0

    def check(self, is_partitioned: bool) -> None:
        """Raise TooManyEntitiesError if another entity would exceed a limit."""
        if self._all >= MAX_ENTITIES:
            raise TooManyEntitiesError("queues and topics", MAX_ENTITIES)
        limit = self._max_partitioned
        if is_partitioned and limit is not None and self._partitioned >= limit:
            raise TooManyEntitiesError("partitioned entities", limit)

    def check_subscriptions(self, path: str, existing: int) -> None:
        """Raise TooManyEntitiesError if the topic at ``path`` already has as many subscriptions as allowed."""
        if existing >= MAX_SUBSCRIPTIONS:
            raise TooManyEntitiesError(f"subscriptions of '{path}'", MAX_SUBSCRIPTIONS)

    def count(self, entity: Queue, change: int) -> None:
        """Count an entity created (``change`` 1) or deleted (-1).

        Subscriptions count towards their topic only.
        """
        if not isinstance(entity, Subscription):
            self._all += change
            self._partitioned += change * entity.description.enable_partitioning


MESSAGE_COST, ADMINISTRATION_COST = 1, 10


class Credits:
    """The throttling credits of one namespace; ``per_second`` is how many there are, None for no limit.

    Raises InvalidDescriptionError when ``per_second`` is below 1.
    """

    __slots__ = ("_second", "_used", "per_second")

    def __init__(self, per_second: int | None = None) -> None:
        if per_second is not None and per_second < 1:
            raise InvalidDescriptionError(f"credits_per_second is {per_second!r}: at least 1, or None.")
        self.per_second = per_second
        self._second: Instant = -1
        self._used = 0

    def charge(self, cost: int, now: Instant) -> None:
        """Use ``cost`` credits without checking that any are left."""
        if self.per_second is not None:
            self._start_second(now)
            self._used += cost

    def check(self, now: Instant) -> None:
        """Raise ServerBusyError if the credits of this second are used up."""
        if not self._has_any(now):
            raise ServerBusyError

    def spend_on_administration(self, namespace: str, now: Instant) -> None:
        """Charge an administration operation. Raises AdministrationBusyError if no credits are left."""
        if not self._has_any(now):
            raise AdministrationBusyError(namespace)
        self.charge(ADMINISTRATION_COST, now)

    def charge_messages(self, queue: Queue, count: int, now: Instant) -> None:
        """Charge ``count`` messages sent to ``queue``: one credit for each, and one for each filter that it passes."""
        if self.per_second is not None:
            self.charge(count * (MESSAGE_COST + _filter_count(queue)), now)

    def _has_any(self, now: Instant) -> bool:
        self._start_second(now)
        return self.per_second is None or self._used < self.per_second

    def _start_second(self, now: Instant) -> None:
        second = now // SECOND
        if second != self._second:
            self._second, self._used = second, 0


def _filter_count(queue: Queue) -> int:
    """Return how many filters a message sent to ``queue`` passes."""
    return sum(len(each.rules) for each in queue.subscriptions.values()) if isinstance(queue, Topic) else 0
