"""A forwarding session on a driven clock, over played connections: links, lost connections and the end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError
from sbpair.pair.ground.side import Side
from sbpair.pair.syphon.events import (
    BacklogDetached,
    LandingEnded,
    SyphonEvent,
)
from sbpair.pair.syphon.forward import forwarding
from sbpair.pair.syphon.forward.forwarding import LOCKED_PAUSE, ForwardingSession
from sbpair.pair.syphon.land.landing import Landing
from sbpair.pair.syphon.land.landings import CALM
from sbpair.pair.syphon.status import BacklogLinks, SideRefusals, SyphonCounters
from sbpair.syphon import SyphonOptions
from tests.pair.syphon.played_backlog import PlayedReceiver, Renewals, parked, renewals
from tests.pair.syphon.scripted import PlayedLink, driven, now, turns

__all__ = ["renewals"]

pytestmark = pytest.mark.spec("R-66")

NO_RIGHT = LinkRefusedError("no link", Condition("amqp:unauthorized-access", "no right"))


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

    def __init__(
        self,
        *,
        primary: bool = True,
        ordered: tuple[str, ...] = (),
        landing: Landing | None = None,
        **options: Any,
    ) -> None:
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
            landing=landing,
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


@driven
async def test_an_idle_primary_connection_that_closes_is_replaced_while_polling_continues() -> None:
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
async def test_an_idle_primary_connection_that_cannot_be_replaced_ends_the_session() -> None:
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
async def test_replacing_an_idle_primary_connection_has_time_for_its_round_trips(
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


@pytest.mark.spec("R-23", "F-66")
@driven
async def test_a_stopped_syphon_does_not_retry_messages_of_forgotten_destinations(
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
@pytest.mark.spec("R-119")
async def test_a_never_accepted_path_is_refused_alone_and_an_accepted_one_for_the_side() -> None:
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
async def test_an_idle_link_that_is_detached_is_reattached_silently() -> None:
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
async def test_a_drain_continues_while_others_hold_messages(monkeypatch: pytest.MonkeyPatch) -> None:
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


@pytest.mark.spec("C-1", "C-4")
@driven
async def test_a_returned_primary_is_tried_at_once_and_its_loss_ends_the_session() -> None:
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


@pytest.mark.spec("R-179")
@pytest.mark.parametrize("is_adopted", [True, False])
@driven
async def test_landings_of_the_previous_session_end_without_a_message(is_adopted: bool) -> None:
    landing = Landing(0.0)
    landing.out_of_reach("orders", 0.0)
    landing.begins("orders", "Orders")
    world = World(primary=not is_adopted, landing=landing)
    await asyncio.sleep(100.0)
    assert len(world.said(LandingEnded)) == (not is_adopted)
    if is_adopted:
        world.session.adopt(world.primary)  # type: ignore[arg-type]
    await asyncio.sleep(CALM + 1.0)
    assert [event.path for event in world.said(LandingEnded)] == ["Orders"]
    assert landing.landing == ()


@pytest.mark.spec("C-1", "O-1")
@driven
async def test_ordered_backlogs_start_with_the_primary(monkeypatch: pytest.MonkeyPatch) -> None:
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
