"""The syphon's records of its sides, backlogs and links: pure except for waiting."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pytest

from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Modified, Rejected, Released
from sbpair.pair.ground.side import Side
from sbpair.pair.syphon import status as of_status
from sbpair.pair.syphon.events import BacklogDetached, BacklogMissing, SideAccepted, SideRefused
from sbpair.pair.syphon.forward.in_flight import (
    BUSY_CONDITIONS,
    DEAD_LETTER_REASONS,
    DeliveryAction,
    action_for,
    action_for_condition,
    is_answer,
    is_busy,
)
from sbpair.pair.syphon.forward.slots import LinkSlots, Slot
from sbpair.pair.syphon.status import BacklogLinks, SideRefusals, SyphonCounters, SyphonState, SyphonStatus
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("R-66")

COMPLETE, DEAD_LETTER, HOLD = DeliveryAction.COMPLETE, DeliveryAction.DEAD_LETTER, DeliveryAction.HOLD


# --- sides that refuse


async def test_a_side_that_refuses_is_reported_once_and_once_when_it_accepts_again() -> None:
    events: list[object] = []
    sides = SideRefusals(events.append)  # type: ignore[arg-type]
    before = time.monotonic(), time.time()
    assert (sides.reason, dict(sides.current)) == (None, {})
    sides.refused(Side.SECONDARY, "no right")
    sides.refused(Side.SECONDARY, "still none")
    (event,) = events
    assert isinstance(event, SideRefused)
    assert (event.side, event.cause) == ("secondary", "no right")
    assert before[1] <= event.at <= time.time()
    assert sides.current[Side.SECONDARY].cause == "no right"
    assert before[0] <= sides.current[Side.SECONDARY].since <= time.monotonic()
    sides.refused(Side.PRIMARY, "a bad key")
    assert (
        sides.reason
        == "the primary refuses the syphon: a bad key; the secondary refuses the syphon: no right"
    )
    sides.accepted(Side.SECONDARY)
    sides.accepted(Side.SECONDARY)
    assert sides.reason == "the primary refuses the syphon: a bad key"
    accepted = [each for each in events if isinstance(each, SideAccepted)]
    assert [(each.side, each.cause) for each in accepted] == [("secondary", "it accepts again")]


async def test_the_refusals_that_are_shown_are_a_copy() -> None:
    sides = SideRefusals(lambda event: None)
    sides.refused(Side.PRIMARY, "a")
    shown = sides.current
    sides.accepted(Side.PRIMARY)
    assert list(shown) == [Side.PRIMARY]
    assert not sides.current


async def test_a_refusal_that_lasts_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_status, "GRACE", 0.0)
    sides = SideRefusals(lambda event: None)
    waiting = asyncio.ensure_future(sides.wait_refused())
    await asyncio.sleep(0)
    assert not waiting.done()
    sides.refused(Side.PRIMARY, "a bad key")
    assert await asyncio.wait_for(waiting, PATIENCE) == "the primary refuses the syphon: a bad key"
    assert (
        await asyncio.wait_for(sides.wait_refused(), PATIENCE) == "the primary refuses the syphon: a bad key"
    )


async def test_a_refusal_that_passes_within_its_grace_is_not_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_status, "GRACE", PATIENCE)
    sides = SideRefusals(lambda event: None)
    waiting = asyncio.ensure_future(sides.wait_refused())
    for turn in range(3):
        sides.refused(Side.PRIMARY, f"{turn}")
        for _ in range(5):
            await asyncio.sleep(0)
        sides.accepted(Side.PRIMARY)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not waiting.done()
    waiting.cancel()


# --- backlogs without a link

BACKLOGS = ("b0", "b1", "b2", "b3")


async def test_a_backlog_is_missing_detached_or_attached() -> None:
    events: list[object] = []
    links = BacklogLinks(events.append)  # type: ignore[arg-type]
    links.note_detached("b0", "moved")
    assert links.detached == {"b0": SyphonStatus(SyphonState.CONNECTING, "b0 is not attached: moved")}
    links.note_missing("b0")
    assert (links.missing, links.detached) == ({"b0"}, {})
    links.note_detached("b1", "no right", is_refusal=True)
    assert links.detached == {"b1": SyphonStatus(SyphonState.REFUSED, "b1 is not attached: no right")}
    links.note_attached("b0")
    links.note_attached("b1")
    assert (links.missing, links.detached) == (set(), {})
    assert [(type(each), each.backlog) for each in events] == [  # type: ignore[attr-defined]
        (BacklogDetached, "b0"),
        (BacklogMissing, "b0"),
        (BacklogDetached, "b1"),
    ]
    assert [each.reason for each in events if isinstance(each, BacklogDetached)] == ["moved", "no right"]
    assert all(time.time() - 60 < each.at <= time.time() for each in events)  # type: ignore[attr-defined]


def test_that_no_backlog_exists_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    links = BacklogLinks(lambda event: None, BACKLOGS)
    for _ in range(3):  # connections, and checks
        for each in BACKLOGS:
            links.note_missing(each)
    (said,) = caplog.records
    assert (said.levelname, "no backlog queue exists" in said.message) == ("ERROR", True)


def test_backlogs_that_are_missing_are_logged_together_once_and_those_that_vanish_later(
    caplog: pytest.LogCaptureFixture,
) -> None:
    links = BacklogLinks(lambda event: None, BACKLOGS)
    links.note_missing("b2")
    links.note_missing("b0")
    links.note_detached("b3", "moved")
    assert [each for each in caplog.messages if "exist" in each] == []
    links.note_attached("b1")
    links.note_missing("b2")
    assert caplog.messages == ["2 of 4 backlog queues do not exist: b0, b2; checked again"]
    links.note_attached("b0")
    links.note_missing("b3")
    assert caplog.messages[1:] == ["2 of 4 backlog queues do not exist: b3; checked again"]
    links.note_missing("b0")  # deleted again
    assert caplog.messages[2:] == ["3 of 4 backlog queues do not exist: b0; checked again"]


async def test_a_drain_hears_of_the_first_refusal_and_of_no_mere_loss() -> None:
    links = BacklogLinks(lambda event: None)
    links.note_detached("b0", "no right", is_refusal=True)  # nobody drains
    links.refusal = asyncio.get_running_loop().create_future()
    links.note_detached("b0", "moved")
    assert not links.refusal.done()
    links.note_detached("b1", "no right", is_refusal=True)
    links.note_detached("b2", "none either", is_refusal=True)
    assert links.refusal.result() == "no right"


def test_a_snapshot_of_the_counters_does_not_change() -> None:
    counters = SyphonCounters(received=3, pending=1)
    snapshot = counters.snapshot()
    counters.received += 1
    assert snapshot == SyphonCounters(received=3, pending=1)


# --- answers


@pytest.mark.parametrize("symbol", sorted(DEAD_LETTER_REASONS))
def test_a_final_refusal_dead_letters_a_message_and_shows_that_the_entity_is_in_reach(symbol: str) -> None:
    condition = Condition(symbol, "told by the test")
    assert action_for(Rejected(condition)) is action_for_condition(condition) is DEAD_LETTER
    assert is_answer(condition, is_final=True)
    assert is_answer(condition, is_final=False) is is_busy(Rejected(condition)) is False


@pytest.mark.parametrize("symbol", [*sorted(BUSY_CONDITIONS), "amqp:internal-error", "a:b"])
def test_with_any_other_refusal_a_message_waits(symbol: str) -> None:
    condition = Condition(symbol)
    assert action_for(Rejected(condition)) is action_for_condition(condition) is HOLD
    assert is_answer(condition, is_final=False) is is_busy(Rejected(condition)) is (symbol in BUSY_CONDITIONS)


def test_what_was_accepted_is_complete_and_no_answer_is_none() -> None:
    assert action_for(ACCEPTED) is COMPLETE
    for state in (None, Released(), Modified(), Rejected()):
        assert action_for(state) is HOLD
        assert not is_busy(state)
    assert action_for_condition(None) is HOLD
    assert is_answer(None, is_final=True)
    assert not is_answer(None, is_final=False)


# --- slots for links


@dataclass(eq=False)
class Holder:
    """The part of a destination that concerns its slot."""

    used_at: float = 0.0
    is_open: bool = True
    in_flight: int = 1
    released: int = 0

    def release_link(self) -> None:
        self.released += 1


async def taken(slots: LinkSlots, holder: Holder) -> asyncio.Task[Slot]:
    task = asyncio.ensure_future(slots.take(holder))  # type: ignore[arg-type]
    for _ in range(3):
        await asyncio.sleep(0)
    return task


async def test_the_destination_that_was_idle_for_longest_gives_up_its_link() -> None:
    slots = LinkSlots(3)
    busy, young, old = Holder(1.0), Holder(9.0, in_flight=0), Holder(5.0, in_flight=0)
    for holder in (busy, young, old):
        assert (await taken(slots, holder)).done()
    assert (await taken(slots, old)).done()  # it has a slot already
    assert (await taken(slots, Holder())).done()
    assert [each.released for each in (busy, young, old)] == [0, 0, 1]
    young.is_open = False  # it is opening its link and not idle
    assert not (await taken(slots, Holder())).done()


async def test_while_all_are_busy_the_next_waits_for_a_slot_in_turn() -> None:
    slots = LinkSlots(1)
    first, second, third = Holder(), Holder(), Holder()
    slot = await (await taken(slots, first))
    waiting = [await taken(slots, each) for each in (second, third)]
    slots.offer(second)  # it holds no slot
    slots.free(second, Slot())
    for _ in range(3):
        await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [False, False]
    slots.free(first, slot)
    for _ in range(3):
        await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, False]
    second.in_flight = 0
    slots.offer(second)
    for _ in range(3):
        await asyncio.sleep(0)
    assert waiting[1].done()
    assert second.released == 1


@pytest.mark.spec("R-23")
async def test_two_that_are_idle_give_up_their_links_to_two_that_wait_in_any_order() -> None:
    slots = LinkSlots(2)
    old, young = Holder(1.0), Holder(2.0)
    for holder in (old, young):
        assert (await taken(slots, holder)).done()
    waiting = [await taken(slots, Holder()) for _ in range(2)]
    old.in_flight = young.in_flight = 0
    for holder in (young, old):  # the first is offered, the other taken, and no longer there to be offered
        slots.offer(holder)
        for _ in range(3):
            await asyncio.sleep(0)
    assert [each.done() for each in waiting] == [True, True]
    assert (old.released, young.released) == (1, 1)


async def test_a_destination_that_gives_up_waiting_passes_the_slot_on() -> None:
    slots = LinkSlots(1)
    first = Holder()
    slot = await (await taken(slots, first))
    gone, next_one = await taken(slots, Holder()), await taken(slots, Holder())
    slots.free(first, slot)
    gone.cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert gone.cancelled()
    assert next_one.done()


@pytest.mark.spec("R-97")
async def test_the_late_end_of_an_old_link_does_not_free_the_slot_of_its_successor() -> None:
    slots, first = LinkSlots(1), Holder()
    old = await (await taken(slots, first))
    new = await (await taken(slots, first))
    waiting = await taken(slots, Holder())
    slots.free(first, old)
    for _ in range(3):
        await asyncio.sleep(0)
    assert not waiting.done()
    slots.free(first, new)
    await waiting
