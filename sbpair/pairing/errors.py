"""Which errors does a pairing add to those of the SDK?

    azure.servicebus.exceptions.ServiceBusError
    └── PairingError
        ├── BacklogUnavailableError     neither the primary nor any backlog accepted the message
        ├── ReservedPropertyError       the message uses a name that parking needs
        ├── ParkedMessageTooLargeError  the message fits the primary, but not once rewritten (P-22)
        ├── PartlyParkedError          some messages of one call are parked, the others rest nowhere
        ├── ParkedScheduleError         a scheduled message that is parked cannot be cancelled
        ├── CaFileError                 `connection_verify` names no file of authorities
        ├── PairFaultedError            one side of the pair ended and its partner did not (P-50)
        └── SpoolError                  the spool cannot be used
            └── SpoolFullError          the spool has no room for the message

Whoever catches ServiceBusError today still catches everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from azure.servicebus.exceptions import ServiceBusError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .receipt import Place

_OF_THIS_PROCESS = frozenset({"inner_exception", "exc_type", "exc_value", "exc_traceback"})  # azure-core's
_PLAIN = (str, int, float, bool, type(None))

_Parts = tuple[type[BaseException], tuple[object, ...], dict[str, object]]


class PairingError(ServiceBusError):
    """The base of everything sbpair itself raises while sending.

    It can be pickled, as a pool of processes does with what a worker raises; errors of the SDK that it holds
    arrive with their type and text.
    """

    def __reduce__(self) -> tuple[object, _Parts]:
        kept = {name: value for name, value in vars(self).items() if name not in _OF_THIS_PROCESS}
        if "causes" in kept:
            kept["causes"] = [_parts(cause) for cause in kept["causes"]]
        return _restored, (type(self), self.args, kept)


class BacklogUnavailableError(PairingError):
    """The message rests nowhere: no backlog queue accepted it.

    ``causes`` holds the error of every attempt in order, the primary's first when it was tried.
    """

    def __init__(self, path: str, causes: tuple[Exception, ...]) -> None:
        listed = "; ".join(f"{type(cause).__name__}: {cause}" for cause in causes)
        super().__init__(f"No backlog queue accepted the message for {path!r}. Tried: {listed or 'nothing'}")
        self.path = path
        self.causes = causes


class ReservedPropertyError(PairingError):
    """An application property has a name that a parked message needs; nothing was sent."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"The application property {name!r} is reserved for parked messages; rename it. Nothing was sent."
        )
        self.name = name


class ParkedMessageTooLargeError(PairingError):
    """The rewritten message exceeds what the backlog queue accepts (P-22)."""

    def __init__(self, path: str, cause: Exception) -> None:
        super().__init__(
            f"A message for {path!r} does not fit a backlog queue once it is rewritten for parking "
            f"(up to about 600 bytes more): {cause}"
        )
        self.path = path


class PartlyParkedError(PairingError):
    """Of the messages of one call some are parked, and the others rest nowhere; send those again.

    ``places`` says which rest where, ``unaccepted`` holds the ids of the others, in order; what stopped them
    is the ``__cause__``. The first of them may have been stored all the same where that is a lost connection.
    """

    def __init__(
        self, path: str, places: tuple[Place, ...], unaccepted: tuple[str, ...], cause: Exception
    ) -> None:
        parked = "; ".join(f"{len(place.message_ids)} in backlog {place.backlog}" for place in places)
        super().__init__(
            f"Of the messages for {path!r} only some are parked ({parked}); {len(unaccepted)} rest nowhere, "
            f"beginning with the id {unaccepted[0]!r}: {cause}"
        )
        self.path = path
        self.places = places
        self.unaccepted = unaccepted


class ParkedScheduleError(PairingError):
    """One of the sequence numbers is -1: it stands for a message that was parked. Nothing was cancelled."""

    def __init__(self, path: str) -> None:
        super().__init__(
            f"A sequence number of -1 stands for a message that was parked while {path!r} was failed over. "
            "It has no number on the primary yet and cannot be cancelled here. Nothing was cancelled."
        )
        self.path = path


class CaFileError(PairingError):
    """The file that `connection_verify` names cannot be read, or holds no certificate of an authority.

    It is looked at when a connection is first needed, and again until it can be used.
    """

    def __init__(self, file: str, why: str) -> None:
        super().__init__(f"connection_verify: {file!r} is no file of trusted certificates (PEM): {why}")
        self.file = file


class PairFaultedError(PairingError):
    """One side was closed or faulted and its partner did not follow within five seconds (P-50).

    ``primary`` and ``secondary`` name the two namespaces, ``side`` the one that ended first, ``cause`` why.
    The client stays so: cure the cause and make another.
    """

    def __init__(self, primary: str, secondary: str, side: str, cause: str) -> None:
        super().__init__(
            f"The pair of {primary!r} (primary) and {secondary!r} (secondary) is faulted: {cause}. "
            "Cure the cause and make a new paired client."
        )
        self.primary, self.secondary = primary, secondary
        self.side, self.cause = side, cause


class SpoolError(PairingError):
    """The spool cannot be used: another process owns it, the file is damaged or cannot be written."""


class SpoolFullError(SpoolError):
    """The message rests nowhere: neither namespace took it, and the spool has no room for it."""


def _parts(error: BaseException) -> _Parts:
    """What of any error another process can read."""
    kept: dict[str, object] = {
        name: value for name, value in vars(error).items() if isinstance(value, _PLAIN)
    }
    return type(error), tuple(each if isinstance(each, _PLAIN) else str(each) for each in error.args), kept


def _restored(
    kind: type[BaseException], args: tuple[object, ...], state: Mapping[str, object]
) -> BaseException:
    """The error that was taken apart; its ``__init__``, which would make up another text, is not called."""
    error = kind.__new__(kind, *args)
    vars(error).update(dict.fromkeys(_OF_THIS_PROCESS), **state)
    causes = state.get("causes")
    if isinstance(causes, list):
        vars(error)["causes"] = tuple(_restored(*parts) for parts in causes)
    return error
