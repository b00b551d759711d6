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

from sbpair import (
    EntityState,
    Failure,
    HeadroomShort,
    PairFaulted,
    PairFaultedError,
    ParkedMessageTooLargeError,
    SideClosed,
    SideFaulted,
    SideRecovered,
)
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.outcome import Classification
from sbpair.pair.pairing.request.request import SendRequest, SpooledRequest, freeze
from tests.pair.pairing.quiet_runtime import NOW, REFUSED, Base, P, S

pytestmark = [pytest.mark.spec("R-66"), pytest.mark.usefixtures("frozen")]


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(("backlog", "role"), [(None, P), (0, S), (3, S)])
def test_a_refusal_of_the_namespace_closes_its_side_until_it_accepts(backlog: int | None, role: Side) -> None:
    core = Base()
    core._hear(backlog, Result(5.0, OSError(), REFUSED))
    assert core.told == [SideFaulted(NOW, "", role.value, "the key is wrong")]
    assert core.pair_state._sides[role].since == NOW
    core._hear(backlog, Result(5.0))
    assert core.told[1:] == [SideRecovered(NOW, "", role.value, "it accepts again")]
    core._hear(backlog, Result(5.0))
    assert (len(core.told), core.publications) == (2, 2)


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(
    "classification",
    [
        Classification(Failure.CONFIGURATION, "one entity's"),
        Classification(Failure.UNAVAILABLE, "an outage", is_of_namespace=True),
    ],
)
def test_other_failures_say_nothing_of_a_side(classification: Classification) -> None:
    core = Base()
    core._hear(None, Result(5.0, OSError(), classification))
    assert (core.pair_state.is_whole, core.told, core.publications) == (True, [], 0)


@pytest.mark.spec("P-50", "R-1")
def test_what_another_part_of_the_process_learned_of_a_side_counts_too() -> None:
    core = Base()
    core.side_refused(S, "no rights")
    core.side_accepted(S)
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
def test_a_look_that_fails_for_its_entity_was_answered_by_the_namespace(
    error: Exception, accepts: bool
) -> None:
    core = Base()
    core.side_refused(S, "no rights")
    core._look_failed(S, error)
    assert core.pair_state.is_whole is accepts


@pytest.mark.spec("P-50")
def test_a_side_is_closed_alone_and_the_pair_with_the_second() -> None:
    core = Base()
    assert core._side_closed(S) is False
    assert core.told == [SideClosed(NOW, "", "secondary", "close() was called")]
    core._check_side(P)
    with pytest.raises(ValueError, match=r"^the secondary side of the paired client is closed$"):
        core._check_side(S)
    assert core._side_closed(P) is True
    core.is_closed = True
    with pytest.raises(ValueError, match=r"^the paired client is closed$"):
        core._check_side(P)


@pytest.mark.spec("P-50")
def test_a_pair_whose_partner_does_not_follow_is_faulted_once_and_every_call_says_so() -> None:
    core = Base()
    core._side_closed(S)
    assert core._timer() == NOW + 5.0
    assert core._sides_tick(NOW + 4.9) == []
    assert not core.is_closed
    for later in (5.0, 6.0):
        assert core._sides_tick(NOW + later) == []
    why = "the secondary was closed (close() was called); the primary did not follow"
    assert core._happened() == [PairFaulted(NOW + 5.0, "", "secondary", why)]
    assert core._happened() == []
    with pytest.raises(PairFaultedError) as told:
        core._check_side(P)
    names = "primary.example", "secondary.example"
    assert str(told.value) == str(PairFaultedError(*names, "secondary", why))


@pytest.mark.spec("R-1")
def test_a_refused_side_is_looked_at_and_the_nearest_timer_counts() -> None:
    core = Base()
    assert core._timer() is None
    core.side_refused(S, "no rights")
    assert core._timer() == NOW + 1.0
    assert core._sides_tick(NOW + 1.0) == [S]
    core.pair.fail_over("orders", NOW - 90.0)
    ping = core.pair.next_timer()
    assert ping is not None
    assert core._timer() == ping < NOW
    assert not core.is_closed


@pytest.mark.spec("R-1", "R-8")
def test_an_opening_that_a_side_refused_is_told_of_the_side() -> None:
    core = Base()
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    assert [type(event) for event in core.told] == [SideFaulted]
    assert core.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-1")
def test_news_of_a_side_wait_for_those_before_them() -> None:
    core = Base()
    for role in Side:
        core._note(core.pair_state.refused(role, "no rights", NOW))
    assert [event.side for event in core._happened()] == ["primary", "secondary"]  # type: ignore[attr-defined]


@pytest.mark.spec("R-8")
def test_an_opening_that_failed_with_nobody_waiting_counts_against_entity_and_side() -> None:
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
    core._check_room(Attempt(backlog, NOW), "orders", request, limit)


@pytest.mark.spec("P-22")
def test_a_large_message_asks_for_the_limit_of_the_backlogs_and_a_small_one_does_not() -> None:
    core = Base()
    room(core, 100)
    assert core.limits_asked == 0
    room(core, 250_000)
    room(core, 250_000)
    assert core.limits_asked == 1
    assert core.told == []


@pytest.mark.spec("P-22")
def test_a_message_too_large_to_be_parked_is_told_or_refused_but_not_once_it_was_promised() -> None:
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
def test_of_several_messages_each_is_looked_at_and_what_goes_to_a_backlog_is_not() -> None:
    core = Base()
    small, large = ServiceBusMessage("x"), ServiceBusMessage(bytes(250_000), message_id="l")
    core._check_room(Attempt(None, NOW), "orders", freeze([small, large, small, large]), 240_000)
    assert [event.message_id for event in core.told] == ["l", "l"]  # type: ignore[attr-defined]
    fits = ServiceBusMessage(bytes(200_000))
    core._check_room(Attempt(None, NOW), "orders", freeze([fits, large]), 240_000)
    assert len(core.told) == 3
    room(core, 250_000, limit=100_000, backlog=0)
    assert len(core.told) == 3
    assert core.headroom is not None
    assert core.headroom._backlog == 100_000  # it is learned from such a link
    Base(headroom="off")._check_room(Attempt(None, NOW), "orders", freeze(large), 1)
