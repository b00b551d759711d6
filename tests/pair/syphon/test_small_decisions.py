"""Pure decisions of the syphon: options, pauses, credit, memory and locks."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from sbpair.broker.frontends.amqp.claims import MAX_CLAIMS
from sbpair.pair.amqp.connection import CHANNEL_MAX
from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.auth.route import Route
from sbpair.pair.client.backoff import Backoff
from sbpair.pair.client.errors import (
    ClientError,
    ConnectionLostError,
    NamespaceUnusableError,
    TokenRefusedError,
)
from sbpair.pair.processor.options import ProcessorOptions
from sbpair.pair.syphon.options import MAX_LINKS, MAX_QUEUES, SyphonOptions
from sbpair.pair.syphon.watch.claims import as_fault, is_refusal

pytestmark = pytest.mark.spec("R-66")

SPANS = {
    "missing_backlog_interval": (1, 3600),
    "operation_timeout": (1, 600),
    "retry_backoff_max": (0.1, 600),
    "stop_timeout": (0, 600),
    "overdue_after": (1, 604_800),
    "measure_every": (1, 3600),
}
COUNTS = {"backlog_queue_count": (1, 10_000), "window": (1, 5000), "memory_budget": (2**20, 2**40)}


@pytest.mark.parametrize("name", SPANS)
def test_a_duration_option_accepts_both_ends_of_its_range(name: str) -> None:
    least, most = SPANS[name]
    for fits in (least, most):
        assert (
            getattr(SyphonOptions(**cast("Any", {name: timedelta(seconds=fits)})), name).total_seconds()
            == fits
        )
    ends = f"from {timedelta(seconds=least)} to {timedelta(seconds=most)}"
    for wrong in (timedelta(seconds=least - 0.01), timedelta(seconds=most + 0.01)):
        with pytest.raises(ValueError) as told:
            SyphonOptions(**cast("Any", {name: wrong}))
        assert str(told.value) == f"{name} must be {ends}, not {wrong}"
    with pytest.raises(TypeError) as untyped:
        SyphonOptions(**cast("Any", {name: 5}))
    assert str(untyped.value) == f"{name} must be a timedelta {ends}, not 5"


@pytest.mark.parametrize("name", COUNTS)
def test_a_number_option_accepts_both_ends_of_its_range(name: str) -> None:
    least, most = COUNTS[name]
    one = {"only_backlogs": (0,)}  # of all queues a syphon may serve only some
    for fits in (least, most):
        assert getattr(SyphonOptions(**cast("Any", one | {name: fits})), name) == fits
    outside, untyped = (least - 1, most + 1), (True, 2.0, "7")
    for wrong in (*outside, *untyped):
        with pytest.raises(ValueError if wrong in outside else TypeError) as told:
            SyphonOptions(**cast("Any", {name: wrong}))
        assert str(told.value) == f"{name} must be a whole number from {least} to {most}, not {wrong!r}"


@pytest.mark.spec("S-24")
def test_the_links_of_a_syphon_fit_the_channels_of_a_connection() -> None:
    assert MAX_QUEUES <= MAX_CLAIMS - 10  # and the claims of $management and of landing
    assert MAX_LINKS <= CHANNEL_MAX - 10
    sessions = MAX_LINKS - MAX_QUEUES
    SyphonOptions(backlog_queue_count=MAX_QUEUES)
    SyphonOptions(backlog_queue_count=10_000, only_backlogs=tuple(range(MAX_QUEUES)))
    SyphonOptions(backlog_queue_count=MAX_QUEUES // 2, ordering="session", max_concurrent_sessions=sessions)
    with pytest.raises(ValueError, match="at most 2000 backlog queues, not 2001"):
        SyphonOptions(backlog_queue_count=MAX_QUEUES + 1)
    with pytest.raises(ValueError, match="at most 2000 backlog queues, not 2002"):
        SyphonOptions(backlog_queue_count=MAX_QUEUES // 2 + 1, ordering="session")
    with pytest.raises(ValueError, match="at most 4900 together, not 4901"):
        SyphonOptions(
            backlog_queue_count=MAX_QUEUES // 2, ordering="session", max_concurrent_sessions=sessions + 1
        )


@pytest.mark.spec("S-24")
def test_the_limits_of_a_processor_and_a_window_fit_a_connection() -> None:
    assert (
        3 * ProcessorOptions.MAX_SESSIONS <= CHANNEL_MAX
    )  # a session's link, its $management, and its successor
    assert COUNTS["window"][1] <= Limits().max_unsettled
    assert Limits().max_unsettled >= ProcessorOptions.MAX_CALLS


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"only_backlogs": (0, 10)}, "only_backlogs must be a whole number from 0 to 9, not 10"),
        ({"only_backlogs": (-1,)}, "only_backlogs must be a whole number from 0 to 9, not -1"),
        ({"allowed_destinations": ["a"]}, "allowed_destinations must be a tuple of paths, not ['a']"),
        ({"allowed_destinations": ("a", 7)}, "allowed_destinations must be a tuple of paths, not ('a', 7)"),
        (
            {"allowed_destinations": ()},
            "allowed_destinations must contain a path; omit it to allow all paths",
        ),
        (
            {"allowed_destinations": ("a", "b,c")},
            "allowed_destinations cannot contain 'b,c': list each path separately",
        ),
        ({"http_proxy": "http://p"}, "http_proxy needs over_websocket: AMQP over TCP does not use a proxy"),
    ],
)
def test_invalid_options_raise(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        SyphonOptions(**options)
    assert str(refused.value) == told


@pytest.mark.parametrize("url", ["ftp://p", "http://", "http://p:0", "http://p:99999", "p:80", "http://[p"])
def test_an_invalid_proxy_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError) as told:
        SyphonOptions(over_websocket=True, http_proxy=url)
    assert str(told.value) == "http_proxy must be http:// or https:// and a host"


def test_the_options_say_how_to_connect() -> None:
    assert SyphonOptions().route == Route(None, False, None)
    for proxy in ("http://p", "https://u:secret@p:8080"):
        options = SyphonOptions(connection_verify="ca.pem", over_websocket=True, http_proxy=proxy)
        assert options.route == Route("ca.pem", True, proxy)
        assert "secret" not in repr(options)
    assert SyphonOptions(allowed_destinations=("/a/",), only_backlogs=(0, 9)).only_backlogs == (0, 9)


def test_a_pause_doubles_up_to_its_maximum_and_restarts_after_a_success() -> None:
    for jitter, part in ((0.0, 0.5), (0.5, 0.75), (1.0, 1.0)):
        backoff = Backoff(10.0, 1.0, lambda jitter=jitter: jitter)  # type: ignore[misc]
        assert [backoff.next_pause() for _ in range(5)] == [
            each * part for each in (1.0, 2.0, 4.0, 8.0, 10.0)
        ]
        assert backoff.failures == 5
        backoff.succeeded()
        assert backoff.next_pause() == part
    backoff = Backoff(1e300, 1.0, lambda: 1.0, failures=5000)
    assert backoff.next_pause() == 2.0**32


def refused(symbol: str | None) -> TokenRefusedError:
    error = TokenRefusedError("no")
    error.condition = None if symbol is None else Condition(symbol, "why")
    return error


@pytest.mark.parametrize(
    ("make", "is_one"),
    [
        (lambda: refused("amqp:unauthorized-access"), True),
        (lambda: refused("com.microsoft:server-busy"), False),
        (lambda: refused(None), False),
        (lambda: NamespaceUnusableError("no"), True),
        (lambda: ConnectionLostError("no"), False),
    ],
)
def test_a_credential_refusal_is_distinguished_from_a_busy_node(
    make: Callable[[], ClientError], is_one: bool
) -> None:
    error = make()
    assert is_refusal(error) is is_one
    if isinstance(error, TokenRefusedError):
        fault = as_fault(error)
        assert type(fault) is (NamespaceUnusableError if is_one else ConnectionLostError)
        assert (str(fault), fault.condition) == ("no", error.condition)
