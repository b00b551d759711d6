"""What does a pairing tell those who watch it?

Each event is in the past tense and says when (``at``, seconds of the monotonic clock) and to which
entity. They are told by the pure parts and dispatched by the skin. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairingEvent:
    """Something that happened to a pairing. ``path`` is the primary entity, or "" for the whole pairing."""

    at: float
    path: str


@dataclass(frozen=True, slots=True)
class EntitySuspected(PairingEvent):
    """A send failed in a way that counts; the failover interval is running (P-3)."""

    cause: str


@dataclass(frozen=True, slots=True)
class EntityFailedOver(PairingEvent):
    """Sends to the primary entity have stopped; its messages are parked (P-4)."""

    cause: str


@dataclass(frozen=True, slots=True)
class EntityRecovered(PairingEvent):
    """All senders of the entity use the primary again (P-6, P-33)."""

    cause: str


@dataclass(frozen=True, slots=True)
class MessageParked(PairingEvent):
    """Messages of one send were accepted by a backlog queue; ``ambiguous``: a copy may rest elsewhere too."""

    backlog: int
    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class SendRaised(PairingEvent):
    """A send was raised to its caller; ``ambiguous``: a broker may have stored it nevertheless (G-7)."""

    cause: str
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class BacklogWithdrawn(PairingEvent):
    """A send to a backlog failed: no sender picks it until ``until`` (P-5)."""

    backlog: int
    until: float
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogReturned(PairingEvent):
    """A backlog that had failed accepted a message again."""

    backlog: int


@dataclass(frozen=True, slots=True)
class MessageSpooled(PairingEvent):
    """Messages of one send are on the disk: neither namespace took them, or older ones wait there."""

    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class SpoolReplayed(PairingEvent):
    """A broker accepted messages from the spool: the primary, or (its number) a backlog queue."""

    backlog: int | None
    count: int
    left: int
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpooledMessageRefused(PairingEvent):
    """A message from the spool will never be accepted; it stays there, set aside with the reason."""

    message_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class PingSent(PairingEvent):
    """A ping left for the primary entity: billed as a message (P-34)."""

    number: int


@dataclass(frozen=True, slots=True)
class LinkProbed(PairingEvent):
    """A link to the primary entity is being opened in place of a ping (`probe="link"`); it is not billed."""


@dataclass(frozen=True, slots=True)
class PingFailed(PairingEvent):
    """A ping was not accepted; the next follows after the ping interval (P-32)."""

    cause: str


@dataclass(frozen=True, slots=True)
class HeadroomShort(PairingEvent):
    """A message goes to the primary that no backlog queue would take: rewritten, it is too large (P-22)."""

    message_id: str
    size: int
    limit: int


@dataclass(frozen=True, slots=True)
class PairingDisabled(PairingEvent):
    """This client is switched off (`SBPAIR_DISABLE=1`): it sends to the primary as the SDK alone would."""

    cause: str


@dataclass(frozen=True, slots=True)
class ClassifierFailed(PairingEvent):
    """The classifier of the options raised, or returned no kind of failure; the table judged instead."""

    cause: str


@dataclass(frozen=True, slots=True)
class SideClosed(PairingEvent):
    """One side was closed on its own; its partner has five seconds to follow (P-50)."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideFaulted(PairingEvent):
    """One side refuses us for a reason of its configuration; it has five seconds to be cured (P-50)."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideRecovered(PairingEvent):
    """A side that had refused us accepts again (P-50)."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class PairFaulted(PairingEvent):
    """One side ended and its partner did not follow in time: nothing is sent any more (P-50)."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogsCreated(PairingEvent):
    """All backlog queues are there; these were created by us (P-11, P-12)."""

    created: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BacklogsNotCreated(PairingEvent):
    """The backlog queues could not be made sure of; it is tried again at first need."""

    cause: str
