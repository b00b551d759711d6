"""Pickling and copying the errors of a pairing."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbpair.pair.pairing import errors
from sbpair.pair.pairing.outcome import Location, StoredIn
from sbpair.pair.pairing.spool.file import SpoolUnwritableError


def refused() -> ServiceBusConnectionError:
    """Raise like the SDK: with a traceback and a socket error, which cannot be pickled."""
    try:
        raise ConnectionResetError(104, "reset")
    except ConnectionResetError as cause:
        return ServiceBusConnectionError(message="The connection failed.", error=cause)


PLACES = (Location(StoredIn.BACKLOG, 1, ("a",)),)
MADE: dict[type[errors.PairingError], Callable[[], errors.PairingError]] = {
    errors.PairingError: partial(errors.PairingError, "something"),
    errors.BacklogUnavailableError: lambda: errors.BacklogUnavailableError(
        "orders", (refused(), errors.CaFileError("x.pem", "no certificate")), "no Manage"
    ),
    errors.ReservedPropertyError: partial(errors.ReservedPropertyError, "x-ms-path"),
    errors.ParkedMessageTooLargeError: lambda: errors.ParkedMessageTooLargeError("orders", refused()),
    errors.PartlyParkedError: lambda: errors.PartlyParkedError("orders", PLACES, ("b", "c"), refused()),
    errors.MixedSessionsError: partial(errors.MixedSessionsError, "orders"),
    errors.ParkedScheduleError: partial(errors.ParkedScheduleError, "orders"),
    errors.CaFileError: partial(errors.CaFileError, "x.pem", "no certificate"),
    errors.PairFaultedError: partial(errors.PairFaultedError, "a", "b", "primary", "the key was refused"),
    errors.SpoolError: partial(errors.SpoolError, "in use"),
    errors.SpoolFullError: partial(errors.SpoolFullError, "full"),
    SpoolUnwritableError: partial(SpoolUnwritableError, "read-only"),
}


def kinds(base: type[errors.PairingError]) -> Iterator[type[errors.PairingError]]:
    """Return the error classes of the package; other tests define some too."""
    if base.__module__.startswith("sbpair."):
        yield base
    for each in base.__subclasses__():
        yield from kinds(each)


def pickled(error: errors.PairingError) -> errors.PairingError:
    again = pickle.loads(pickle.dumps(error))
    assert isinstance(again, errors.PairingError)
    return again


@pytest.mark.parametrize("twin_of", [pickled, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("kind", list(kinds(errors.PairingError)))
def test_an_error_survives_pickling_to_another_process(
    kind: type[errors.PairingError], twin_of: Callable[[errors.PairingError], errors.PairingError]
) -> None:
    error = MADE[kind]()
    twin = twin_of(error)
    assert type(twin) is kind
    assert (str(twin), twin.message) == (str(error), error.message)
    for name in ("path", "name", "places", "unaccepted", "file", "primary", "secondary", "side", "cause"):
        assert getattr(twin, name, None) == getattr(error, name, None)


def test_the_causes_arrive_with_their_types_and_texts() -> None:
    error = MADE[errors.BacklogUnavailableError]()
    twin = pickled(error)
    assert isinstance(error, errors.BacklogUnavailableError)
    assert isinstance(twin, errors.BacklogUnavailableError)
    assert [(type(each), str(each)) for each in twin.causes] == [
        (type(each), str(each)) for each in error.causes
    ]
