"""What both runtimes learn about the sides and the free space in the backlogs; nothing is sent."""

from __future__ import annotations

from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from sbpair import EntityState, Failure, PairFaultedError, ParkedMessageTooLargeError
from sbpair.events import HeadroomShort, PairFaulted, SideClosed, SideFaulted, SideRecovered
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.decide.pair_state import MAX_PROBE_INTERVAL_SECONDS
from sbpair.pair.pairing.outcome import Classification
from sbpair.pair.pairing.request.request import SendRequest, SpooledRequest, freeze
from tests.pair.pairing.quiet_runtime import NOW, REFUSED, Base, P, S

pytestmark = [pytest.mark.spec("R-66"), pytest.mark.usefixtures("frozen")]


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(("backlog", "role"), [(None, P), (0, S), (3, S)])
def test_a_refusal_of_the_namespace_closes_its_side_until_it_accepts(backlog: int | None, role: Side) -> None:
    core = Base()
    core.hear(backlog, Result(5.0, OSError(), REFUSED))
    assert core.told == [SideFaulted(NOW, "", role.value, "the key is wrong")]
    assert core.sides.state._sides[role].since == NOW
    core.hear(backlog, Result(5.0))
    assert core.told[1:] == [SideRecovered(NOW, "", role.value, "it accepts again")]
    core.hear(backlog, Result(5.0))
    assert (len(core.told), core.publications) == (2, 2)


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(
    "classification",
    [
        Classification(Failure.CONFIGURATION, "one entity's"),
        Classification(Failure.UNAVAILABLE, "an outage", is_of_namespace=True),
    ],
)
def test_other_failures_say_nothing_about_a_side(classification: Classification) -> None:
    core = Base()
    core.hear(None, Result(5.0, OSError(), classification))
    assert (core.sides.state.is_whole, core.told, core.publications) == (True, [], 0)


@pytest.mark.spec("P-50", "R-179")
def test_a_refused_side_is_probed_until_it_accepts_without_a_send() -> None:
    core, at, probes = Base(), NOW, 0
    core.sides.refused(P, "the key is wrong")
    while probes < 20:
        due = core.sides.state.next_timer()
        assert due is not None
        assert due - at <= MAX_PROBE_INTERVAL_SECONDS
        at = due
        probes += core.sides.tick(at) == [P]
    core.sides.accepted(P)
    assert [type(event) for event in core.told] == [SideFaulted, SideRecovered]
    assert core.sides.state.next_timer() is None


@pytest.mark.spec("P-50", "R-1")
def test_evidence_about_a_side_from_elsewhere_in_the_process_counts() -> None:
    core = Base()
    core.sides.refused(S, "no rights")
    core.sides.accepted(S)
    assert core.told == [
        SideFaulted(NOW, "", "secondary", "no rights"),
        SideRecovered(NOW, "", "secondary", "it accepts again"),
    ]


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(
    ("error", "accepts"),
    [
        (MessagingEntityNotFoundError(), True),
        (MessagingEntityDisabledError(), True),
        (ServiceBusConnectionError(message="refused"), False),
        (ServiceBusAuthenticationError(message="claim"), False),
        (ValueError("closed"), False),
    ],
)
def test_a_probe_that_fails_for_its_entity_was_answered_by_the_namespace(
    error: Exception, accepts: bool
) -> None:
    core = Base()
    core.sides.refused(S, "no rights")
    core._look_failed(S, error)
    assert core.sides.state.is_whole is accepts


@pytest.mark.spec("P-50")
def test_closing_one_side_keeps_the_pair_and_closing_the_second_closes_it() -> None:
    core = Base()
    assert core.sides.closed(S) is False
    assert core.told == [SideClosed(NOW, "", "secondary", "close() was called")]
    core.sides.check(P)
    with pytest.raises(ValueError, match=r"^the secondary side of the paired client is closed$"):
        core.sides.check(S)
    assert core.sides.closed(P) is True
    core.sides.is_closed = True
    with pytest.raises(ValueError, match=r"^the paired client is closed$"):
        core.sides.check(P)


@pytest.mark.spec("P-50")
def test_a_pair_whose_partner_does_not_close_faults_once_and_every_call_says_so() -> None:
    core = Base()
    core.sides.closed(S)
    assert core.next_timer() == NOW + 5.0
    assert core.sides.tick(NOW + 4.9) == []
    assert not core.sides.is_closed
    for later in (5.0, 6.0):
        assert core.sides.tick(NOW + later) == []
    why = "the secondary was closed (close() was called); the primary did not follow"
    assert core.happened() == [PairFaulted(NOW + 5.0, "", "secondary", why)]
    assert core.happened() == []
    with pytest.raises(PairFaultedError) as told:
        core.sides.check(P)
    names = "primary.example", "secondary.example"
    assert str(told.value) == str(PairFaultedError(*names, "secondary", why))


@pytest.mark.spec("R-1")
def test_a_refused_side_is_probed_at_its_timer() -> None:
    core = Base()
    assert core.next_timer() is None
    core.sides.refused(S, "no rights")
    assert core.next_timer() == NOW + 1.0
    assert core.sides.tick(NOW + 1.0) == [S]
    core.pair.fail_over("orders", NOW - 90.0)
    ping = core.pair.next_timer()
    assert ping is not None
    assert core.next_timer() == ping < NOW
    assert not core.sides.is_closed


@pytest.mark.spec("R-1", "R-8")
def test_an_opening_refused_by_a_side_is_attributed_to_the_side() -> None:
    core = Base()
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    assert [type(event) for event in core.told] == [SideFaulted]
    assert core.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-1")
def test_side_events_are_delivered_in_order() -> None:
    core = Base()
    for role in Side:
        core.sides.refused(role, "no rights")
    assert [event.side for event in core.told] == ["primary", "secondary"]  # type: ignore[attr-defined]


@pytest.mark.spec("R-8")
def test_a_failed_opening_without_a_waiting_call_counts_against_entity_and_side() -> None:
    core = Base()
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    assert core.pair.state_of("orders") is EntityState.SUSPECT
    assert core.publications == 1
    core.opening_failed("orders", ServiceBusServerBusyError())
    assert core.publications == 1


# --- room in the backlogs


def room(core: Base, size: int, limit: int | None = 300_000, backlog: int | None = None, **kind: Any) -> None:
    message = ServiceBusMessage(bytes(size), message_id="m")
    request = kind.get("request", SendRequest)(message, (message,))
    core.check_room(Attempt(backlog, NOW), "orders", request, limit)


@pytest.mark.spec("P-22")
def test_only_a_large_message_queries_the_backlog_limit() -> None:
    core = Base()
    room(core, 100)
    assert core.limits_asked == 0
    room(core, 250_000)
    room(core, 250_000)
    assert core.limits_asked == 1
    assert core.told == []


@pytest.mark.spec("P-22")
def test_a_message_too_large_to_park_is_reported_or_refused_unless_already_accepted() -> None:
    core = Base()
    room(core, 250_000, limit=240_000)
    (event,) = core.told
    assert isinstance(event, HeadroomShort)
    assert (event.at, event.path, event.message_id, event.limit) == (NOW, "orders", "m", 240_000)
    assert event.size > 250_000
    strict = Base(headroom="refuse")
    with pytest.raises(ParkedMessageTooLargeError) as told:
        room(strict, 250_000, limit=240_000)
    assert f"{event.size} bytes, where the smaller limit of the pair is 240000" in str(told.value)
    assert "orders" in str(told.value)
    room(strict, 250_000, limit=240_000, request=SpooledRequest)
    assert [type(each) for each in strict.told] == [HeadroomShort]


@pytest.mark.spec("P-22")
def test_each_of_several_messages_is_checked_and_parked_ones_are_not() -> None:
    core = Base()
    small, large = ServiceBusMessage("x"), ServiceBusMessage(bytes(250_000), message_id="l")
    core.check_room(Attempt(None, NOW), "orders", freeze([small, large, small, large]), 240_000)
    assert [event.message_id for event in core.told] == ["l", "l"]  # type: ignore[attr-defined]
    fits = ServiceBusMessage(bytes(200_000))
    core.check_room(Attempt(None, NOW), "orders", freeze([fits, large]), 240_000)
    assert len(core.told) == 3
    room(core, 250_000, limit=100_000, backlog=0)
    assert len(core.told) == 3
    assert core.headroom is not None
    assert core.headroom._backlog == 100_000  # it is learned from such a link
    Base(headroom="off").check_room(Attempt(None, NOW), "orders", freeze(large), 1)
