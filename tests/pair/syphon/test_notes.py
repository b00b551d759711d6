"""The syphon's records of its sides, backlogs and links: pure except for waiting."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest

from sbpair.pair.ground.side import Side
from sbpair.pair.syphon.events import SideAccepted, SideRefused
from sbpair.pair.syphon.forward.slots import LinkSlots, Slot
from sbpair.pair.syphon.status import BacklogLinks, SideRefusals
from tests.pair.syphon.scripted import driven

pytestmark = pytest.mark.spec("R-66")


# --- sides that refuse


@pytest.mark.spec("R-178")
@driven
async def test_a_short_refusal_is_shown_and_not_reported() -> None:
    events: list[object] = []
    sides = SideRefusals(events.append)  # type: ignore[arg-type]
    for _ in range(4):
        sides.refused(Side.PRIMARY, "the token has expired")
        assert sides.reason is not None
        await asyncio.sleep(1.0)
    sides.accepted(Side.PRIMARY)
    assert (events, sides.reason) == ([], None)
    for _ in range(20):
        sides.refused(Side.PRIMARY, "a bad key")
        await asyncio.sleep(1.0)
    sides.accepted(Side.PRIMARY)
    assert [type(each) for each in events] == [SideRefused, SideAccepted]


# --- backlogs without a link

BACKLOGS = ("b0", "b1", "b2", "b3")


def test_the_absence_of_all_backlogs_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    links = BacklogLinks(lambda event: None, BACKLOGS)
    for _ in range(3):  # connections, and checks
        for each in BACKLOGS:
            links.note_missing(each)
    (said,) = caplog.records
    assert (said.levelname, "no backlog queue exists" in said.message) == ("ERROR", True)


def test_missing_backlogs_are_logged_together_and_vanishing_ones_later(
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
    for backlog in ("b0", "b2", "b3"):
        assert len(caplog.messages) == 3
        links.note_attached(backlog)
    assert caplog.messages[3:] == ["all 4 backlog queues exist now"]


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


@pytest.mark.spec("R-23")
async def test_two_idle_destinations_give_their_links_to_two_waiting_ones_in_any_order() -> None:
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
