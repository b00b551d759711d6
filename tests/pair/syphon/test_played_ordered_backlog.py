"""One ordered backlog on a driven clock: accepting, keeping and releasing its sessions."""

from __future__ import annotations

import asyncio
from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from sbpair.pair.amqp.performatives import Condition, Released
from sbpair.pair.client.errors import (
    ClientError,
    ConnectionLostError,
    LinkRefusedError,
    SessionUnavailableError,
)
from sbpair.pair.syphon.events import BacklogDetached, BacklogMissing
from sbpair.pair.syphon.order.order_check import OrderCheck
from sbpair.pair.syphon.order.ordered_backlogs import (
    DRAIN_POLL,
    LOCKED_PAUSE,
    MAX_HELD,
    MAX_STUCK,
    POLL,
    TICK,
    OrderedBacklog,
    Places,
    session_credit,
)
from sbpair.pair.syphon.order.session_relay import RelaySettings
from sbpair.pair.syphon.status import BacklogLinks, SyphonCounters, SyphonState
from tests.pair.syphon.played_session import PlayedSession, parked
from tests.pair.syphon.scripted import PlayedLink, Scene, driven, now, turns
from tests.trials.simulation.virtual_loop import EPOCH

pytestmark = pytest.mark.spec("R-66", "O-6")

NO_QUEUE = LinkRefusedError("no link", Condition("amqp:not-found"))


class LockedSession(PlayedSession):
    """A session whose lock the test grants, renews and revokes."""

    locked_until = 0.0
    renewed_at: list[float]
    refuses: ClientError | None = None
    renewal_takes = 0.0  # seconds

    async def renew(self, node: object) -> float:
        assert isinstance(node, Node)
        self.renewed_at.append(now())
        if self.renewal_takes:
            await asyncio.sleep(self.renewal_takes)
            if node.is_abandoned:
                raise ConnectionLostError("no answer")
        if self.refuses is not None:
            raise self.refuses
        return EPOCH + now() + 60.0


class Node:
    """The management node of the backlog."""

    made: list[Node]
    is_open = True

    def __init__(self, connection: object, address: str) -> None:
        self.address, self.is_closed, self.is_abandoned = address, False, False
        Node.made.append(self)

    async def close(self) -> None:
        self.is_closed = True

    def abandon(self) -> None:
        self.is_abandoned = True


class Kept:
    """An ordered backlog on a played connection; ``offers`` holds the next outcomes of accepting a session."""

    def __init__(self, *offers: LockedSession | ClientError, places: int = 2, link: PlayedLink | None = None):
        self.offers = deque(offers)
        self.asked: list[tuple[float, float]] = []
        self.scene = Scene(opens=[] if link is None else [link])
        self.counters = SyphonCounters()
        self.attached: list[float] = []
        self.more = True
        self.closed: asyncio.Future[Condition | None] = asyncio.get_running_loop().create_future()
        self.namespace = SimpleNamespace(address=lambda path: f"amqps://dr/{path}")
        self.links = BacklogLinks(self.scene.events.append)
        settings = RelaySettings(
            is_allowed=lambda path: True,
            destination_of=lambda path: self.scene.orders,
            counters=self.counters,
            emit=self.scene.events.append,
            check=OrderCheck(),
            credit=lambda largest: 10,
        )
        self.places = Places(places)
        self.backlog = OrderedBacklog(
            "ordered/0",
            self,  # type: ignore[arg-type]
            settings,
            self.places,
            self.links,
            retry_backoff_max=4.0,
            missing_interval=30.0,
            attached=self._attached,
        )
        self.running = asyncio.ensure_future(self.backlog.run())

    def _attached(self, name: str) -> None:
        assert name == "ordered/0"
        self.attached.append(now())

    async def open_session_receiver(
        self, path: str, on_message: Any, on_disposition: Any, *, timeout: float
    ) -> LockedSession:
        assert path == "ordered/0"
        self.asked.append((now(), timeout))
        if not self.offers:
            await asyncio.sleep(timeout)
            raise SessionUnavailableError("no session", None)
        offer = self.offers.popleft()
        if isinstance(offer, ClientError):
            raise offer
        offer.on_message, offer.on_disposition = on_message, on_disposition
        return offer


def session(*numbers: int, lock: float = 60.0) -> LockedSession:
    made = LockedSession(deque(parked(number) for number in numbers), session_id=f"s{numbers[:1]}")
    made.locked_until = EPOCH + now() + lock if lock else 0.0
    made.renewed_at = []
    return made


@pytest.fixture(autouse=True)
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    Node.made = []
    monkeypatch.setattr("sbpair.pair.client.management_node.RequestNode", Node)
    return Node.made


@driven
async def test_sessions_are_accepted_up_to_the_slots_and_the_next_when_one_ends() -> None:
    first, second, third = session(1), session(2), session(3)
    kept = Kept(first, second, third)
    await turns(20)
    assert kept.backlog.sessions == 2
    assert kept.asked == [(0.0, POLL)] * 2
    assert kept.attached == [0.0, 0.0]
    assert kept.backlog.is_open
    assert kept.scene.link.all_sent == [1, 1]
    kept.scene.link.answer()
    await turns(30)
    assert len(kept.asked) == 3
    kept.scene.link.answer()
    kept.scene.link.answer()
    await turns(30)
    assert kept.counters.completed == 3
    assert (kept.backlog.sessions, len(kept.asked)) == (0, 5)
    await asyncio.sleep(POLL + 1.0)
    assert kept.asked[3:5] == [(0.0, POLL)] * 2  # several while each found a session
    before = len(kept.asked)
    await asyncio.sleep(POLL)
    assert len(kept.asked) == before + 1  # one is asked for after a poll without any
    assert kept.scene.events == []


@driven
async def test_a_session_waiting_for_its_destination_makes_room_for_another() -> None:
    kept = Kept(session(1), session(2), session(3), places=1, link=PlayedLink(credit=0))
    await asyncio.sleep(1.0)
    assert kept.backlog.sessions == 3


@driven
async def test_the_lock_of_a_session_is_renewed_when_a_third_of_it_is_left() -> None:
    one = session(1)
    kept = Kept(one)
    await asyncio.sleep(39.5)
    assert one.renewed_at == []
    await asyncio.sleep(2.0)
    assert one.renewed_at == [41.0]
    assert [node.address for node in Node.made] == ["amqps://dr/ordered/0/$management"]
    (relay,) = kept.backlog._relays
    assert (relay.lock_ends, relay.lock_span) == (101.0, 60.0)
    assert kept.scene.links[0].sent[0].lock_ends == 101.0
    await asyncio.sleep(41.0)
    assert one.renewed_at == [41.0, 82.0]
    assert len(Node.made) == 1


@driven
async def test_a_session_without_a_lock_expiry_is_renewed_before_anything_is_sent() -> None:
    one = session(1, lock=0.0)
    kept = Kept(one)
    await turns(30)
    assert one.renewed_at == [0.0]
    assert kept.scene.link.all_sent == [1]
    assert kept.scene.link.sent[0].lock_ends == 60.0


@pytest.mark.parametrize("refusal", ["com.microsoft:session-lock-lost", "com.microsoft:server-busy"])
@driven
async def test_a_lock_that_is_not_renewed_ends_only_its_relay(refusal: str) -> None:
    one, two = session(1, 2), session(3)
    one.refuses = LinkRefusedError("not renewed", Condition(refusal))
    one.renewal_takes, two.renewal_takes = 0.1, 0.2
    kept = Kept(one, two, places=2)
    await asyncio.sleep(45.0)
    assert (one.renewed_at, two.renewed_at) == ([41.0], [41.0])
    assert one.closed_at is not None
    assert two.closed_at is None
    assert kept.backlog.sessions == 1
    assert [node.is_abandoned for node in Node.made] == [False]


@pytest.mark.parametrize("is_refused", [False, True])
@driven
async def test_a_failed_node_ends_the_relay_and_is_reopened(
    is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = session(1, 2), session(3)
    one.refuses = LinkRefusedError("no link") if is_refused else ConnectionLostError("no answer")
    monkeypatch.setattr(Node, "is_open", not is_refused)
    kept = Kept(one, two, places=2)
    await asyncio.sleep(41.5)
    assert one.renewed_at == [41.0]
    assert [node.is_abandoned for node in Node.made][:1] == [True]
    await asyncio.sleep(6.0)
    assert one.closed_at is not None
    assert two.closed_at is None
    await asyncio.sleep(2 * TICK)
    assert two.renewed_at
    assert one.renewed_at == [41.0]
    assert kept.backlog.sessions == 1


@driven
async def test_a_missing_backlog_is_looked_up_again_and_logged_once() -> None:
    kept = Kept(NO_QUEUE, NO_QUEUE, session(1))
    await turns(20)
    assert kept.backlog.is_missing
    assert not kept.backlog.is_open
    assert kept.links.missing == {"ordered/0"}
    assert [type(event) for event in kept.scene.events] == [BacklogMissing]
    await asyncio.sleep(61.0)
    assert [at for at, _ in kept.asked][:3] == [0.0, 30.0, 60.0]
    assert len(kept.scene.events) == 1
    assert not kept.backlog.is_missing
    assert kept.backlog.is_open
    assert kept.attached == [60.0]


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (LinkRefusedError("no", Condition("amqp:unauthorized-access")), SyphonState.REFUSED),
        (LinkRefusedError("no", Condition("amqp:internal-error")), SyphonState.CONNECTING),
        (ConnectionLostError("gone"), SyphonState.CONNECTING),
        (LinkRefusedError("no", None), SyphonState.CONNECTING),
    ],
)
@driven
async def test_an_unattachable_backlog_is_queried_ever_more_rarely(
    error: ClientError, state: SyphonState
) -> None:
    kept = Kept(*[error] * 5)
    await turns(20)
    assert not kept.backlog.is_open
    assert kept.links.detached["ordered/0"].state is state
    assert [event.reason for event in kept.scene.said(BacklogDetached)] == [str(error)]
    await asyncio.sleep(16.0)
    assert [at for at, _ in kept.asked] == [0.0, 0.5, 1.5, 3.5, 7.5, 11.5]
    assert kept.backlog.is_open is False or kept.attached == []


@driven
async def test_an_empty_backlog_is_attached() -> None:
    kept = Kept()
    await asyncio.sleep(POLL + 1.0)
    assert kept.attached == [POLL]
    assert kept.backlog.is_open


@driven
async def test_a_lost_connection_ends_the_backlog() -> None:
    kept = Kept(session(1), ConnectionLostError("gone"))
    kept.closed.set_result(None)
    await kept.running
    assert kept.scene.events == []


@driven
async def test_a_drain_polls_briefly_and_ends_when_nothing_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Kept()
    left = [True, True, False]
    asked: list[float] = []

    async def has_more(connection: object, name: str) -> bool:
        assert (connection, name) == (kept, "ordered/0")
        asked.append(now())
        return left.pop(0)

    monkeypatch.setattr("sbpair.pair.syphon.order.ordered_backlogs.has_more", has_more)
    await asyncio.sleep(1.0)
    draining = asyncio.ensure_future(kept.backlog.drain())
    await turns(20)
    assert kept.asked == [(0.0, POLL), (1.0, DRAIN_POLL)]  # the long poll was ended
    await draining
    assert asked[0] == 1.0 + DRAIN_POLL
    assert len(asked) == 3
    assert asked[1] >= asked[0] + LOCKED_PAUSE


@driven
async def test_a_drain_that_cannot_check_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept()
    outcomes: list[ClientError | None] = [LinkRefusedError("no node"), None]

    async def has_more(connection: object, name: str) -> bool:
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome
        return False

    monkeypatch.setattr("sbpair.pair.syphon.order.ordered_backlogs.has_more", has_more)
    await kept.backlog.drain()
    assert [event.reason for event in kept.scene.said(BacklogDetached)] == ["no node"]


@driven
async def test_a_drain_of_a_missing_backlog_ends() -> None:
    kept = Kept(NO_QUEUE)
    await turns(20)
    draining = asyncio.ensure_future(kept.backlog.drain())
    await turns()
    kept.offers.append(NO_QUEUE)
    await draining
    assert now() == 30.0


@driven
async def test_a_stop_releases_the_sessions_and_accepts_no_more() -> None:
    one, two = session(1, 2), session(3)
    kept = Kept(one, two)
    await turns(20)
    stopping = asyncio.ensure_future(kept.backlog.stop(10.0))
    await turns()
    kept.scene.link.answer()
    kept.scene.link.answer()
    await stopping
    await kept.running
    assert (one.closed_at, two.closed_at) == (0.0, 0.0)
    assert one.given_back == [(2, 2, Released())]
    assert kept.counters.completed == 2
    assert len(kept.asked) == 2


@driven
async def test_a_stop_waits_no_longer_than_its_limit(nodes: list[Node]) -> None:
    kept = Kept(session(1, lock=0.0))
    await turns(30)
    await kept.backlog.stop(3.0)
    assert now() == 3.0
    await kept.running
    assert [node.is_closed for node in nodes] == [True]
    assert kept.backlog.sessions == 0


# --- places


async def in_turn(places: Places, who: object) -> asyncio.Task[None]:
    task = asyncio.ensure_future(places.take(who))
    await turns()
    return task


@driven
async def test_a_slot_passed_on_is_not_free() -> None:
    places, before, after = Places(1), object(), object()
    await places.take(before)
    places.pass_on(before, after)
    waiting = await in_turn(places, object())
    places.leave(before)  # it has no place left
    await turns(3)
    assert not waiting.done()
    places.leave(after)
    await turns(3)
    assert waiting.done()


@driven
async def test_four_times_as_many_relays_wait_as_run() -> None:
    places = Places(2)
    stuck = [object() for _ in range(2 * MAX_STUCK)]
    for who in stuck:
        assert (await in_turn(places, who)).done()
        places.busy(who, False)
    last, more = object(), object()
    assert (await in_turn(places, last)).done()
    assert (await in_turn(places, more)).done()
    places.busy(last, False)  # too many relays wait, so it keeps its place
    waiting = await in_turn(places, object())
    assert not waiting.done()
    places.busy(stuck[0], True)  # beyond the limit
    places.leave(last)
    await turns()
    assert not waiting.done()
    places.leave(more)
    await turns()
    assert waiting.done()


@driven
async def test_a_relay_that_leaves_while_waiting_makes_room_for_another() -> None:
    places = Places(1)
    stuck = [object() for _ in range(MAX_STUCK)]
    for who in stuck:
        await places.take(who)
        places.busy(who, False)
    places.leave(stuck[0])
    last = object()
    await places.take(last)
    places.busy(last, False)
    assert (await in_turn(places, object())).done()


@driven
async def test_a_relay_that_neither_runs_nor_waits_is_not_counted() -> None:
    places, stranger = Places(1), object()
    places.busy(stranger, True)
    places.busy(stranger, False)
    assert (await in_turn(places, object())).done()
    waiting = await in_turn(places, object())
    assert not waiting.done()
    waiting.cancel()


def test_the_credit_of_a_session_is_its_share_of_half_the_memory() -> None:
    credit = session_credit(2**20, 1)
    assert [credit(size) for size in (0, 1, 1024, 5243, 2**19, 2**20)] == [2, 100, 100, 99, 1, 1]


@pytest.mark.spec("R-91")
@driven
async def test_sessions_are_limited_by_the_channels_of_the_connection() -> None:
    places = Places(1000)
    held = 0
    while (taking := await in_turn(places, who := object())).done():
        held += 1
        places.busy(who, False)
    taking.cancel()
    assert held == MAX_HELD
