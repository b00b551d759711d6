"""A destination on a driven clock that makes no progress, or skips messages."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.syphon.events import DestinationHeld, DestinationResumed
from sbpair.pair.syphon.forward.delivery import (
    DETACHED_WITHIN,
    EMIT_HELD_AFTER,
    METERED,
    OPEN,
    PROBING,
    STALLED_AFTER,
    WAITING,
)
from tests.pair.syphon.scripted import ANSWER, PlayedLink, Scene, driven, now, turns

pytestmark = pytest.mark.spec("R-66", "R-22")


# --- no progress


@driven
async def test_a_destination_without_an_answer_stalls_and_is_finally_given_up() -> None:
    scene = Scene()
    await asyncio.sleep(10.0)
    sent = scene.post([1, 2])
    await turns()
    await asyncio.sleep(2 * STALLED_AFTER + 0.01)
    assert scene.told_of("stalled") == [1, 2]
    assert [each.is_stalled for each in sent] == [True, True]
    assert scene.orders.state is METERED
    scene.post([3])
    assert scene.told_of("held") == [3]
    assert (scene.events, scene.host) == ([], [])
    await asyncio.sleep(EMIT_HELD_AFTER)
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "orders does not answer"
    assert held.retry_in == pytest.approx(ANSWER - EMIT_HELD_AFTER, abs=STALLED_AFTER + 0.01)
    assert scene.host[0] == ("out of reach", pytest.approx(10.0, abs=STALLED_AFTER))
    assert scene.told_of("stalled") == [1, 2]
    await asyncio.sleep(ANSWER - EMIT_HELD_AFTER - 1.0)
    first = scene.link
    assert first.let_go_at is None
    await asyncio.sleep(0.8)
    assert first.let_go_at == 10.0 + ANSWER + STALLED_AFTER
    assert scene.orders.state is WAITING
    assert scene.said(DestinationHeld)[1].reason == "orders has made no progress for 60 s"
    assert len(scene.said(DestinationHeld)) == 2
    assert scene.orders.waiting == 1
    await asyncio.sleep(0.5)
    assert (len(scene.links), scene.link.all_sent) == (2, [3])
    first.detach()
    await asyncio.sleep(DETACHED_WITHIN)
    assert not [entry for entry in scene.host if entry[0] == "unresponsive"]


@driven
async def test_a_destination_that_does_not_answer_is_unreachable_although_nothing_waits() -> None:
    scene = Scene()
    scene.post([1, 2])
    await asyncio.sleep(EMIT_HELD_AFTER + 2 * STALLED_AFTER)
    assert (scene.orders.waiting, scene.orders.in_flight) == (0, 2)
    assert "out of reach" in [entry[0] for entry in scene.host]
    first = len(scene.host)
    await asyncio.sleep(5 * STALLED_AFTER)  # said once while nothing waits, and again for what comes
    assert "out of reach" not in [entry[0] for entry in scene.host[first:]]
    scene.post([3])
    await asyncio.sleep(2 * STALLED_AFTER)
    assert "out of reach" in [entry[0] for entry in scene.host[first:]]


@driven
async def test_a_peer_that_ignores_a_detach_is_unresponsive() -> None:
    scene = Scene()
    scene.post([1, 2])
    await asyncio.sleep(ANSWER + 0.3)
    let_go_at = scene.links[0].let_go_at
    assert let_go_at is not None
    await asyncio.sleep(let_go_at + DETACHED_WITHIN - now() - 0.01)
    assert not [entry for entry in scene.host if entry[0] == "unresponsive"]
    await asyncio.sleep(0.02)
    assert [entry for entry in scene.host if entry[0] == "unresponsive"] == [
        ("unresponsive", "orders has made no progress for 60 s")
    ]


@driven
async def test_messages_without_credit_wait_and_are_sent_as_credit_arrives() -> None:
    scene = Scene(opens=[PlayedLink(credit=0)])
    scene.post([1, 2, 3])
    await asyncio.sleep(EMIT_HELD_AFTER + 0.5)
    assert scene.told_of("held") == [1, 2, 3]
    assert scene.told_of("stalled") == []
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "orders gives no credit"
    assert [entry[0] for entry in scene.host].count("out of reach") >= 1
    assert ("idle", 2 * STALLED_AFTER) in scene.host  # its slot may serve others
    scene.link.grant(2)
    assert scene.link.all_sent == [1, 2]
    assert scene.told_of("resumed") == [1, 2]
    scene.link.answer()
    assert scene.orders.state is METERED
    scene.link.grant(1)
    assert scene.link.all_sent == [1, 2, 3]
    assert [each.path for each in scene.said(DestinationResumed)] == ["orders"]


@driven
async def test_a_stalled_destination_is_sent_one_then_two_then_four_messages_at_a_time() -> None:
    scene = Scene(opens=[PlayedLink(credit=1)])
    scene.post(range(1, 12))
    await asyncio.sleep(2 * STALLED_AFTER + 0.05)
    assert (scene.link.all_sent, scene.orders.waiting) == ([1], 10)
    scene.link.credit = 100
    scene.link.answer()
    assert len(scene.link.sent) == 2
    scene.link.answer()
    assert len(scene.link.sent) == 4
    scene.link.answer()
    assert scene.link.all_sent == list(range(1, 12))
    assert scene.orders.state is OPEN


@driven
async def test_slow_progress_is_no_stall() -> None:
    scene = Scene()
    scene.post(range(1, 9))
    await turns()
    for _ in range(7):
        await asyncio.sleep(STALLED_AFTER * 0.9)
        scene.link.answer()
    assert scene.told_of("stalled") == []
    assert scene.orders.state is OPEN
    await asyncio.sleep(STALLED_AFTER * 2)
    assert scene.told_of("stalled") == [8]


# --- a side that is far away


@driven
async def test_an_answer_may_take_two_round_trips_longer_before_a_destination_stalls() -> None:
    scene = Scene(round_trip=1.0)
    sent = scene.post([1, 2])
    await turns()
    await asyncio.sleep(STALLED_AFTER + 2.0 + STALLED_AFTER - 0.01)  # progress is seen a moment later
    assert (scene.orders.state, scene.told_of("stalled")) == (OPEN, [])
    await asyncio.sleep(0.02)
    assert (scene.orders.state, scene.told_of("stalled")) == (METERED, [1, 2])
    assert [each.is_stalled for each in sent] == [True, True]


@driven
async def test_an_idle_distant_destination_is_offered_as_soon_as_a_near_one() -> None:
    scene = Scene(round_trip=1.0)
    scene.post()
    await turns()
    scene.link.answer()
    await asyncio.sleep(STALLED_AFTER + 0.01)
    assert scene.host == [("idle", STALLED_AFTER)]


@driven
async def test_a_distant_link_may_take_two_more_round_trips_to_open_before_a_hold() -> None:
    opening: asyncio.Future[PlayedLink] = asyncio.get_running_loop().create_future()
    scene = Scene(round_trip=1.0, opens=[opening])
    scene.post([1])
    await asyncio.sleep(2.0 + STALLED_AFTER - 0.01)
    assert scene.told_of("held") == []
    await asyncio.sleep(0.02)
    assert scene.told_of("held") == [1]


@driven
async def test_a_slowly_opened_link_has_the_full_time_for_its_first_answer() -> None:
    opening: asyncio.Future[PlayedLink] = asyncio.get_running_loop().create_future()
    scene = Scene(round_trip=1.0)
    scene.post([1])
    await turns()
    scene.link.answer()
    scene.link.detach()
    await asyncio.sleep(10.0)
    scene.opens.append(opening)
    scene.post([2])
    await asyncio.sleep(2.0)
    opening.set_result(PlayedLink(progress=scene.link.progress))
    await asyncio.sleep(2.0)
    assert (scene.link.all_sent, scene.told_of("stalled")) == ([2], [])


@driven
async def test_simultaneous_answers_double_the_sends_although_few_are_metered() -> None:
    scene = Scene()
    scene.post(range(1, 101))
    await asyncio.sleep(4 * STALLED_AFTER)
    assert scene.orders.state is METERED
    scene.post(range(101, 501))
    assert len(scene.link.all_sent) == 100
    scene.link.accept_all()
    assert len(scene.link.sent) == 200
    await asyncio.sleep(4 * STALLED_AFTER)  # stalls again
    scene.link.accept_all()
    assert scene.link.all_sent == list(range(1, 501))
    assert scene.orders.state is OPEN


async def answered_without_credit() -> Scene:
    """A metered destination that has answered 100 messages, and gives no credit for 200 others."""
    scene = Scene(opens=[PlayedLink(credit=100)])
    scene.post(range(1, 301))
    await asyncio.sleep(4 * STALLED_AFTER)
    scene.link.accept_all()
    return scene


@driven
async def test_sends_released_by_answers_wait_for_credit() -> None:
    scene = await answered_without_credit()
    assert len(scene.link.all_sent) == 100
    scene.link.grant(150)
    assert len(scene.link.all_sent) == 250


@driven
async def test_answers_before_a_stall_release_no_sends_after_it() -> None:
    scene = await answered_without_credit()
    await asyncio.sleep(4 * STALLED_AFTER)  # without credit
    scene.link.grant(150)
    assert len(scene.link.all_sent) < 110


# --- messages that are skipped


@driven
async def test_the_next_message_probes_in_place_of_one_with_a_doubtful_lock() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")])
    scene.post([1], lock_ends=0.2)
    scene.post([2, 3])
    await asyncio.sleep(0.6)
    assert scene.told_of("doubtful") == [1]
    assert scene.link.all_sent == [2]
    assert scene.orders.state is PROBING


@driven
async def test_the_next_message_is_sent_in_place_of_a_skipped_metered_one() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")])
    scene.post([1])
    scene.post([2, 3], lock_ends=0.55)
    scene.post([4, 5])
    await asyncio.sleep(0.6)
    scene.link.answer()
    await turns()
    assert scene.told_of("doubtful") == [2, 3]
    assert scene.link.all_sent == [1, 4, 5]


@driven
async def test_a_destination_whose_only_message_was_skipped_is_idle() -> None:
    scene = Scene()
    scene.post([1], lock_ends=0.0)
    await turns()
    assert scene.link.all_sent == []
    assert scene.host == [("idle", 0.0)]
