"""The events of a pairing: named in the past tense, each with its time and entity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairingEvent:
    """The base of all events.

    ``at`` is in seconds of the monotonic clock; ``path`` is the primary entity, or "" for the whole pairing.
    """

    at: float
    path: str


@dataclass(frozen=True, slots=True)
class EntitySuspected(PairingEvent):
    """A send failed in a way that counts towards failover; the failover interval is running."""

    cause: str


@dataclass(frozen=True, slots=True)
class EntityFailedOver(PairingEvent):
    """Sends to the primary entity stopped; its messages are parked."""

    cause: str


@dataclass(frozen=True, slots=True)
class EntityRecovered(PairingEvent):
    """All senders of the entity use the primary again."""

    cause: str


@dataclass(frozen=True, slots=True)
class EntityReturning(PairingEvent):
    """Pings were accepted after a failover by share or a relapse: more and more sends try the primary."""


@dataclass(frozen=True, slots=True)
class ReturnAborted(PairingEvent):
    """A trial send of a return failed; its message is parked, and pings begin anew."""

    cause: str


@dataclass(frozen=True, slots=True)
class PrimarySlow(PairingEvent):
    """The primary accepted a send only after ``seconds``, which counts as failed for the share."""

    seconds: float


@dataclass(frozen=True, slots=True)
class KeySetAside(PairingEvent):
    """Messages of this session id or partition key fail while others succeed: they skip the primary."""

    key: str
    cause: str


@dataclass(frozen=True, slots=True)
class MessageParked(PairingEvent):
    """A backlog queue accepted messages of one send; ``ambiguous``: a copy may be stored elsewhere too.

    ``session_id`` is their session if its order is kept, else "". ``size`` is in bytes. ``reason`` is failed_over,
    rejected, unanswered, busy or not_asked; but for the first, the entity had not failed over.
    """

    backlog: int
    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""
    size: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BacklogFilling(PairingEvent):
    """A backlog queue holds ``threshold`` of its ``limit`` in bytes, 0.7 or 0.9, or more.

    ``size`` is what the service counts, or else what this process parked there since the outage began.
    """

    backlog: int
    size: int
    limit: int
    threshold: float


@dataclass(frozen=True, slots=True)
class SendRaised(PairingEvent):
    """A send raised to its caller; ``ambiguous``: a broker may have stored it nevertheless.

    ``session_id`` is the session of the messages if its order is kept, else "".
    """

    cause: str
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class BacklogWithdrawn(PairingEvent):
    """A send to a backlog failed; no sender uses it before ``until``."""

    backlog: int
    until: float
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogReturned(PairingEvent):
    """A backlog that had failed accepted a message again."""

    backlog: int


@dataclass(frozen=True, slots=True)
class FenceOpened(PairingEvent):
    """An ordered backlog was found empty: the ``sessions`` parked there use the primary again."""

    backlog: int
    sessions: int


@dataclass(frozen=True, slots=True)
class FenceUnproved(PairingEvent):
    """An ordered backlog cannot be peeked: its sessions stay parked until it can."""

    backlog: int
    cause: str


@dataclass(frozen=True, slots=True)
class MessageSpooled(PairingEvent):
    """Messages of one send were spooled: neither namespace accepted them, older ones wait there, or all are.

    ``session_id`` is their session if its order is kept, else "".
    """

    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class SpoolReplayed(PairingEvent):
    """The primary, or a backlog queue, accepted messages from the spool; ``left`` still wait."""

    backlog: int | None
    count: int
    left: int
    message_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpooledMessageRefused(PairingEvent):
    """The primary refused a spooled message for its content; it stays in the spool with the reason."""

    message_id: str
    cause: str


@dataclass(frozen=True, slots=True)
class PingSent(PairingEvent):
    """A ping was sent to the primary entity; it is billed as a message."""

    number: int


@dataclass(frozen=True, slots=True)
class LinkProbed(PairingEvent):
    """A link to the primary entity is opened instead of a ping (`probe="link"`); it is not billed."""


@dataclass(frozen=True, slots=True)
class PingFailed(PairingEvent):
    """A ping was not accepted; the next follows after the ping interval."""

    cause: str


@dataclass(frozen=True, slots=True)
class HeadroomShort(PairingEvent):
    """A message sent to the primary is too large to be parked, once rewritten."""

    message_id: str
    size: int
    limit: int


@dataclass(frozen=True, slots=True)
class PairingDisabled(PairingEvent):
    """Pairing is disabled (`SBPAIR_DISABLE=1`): the client sends to the primary as the SDK alone would."""

    cause: str


@dataclass(frozen=True, slots=True)
class ClassifierFailed(PairingEvent):
    """The classifier of the options raised or returned an invalid value; the built-in table was used."""

    cause: str


@dataclass(frozen=True, slots=True)
class SideClosed(PairingEvent):
    """One side was closed on its own; its partner has five seconds to follow."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideFaulted(PairingEvent):
    """One side refuses the client because of its configuration; it is retried until it accepts."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class SideRecovered(PairingEvent):
    """A side that refused the client accepts it again."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class PairFaulted(PairingEvent):
    """One side was closed and its partner did not follow in time; the client sends nothing more."""

    side: str
    cause: str


@dataclass(frozen=True, slots=True)
class BacklogsCreated(PairingEvent):
    """All backlog queues exist; this client created those listed."""

    created: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class BacklogsNotCreated(PairingEvent):
    """Ensuring the backlog queues failed; retried on the next parked send."""

    cause: str


def entities_in_doubt(happened: Sequence[PairingEvent]) -> list[str]:
    """The entities that failed over or became suspect, according to these events."""
    return [event.path for event in happened if isinstance(event, (EntityFailedOver, EntitySuspected))]
