"""What was found out about a pairing, before anybody says what it means. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from sbpair.pairing.inventory import Inventory

NOT_FOUND, UNAUTHORIZED = "amqp:not-found", "amqp:unauthorized-access"


class Ping(Enum):
    """What became of a ping on the scratch queue."""

    HIDDEN = "hidden"
    DELIVERED = "delivered"
    NOT_EMPTY = "not empty"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A link that was refused: to ``path`` of the primary or the secondary, for want of a right perhaps."""

    side: str
    path: str
    right: str
    condition: str
    text: str


@dataclass(frozen=True, slots=True)
class Backlog:
    """One backlog queue; spans in seconds, None where it is not known or without a limit."""

    name: str
    oldest_age: float | None = None
    has_dead_letters: bool = False
    differences: tuple[str, ...] = ()
    time_to_live: float | None = None
    lock: float | None = None
    largest: int | None = None
    """The most bytes of a message it takes."""

    capacity: int | None = None
    used: int = 0
    """In bytes, as the service counts them."""


@dataclass(frozen=True, slots=True)
class Destination:
    """One entity of the primary; spans in seconds, None where it is not known or without a limit."""

    path: str
    oldest_age: float | None = None
    """Of the messages for it that are parked now."""

    status: str | None = None
    duplicate_window: float | None = None
    time_to_live: float | None = None
    largest: int | None = None
    """The most bytes of a message it takes."""


@dataclass(frozen=True, slots=True)
class SyphonSeen:
    """What the status page of a syphon says; ``trouble`` is why it says nothing."""

    trouble: str | None = None
    state: str = ""
    reason: str | None = None
    backlogs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Load:
    """What senders send: messages a second, bytes each; ``outage`` seconds of it have to fit."""

    rate: float
    size: int
    outage: float


@dataclass(frozen=True, slots=True)
class Facts:
    """All that `sbpair doctor` has found out."""

    label: str
    secondary_label: str
    has_given_name: bool
    is_one_namespace: bool
    unreachable: dict[str, str]
    """Why, by side."""

    refusals: tuple[Refusal, ...] = ()
    inventory: Inventory | None = None
    undescribed: dict[str, str] | None = None
    """The sides whose queues could not be described, and why."""

    backlogs: tuple[Backlog, ...] = ()
    destinations: tuple[Destination, ...] = ()
    stranded: dict[str, int] = field(default_factory=dict)
    """Messages in backlog queues beyond the count, by name."""

    ping: Ping | None = None
    syphon: SyphonSeen | None = None
    """None where it was not asked for."""

    load: Load | None = None
