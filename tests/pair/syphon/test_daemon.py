"""The syphon's connections and sessions on a driven clock: when it retries, and what it reports."""

from __future__ import annotations

import asyncio
import logging
from itertools import pairwise

import pytest

import sbpair.syphon
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.errors import (
    ConnectionLostError,
    LinkRefusedError,
    NamespaceUnusableError,
    OutOfReachError,
    TokenRefusedError,
)
from sbpair.pair.syphon.daemon import ASKED_EVERY, CONNECT_WITHIN, MIN_SESSION_SECONDS
from sbpair.pair.syphon.events import (
    BacklogsDrained,
    ClockDiffers,
    MessagesForwarded,
    SideAccepted,
    SideRefused,
    SyphonConnected,
    SyphonDisconnected,
)
from sbpair.pair.syphon.watch.claims import NAMESPACE
from sbpair.syphon import Syphon, SyphonState
from tests.pair.syphon.played_daemon import NO_ROUTE, STRING, Worlds, running, worlds
from tests.pair.syphon.scripted import driven, now, turns
from tests.trials.simulation.virtual_loop import EPOCH

__all__ = ["worlds"]

pytestmark = pytest.mark.spec("R-66")

REFUSED = TokenRefusedError("a bad key", Condition("amqp:unauthorized-access"))
BACKLOGS = ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1")


# --- connecting


@driven
async def test_both_sides_are_claimed_before_a_session_begins(worlds: Worlds) -> None:
    world = worlds()
    assert world.syphon.status.state is SyphonState.IDLE
    async with running(world):
        assert world.dialled == [("primary", 0.0), ("secondary", 0.0)]
        assert world.claimed == [("primary", (NAMESPACE,)), ("secondary", (NAMESPACE, *BACKLOGS))]
        assert {timeouts for _, timeouts in world.routes} == {(CONNECT_WITHIN, 60.0)}
        assert {route for route, _ in world.routes} == {world.syphon.options.route}
        (session,) = world.sessions
        assert (session.primary.side, session.secondary.side) == ("primary", "secondary")
        assert session.backlogs == BACKLOGS
        assert session.options is world.syphon.options
        assert session.given["counters"] is world.syphon.counters
        assert (session.given["ordered"], session.given["landing"]) == ((), None)
        assert session.given["order_check"] is not None
        assert world.syphon.status.state is SyphonState.RUNNING
        assert [event.at for event in world.said(SyphonConnected)] == [EPOCH]
        assert world.stranded.ran == [session.secondary]
        assert not any(each.aborted_at for each in world.connections)
    assert session.stopped_at == 0.0
    assert world.syphon.status.state is SyphonState.IDLE


@driven
async def test_a_side_that_cannot_be_reached_is_tried_again_and_the_first_is_let_go(worlds: Worlds) -> None:
    world = worlds()
    world.dials["secondary"].extend([NO_ROUTE, NO_ROUTE])
    async with running(world):
        assert world.syphon.status.state is SyphonState.CONNECTING
        assert world.syphon.status.reason == "no route"
        assert [(event.reason, event.retry_in) for event in world.said(SyphonDisconnected)] == [
            ("no route", 0.5)
        ]
        assert world.connections[0].aborted_at == 0.0
        await asyncio.sleep(2.0)
        assert world.to("primary") == world.to("secondary") == [0.0, 0.5, 1.5]
        assert world.syphon.status.state is SyphonState.RUNNING
        assert [each.aborted_at for each in world.connections[2:]] == [None, None]


@driven
async def test_a_side_that_refuses_connections_is_asked_every_few_seconds(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].extend([OutOfReachError("connection refused")] * 100)
    async with running(world):
        await asyncio.sleep(60.0)
        asked = world.to("primary")
        assert asked[:4] == [0.0, 0.5, 1.5, 3.5]
        assert {round(later - each, 6) for each, later in pairwise(asked[3:])} == {ASKED_EVERY}
        assert ASKED_EVERY <= 5.0


@driven
async def test_a_side_that_is_too_busy_for_claims_is_not_asked_more_often(worlds: Worlds) -> None:
    world = worlds()
    world.dials["secondary"].extend([NO_ROUTE] * 100)
    async with running(world):
        await asyncio.sleep(120.0)
        assert max(later - each for each, later in pairwise(world.to("secondary"))) == 30.0


@driven
async def test_a_syphon_that_is_woken_tries_a_side_at_once(worlds: Worlds) -> None:
    world = worlds()
    world.syphon.wake()  # nothing waits
    world.dials["primary"].extend([NO_ROUTE] * 6)
    async with running(world):
        await asyncio.sleep(20.0)
        assert world.to("primary")[-1] == 15.5  # and the next would be at 31.5
        world.syphon.wake()
        await turns(20)
        assert world.to("primary")[-1] == 20.0
        assert world.syphon.status.state is SyphonState.RUNNING
        world.syphon.wake()
        assert world.session.wakes == 1


@driven
async def test_a_session_that_breaks_is_followed_by_another_a_second_after_it_began(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        await asyncio.sleep(0.4)
        world.session.broken.set_result("the connection to the primary was lost")
        await turns(20)
        assert world.session.stopped_at == 0.4
        (event,) = world.said(SyphonDisconnected)
        assert (event.reason, event.retry_in) == (
            "the connection to the primary was lost", pytest.approx(MIN_SESSION_SECONDS - 0.4),
        )  # fmt: skip
        assert world.syphon.status.reason == "the connection to the primary was lost"
        await asyncio.sleep(0.61)
        assert len(world.sessions) == 2
        await asyncio.sleep(10.0)
        world.session.broken.set_result("again")
        await turns(30)
        assert world.said(SyphonDisconnected)[1].retry_in == 0.0
        assert len(world.sessions) == 3


@pytest.mark.spec("G-4", "C-2")
@driven
async def test_a_session_that_breaks_gets_its_answers_unless_the_syphon_is_stopped(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        for _ in range(2):
            world.session.finishes_in = 40.0
            broken_at = now()
            world.session.broken.set_result("the connection to the primary was lost")
            await asyncio.sleep(39.0)
            last = world.session
            assert last.stopped_at is None
            if len(world.sessions) == 1:
                await asyncio.sleep(1.5)
                assert last.stopped_at == broken_at + 40.0
                assert len(world.sessions) == 2
        assert len(world.sessions) == 2
    assert last.stopped_at == now() == broken_at + 39.0


@driven
async def test_a_side_that_refuses_is_reported_tried_again_and_accepted(worlds: Worlds) -> None:
    world = worlds()
    world.refuses["secondary"] = [REFUSED, REFUSED]
    async with running(world):
        assert world.syphon.status.state is SyphonState.REFUSED
        assert list(world.syphon.refusals) == ["secondary"]
        assert "a bad key" in world.syphon.refusals["secondary"]
        assert len(world.said(SideRefused)) == 1
        await asyncio.sleep(2.0)
        assert world.syphon.refusals == {}
        assert [event.side for event in world.said(SideAccepted)] == ["secondary"]
        assert world.syphon.status.state is SyphonState.RUNNING
    assert [each.side for each in world.connections if each.aborted_at is not None] == [
        "primary",
        "secondary",
    ] * 2


@driven
async def test_a_side_whose_certificate_is_refused_is_reported(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].append(NamespaceUnusableError("a certificate of another"))
    async with running(world):
        assert world.syphon.refusals == {"primary": "a certificate of another"}
        await asyncio.sleep(1.0)
        assert world.syphon.refusals == {}


@driven
async def test_a_key_that_is_refused_for_the_namespace_is_tried_for_the_parked_paths(worlds: Worlds) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED, REFUSED, None]
    world.parked = ["orders", "invoices", "never asked"]
    async with running(world):
        assert [paths for side, paths in world.claimed if side == "primary"] == [
            (NAMESPACE,), ("orders",), ("invoices",),
        ]  # fmt: skip
        assert world.syphon.status.state is SyphonState.RUNNING
    other = worlds()
    other.refuses["primary"] = [REFUSED] * 3
    other.parked = ["orders"]
    async with running(other):
        assert list(other.syphon.refusals) == ["primary"]


@driven
async def test_the_search_for_a_path_that_the_key_is_for_ends_with_the_first(worlds: Worlds) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED, None]
    world.parked = ["orders", "never asked"]
    async with running(world):
        assert [paths for side, paths in world.claimed if side == "primary"] == [(NAMESPACE,), ("orders",)]
        assert world.searches == 0


@driven
@pytest.mark.spec("R-119")
async def test_the_search_goes_on_over_further_connections_and_its_find_is_tried_first_later(
    worlds: Worlds,
) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED] * 121
    world.parked = [f"invented-{number}" for number in range(120)] + ["orders"]
    async with running(world):
        assert len(world.to("primary")) == 3  # a connection takes few claims that are refused
        assert world.syphon.status.state is SyphonState.RUNNING
        del world.claimed[:]
        world.refuses["primary"] = [REFUSED]
        world.session.broken.set_result("cut")
        await asyncio.sleep(MIN_SESSION_SECONDS + 0.1)
        assert [paths for side, paths in world.claimed if side == "primary"] == [(NAMESPACE,), ("orders",)]
    assert not world.said(SideRefused)


@driven
async def test_a_key_is_tried_for_the_allowed_destinations_alone(worlds: Worlds) -> None:
    world = worlds(allowed_destinations=("orders",))
    world.refuses["primary"] = [REFUSED] * 2
    world.parked = ["orders"]
    async with running(world):
        assert [paths for side, paths in world.claimed if side == "primary"] == [(NAMESPACE,), ("orders",)]
        assert list(world.syphon.refusals) == ["primary"]


@driven
async def test_a_wrong_key_of_the_primary_is_reported_while_the_secondary_is_down(worlds: Worlds) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED]
    world.dials["secondary"].append(NO_ROUTE)
    async with running(world):
        assert list(world.syphon.refusals) == ["primary"]


@driven
async def test_with_exit_on_refusal_it_ends_once_a_refusal_has_lasted(worlds: Worlds) -> None:
    world = worlds(exit_on_refusal=True)
    world.refuses["secondary"] = [REFUSED] * 100
    with pytest.raises(NamespaceUnusableError, match=r"secondary.*: .*a bad key"):
        await world.syphon.run(asyncio.Event())
    assert 5.0 <= now() < 6.0
    assert world.syphon.status.state is SyphonState.IDLE


@driven
async def test_a_replaced_connection_to_the_primary_needs_a_claim(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        connection = await world.session.given["connect_primary"]()
        assert connection.side == "primary"
        assert connection.aborted_at is None
        world.refuses["primary"] = [REFUSED]
        with pytest.raises(TokenRefusedError):
            await world.session.given["connect_primary"]()
        assert world.connections[-1].aborted_at == 0.0
        assert world.claimed[-1] == ("primary", (NAMESPACE,))


@driven
async def test_a_stop_while_it_connects_ends_at_once(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].extend([NO_ROUTE] * 9)
    async with running(world):
        await asyncio.sleep(0.2)
    assert now() == 0.2
    assert world.syphon.status == world.syphon.status.__class__(SyphonState.IDLE)


@driven
async def test_an_abort_drops_the_session(worlds: Worlds) -> None:
    world = worlds()
    world.syphon.abort()  # there is none
    async with running(world):
        world.syphon.abort()
        assert world.session.is_aborted


# --- draining


@driven
async def test_a_drain_ends_with_the_backlogs_empty_and_says_so(worlds: Worlds) -> None:
    world = worlds()
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    assert world.syphon.status.state is SyphonState.DRAINING
    world.syphon.counters.received = 5
    world.session.drained.set_result(None)
    counters = await draining
    assert counters.received == 5
    assert counters is not world.syphon.counters
    assert [event.at for event in world.said(BacklogsDrained)] == [EPOCH]
    assert world.stranded.checked == [world.session.secondary]
    assert world.session.stopped_at == 0.0
    assert world.syphon.status.state is SyphonState.IDLE


@driven
async def test_a_drain_of_some_backlogs_speaks_for_no_others(worlds: Worlds) -> None:
    world = worlds(only_backlogs=(1,))
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    assert world.session.backlogs == BACKLOGS[1:]
    world.session.drained.set_result(None)
    await draining
    assert world.said(BacklogsDrained) == []
    assert world.stranded.checked == []


@driven
async def test_a_drain_of_backlogs_that_do_not_exist_proves_nothing(worlds: Worlds) -> None:
    world = worlds()
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    for backlog in BACKLOGS:
        world.session.given["links"].note_missing(backlog)
    assert world.syphon.missing_backlogs == set(BACKLOGS)
    world.session.drained.set_result(None)
    await draining
    assert world.said(BacklogsDrained) == []


@driven
async def test_a_drain_that_loses_a_side_goes_on_a_second_later(worlds: Worlds) -> None:
    world = worlds()
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    world.session.broken.set_result("lost")
    await turns(20)
    assert world.syphon.status.state is SyphonState.CONNECTING
    assert [(event.reason, event.retry_in) for event in world.said(SyphonDisconnected)] == [
        ("lost", MIN_SESSION_SECONDS)
    ]
    await asyncio.sleep(MIN_SESSION_SECONDS + 0.1)
    assert len(world.sessions) == 2
    world.session.drained.set_result(None)
    await draining
    assert now() == MIN_SESSION_SECONDS + 0.1


@driven
async def test_a_drain_ends_with_the_refusal_of_a_side_or_of_a_backlog(worlds: Worlds) -> None:
    world = worlds()
    world.refuses["primary"] = [REFUSED]
    with pytest.raises(NamespaceUnusableError, match="a bad key"):
        await world.syphon.drain()
    other = worlds()
    draining = asyncio.ensure_future(other.syphon.drain())
    await turns(20)
    other.session.given["links"].note_detached("b0", "no right", is_refusal=True)
    with pytest.raises(NamespaceUnusableError, match="no right"):
        await draining
    assert other.session.stopped_at == 0.0


@driven
async def test_a_drain_whose_last_look_fails_raises(worlds: Worlds) -> None:
    world = worlds()
    world.stranded.fails = LinkRefusedError("no node")
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    world.session.drained.set_result(None)
    with pytest.raises(LinkRefusedError, match="no node"):
        await draining
    assert world.said(BacklogsDrained) == []


@pytest.mark.spec("R-25")
@driven
async def test_a_drain_whose_connection_is_lost_at_its_last_look_begins_again(worlds: Worlds) -> None:
    world = worlds()
    world.stranded.fails = ConnectionLostError("reset while peeking")
    draining = asyncio.ensure_future(world.syphon.drain())
    await turns(20)
    world.session.drained.set_result(None)
    await turns(20)
    (lost,) = world.said(SyphonDisconnected)
    assert (lost.reason, world.said(BacklogsDrained)) == ("reset while peeking", [])
    world.stranded.fails = None
    await asyncio.sleep(lost.retry_in + 0.1)
    await turns(20)
    assert len(world.sessions) == 2
    world.session.drained.set_result(None)
    await draining
    assert len(world.said(BacklogsDrained)) == 1


@driven
async def test_a_drain_tries_a_lost_side_again(worlds: Worlds) -> None:
    world = worlds()
    world.dials["primary"].append(NO_ROUTE)
    draining = asyncio.ensure_future(world.syphon.drain())
    await asyncio.sleep(1.0)
    world.session.drained.set_result(None)
    await draining
    assert world.to("primary") == [0.0, 0.5]


# --- monitoring


@driven
async def test_the_state_of_a_backlog_is_the_state_of_a_running_syphon(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        world.session.given["links"].note_detached("b0", "moved")
        assert world.syphon.status.state is SyphonState.CONNECTING
        assert world.syphon.status.reason == "b0 is not attached: moved"
        world.session.given["links"].note_attached("b0")
        assert world.syphon.status.state is SyphonState.RUNNING
        assert world.syphon.stranded == {"b9": True}
        assert world.syphon.levels == {}


@driven
async def test_a_clock_that_differs_is_reported_once(worlds: Worlds) -> None:
    world = worlds()
    async with running(world):
        world.session.given["clock_differs"](30.0)
        world.session.given["clock_differs"](31.0)
    assert [(event.at, event.ahead) for event in world.said(ClockDiffers)] == [(EPOCH, 30.0)]


@driven
async def test_a_monitor_borrows_the_connection_of_the_session_and_dials_its_own_without_one(
    worlds: Worlds,
) -> None:
    world = worlds()
    own = await world.syphon._borrow_secondary()
    assert await world.syphon._borrow_secondary() is own
    assert world.routes == [(world.syphon.options.route, (CONNECT_WITHIN, 60.0))]
    own.abort()
    again = await world.syphon._borrow_secondary()
    assert again is not own
    assert world.syphon._busy_backlogs() == BACKLOGS
    async with running(world):
        assert await world.syphon._borrow_secondary() is world.session.secondary
        world.session.busy = BACKLOGS[:1]
        assert world.syphon._busy_backlogs() == BACKLOGS[:1]
        world.session.is_connected = False
        assert world.syphon._busy_backlogs() == BACKLOGS
        assert (await world.syphon._borrow_secondary()).side == "secondary"
    assert again.aborted_at == 0.0


@driven
async def test_two_monitors_that_are_due_together_without_a_session_share_one_connection(
    worlds: Worlds,
) -> None:
    world = worlds()
    world.dials["secondary"].extend((1.0, 1.0))
    first, second = await asyncio.gather(world.syphon._borrow_secondary(), world.syphon._borrow_secondary())
    assert first is second
    assert len(world.connections) == 1


@driven
async def test_a_callback_is_called_until_it_is_removed_and_one_that_fails_stops_nothing(
    worlds: Worlds, caplog: pytest.LogCaptureFixture
) -> None:
    world = worlds()
    heard: list[object] = []

    def fails(event: object) -> None:
        raise RuntimeError("of the application")

    remove_failing = world.syphon.on_event(fails)
    remove = world.syphon.on_event(heard.append)
    with caplog.at_level(logging.DEBUG, "sbpair.syphon"):
        world.syphon._emit(ClockDiffers(1.0, 2.0))
        world.syphon._emit(MessagesForwarded(1.0, "b0", "orders", ("m",), "primary"))
    assert len(heard) == 2
    levels = [record.levelno for record in caplog.records if hasattr(record, "event")]
    assert levels == [logging.WARNING, logging.DEBUG]
    (first, *_) = (record for record in caplog.records if hasattr(record, "event"))
    assert (first.event, first.fields) == ("ClockDiffers", {"ahead": 2.0})
    failed = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert [text.rpartition(" ")[2] for text in failed] == ["ClockDiffers", "MessagesForwarded"]
    remove()
    remove()
    remove_failing()
    world.syphon._emit(ClockDiffers(1.0, 2.0))
    assert len(heard) == 2


def test_a_syphon_is_made_of_two_namespaces() -> None:
    class Token:
        def get_token(self, *scopes: str, **options: object) -> None: ...

    first = Syphon("contoso.example", "contoso-dr.example", Token())
    assert first.options.backlog_queue_count == len(first.backlogs) == 10
    assert (first._primary.netloc, first._secondary.netloc) == ("contoso.example", "contoso-dr.example")
    assert first._primary.uses_tls
    assert first._secondary.uses_tls
    plain = Syphon("a.example", "b.example", Token(), use_tls=False)
    assert (plain._primary.uses_tls, plain._secondary.uses_tls) == (False, False)
    with pytest.raises(ValueError, match=r"primary and secondary are the same namespace: contoso\.example"):
        Syphon("contoso.example", "contoso.example", Token())
    with pytest.raises(ValueError, match="are the same namespace"):
        Syphon.from_connection_strings(STRING.format("contoso"), STRING.format("contoso"))


def test_what_opens_connections_is_imported_when_it_is_asked_for() -> None:
    assert sbpair.syphon.__getattr__("Syphon") is Syphon
    assert sbpair.syphon.__getattr__("NamespaceUnusableError") is NamespaceUnusableError
    with pytest.raises(AttributeError, match=r"module 'sbpair\.syphon' has no attribute 'Other'"):
        sbpair.syphon.__getattr__("Other")


@pytest.mark.spec("R-96")
@driven
async def test_a_run_that_is_cancelled_in_the_turn_in_which_it_connects_ends_its_session(
    worlds: Worlds,
) -> None:
    for count in range(1, 40):
        world = worlds()
        task = asyncio.ensure_future(world.syphon.run(asyncio.Event()))
        await turns(count)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await turns(20)
        assert world.syphon.status.state is SyphonState.IDLE
        assert all(each.stopped_at is not None for each in world.sessions), count
