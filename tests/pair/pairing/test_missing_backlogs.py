"""Backlog queues that cannot be made are told long before an outage needs them, and whatever the cause."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from unittest.mock import MagicMock

import pytest
from azure.core.exceptions import ClientAuthenticationError, ServiceRequestError, ServiceResponseError

from sbpair.events import BacklogsCreated, BacklogsNotCreated, PairingEvent
from sbpair.pair.pairing.shared.backlog import MAX_WAIT_SECONDS, Backlogs


class Driven(threading.Event):
    """An event for which nobody waits really: a clock goes on. ``at`` what happens when."""

    def __init__(self, patched: pytest.MonkeyPatch, until: float) -> None:
        super().__init__()
        self.now, self._until = 1000.0, 1000.0 + until
        patched.setattr(time, "monotonic", lambda: self.now)

    def wait(self, timeout: float | None = None) -> bool:
        self.now += timeout or 0.0
        if self.now >= self._until:
            self.set()
        return self.is_set()


@pytest.fixture
def told(monkeypatch) -> Callable[..., tuple[list[tuple[float, PairingEvent]], Backlogs]]:
    """Return what is told, with its second, where asking ends with these errors by second, and the backlogs."""

    def told(
        error_at: Callable[[float], Exception | None], until: float
    ) -> tuple[list[tuple[float, PairingEvent]], Backlogs]:
        closed = Driven(monkeypatch, until)

        def administration() -> object:
            if (error := error_at(closed.now - 1000.0)) is not None:
                raise error
            return nullcontext(MagicMock())

        backlogs, said = Backlogs("contoso", 1, administration), []  # type: ignore[arg-type, var-annotated]
        backlogs.make_in_background(closed, 0.0, lambda event: said.append((closed.now - 1000.0, event)))
        return said, backlogs

    return told


@pytest.mark.parametrize(
    ("error", "most"),
    [
        (ServiceRequestError("certificate verify failed"), 90.0),
        (ServiceRequestError("port 443 is shut"), 90.0),
        (ServiceResponseError("the proxy hangs up"), 90.0),
        (ClientAuthenticationError("no Manage"), 1.0),
    ],
)
def test_missing_backlogs_are_reported_once_after_half_a_minute_with_the_cause(told, error, most) -> None:
    said, backlogs = told(lambda now: error, until=600.0)
    ((second, event),) = said
    assert isinstance(event, BacklogsNotCreated)
    assert second <= most
    assert event.cause.startswith(type(error).__name__)
    assert backlogs.missing_because == event.cause


def test_a_brief_failure_is_not_reported(told) -> None:
    said, _ = told(lambda now: ServiceRequestError("gone"), until=20.0)
    assert said == []


def test_each_change_of_the_cause_is_reported(told) -> None:
    refusal = ClientAuthenticationError("no Manage")
    said, backlogs = told(lambda now: ServiceRequestError("gone") if now < 200 else refusal, until=600.0)
    assert [event.cause.partition(":")[0] for _, event in said] == [
        "ServiceRequestError",
        "ClientAuthenticationError",
    ]
    assert backlogs.missing_because.startswith("ClientAuthenticationError")


@pytest.mark.spec("R-179")
def test_created_queues_are_no_longer_missing_within_a_minute_without_a_send(
    told,
) -> None:
    said, backlogs = told(lambda now: ServiceRequestError("gone") if now < 200 else None, until=600.0)
    assert [type(event) for _, event in said] == [BacklogsNotCreated, BacklogsCreated]
    assert said[1][0] <= 200.0 + MAX_WAIT_SECONDS
    assert backlogs.missing_because is None


def wrapped(root: Exception) -> ServiceRequestError:
    """As the SDK raises it: the text names an object in memory, and the error below it is its cause."""
    error = ServiceRequestError(f"<HTTPSConnection object at {id(root):#x}>: failed: {root}")
    error.__cause__ = root
    return error


def untrusted() -> Exception:
    refused = ssl.SSLCertVerificationError(1, "certificate verify failed")
    refused.verify_message = "self-signed certificate"
    return refused


@pytest.mark.spec("R-160")
@pytest.mark.parametrize(
    ("root", "said"),
    [
        (untrusted, "cannot be reached: its certificate is not trusted: self-signed certificate"),
        (lambda: ConnectionRefusedError(111, "Connection refused"), "cannot be reached: Connection refused"),
        (lambda: socket.gaierror(-2, "Name or service not known"), "reached: Name or service not known"),
        (lambda: ValueError("odd"), "the secondary's administration over HTTPS cannot be reached"),
    ],
)
def test_the_cause_says_why_the_administration_is_unavailable_and_is_stable(told, root, said) -> None:
    events, backlogs = told(lambda now: wrapped(root()), until=3600.0)
    assert len(events) == 1
    assert backlogs.missing_because.endswith(said)
    assert "token service" not in backlogs.missing_because
