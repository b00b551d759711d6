"""The facts that the doctor collects about a pairing; the rules interpret them. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sbpair.pair.cli.twins import TwinComparison
from sbpair.pair.envelope.names import Inventory

NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"


@dataclass(frozen=True, slots=True, order=True)
class NotInForce:
    """An element of an entity's description that came too late: the service shows it and has not read it."""

    side: str
    path: str
    element: str


class Ping(Enum):
    """The result of the ping on the scratch queue."""

    HIDDEN = "hidden"
    DELIVERED = "delivered"
    NOT_EMPTY = "not empty"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refused link to ``path`` on the primary or the secondary: for a missing right, or because the key is wrong."""

    side: str
    path: str
    right: str
    condition: str
    text: str
    is_of_key: bool = False
    """Whether the token was refused, before any right was looked at."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """One backlog queue; times in seconds, None when unknown or unlimited."""

    name: str
    oldest_age: float | None = None
    has_dead_letters: bool = False
    has_untransferred: bool = False
    """Whether messages that a syphon landed were refused there."""

    has_sessions: bool = False
    """Whether messages of sessions were among those peeked."""

    differences: tuple[str, ...] = ()
    time_to_live: float | None = None
    lock: float | None = None
    largest: int | None = None
    """The maximum message size in bytes."""

    capacity: int | None = None
    used: int = 0
    """Bytes, as the service counts them."""


@dataclass(frozen=True, slots=True)
class PrimaryEntity:
    """One entity of the primary; times in seconds, None when unknown or unlimited."""

    path: str
    oldest_age: float | None = None
    """The age of the oldest message parked for it."""

    status: str | None = None
    needs_sessions: bool | None = None
    duplicate_window: float | None = None
    time_to_live: float | None = None
    largest: int | None = None
    """The maximum message size in bytes."""


@dataclass(frozen=True, slots=True)
class SyphonSeen:
    """The status page of a syphon; ``trouble`` is the reason when it could not be read."""

    trouble: str | None = None
    state: str = ""
    reason: str | None = None
    backlogs: tuple[str, ...] = ()
    is_unpaced: bool = False
    """Whether it says that no rate limits it."""


@dataclass(frozen=True, slots=True)
class SenderSeen:
    """The status page of a sender; ``trouble`` is the reason when it could not be read. Times in seconds."""

    trouble: str | None = None
    failover_share: float | None = None
    operation_timeout: float | None = None
    redirects_suspects: bool = False
    backlogs_missing: str | None = None
    """Why it could not make sure of its backlog queues."""


@dataclass(frozen=True, slots=True)
class Load:
    """The load of the senders: messages per second, bytes per message, and ``outage``, the seconds to bridge."""

    rate: float
    size: int
    outage: float


@dataclass(frozen=True, slots=True)
class PairFacts:
    """All facts of one examination."""

    label: str
    secondary_label: str
    has_given_name: bool
    is_one_namespace: bool
    unreachable: dict[str, str]
    """The unreachable sides, and why."""

    keeps_order: bool = False
    """Whether the senders keep the order of sessions."""

    refusals: tuple[Refusal, ...] = ()
    inventory: Inventory | None = None
    ordered_inventory: Inventory | None = None
    undescribed: dict[str, str] | None = None
    """The sides whose queues could not be described, and why."""

    untrusted: dict[str, str] | None = None
    """The sides whose administration endpoint has a certificate that is not trusted, and why."""

    backlogs: tuple[Backlog, ...] = ()
    destinations: tuple[PrimaryEntity, ...] = ()
    stranded: dict[str, int] = field(default_factory=dict)
    """Messages in backlog queues that are not examined, ordered or beyond the count, by name."""

    not_in_force: frozenset[NotInForce] = frozenset()
    """Elements of descriptions that the service keeps as text only."""
    twins: tuple[TwinComparison, ...] = ()
    """The entities of the primary and how their twins differ, if asked for."""

    ping: Ping | None = None
    syphon: SyphonSeen | None = None
    """None if no status page was given."""

    sender: SenderSeen | None = None
    """None if no status page was given."""

    load: Load | None = None

    @property
    def inventories(self) -> tuple[Inventory, ...]:
        """The inventories of the backlog queues that were requested and could be listed."""
        both = (self.inventory, self.ordered_inventory if self.keeps_order else None)
        return tuple(each for each in both if each is not None)
