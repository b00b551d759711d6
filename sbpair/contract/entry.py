"""An entry of the contract: its sentence, its dependents, its needs and cost, and the check."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, fields
from enum import IntEnum, StrEnum
from typing import Any

from sbpair.pair.ground.side import Side

Check = Callable[[Any], Awaitable[str]]  # of a Scratch, which needs this module


class Verdict(StrEnum):
    """The result of a check."""

    HOLDS = "holds"
    DIFFERS = "differs"
    UNKNOWN = "unknown"


class Tier(IntEnum):
    """The tiers of the service; each includes the features of the one before."""

    BASIC = 0
    STANDARD = 1
    PREMIUM = 2


class DifferenceError(Exception):
    """The target behaves differently; the text describes the observation."""


class UndecidedError(Exception):
    """The check could not decide; the text says why."""


def expect(is_so: bool, seen: str) -> None:
    """Raise DifferenceError with the observation ``seen`` unless the sentence holds."""
    if not is_so:
        raise DifferenceError(seen)


@dataclass(frozen=True, slots=True)
class Price:
    """Operations by kind, as the service bills them: one for each 64 KB of a message, and one for a request."""

    sends: int = 0
    receives: int = 0
    management: int = 0
    """Requests to the management node of an entity: peek, renew, schedule, cancel, session state and the like."""

    pings: int = 0
    blocks: int = 0
    """Operations for large messages beyond their first 64 KB, sent and received."""

    def __add__(self, other: Price) -> Price:
        return Price(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(self)))

    @property
    def total(self) -> int:
        return self.sends + self.pings + self.receives + self.management + self.blocks


NOTHING = Price()


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
    forward_dead_letters_to: str | None = None


Entity = Queue | Topic | Subscription
ONE_QUEUE: tuple[Entity, ...] = (Queue(),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One assumption about the service, and the check that decides it."""

    id: str
    sentence: str
    breaks: tuple[str, ...]
    """The ids of the requirements that fall if it is wrong."""

    source: str
    """Where the assumption comes from: an article of the documentation, an SDK, a decision."""

    check: Check
    entities: tuple[Entity, ...] = ONE_QUEUE
    tier: Tier = Tier.BASIC
    price: Price = NOTHING
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
        """Whether the entry cannot run on an existing plain queue."""
        return self.manages or self.entities not in (ONE_QUEUE, ())


@dataclass(frozen=True, slots=True)
class Subject:
    """The maker of the entries of one subject; its settings are the defaults of each entry."""

    name: str
    source: str
    entities: tuple[Entity, ...] = ONE_QUEUE
    tier: Tier = Tier.BASIC
    manages: bool = False

    def __call__(
        self,
        number: int,
        sentence: str,
        breaks: str,
        price: Price = NOTHING,
        *,
        source: str | None = None,
        entities: tuple[Entity, ...] | None = None,
        tier: Tier | None = None,
        seconds: float = 1.0,
        manages: bool | None = None,
        slow: bool = False,
        about_creation: bool = False,
        access: bool = False,
    ) -> Callable[[Check], Entry]:
        """Make the decorated check the entry of this number; see :class:`Entry`.

        ``breaks`` are the ids with spaces between them.
        """

        def make(check: Check) -> Entry:
            return Entry(
                id=f"{self.name}-{number}",
                sentence=sentence,
                breaks=tuple(breaks.split()),
                source=self.source if source is None else source,
                check=check,
                entities=self.entities if entities is None else entities,
                tier=self.tier if tier is None else tier,
                price=price,
                seconds=seconds,
                manages=self.manages if manages is None else manages,
                slow=slow,
                about_creation=about_creation,
                access=access,
            )

        return make


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one entry in a run."""

    entry: Entry
    verdict: Verdict
    seen: str
    """The observation, or why there is none; one line."""

    seconds: float = 0.0
