"""What an entry of the contract is: a sentence, what rests on it, what it needs and costs, and the check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import Any

from sbpair.pair.ground.side import Side

Check = Callable[[Any], Awaitable[str]]  # of a Scratch, which needs this module


class Verdict(StrEnum):
    """What a check found."""

    HOLDS = "holds"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class Tier(IntEnum):
    """The tiers of the service, each with what the one before has."""

    BASIC = 0
    STANDARD = 1
    PREMIUM = 2


class DifferenceError(Exception):
    """The target behaves otherwise; the text says what was seen."""


class UndecidedError(Exception):
    """The check could not tell; the text says why."""


def expect(is_so: bool, seen: str) -> None:
    """Raise DifferenceError with what was ``seen`` unless it is as the sentence says."""
    if not is_so:
        raise DifferenceError(seen)


@dataclass(frozen=True, slots=True)
class Price:
    """Operations by kind, as the service bills them: 64 KB of a message, or a request."""

    sends: int = 0
    pings: int = 0
    receives: int = 0
    management: int = 0
    """Requests to the management node of an entity: peek, renew, schedule, cancel, session state and the like."""

    blocks: int = 0
    """What large messages cost beyond the first 64 KB, sent and received."""

    def __add__(self, other: Price) -> Price:
        return Price(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def total(self) -> int:
        return self.sends + self.pings + self.receives + self.management + self.blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    """A queue that an entry needs; the defaults are the service's. Spans in seconds."""

    label: str = "q"
    """Its name within the entry, which may have slashes."""

    side: Side = Side.PRIMARY
    lock: float | None = None
    time_to_live: float | None = None
    sessions: bool = False
    duplicates_within: float | None = None
    """The window of duplicate detection; None for none."""

    max_deliveries: int | None = None
    dead_letters_expired: bool = False
    forward_to: str | None = None
    """The label of another entity, listed before this one."""

    forward_dead_letters_to: str | None = None
    partitioned: bool | None = None
    max_megabytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """A topic that an entry needs."""

    label: str = "t"
    side: Side = Side.PRIMARY
    time_to_live: float | None = None
    duplicates_within: float | None = None
    partitioned: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription of a topic listed before it; its path is that of the topic, `Subscriptions` and its label."""

    topic: str = "t"
    label: str = "s"
    side: Side = Side.PRIMARY
    lock: float | None = None
    time_to_live: float | None = None
    sessions: bool = False
    max_deliveries: int | None = None
    dead_letters_expired: bool = False
    forward_to: str | None = None


Entity = Queue | Topic | Subscription
ONE_QUEUE: tuple[Entity, ...] = (Queue(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One assumption about the service, and the check that decides it."""

    id: str
    sentence: str
    falls: tuple[str, ...]
    """The ids of the requirements that fall if it is wrong."""

    source: str
    """Where the assumption comes from: an article of the documentation, an SDK, a decision."""

    check: Check
    entities: tuple[Entity, ...] = ONE_QUEUE
    tier: Tier = Tier.BASIC
    price: Price = Price()
    seconds: float = 1.0
    """How long it takes with a peer nearby."""

    manages: bool = False
    """It uses the administration API beyond its entities."""

    slow: bool = False
    """It waits for minutes, and runs on request only."""

    about_creation: bool = False
    """The sentence says that its entities can be created: a refusal is *differs*."""

    access: bool = False
    """It is about tokens that are refused, which an emulator need not do."""

    @property
    def subject(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def needs_manage(self) -> bool:
        """Whether it cannot run on a plain queue that exists already."""
        return self.manages or self.entities not in (ONE_QUEUE, ())


def entry(
    id: str,
    sentence: str,
    *,
    falls: tuple[str, ...],
    source: str,
    entities: tuple[Entity, ...] = ONE_QUEUE,
    tier: Tier = Tier.BASIC,
    price: Price = Price(),
    seconds: float = 1.0,
    manages: bool = False,
    slow: bool = False,
    about_creation: bool = False,
    access: bool = False,
) -> Callable[[Check], Entry]:
    """Make the decorated check an :class:`Entry`."""

    def make(check: Check) -> Entry:
        return Entry(
            id=id,
            sentence=sentence,
            falls=falls,
            source=source,
            check=check,
            entities=entities,
            tier=tier,
            price=price,
            seconds=seconds,
            manages=manages,
            slow=slow,
            about_creation=about_creation,
            access=access,
        )

    return make


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one entry in a run."""

    entry: Entry
    verdict: Verdict
    seen: str
    """What was seen, or why it is not known; one line."""

    seconds: float = 0.0
