"""The events of a pairing: named in the past tense, each with its time and entity."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass
from typing import TypeVar, dataclass_transform

EventT = TypeVar("EventT")


@dataclass_transform(frozen_default=True)
def lean_dataclass(cls: type[EventT]) -> type[EventT]:
    """Make a frozen dataclass that inherits its methods, since generating them per class slows the import."""
    return dataclass(eq=False, repr=False)(cls)


@lean_dataclass
class PairingEvent:
    """The base of all events.

    ``at`` is in seconds of the monotonic clock; ``path`` is the primary entity, or "" for the whole pairing.
    """

    at: float
    path: str

    def __setattr__(self, name: str, value: object) -> None:
        if name in self.__dict__:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *self.__dict__.values()))

    def __repr__(self) -> str:
        told = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__qualname__}({told})"


@lean_dataclass
class _Caused(PairingEvent):
    """The fields that many events have; making them per class would slow the import, too."""

    cause: str


@lean_dataclass
class _OfSide(PairingEvent):
    """As above, of the events of one side."""

    side: str
    cause: str


class EntitySuspected(_Caused):
    """A send failed in a way that counts towards failover; the failover interval is running."""


class EntityFailedOver(_Caused):
    """Sends to the primary entity stopped; its messages are parked."""


class EntityRecovered(_Caused):
    """All senders of the entity use the primary again."""


@lean_dataclass
class EntityReturning(PairingEvent):
    """Pings were accepted after a failover by share or a relapse: more and more sends try the primary."""


class ReturnAborted(_Caused):
    """A trial send during a return failed; its message is parked, and pings start again."""


@lean_dataclass
class PrimarySlow(PairingEvent):
    """The primary accepted a send only after ``seconds``, which counts as failed for the share."""

    seconds: float


@lean_dataclass
class KeySetAside(PairingEvent):
    """Messages of this session id or partition key fail while others succeed: they skip the primary."""

    key: str
    cause: str


@lean_dataclass
class MessageParked(PairingEvent):
    """A backlog queue accepted messages of one send; ``ambiguous``: a copy may be stored elsewhere too.

    ``session_id`` is their session if its order is kept, else "". ``size`` is in bytes. ``reason`` is failed_over,
    rejected, unanswered, busy or not_asked; only with failed_over had the entity failed over. ``checksums``: the CRC-32
    of each body, -1 for one that is not of data.
    """

    backlog: int
    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""
    checksums: tuple[int, ...] = ()
    size: int = 0
    reason: str = ""


@lean_dataclass
class BacklogFilling(PairingEvent):
    """A backlog queue holds ``threshold`` of its ``limit`` in bytes, 0.7 or 0.9, or more.

    ``size`` is what the service counts, or else what this process parked there since the outage began.
    """

    backlog: int
    size: int
    limit: int
    threshold: float


@lean_dataclass
class SendRaised(PairingEvent):
    """A send raised to its caller; ``ambiguous``: a broker may have stored it nevertheless.

    ``session_id`` is the session of the messages if its order is kept, else "". ``checksums`` as of parked messages.
    """

    cause: str
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""
    checksums: tuple[int, ...] = ()


@lean_dataclass
class BacklogWithdrawn(PairingEvent):
    """A send to a backlog failed; no sender uses it before ``until``."""

    backlog: int
    until: float
    cause: str


@lean_dataclass
class BacklogReturned(PairingEvent):
    """A backlog that had failed accepted a message again."""

    backlog: int


@lean_dataclass
class FenceOpened(PairingEvent):
    """An ordered backlog was found empty: the ``sessions`` parked there use the primary again."""

    backlog: int
    sessions: int


@lean_dataclass
class FenceUnproved(PairingEvent):
    """An ordered backlog cannot be peeked: its sessions stay parked until it can."""

    backlog: int
    cause: str


@lean_dataclass
class MessageSpooled(PairingEvent):
    """Messages of one send were spooled: neither namespace accepted them, older ones wait there, or all are.

    ``session_id`` is their session if its order is kept, else "". ``checksums`` as of parked messages.
    """

    count: int
    message_ids: tuple[str, ...] = ()
    ambiguous: bool = False
    session_id: str = ""
    checksums: tuple[int, ...] = ()


@lean_dataclass
class SpoolReplayed(PairingEvent):
    """The primary, or a backlog queue, accepted messages from the spool; ``left`` still wait."""

    backlog: int | None
    count: int
    left: int
    message_ids: tuple[str, ...] = ()


@lean_dataclass
class SpooledMessageRefused(PairingEvent):
    """The primary refused a spooled message for its content; it stays in the spool with the reason."""

    message_id: str
    cause: str


@lean_dataclass
class PingSent(PairingEvent):
    """A ping was sent to the primary entity; it is billed as a message."""

    number: int


@lean_dataclass
class LinkProbed(PairingEvent):
    """A link to the primary entity is opened instead of a ping (`probe="link"`); it is not billed."""


class PingFailed(_Caused):
    """A ping was not accepted; the next follows after the ping interval."""


@lean_dataclass
class HeadroomShort(PairingEvent):
    """A message sent to the primary is too large to be parked, once rewritten."""

    message_id: str
    size: int
    limit: int


class PairingDisabled(_Caused):
    """Pairing is disabled (`SBPAIR_DISABLE=1`): the client sends to the primary as the SDK alone would."""


class ClassifierFailed(_Caused):
    """The classifier of the options raised or returned an invalid value; the built-in table was used."""


class SideClosed(_OfSide):
    """One side was closed on its own; the other must be closed within five seconds."""


class SideFaulted(_OfSide):
    """One side refuses the client because of its configuration; it is retried until it accepts."""


class SideRecovered(_OfSide):
    """A side that refused the client accepts it again."""


class PairFaulted(_OfSide):
    """One side was closed and the other was not closed in time; the client sends nothing more."""


@lean_dataclass
class BacklogsCreated(PairingEvent):
    """All backlog queues exist; this client created those listed."""

    created: tuple[str, ...]


class BacklogsNotCreated(_Caused):
    """The backlog queues could not be verified or created; retried until they are, and on the next parked send."""
