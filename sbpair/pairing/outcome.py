"""What became of an attempt, of a send, and of the caller's messages. Pure.

An attempt that failed has a :class:`Classification`; a send ends in an :data:`Outcome`; the caller receives a
:class:`SendReceipt` or an error. Only ``Failure.UNAVAILABLE`` can fail an entity over (P-3); classify.py maps
each error of the SDK to its kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple


class Failure(Enum):
    """The kind of a failed attempt; it decides what happens to the message."""

    UNAVAILABLE = "unavailable"  # starts the timer, can fail over
    BUSY = "busy"  # wait and send again within the caller's budget
    CONFIGURATION = "configuration"  # raised at once: a person must act
    FULL = "full"  # raised: the quota of the entity is used up
    CALLER = "caller"  # raised: this message or argument will never be accepted


@dataclass(frozen=True, slots=True)
class Classification:
    """What one error means for the entity and for the message."""

    failure: Failure
    why: str
    is_missing: bool = False  # the entity does not exist: a backlog can be created
    is_too_large: bool = False  # the message does not fit (P-22)
    is_ambiguous: bool = False  # the message may have been stored all the same
    is_of_namespace: bool = False  # every entity there refuses this client: credential, certificate
    is_local: bool = False  # nothing was sent, and another queue would not help: encoding, closed
    is_link_in_doubt: bool = False  # an idle link may have died or a token expired: try a fresh link
    is_own: bool = False  # it waited for a local link or thread: no evidence about the broker
    retry_after: float | None = None  # seconds the broker asks to wait


@dataclass(frozen=True, slots=True)
class Stored:
    """Accepted by a broker (G-3), by the primary when ``backlog`` is None; or written to the spool."""

    backlog: int | None
    is_ambiguous: bool
    is_spooled: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The error to raise to the caller. ``is_parked``: it came from a backlog queue."""

    error: Exception
    is_parked: bool
    is_too_large: bool
    failure: Failure


@dataclass(frozen=True, slots=True)
class Stranded:
    """No broker accepted the message: every cause, the primary's first (G-19), and the error of the spool."""

    causes: tuple[Exception, ...]
    spool_error: Exception | None = None


Outcome = Stored | Refused | Stranded


class StoredIn(Enum):
    """Where accepted messages are stored."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SPOOL = "spool"


class Location(NamedTuple):
    """Some messages of one call, and the one place that accepted them."""

    stored_in: StoredIn
    backlog: int | None
    message_ids: tuple[str, ...]


class SendReceipt(NamedTuple):
    """What ``send_messages`` returns once every message of the call was accepted by a broker,
    or is on the disk of the spool.

    ``backlog`` is the number of the backlog queue (the last one, if several were needed).
    ``ambiguous``: an earlier attempt of this call may have been stored too, so that a copy with the
    same message id can exist (duplicate detection on the entity removes it, G-6). ``locations`` says, in order,
    which messages are stored where when a call was split over several places; otherwise it is empty.
    """

    stored_in: StoredIn
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool = False
    locations: tuple[Location, ...] = ()


_PRIMARY = StoredIn.PRIMARY
_make = tuple.__new__  # past the wrapper of a named tuple, which costs as much again


def at_primary(message_id: str) -> SendReceipt:
    """The receipt of one message sent by the fast path."""
    return _make(SendReceipt, (_PRIMARY, None, (message_id,), False, ()))
