"""A destination on a driven clock whose link is taken away, or whose messages take a detour."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.syphon.events import DestinationHeld
from sbpair.pair.syphon.forward.delivery import (
    CLOSED,
    METERED,
    OPEN,
    PROBING,
    WAITING,
)
from tests.pair.syphon.scripted import ANSWER, BUSY, INTERNAL, PlayedLink, Scene, driven, turns

pytestmark = pytest.mark.spec("R-66", "R-22")


# --- giving up the link, and the end


@driven
async def test_a_released_link_is_reopened_for_the_next_message() -> None:
    scene = Scene()
    scene.orders.release_link()  # there is none
    scene.post()
    await turns()
    scene.link.answer()
    first = scene.link
    scene.orders.release_link()
    assert first.let_go_at == 0.0
    assert (scene.orders.state, scene.orders.is_open) == (CLOSED, False)
    scene.post([2])
    await turns()
    assert (len(scene.links), scene.link.all_sent) == (2, [2])
    assert scene.events == []


@driven
async def test_a_released_link_without_progress_is_waited_for() -> None:
    scene = Scene(opens=[PlayedLink(credit=0)])
    scene.post([1])
    await asyncio.sleep(1.0)
    assert scene.orders.state is METERED
    scene.orders.release_link()
    assert scene.orders.state is WAITING
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "no progress, and its link was released for another destination"
    await asyncio.sleep(0.6)
    assert (len(scene.links), scene.link.all_sent) == (2, [1])


@pytest.mark.parametrize("when", ["opening", "waiting", "stalled"])
@driven
async def test_a_stopped_destination_does_nothing(when: str) -> None:
    opening: asyncio.Future[PlayedLink] = asyncio.get_running_loop().create_future()
    scene = Scene(
        opens={
            "opening": [opening],
            "waiting": [ConnectionLostError("no route")],
            "stalled": [PlayedLink(credit=0)],
        }[when]
    )
    scene.post([1])
    await asyncio.sleep(0.1)
    scene.orders.stop()
    told, events, opened = list(scene.told), list(scene.events), len(scene.opened_at)
    scene.post([2])
    await asyncio.sleep(2 * ANSWER)
    assert scene.orders.waiting <= 1
    assert (scene.told_of("forwarded"), scene.events, len(scene.opened_at)) == ([], events, opened)
    assert scene.told[: len(told)] == told
    assert not [entry for entry in scene.host if entry[0] == "unresponsive"]


@driven
async def test_a_refusal_after_the_stop_holds_and_schedules_nothing() -> None:
    scene = Scene()
    scene.post()
    await turns()
    scene.orders.stop()
    scene.link.answer(BUSY)
    await asyncio.sleep(60.0)
    assert scene.link.all_sent == [1]
    assert (scene.events, scene.host) == ([], [])


# --- detours


def detour(scene: Scene) -> list[int]:
    """Divert a scene's messages; the list shows which."""
    gone: list[int] = []
    scene.orders.divert(lambda message: gone.append(message.delivery_id))
    return gone


@driven
async def test_waiting_and_new_messages_take_the_detour_except_those_that_stay() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")] * 3)
    scene.post([1, 2])
    scene.post([3], stays=True)
    await turns()
    gone = detour(scene)
    assert gone == [1, 2]
    assert scene.told_of("resumed") == [1, 2]
    assert scene.orders.waiting == 1
    assert not scene.orders.takes_more
    scene.post([4])
    scene.post([5], stays=True)
    assert gone == [1, 2, 4]
    assert scene.told_of("held") == [1, 2, 3, 5]
    assert [each.delivery_id for each in scene.orders.take_queue()] == []


@driven
async def test_in_a_detour_a_link_is_opened_and_one_message_at_a_time_probes() -> None:
    scene = Scene()
    gone = detour(scene)
    assert scene.orders.takes_more
    scene.post([1])
    assert (gone, scene.orders.state) == ([1], PROBING)
    await turns()
    assert (scene.orders.state, scene.link.all_sent) == (OPEN, [])
    scene.post([2, 3])
    assert (scene.orders.state, scene.link.all_sent, gone) == (PROBING, [2], [1, 3])
    scene.link.answer()
    await turns()
    scene.post([4])
    assert scene.link.all_sent == [2, 4]
    scene.link.detach()
    await turns()
    assert gone == [1, 3]
    assert (scene.orders.state, scene.orders.waiting) == (WAITING, 1)  # it probes again
    assert scene.told_of("forwarded") == [2]


@driven
async def test_in_a_detour_a_lost_link_is_reopened_for_the_next_probe() -> None:
    scene = Scene()
    scene.post([1])
    await turns()
    scene.link.answer()
    gone = detour(scene)
    scene.link.detach()
    scene.post([2])
    assert gone == [2]
    await turns()
    assert len(scene.links) == 2


@driven
async def test_a_message_that_fails_while_its_diverted_destination_waits_is_diverted() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    gone = detour(scene)
    scene.link.answer(INTERNAL)
    scene.link.answer(INTERNAL)
    assert gone == [1, 2]
    assert len(scene.said(DestinationHeld)) == 1


@driven
async def test_a_link_without_progress_whose_messages_are_diverted_is_closed() -> None:
    scene = Scene(opens=[PlayedLink(credit=0)])
    scene.post([1])
    await asyncio.sleep(1.0)
    first = scene.link
    gone = detour(scene)
    assert gone == [1]
    assert first.let_go_at == 1.0
    assert scene.orders.state is WAITING
    assert scene.said(DestinationHeld)[0].reason == "orders has made no progress for 1 s"
    await asyncio.sleep(0.4)
    assert len(scene.links) == 1


@driven
async def test_diverting_a_stalled_destination_keeps_the_link_of_a_message_in_flight() -> None:
    scene = Scene()
    scene.post([1])
    await asyncio.sleep(1.0)
    assert scene.orders.state is METERED
    assert detour(scene) == []
    assert scene.link.let_go_at is None
