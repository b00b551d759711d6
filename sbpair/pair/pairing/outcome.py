"""The results of attempts and sends.

A failed attempt has a :class:`Classification`; a send ends in an :data:`Outcome`; the caller receives a
:class:`SendReceipt` or an error. Only ``Failure.UNAVAILABLE`` can fail an entity over. classify.py maps the
SDK's errors to classifications.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import NamedTuple


class Failure(Enum):
    """The kind of a failed attempt; it decides what is done with the message."""

    UNAVAILABLE = "unavailable"  # starts the failover interval; the message can be redirected
    BUSY = "busy"  # retried after a pause, within the caller's timeout
    CONFIGURATION = "configuration"  # raised at once: an operator must act
    FULL = "full"  # raised, unless the options redirect it: the quota of the entity is exhausted
    CALLER = "caller"  # raised: this message or argument will never be accepted


class Classification(NamedTuple):
    """The meaning of one error for the entity and for the message."""

    failure: Failure
    why: str
    is_missing: bool = False  # the entity does not exist; a backlog queue can be created
    is_too_large: bool = False  # the message exceeds the size limit
    is_ambiguous: bool = False  # the message may have been stored nevertheless
    is_of_namespace: bool = False  # the whole namespace refuses this client: credential, certificate
    is_of_side: bool = False  # every queue of this namespace would fail alike: connection, token, name, busy
    is_local: bool = False  # nothing was sent, and another queue would not help: encoding, closed
    is_link_in_doubt: bool = False  # an idle link may have died or a token expired: retry on a new link
    is_own: bool = False  # no local link or thread was free in time: no evidence about the broker
    is_shortage: bool = False  # this machine has no descriptor or memory free; own, too
    retry_after: float | None = None  # delay in seconds that the broker requests

    @property
    def is_of_message(self) -> bool:
        """Whether the broker answered this message with a failure, which may be due to the message alone."""
        is_answer = self.is_link_in_doubt and not (self.is_ambiguous or self.is_of_side or self.is_own)
        return is_answer and self.failure is Failure.UNAVAILABLE


MAX_REMEMBERED_TEXT = 1000  # characters


class RememberedFailure(NamedTuple):
    """The class, text and condition of an error, to raise it again later; of bounded size.

    The exception itself would keep its traceback, and with it the frames of its send and the message; if raised twice,
    it would collect the frames of both.
    """

    kind: type[Exception]
    args: tuple[object, ...]
    attributes: tuple[tuple[str, object], ...]

    @classmethod
    def of(cls, error: Exception) -> RememberedFailure:
        """Return the memory of this error: plain arguments and attributes are kept, all others become None."""
        attributes = tuple((name, _plain(value)) for name, value in vars(error).items())
        return cls(type(error), tuple(map(_plain, error.args)), attributes)

    def again(self) -> Exception:
        """Return a new exception of this class; if that cannot be created, a RuntimeError with its name and text."""
        try:
            error = self.kind.__new__(
                self.kind, *self.args
            )  # its constructor may want more than its arguments
        except Exception:  # a class of an application, such as a credential's
            return RuntimeError(": ".join([self.kind.__name__, *map(str, self.args)]))
        error.args = self.args
        error.__dict__.update(self.attributes)
        return error


def _plain(value: object) -> object:
    if isinstance(value, str | bytes):
        return value[:MAX_REMEMBERED_TEXT]
    return value if isinstance(value, bool | int | float | Enum) else None


class Stored(NamedTuple):
    """Accepted by a broker, the primary if ``backlog`` is None; or written to the spool."""

    backlog: int | None
    is_ambiguous: bool
    is_spooled: bool = False


class Refused(NamedTuple):
    """Refused: the error to raise to the caller. ``is_parked`` says that a backlog queue caused it."""

    error: Exception
    is_parked: bool
    is_too_large: bool
    failure: Failure

    @property
    def cause(self) -> str:
        """The class of the error."""
        return type(self.error).__name__


class Stranded(NamedTuple):
    """Accepted by no broker: the errors of all attempts, the primary's first, and that of the spool."""

    causes: tuple[Exception, ...]
    spool_error: Exception | None = None

    @property
    def cause(self) -> str:
        """The class of the last error, which is the spool's if it was tried."""
        errors = self.causes if self.spool_error is None else (self.spool_error,)
        return type(errors[-1]).__name__ if errors else "no time was left"


Outcome = Stored | Refused | Stranded


class ParkReason(StrEnum):
    """Why a message was parked."""

    FAILED_OVER = "failed_over"  # its entity had failed over
    REJECTED = "rejected"  # the primary did not accept it
    UNANSWERED = "unanswered"  # the primary did not answer in time: a copy may be stored there
    BUSY = "busy"  # the primary was too busy
    NOT_ASKED = "not_asked"  # other sends of the entity, or of its key, failed, and the primary was not asked


class StoredIn(Enum):
    """The place where accepted messages are stored."""

    PRIMARY = "primary"
    BACKLOG = "backlog"
    SPOOL = "spool"


class Location(NamedTuple):
    """Messages of one call that were accepted by the same queue, or by the spool."""

    stored_in: StoredIn
    backlog: int | None
    message_ids: tuple[str, ...]


class SendReceipt(NamedTuple):
    """The result of ``send_messages``: every message was accepted by a broker or written to the spool.

    ``backlog`` is the index of the backlog queue, the last one if several were needed. ``ambiguous`` says that an
    earlier attempt of this call may have been stored as well, so a copy with the same message id can exist, which
    duplicate detection on the entity removes. ``locations`` lists in order where the messages are stored if
    the call was split over several locations, and is empty otherwise.
    """

    stored_in: StoredIn
    backlog: int | None
    message_ids: tuple[str, ...]
    ambiguous: bool = False
    locations: tuple[Location, ...] = ()


_PRIMARY = StoredIn.PRIMARY
_make = tuple.__new__  # bypasses the named tuple's own __new__, which doubles the cost


def at_primary(message_id: str) -> SendReceipt:
    """Return the receipt of one message that the fast path sent to the primary."""
    return _make(SendReceipt, (_PRIMARY, None, (message_id,), False, ()))
