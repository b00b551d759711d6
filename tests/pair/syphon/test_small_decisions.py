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
from sbpair.pair.syphon.forward.credit import INITIAL_SIZE, MemoryBudget, RecentSize, Window
from sbpair.pair.syphon.forward.delivery import Destination
from sbpair.pair.syphon.forward.locks import FIRST_BATCH, KeptDelivery, Overflow
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
def test_a_span_of_the_options_is_taken_up_to_both_its_ends(name: str) -> None:
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
def test_a_number_of_the_options_is_taken_up_to_both_its_ends(name: str) -> None:
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
def test_a_syphon_needs_no_more_links_than_a_connection_has_channels_and_claims() -> None:
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
def test_what_a_processor_and_a_window_may_have_fits_a_connection() -> None:
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
def test_what_the_options_cannot_mean_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        SyphonOptions(**options)
    assert str(refused.value) == told


@pytest.mark.parametrize("url", ["ftp://p", "http://", "http://p:0", "http://p:99999", "p:80", "http://[p"])
def test_a_proxy_that_is_no_url_is_not_repeated(url: str) -> None:
    with pytest.raises(ValueError) as told:
        SyphonOptions(over_websocket=True, http_proxy=url)
    assert str(told.value) == "http_proxy must be http:// or https:// and a host"


def test_the_prefix_of_the_backlogs_is_a_name() -> None:
    assert SyphonOptions(primary_namespace_name="contoso").primary_namespace_name == "contoso"
    with pytest.raises((ValueError, TypeError)):
        SyphonOptions(primary_namespace_name="a/b c")


def test_the_options_say_how_to_connect() -> None:
    assert SyphonOptions().route == Route(None, False, None)
    for proxy in ("http://p", "https://u:secret@p:8080"):
        options = SyphonOptions(connection_verify="ca.pem", over_websocket=True, http_proxy=proxy)
        assert options.route == Route("ca.pem", True, proxy)
        assert "secret" not in repr(options)
    assert SyphonOptions(allowed_destinations=("/a/",), only_backlogs=(0, 9)).only_backlogs == (0, 9)


def test_a_pause_doubles_up_to_its_most_and_begins_anew_after_a_success() -> None:
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


def test_a_window_has_room_for_what_is_active_settling_and_held() -> None:
    window = Window(1000, 10)
    assert (window.limit, window.receives, window.next_timer()) == (256, 0, None)
    assert Window(5, 10).limit == 5
    assert [window.room(*each) for each in ((252, 0), (256, 0), (270, 0), (0, 7), (0, 12), (252, 0, 257))] == [
        4, 0, 0, 3, 0, 3,
    ]  # fmt: skip
    wide = Window(1000, 1000)
    assert [wide.grant(credit, 0, 0, 5.0) for credit in (256, 255, 129, 128, 0)] == [
        None,
        None,
        None,
        256,
        256,
    ]
    assert (wide.receives, wide.next_timer()) == (1, 905.0)
    assert wide.grant(0, 0, 0, 5.0) == 256
    assert wide.receives == 2
    assert wide.grant(3, 0, 0, 9.0, 0, 10) == 10
    assert wide.grant(0, 0, 0, 9.0, 512) is None  # it has no credit
    wide.message_arrived(10.0)
    assert (wide.next_timer(), wide.handle_timer(909.9)) == (910.0, False)
    assert (wide.handle_timer(910.0), wide.next_timer(), wide.handle_timer(911.0)) == (True, None, False)


@pytest.mark.parametrize(("took", "limit"), [(15.0, 257), (15.1, 128)])
def test_a_window_is_halved_by_a_message_that_took_more_than_a_quarter_of_its_lock(
    took: float, limit: int
) -> None:
    window = Window(1000, 1000)
    window.forwarded(took, 60.0)
    assert window.limit == limit
    full = Window(64, 1)
    full.forwarded(1.0, 60.0)
    assert full.limit == 64
    for _ in range(9):
        full.forwarded(60.0, 60.0)
    assert full.limit == 1
    odd = Window(7, 1)
    odd.forwarded(60.0, 60.0)
    assert (odd.limit, type(odd.limit)) == (3, int)


def test_memory_is_shared_and_who_waits_is_called_once_when_half_is_free() -> None:
    called: list[str] = []
    budget = MemoryBudget(100_000, 4)

    def one() -> None:
        called.append("one")

    assert [budget.credit(size, one) for size in (0, 1024, 5000, 10**6)] == [24, 24, 5, 1]
    assert MemoryBudget(100_000, 0).credit(5000, one) == 20
    budget.used = 99_999
    assert (budget.credit(1, one), budget.waiting) == (1, {})
    budget.used = 100_000
    assert budget.credit(1, one) == 0
    budget.wake_later(one)
    budget.used = 50_001
    budget.wake()
    assert called == []
    budget.used = 50_000
    budget.wake()
    budget.wake()
    assert called == ["one"]
    assert (budget.held, budget.may_hold(50_000), budget.may_hold(50_001)) == (0, True, False)
    budget.held = 49_000
    assert (budget.may_hold(1000), budget.may_hold(1001)) == (True, False)


def test_the_size_that_is_expected_follows_what_comes() -> None:
    recent = RecentSize()
    assert recent.bytes == INITIAL_SIZE == 262_144
    recent.update(262_144 - 400)
    assert recent.bytes == 262_144 - 100
    recent.update(300_000)
    assert recent.bytes == 300_000
    recent.update(300_000)
    assert recent.bytes == 300_000


class Place:
    """The part of a destination that concerns overflow."""

    def __init__(self, *, takes_more: bool) -> None:
        self.takes_more = takes_more


def locked(number: int, ends: float = 60.0) -> KeptDelivery:
    return KeptDelivery(number, b"%d" % number, ends)


def test_what_overflowed_goes_back_in_batches_that_double_while_it_is_taken() -> None:
    overflow = Overflow()
    open_one, stuck = (cast("Destination", Place(takes_more=each)) for each in (True, False))
    for number in range(4 * FIRST_BATCH):
        overflow.put(open_one, locked(number))
    overflow.put(stuck, locked(9999))
    assert (len(overflow), FIRST_BATCH) == (4001, 1000)
    assert overflow.take_ready() == list(range(1000))
    assert overflow.take_ready() == list(range(1000, 3000))
    assert len(overflow) == 1001
    overflow.put(open_one, locked(5000))  # stuck again, so one at a time
    assert overflow.take_ready() == list(range(3000, 4000))
    assert overflow.take_ready() == [5000]
    assert overflow.take_ready() == []
    assert [each.delivery_id for each in overflow] == [9999]
    assert (overflow.take_all(), len(overflow), list(overflow)) == ([9999], 0, [])


def test_a_lock_that_has_ended_is_let_go() -> None:
    overflow, one = Overflow(), cast("Destination", Place(takes_more=False))
    for number, ends in ((1, 5.0), (2, 6.0), (3, 5.1)):
        overflow.put(one, locked(number, ends))
    other = cast("Destination", Place(takes_more=True))
    overflow.put(other, locked(4, 4.0))
    overflow.put(cast("Destination", Place(takes_more=True)), locked(5, 4.0))
    assert overflow.take_expired(4.0) == [4, 5]
    overflow.put(other, locked(6))
    overflow.put(cast("Destination", Place(takes_more=True)), locked(7))
    assert overflow.take_ready() == [6, 7]
    assert overflow.take_expired(4.9) == []
    assert overflow.take_expired(5.0) == [1]
    assert overflow.take_expired(6.0) == [2, 3]
    assert (len(overflow), overflow._entries) == (0, {})


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
def test_a_refusal_of_the_credential_is_told_from_a_node_that_is_busy(
    make: Callable[[], ClientError], is_one: bool
) -> None:
    error = make()
    assert is_refusal(error) is is_one
    if isinstance(error, TokenRefusedError):
        fault = as_fault(error)
        assert type(fault) is (NamespaceUnusableError if is_one else ConnectionLostError)
        assert (str(fault), fault.condition) == ("no", error.condition)
