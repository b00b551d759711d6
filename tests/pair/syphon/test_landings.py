"""Landings on a driven clock: when messages go to their twins, and when they come back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from sbpair.pair.amqp.performatives import (
    Condition,
)
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, RolledBackError
from sbpair.pair.syphon.events import DestinationHeld, LandingBegan, LandingEnded, LandingRefused
from sbpair.pair.syphon.forward.delivery import WAITING, DeliveryTimeouts, Destination
from sbpair.pair.syphon.forward.in_flight import InFlightMessage
from sbpair.pair.syphon.land.landing import Landing
from sbpair.pair.syphon.land.landings import CALM, Landings
from tests.pair.syphon.played_landing import (
    FULL,
    NO_TWIN,
    NOT_ALLOWED,
    TOO_LARGE,
    PlayedController,
    PlayedSender,
)
from tests.pair.syphon.scripted import ANSWER, LONGEST_RETRY, Scene, driven, turns

pytestmark = pytest.mark.spec("R-66", "C-2")


class Coast:
    """An unreachable destination, and landings on a secondary that the test plays."""

    def __init__(self, *, after: float = 10.0) -> None:
        self.log: list[Any] = []
        self.scene = Scene()
        self.controller = PlayedController(self.log)
        self.opens: list[ClientError] = []
        self.refuses_via: ClientError | None = None
        self.opened: list[tuple[str, str | None]] = []
        self.senders: list[PlayedSender] = []
        self.lost: list[str] = []
        self.round_trip = 0.0
        self.landing = Landing(after)
        self.landings = Landings(
            self.landing,
            self,  # type: ignore[arg-type]
            self.scene.events.append,
            DeliveryTimeouts(LONGEST_RETRY, ANSWER),
            retry_missing=30.0,
            home=lambda path: self.scene.orders,
            lost=self.lost.append,
        )
        self.scene.destination_out_of_reach = self.landings.out_of_reach  # type: ignore[method-assign]
        self.scene.destination_attached = self.landings.attached  # type: ignore[method-assign]
        self.scene.destination_answered = self.landings.answered  # type: ignore[method-assign]
        self.scene.opens = [ConnectionLostError("no route") for _ in range(50)]

    async def open_sender(self, path: str, via: str | None = None) -> PlayedSender:
        self.opened.append((path, via))
        if self.opens:
            raise self.opens.pop(0)
        if via is not None and self.refuses_via is not None:
            raise self.refuses_via
        self.senders.append(PlayedSender(self.log, "plain" if via is None else "via"))
        return self.senders[-1]

    @property
    def home(self) -> Destination:
        return self.scene.orders


@pytest.fixture
def coast(monkeypatch: pytest.MonkeyPatch) -> Callable[[], Coast]:
    def make() -> Coast:
        made = Coast()
        monkeypatch.setattr(made.landings, "_controller", made.controller)
        return made

    return make


@pytest.mark.spec("C-1")
@driven
async def test_messages_land_once_their_destination_was_unreachable_long_enough(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.scene.post([1, 2])
    await asyncio.sleep(9.9)
    assert shore.scene.told_of("forwarded") == []
    await asyncio.sleep(0.2)
    assert shore.opened == [("orders", None), ("orders", "backlog")]
    assert sorted(shore.scene.told_of("forwarded")) == [1, 2]
    (began,) = shore.scene.said(LandingBegan)
    assert (began.path, began.out_of_reach) == ("orders", pytest.approx(10.0, abs=0.1))
    (one,) = shore.scene.post([3])
    await turns(20)
    assert one.is_landing
    assert one.destination is not shore.home
    assert shore.landing.landing == ("orders",)
    assert len(shore.scene.said(LandingBegan)) == 1
    assert len(shore.opened) == 2


@pytest.mark.spec("C-1")
@driven
async def test_messages_waiting_at_the_twin_go_home_when_the_primary_answers(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    shore.senders[0].outcomes = [FULL] * 5
    await asyncio.sleep(1.1)
    waiting = shore.scene.post([2, 3])
    await turns(20)
    assert shore.scene.told_of("held")[-2:] == [2, 3]
    shore.scene.opens.clear()
    await asyncio.sleep(LONGEST_RETRY + 0.1)
    shore.scene.post([4])
    await turns(20)
    assert shore.scene.link.all_sent[:1] == [4]
    shore.scene.link.answer()
    await turns(20)
    (ended,) = shore.scene.said(LandingEnded)
    assert ended.path == "orders"
    assert shore.home.detour is None
    assert [each.is_landing for each in waiting] == [False, False]
    assert {2, 3} <= set(shore.scene.link.all_sent)
    assert shore.landing.landing == ()


@pytest.mark.spec("C-4")
@driven
async def test_messages_without_a_twin_wait_for_the_primary_and_the_twin_is_looked_up_again(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.opens = [NO_TWIN]
    messages = shore.scene.post([1, 2])
    await asyncio.sleep(10.1)
    (refused,) = shore.scene.said(LandingRefused)
    assert (refused.path, refused.reason, refused.retry_in) == ("orders", str(NO_TWIN), 30.0)
    assert [each.is_landing for each in messages] == [False, False]
    assert shore.home.waiting == 2
    await asyncio.sleep(29.5)
    assert len(shore.opened) == 1
    await asyncio.sleep(0.6)
    assert len(shore.opened) == 3
    assert sorted(shore.scene.told_of("forwarded")) == [1, 2]


@pytest.mark.spec("C-4")
@driven
async def test_a_busy_twin_keeps_its_messages(coast: Callable[[], Coast]) -> None:
    shore = coast()
    shore.opens = [LinkRefusedError("busy", Condition("com.microsoft:server-busy"))]
    (message,) = shore.scene.post([1])
    await asyncio.sleep(10.1)
    assert shore.scene.said(LandingRefused) == []
    assert message.is_landing
    assert message.destination.state is WAITING
    await asyncio.sleep(0.5)
    await turns(20)
    assert shore.scene.told_of("forwarded") == [1]


@pytest.mark.spec("C-1")
@driven
async def test_messages_waiting_at_a_twin_go_home_once_the_primary_is_connected(
    coast: Callable[[], Coast],
) -> None:
    world = coast()
    world.scene.post([1])
    await asyncio.sleep(9.0)
    world.opens = [LinkRefusedError("busy", Condition("com.microsoft:server-busy")) for _ in range(50)]
    await asyncio.sleep(11.0)
    assert world.home.waiting == 0
    world.scene.opens.clear()
    world.home.try_now()
    world.landings.primary_is_back()
    await turns(10)
    assert world.scene.link.all_sent == [1]


@pytest.mark.spec("C-2")
@pytest.mark.parametrize("is_locked", [True, False])
@driven
async def test_a_twin_whose_probe_was_rolled_back_accepts_the_next_message(
    is_locked: bool, coast: Callable[[], Coast]
) -> None:
    """``is_locked``: the commit is refused; otherwise the lock of the probe is lost before."""
    shore = coast()
    shore.scene.post([1])
    await asyncio.sleep(21.1)
    shore.senders[0].outcomes = [FULL]
    shore.scene.post([2])
    await turns(20)

    async def complete_in(messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        return is_locked

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shore.scene, "complete_in", complete_in)
        patch.setitem(shore.controller.fails, "commit", RolledBackError("no"))
        await asyncio.sleep(0.6)
    assert shore.scene.told[-1] == ("given up", [2])
    await asyncio.sleep(1.0)
    shore.scene.post([3])
    await turns(20)
    assert shore.scene.told_of("forwarded") == [1, 3]


@pytest.mark.spec("C-4")
@driven
async def test_a_message_the_twin_finally_refuses_stays_for_the_primary(coast: Callable[[], Coast]) -> None:
    shore = coast()
    (first,) = shore.scene.post([1])
    await asyncio.sleep(10.1)
    await asyncio.sleep(1.0)
    shore.senders[0].outcomes = [TOO_LARGE]
    (second,) = shore.scene.post([2])
    await turns(30)
    assert (second.stays, second.is_landing, second.destination) == (True, False, shore.home)
    assert (first.stays, shore.scene.told_of("refused")) == (False, [])
    assert shore.home.waiting == 1


@pytest.mark.spec("C-2")
@pytest.mark.parametrize("error", [None, LinkRefusedError("none", NOT_ALLOWED.error)])
@driven
async def test_a_namespace_without_transactions_gets_its_messages_plainly(
    error: ClientError | None, coast: Callable[[], Coast]
) -> None:
    shore = coast()
    if error is not None:
        shore.controller.fails["ready"] = error
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    assert shore.opened == [("orders", None), ("orders", "backlog")][: 1 if error else 2]
    if error:
        shore.senders[0].answer()
    assert shore.scene.told_of("forwarded") == [1]


@pytest.mark.spec("C-2")
@driven
async def test_an_unreachable_controller_frees_the_slot_of_the_twin(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.controller.fails["ready"] = LinkRefusedError("no node")
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    assert [each.path for each in shore.scene.said(DestinationHeld)][-1:] == ["orders"]
    del shore.controller.fails["ready"]
    await asyncio.sleep(0.6)
    assert shore.scene.told_of("forwarded") == [1]
    shore.senders[-2].detached.set_result(None)
    await turns()


@pytest.mark.spec("C-2", "R-20")
@pytest.mark.parametrize("end", ["no transactions now", "no link via the backlog", "cancelled"])
@driven
async def test_a_link_to_a_twin_is_detached_if_the_rest_of_the_opening_fails(
    end: str, coast: Callable[[], Coast]
) -> None:
    shore = coast()
    if end == "no transactions now":
        shore.controller.fails["ready"] = ConnectionLostError("no answer")
    elif end == "no link via the backlog":
        shore.refuses_via = LinkRefusedError("no right", Condition("amqp:unauthorized-access"))
    else:
        shore.controller.is_ready.clear()
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    assert shore.opened[0] == ("orders", None)
    if end == "cancelled":
        shore.landings.stop()
        await turns()
    await asyncio.sleep(60.0)
    assert shore.senders != []
    assert [each.is_open for each in shore.senders] == [False] * len(shore.senders)


@pytest.mark.spec("C-2", "R-20")
@driven
async def test_a_twin_link_that_ends_while_opening_is_reopened(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.controller.is_ready.clear()
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    shore.senders[0].detached.set_result(Condition("amqp:link:detach-forced"))
    shore.controller.is_ready.set()
    await turns(20)
    assert [each.is_open for each in shore.senders] == [False, False]
    await asyncio.sleep(0.6)
    assert shore.scene.told_of("forwarded") == [1]
    assert len(shore.senders) == 4


@pytest.mark.spec("C-2", "R-20")
@driven
async def test_a_twin_whose_link_ends_during_a_transaction_is_stopped_with_the_landings(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    is_sent = asyncio.Event()

    async def send(*given: object) -> None:
        await is_sent.wait()  # the outcome is unknown, because the link ends

    shore.scene.post([1])
    await asyncio.sleep(11.1)
    plain, via = shore.senders
    via.send = send  # type: ignore[assignment]
    shore.scene.post([2])
    await turns(20)
    plain.let_go()
    await turns(20)
    is_sent.set()
    await turns(20)
    assert shore.scene.told_of("held")[-1:] == [2]
    shore.opens = [ConnectionLostError("gone")] * 99
    shore.home.stop()
    shore.landings.stop()
    before = list(shore.scene.events)
    await asyncio.sleep(600.0)
    assert shore.scene.events == before


@pytest.mark.spec("C-2", "R-20")
@driven
async def test_a_twin_whose_link_ended_in_its_last_transaction_is_forgotten(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    is_committed = asyncio.Event()

    async def commit(txn_id: bytes) -> None:
        await is_committed.wait()

    shore.controller.commit = commit  # type: ignore[method-assign]
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    shore.senders[0].let_go()
    await turns(20)
    is_committed.set()
    await asyncio.sleep(1.0)
    assert shore.scene.told_of("forwarded") == [1]


@pytest.mark.spec("C-1")
@driven
async def test_a_previously_unreachable_destination_is_in_doubt_from_the_start(
    coast: Callable[[], Coast],
) -> None:
    shore = coast()
    shore.landings.created(shore.home)
    assert not shore.home.is_in_doubt
    shore.landing.out_of_reach("orders", 0.0)
    shore.landings.created(shore.home)
    assert shore.home.is_in_doubt


@pytest.mark.spec("C-1")
@driven
async def test_an_answer_in_time_prevents_landing(coast: Callable[[], Coast]) -> None:
    shore = coast()
    shore.scene.opens = [ConnectionLostError("no route")]
    shore.scene.post([1])
    await asyncio.sleep(1.0)
    shore.scene.link.answer()
    await asyncio.sleep(60.0)
    assert (shore.opened, shore.scene.said(LandingEnded)) == ([], [])


@driven
async def test_stopped_landings_do_nothing_more(coast: Callable[[], Coast]) -> None:
    shore = coast()
    shore.scene.post([1])
    await asyncio.sleep(1.0)
    shore.home.stop()
    shore.landings.stop()
    await asyncio.sleep(60.0)
    assert shore.opened == []
    landed = coast()
    landed.opens = [ConnectionLostError("gone")] * 9
    landed.scene.post([1])
    await asyncio.sleep(10.1)
    landed.home.stop()
    landed.landings.stop()
    tried = len(landed.opened)
    await asyncio.sleep(60.0)
    assert len(landed.opened) == tried
    landed.landings.unresponsive("why")
    assert landed.lost == ["why"]


async def landed(coast: Callable[[], Coast]) -> Coast:
    shore = coast()
    shore.scene.post([1])
    await asyncio.sleep(10.1)
    assert len(shore.scene.said(LandingBegan)) == 1
    return shore


@pytest.mark.spec("R-179")
@pytest.mark.parametrize("is_adopted", [False, True], ids=["entity", "namespace"])
@driven
async def test_a_landing_ends_once_the_primary_accepts_a_link(
    is_adopted: bool, coast: Callable[[], Coast]
) -> None:
    """Either the entity alone was out of reach, or the namespace, whose new connection a session adopts."""
    shore = await landed(coast)
    shore.scene.opens.clear()
    if is_adopted:
        shore.home.try_now()
        shore.landings.primary_is_back()
        await asyncio.sleep(CALM + 0.1)
    else:
        await asyncio.sleep(LONGEST_RETRY + CALM + 0.1)
    assert [event.path for event in shore.scene.said(LandingEnded)] == ["orders"]
    assert (shore.landing.landing, shore.home.detour) == ((), None)
    shore.scene.post([2])
    await turns(20)
    assert shore.scene.link.all_sent == [2]


@pytest.mark.spec("R-179")
@driven
async def test_a_landing_lasts_while_the_primary_accepts_no_link(coast: Callable[[], Coast]) -> None:
    shore = await landed(coast)
    await asyncio.sleep(10 * CALM)
    assert shore.scene.said(LandingEnded) == []


@pytest.mark.spec("R-179", "C-1")
@driven
async def test_a_primary_that_accepts_links_but_no_messages_does_not_end_a_landing(
    coast: Callable[[], Coast],
) -> None:
    shore = await landed(coast)
    shore.scene.opens.clear()
    await asyncio.sleep(LONGEST_RETRY + 0.1)
    for number in range(2, 50):
        shore.scene.post([number])
        await asyncio.sleep(CALM / 3)
    assert shore.scene.said(LandingEnded) == []
