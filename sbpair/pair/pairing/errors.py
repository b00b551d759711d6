"""The errors sbpair adds to those of the SDK.

    azure.servicebus.exceptions.ServiceBusError
    └── PairingError
        ├── BacklogUnavailableError     neither the primary nor any backlog accepted the message
        ├── ReservedPropertyError       the message uses a reserved property name
        ├── ParkedMessageTooLargeError  the message fits the primary, but not once rewritten;
        │                               also a MessageSizeExceededError
        ├── PartlyParkedError           some messages of one call are parked, the others were not accepted
        ├── MixedSessionsError          `ordering="session"`, and one call has messages of several sessions
        ├── ParkedScheduleError         a parked scheduled message cannot be cancelled
        ├── CaFileError                 the file of `connection_verify` cannot be used
        ├── PairFaultedError            one side was closed and the other was not
        └── SpoolError                  the spool cannot be used
            └── SpoolFullError          the spool has no room for the message

Code that catches ServiceBusError catches all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair.pair.envelope.errors import PairingError, ReservedPropertyError

if TYPE_CHECKING:
    from .outcome import Location

__all__ = [
    "BacklogUnavailableError",
    "CaFileError",
    "MixedSessionsError",
    "PairFaultedError",
    "PairingError",
    "ParkedMessageTooLargeError",
    "ParkedScheduleError",
    "PartlyParkedError",
    "ReservedPropertyError",
    "SpoolError",
    "SpoolFullError",
]


def unencodable(fault: Exception) -> ServiceBusError:
    """Return the error that a send raises for an unencodable message in every state; ``fault`` itself if it is one."""
    if isinstance(fault, ServiceBusError):
        return fault
    error = ServiceBusError(f"The message cannot be encoded: {fault}.", error=fault)
    error.__cause__ = fault
    return error


class BacklogUnavailableError(PairingError):
    """The message was not accepted by any backlog queue, nor by the primary if it was tried.

    ``causes`` holds the errors of all attempts in order, the primary's first. If the client could not verify or create
    its backlog queues, the text begins with the reason, ``missing_because``.
    """

    def __init__(self, path: str, causes: tuple[Exception, ...], missing_because: str = "") -> None:
        listed = "; ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
        missing = (
            f"The backlog queues could not be ensured, and may not exist: {missing_because}. "
            if missing_because
            else ""
        )
        super().__init__(
            f"{missing}No backlog queue accepted the message for {path!r}; send it again later, with the same "
            f"message_id. Tried: {listed or 'nothing'}"
        )
        self.path = path
        self.causes = causes


class ParkedMessageTooLargeError(PairingError, MessageSizeExceededError):
    """The message, rewritten for parking, exceeds the size a backlog queue accepts."""

    def __init__(self, path: str, cause: Exception) -> None:
        MessageSizeExceededError.__init__(
            self,
            message=f"A message for {path!r} is too large for a backlog queue once rewritten for parking, "
            f"which adds up to about 600 bytes: {cause}",
        )
        self.path = path


class PartlyParkedError(PairingError):
    """Some messages of one call are parked; the others were not accepted. Send those again.

    ``locations`` lists where messages are stored, ``unaccepted`` the ids of the others in order; ``__cause__`` is
    the error that stopped them. If it is a lost connection, the first of them may have been stored nevertheless.
    """

    def __init__(
        self, path: str, locations: tuple[Location, ...], unaccepted: tuple[str, ...], cause: Exception
    ) -> None:
        parked = "; ".join(f"{len(place.message_ids)} in backlog {place.backlog}" for place in locations)
        super().__init__(
            f"Only some messages for {path!r} are parked ({parked}); {len(unaccepted)} were not accepted, "
            f"beginning with the id {unaccepted[0]!r}: {cause}"
        )
        self.path = path
        self.locations = locations
        self.unaccepted = unaccepted


class ParkedScheduleError(PairingError):
    """One of the sequence numbers is -1, the placeholder of a parked message. Nothing was cancelled."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"A sequence number of -1 stands for a message that was parked while {path!r} was failed over. "
            "The primary has not numbered it yet, so it cannot be cancelled here. Nothing was cancelled."
        )
        self.path = path


class MixedSessionsError(PairingError, ValueError):
    """With ``ordering="session"``, the messages of one call must be of one session. Nothing was sent."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"The messages of one call for {path!r} are of several sessions, or some have no session id. With "
            'ordering="session" send those of each session by a call of their own. Nothing was sent.'
        )
        self.path = path


class CaFileError(PairingError):
    """The file of ``connection_verify`` cannot be read, or contains no CA certificate.

    The file is read when a connection is first needed, and again until it can be used.
    """

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"connection_verify: {file!r} is not a file of trusted certificates (PEM): {why}")
        self.file = file


class PairFaultedError(PairingError):
    """One side was closed, and the other was not closed within five seconds.

    ``primary`` and ``secondary`` name the two namespaces, ``side`` the one that was closed first, ``cause`` why. With
    ``fault_pair_on_refusal``, a side that refuses the client for five seconds counts as closed. Not recoverable: fix
    the cause and create a new client.
    """

    def __init__(self, primary: str, secondary: str, side: str, cause: str) -> None:
        super().__init__(
            f"The pair of {primary!r} (primary) and {secondary!r} (secondary) is faulted: {cause}. "
            "Fix the cause and create a new paired client."
        )
        self.primary, self.secondary = primary, secondary
        self.side, self.cause = side, cause


class SpoolError(PairingError):
    """The spool cannot be used: another process owns it, or the file is damaged or cannot be written."""


class SpoolFullError(SpoolError):
    """The message was not accepted: neither namespace accepted it, and the spool is full."""
