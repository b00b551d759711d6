"""A forwarding session on a driven clock, over played connections: links, lost connections and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbpair.amqp.performatives import Accepted, Condition
from sbpair.client.errors import ClientError, ConnectionLostError, LinkRefusedError
from sbpair.side import Side
from sbpair.syphon import SyphonOptions, forwarding
from sbpair.syphon.events import (
    BacklogDetached,
    BacklogMissing,
    DestinationHeld,
    MessagesForwarded,
    SyphonEvent,
)
from sbpair.syphon.forwarding import LOCKED_PAUSE, ForwardingSession
from sbpair.syphon.status import BacklogLinks, SideRefusals, SyphonCounters, SyphonState
from tests.syphon.played_backlog import PlayedReceiver, Renewals, parked, renewals
from tests.syphon.scripted import PlayedLink, driven, now, turns

__all__ = ["renewals"]

pytestmark = pytest.mark.spec("R-66")

NO_QUEUE = LinkRefusedError("no link", Condition("amqp:not-found"))
NO_RIGHT = LinkRefusedError("no link", Condition("amqp:unauthorized-access", "no right"))
BUSY = LinkRefusedError("no link", Condition("com.microsoft:server-busy"))


class PlayedSide:
    """A connection to one side; ``refuses`` holds the next errors of opening a link, by path."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        loop = asyncio.get_running_loop()
        self.closed: asyncio.Future[Condition | None] = loop.create_future()
        self.claims_ended: asyncio.Future[str] = loop.create_future()
        self.refuses: dict[str, list[ClientError]] = {}
        self.receivers: dict[str, list[PlayedReceiver]] = {}
        self.senders: dict[str, list[PlayedLink]] = {}
        self.asked: list[tuple[float, str]] = []
        self.forgotten: list[str] = []
        self.claims = 0
        self.unfinished = self.unfinished_limit = 0
        self.round_trip = 0.0
        self.close_count = self.abort_count = 0

    @property
    def is_open(self) -> bool:
        return not self.closed.done()

    def _open(self, path: str) -> None:
        self.asked.append((now(), path))
        errors = self.refuses.get(path)
        if errors:
            raise errors.pop(0)

    async def open_receiver(self, path: str, *callbacks: Any) -> PlayedReceiver:
        self._open(path)
        self.receivers.setdefault(path, []).append(PlayedReceiver(*callbacks))
        return self.receivers[path][-1]

    async def open_sender(self, path: str, via: str | None = None) -> PlayedLink:
        self._open(path)
        self.claims += 1
        self.senders.setdefault(path, []).append(PlayedLink())
        return self.senders[path][-1]

    def forget(self, path: str) -> None:
        self.forgotten.append(path)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def lose(self, condition: Condition | None = None) -> None:
        self.closed.set_result(condition)
        for links in (*self.receivers.values(), *self.senders.values()):
            for link in links:
                if not link.detached.done():
                    link.detached.set_result(None)

    async def close(self) -> None:
        self.close_count += 1
        if self.is_open:
            self.lose()

    def abort(self) -> None:
        self.abort_count += 1
        if self.is_open:
            self.lose()


class World:
    """A session between two played sides."""

    def __init__(self, *, primary: bool = True, ordered: tuple[str, ...] = (), **options: Any) -> None:
        self.events: list[SyphonEvent] = []
        self.counters = SyphonCounters()
        self.sides = SideRefusals(self.events.append)
        self.links = BacklogLinks(self.events.append)
        self.primary, self.secondary = PlayedSide(self, "primary"), PlayedSide(self, "secondary")
        self.replacements: list[PlayedSide | ClientError] = []
        self.replacement_takes = 0.0  # seconds
        self.ahead: list[float] = []
        self.session = ForwardingSession(
            self.primary if primary else None,  # type: ignore[arg-type]
            self.secondary,  # type: ignore[arg-type]
            ("b0", "b1"),
            SyphonOptions(**options),
            ordered=ordered,
            counters=self.counters,
            emit=self.events.append,
            sides=self.sides,
            links=self.links,
            clock_differs=self.ahead.append,
            connect_primary=self._replace,  # type: ignore[arg-type]
        )
        self.session._pumping.add_done_callback(lambda pumping: pumping.cancelled() or pumping.exception())

    async def _replace(self) -> PlayedSide:
        await asyncio.sleep(self.replacement_takes)
        outcome = self.replacements.pop(0)
        if isinstance(outcome, ClientError):
            raise outcome
        return outcome

    def said(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def receiver(self, backlog: str = "b0") -> PlayedReceiver:
        return self.secondary.receivers[backlog][-1]

    async def deliver(self, *payloads: bytes, backlog: str = "b0") -> None:
        await turns(10)
        self.receiver(backlog).deliver(*payloads)
        await turns(10)

    def link(self, path: str = "orders") -> PlayedLink:
        return self.primary.senders[path][-1]


@driven
async def test_messages_of_all_backlogs_go_home_over_one_link_for_each_path() -> None:
    world = World(report_forwards=True)
    assert world.session.has_primary
    assert world.session.is_connected
    assert world.session.secondary is world.secondary
    await world.deliver(parked(1), parked(2, path="invoices"))
    await world.deliver(parked(3, path="ORDERS"), backlog="b1")
    assert world.primary.asked == [(0.0, "orders"), (0.0, "invoices")]
    assert world.link().all_sent == [1, 1]
    assert world.session.busy_backlogs() == ("b0", "b1")
    world.link().answer()
    world.link("invoices").answer()
    world.link().answer()
    await turns(10)
    assert world.receiver("b0").settled == [(1, 2, Accepted())]
    assert world.receiver("b1").settled == [(1, 1, Accepted())]
    for backlog, last in (("b0", 2), ("b1", 1)):
        world.receiver(backlog).confirm(1, last)
    assert world.counters.completed == 3
    assert world.session.busy_backlogs() == ()
    assert {event.backlog for event in world.said(MessagesForwarded)} == {"b0", "b1"}
    await asyncio.sleep(1.0)
    assert world.primary.forgotten == []  # their links are open
    world.link().detach()
    await turns()
    assert world.primary.forgotten == ["orders"]


@driven
async def test_paths_that_are_not_allowed_are_set_aside() -> None:
    world = World(allowed_destinations=("Orders",))
    await world.deliver(parked(1), parked(2, path="invoices"))
    assert [path for _, path in world.primary.asked] == ["orders"]
    assert len(world.receiver().settled) == 1


@driven
async def test_a_message_of_a_newer_version_waits_and_opens_no_link() -> None:
    world = World()
    await world.deliver(parked(1, **{"x-sbpair-version": "99"}))
    (held,) = world.said(DestinationHeld)
    assert "x-sbpair-version other than '1'" in held.reason
    assert world.primary.asked == []
    assert world.receiver().settled == []


# --- what ends a session


@pytest.mark.parametrize("side", ["primary", "secondary"])
@driven
async def test_a_lost_side_ends_the_session_with_its_reason(side: str) -> None:
    world = World()
    world.replacements = [ConnectionLostError("no route")]
    broken = asyncio.ensure_future(world.session.wait_broken())
    await asyncio.sleep(0.5)
    getattr(world, side).lose(Condition("amqp:connection:forced", "maintenance"))
    assert await broken == f"the connection to the {side} was lost: amqp:connection:forced: maintenance"
    assert not world.session.is_connected
    assert (
        len(world.replacements) == 1
    )  # a primary connection that lasted only a moment is not replaced by itself


@pytest.mark.parametrize("side", ["primary", "secondary"])
@driven
async def test_the_end_of_a_token_ends_the_session(side: str) -> None:
    world = World()
    broken = asyncio.ensure_future(world.session.wait_broken())
    await turns()
    getattr(world, side).claims_ended.set_result("the key was rotated")
    reason = await broken
    assert f"the token for the {side}" in reason
    assert reason.endswith(": the key was rotated")


@driven
async def test_an_idle_primary_that_closes_is_replaced_alone_and_the_polls_go_on() -> None:
    world = World()
    broken = asyncio.ensure_future(world.session.wait_broken())
    await asyncio.sleep(2.0)
    new = PlayedSide(world, "primary")
    world.replacements = [new]
    world.primary.lose()
    await turns(20)
    assert not broken.done()
    assert world.session.is_connected
    assert len(world.secondary.asked) == 2
    await world.deliver(parked(1))
    assert new.senders["orders"][0].all_sent == [1]
    await asyncio.sleep(2.0)
    new.lose()  # not idle
    assert (await broken).startswith("the connection to the primary was lost")


@driven
async def test_an_idle_primary_that_cannot_be_replaced_ends_the_session() -> None:
    world = World()
    broken = asyncio.ensure_future(world.session.wait_broken())
    await asyncio.sleep(2.0)
    world.replacements = [ConnectionLostError("no route")]
    world.primary.lose()
    assert (await broken).startswith("the connection to the primary was lost")


@pytest.mark.parametrize(
    ("round_trip", "takes", "is_replaced"), [(1.0, 12.9, True), (1.0, 13.1, False), (0.0, 5.1, False)]
)
@driven
async def test_a_replacement_of_an_idle_primary_has_time_for_the_round_trips_of_a_connection(
    round_trip: float, takes: float, is_replaced: bool
) -> None:
    world = World()
    world.primary.round_trip = round_trip
    broken = asyncio.ensure_future(world.session.wait_broken())
    await asyncio.sleep(2.0)
    world.replacements, world.replacement_takes = [PlayedSide(world, "primary")], takes
    world.primary.lose()
    await asyncio.sleep(20.0)
    assert (world.session.is_connected, broken.done()) == (is_replaced, not is_replaced)


@driven
async def test_a_primary_that_does_not_answer_has_its_connection_dropped() -> None:
    world = World()
    world.session.unresponsive("why")
    assert (world.primary.abort_count, world.secondary.abort_count) == (1, 0)


@driven
async def test_a_stop_closes_both_connections() -> None:
    world = World()
    await world.deliver(parked(1))
    stopping = asyncio.ensure_future(world.session.stop())
    await turns(10)
    world.link().answer()
    await turns(10)
    world.receiver().confirm(1, 1)
    await stopping
    assert (world.primary.close_count, world.secondary.close_count) == (1, 1)
    assert world.counters.completed == 1
    assert now() == 0.0


@driven
async def test_a_stop_after_the_secondary_was_lost_ends_at_once() -> None:
    world = World()
    await turns(10)
    world.secondary.lose()
    await world.session.stop()
    assert now() == 0.0
    assert world.primary.close_count == 1


@pytest.mark.spec("R-23", "F-66")
@driven
async def test_after_a_stop_nothing_retries_a_message_whose_destination_was_forgotten_while_its_lock_was_renewed(
    renewals: Renewals,
) -> None:
    world = World()
    await world.deliver(parked(1))
    world.link().answer()
    await turns()
    world.receiver().confirm(1, 1)
    renewals.answered.clear()
    await asyncio.sleep(
        3.0
    )  # a lock that looks old just after the link was attached shows a clock that was set
    await world.deliver(parked(2, lock=20.0))
    world.link().detach()
    await turns()
    assert world.session._destinations == {}
    renewals.answered.set()
    await turns(20)
    assert world.link().all_sent == [2]
    world.primary.refuses["orders"] = [ConnectionLostError("no route")] * 99
    world.link().detach()
    world.primary.lose()
    await world.session.stop()
    before = list(world.events)
    await asyncio.sleep(600.0)
    assert world.events == before


# --- backlogs


@driven
async def test_a_missing_backlog_is_looked_for_at_intervals_and_told_once() -> None:
    world = World()
    world.secondary.refuses["b0"] = [NO_QUEUE, NO_QUEUE]
    await turns(20)
    assert world.links.missing == {"b0"}
    assert world.session.busy_backlogs() == ()
    await asyncio.sleep(61.0)
    assert [at for at, path in world.secondary.asked if path == "b0"] == [0.0, 30.0, 60.0]
    assert [event.backlog for event in world.said(BacklogMissing)] == ["b0"]
    assert world.links.missing == set()


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (NO_RIGHT, SyphonState.REFUSED),
        (BUSY, SyphonState.CONNECTING),
        (ConnectionLostError("x"), SyphonState.CONNECTING),
    ],
)
@driven
async def test_a_backlog_that_cannot_be_attached_is_tried_ever_more_rarely(
    error: ClientError, state: SyphonState
) -> None:
    world = World()
    world.secondary.refuses["b0"] = [error] * 5
    await turns(20)
    assert world.links.detached["b0"].state is state
    assert [event.reason for event in world.said(BacklogDetached)] == [str(error)]
    await asyncio.sleep(16.0)
    assert [at for at, path in world.secondary.asked if path == "b0"] == [0.0, 0.5, 1.5, 3.5, 7.5, 15.5]
    assert world.links.detached == {}
    assert world.sides.current == {}


@driven
async def test_a_side_refuses_us_when_all_its_backlogs_do() -> None:
    world = World()
    for backlog in ("b0", "b1"):
        world.secondary.refuses[backlog] = [NO_RIGHT]
    await turns(20)
    assert world.sides.current[Side.SECONDARY].cause == str(NO_RIGHT)
    await asyncio.sleep(1.0)
    assert world.sides.current == {}


@driven
async def test_the_primary_refuses_us_when_it_refuses_a_link_while_no_other_is_open() -> None:
    world = World()
    world.primary.refuses["orders"] = [NO_RIGHT, NO_RIGHT]
    await world.deliver(parked(1))
    assert world.sides.current[Side.PRIMARY].cause == str(NO_RIGHT)
    await world.deliver(parked(2, path="invoices"))
    assert world.sides.current == {}
    await asyncio.sleep(0.6)
    assert world.sides.current == {}  # a path that the key does not cover
    assert len([path for _, path in world.primary.asked if path == "orders"]) == 2


@driven
@pytest.mark.spec("R-119")
async def test_a_path_that_was_never_accepted_refuses_for_itself_and_one_that_was_for_the_side() -> None:
    world = World()
    await world.deliver(parked(1))
    world.link().detached.set_result(None)
    world.primary.refuses["invented"] = [NO_RIGHT] * 9
    await world.deliver(parked(2, path="invented"))
    assert world.sides.current == {}
    world.primary.refuses["orders"] = [NO_RIGHT]
    await world.deliver(parked(3))
    assert world.sides.current[Side.PRIMARY].cause == str(NO_RIGHT)


@driven
async def test_an_idle_link_that_is_detached_is_attached_again_without_a_word() -> None:
    world = World()
    await asyncio.sleep(600.0)
    world.receiver("b0").detached.set_result(Condition("amqp:link:detach-forced", "idle"))
    await turns(20)
    assert len(world.secondary.receivers["b0"]) == 2
    assert world.events == []
    world.receiver("b0").detached.set_result(Condition("amqp:link:detach-forced", "moved"))
    await turns(20)
    assert len(world.secondary.receivers["b0"]) == 2  # the link did not last, so the syphon pauses
    await asyncio.sleep(0.6)
    assert len(world.secondary.receivers["b0"]) == 3
    world.receiver("b0").detached.set_result(Condition("amqp:internal-error", "why"))
    await turns(20)
    assert [event.reason for event in world.said(BacklogDetached)] == ["amqp:internal-error: why"]


@driven
async def test_a_drain_goes_on_while_others_hold_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    asked: list[tuple[str, float]] = []
    answers: dict[str, list[bool | ClientError]] = {
        "b0": [True, LinkRefusedError("no node"), False],
        "b1": [False],
    }

    async def has_more(connection: object, backlog: str) -> bool:
        assert connection is world.secondary
        asked.append((backlog, now()))
        answer = answers[backlog].pop(0)
        if isinstance(answer, ClientError):
            raise answer
        return answer

    monkeypatch.setattr(forwarding, "has_more", has_more)
    await turns(10)
    draining = asyncio.ensure_future(world.session.drain())
    while not draining.done():
        await turns(3)
        for backlog in ("b0", "b1"):
            if world.receiver(backlog).credit:
                world.receiver(backlog).drain()
        await asyncio.sleep(0.1)
    assert [backlog for backlog, _ in asked].count("b0") == 3
    assert [event.reason for event in world.said(BacklogDetached)] == ["no node"]
    times = [at for backlog, at in asked if backlog == "b0"]
    assert times[1] - times[0] == pytest.approx(LOCKED_PAUSE, abs=0.2)


# --- connections with many tokens


@driven
async def test_a_connection_with_a_thousand_tokens_is_replaced_and_closed_once_unused() -> None:
    world = World()
    await world.deliver(parked(1))
    broken = asyncio.ensure_future(world.session.wait_broken())
    old, new = world.primary, PlayedSide(world, "primary")
    old.claims = 1000
    world.replacements = [new]
    await world.deliver(parked(2, path="invoices"))
    assert new.senders["invoices"][0].all_sent == [2]
    assert (old.close_count, len(world.primary.senders)) == (0, 1)
    assert not broken.done()
    world.link().answer()
    world.link().detach()
    await turns(10)
    assert old.close_count == 1
    assert not broken.done()
    await world.deliver(parked(3))
    assert new.senders["orders"][0].all_sent == [3]


@driven
async def test_without_a_primary_a_destination_is_out_of_reach() -> None:
    world = World(primary=False)
    assert not world.session.has_primary
    await world.deliver(parked(1))
    assert [event.reason for event in world.said(DestinationHeld)] == ["the primary is out of reach"]
    assert world.session.is_connected


@pytest.mark.spec("C-1", "C-4")
@driven
async def test_a_primary_that_is_back_is_tried_at_once_and_its_loss_ends_the_session() -> None:
    world = World(primary=False)
    waiting = asyncio.ensure_future(world.session.wait_broken())
    await world.deliver(parked(1))
    await asyncio.sleep(20.0)
    began = now()
    world.session.adopt(world.primary)  # type: ignore[arg-type]
    await turns(20)
    assert (now(), world.link().all_sent) == (began, [1])
    assert (world.session.has_primary, world.receiver().given_back) == (True, [])
    world.link().answer()
    await turns(20)
    assert world.counters.forwarded == 1
    await world.deliver(parked(2))
    world.primary.lose()
    assert await waiting == "the connection to the primary was lost: the peer gave no reason"


@pytest.mark.spec("C-1", "O-1")
@driven
async def test_ordered_backlogs_begin_with_the_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[str] = []

    class PlayedOrdered:
        sessions = 0

        def __init__(self, name: str, *_: object, **__: object) -> None:
            self.name = name

        async def run(self) -> None:
            begun.append(self.name)
            await asyncio.get_running_loop().create_future()

        async def stop(self, timeout: float) -> None:
            begun.remove(self.name)

    monkeypatch.setattr(forwarding, "OrderedBacklog", PlayedOrdered)
    world = World(primary=False, ordered=("o0", "o1"))
    await turns(10)
    assert begun == []
    world.session.adopt(world.primary)  # type: ignore[arg-type]
    await turns(10)
    assert begun == ["o0", "o1"]
    await world.session.stop()
    assert begun == []
