"""One destination on a driven clock: what it sends when, what it holds, and what it reports."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.amqp.performatives import Condition, Modified, Rejected, Released
from sbpair.client.errors import ConnectionLost, LinkRefused
from sbpair.envelope.restore import Forward
from sbpair.syphon.delivery import (
    CLOSED,
    DETACHED_WITHIN,
    EMIT_HELD_AFTER,
    METERED,
    OPEN,
    OPENING,
    PROBING,
    STALLED_AFTER,
    WAITING,
)
from sbpair.syphon.events import DestinationHeld, DestinationResumed
from sbpair.syphon.in_flight import InFlightMessage
from tests.syphon.scripted import ANSWER, LONGEST_RETRY, PAYLOAD, PlayedLink, Scene, driven, now, turns

pytestmark = pytest.mark.spec("R-66", "R-22")

BUSY = Rejected(Condition("com.microsoft:server-busy", "too fast"))
FINAL = Condition("amqp:not-found", "no orders here")
INTERNAL = Rejected(Condition("amqp:internal-error"))


# --- opening, and sending as messages come


@driven
async def test_messages_that_come_while_the_link_opens_go_in_order_over_one_link() -> None:
    scene = Scene()
    assert (scene.orders.state, scene.orders.is_open, scene.orders.takes_more) == (CLOSED, False, True)
    assert scene.orders.is_unused
    assert scene.orders.in_flight == 0
    await asyncio.sleep(7.0)
    scene.post([1, 2, 3])
    assert (scene.orders.state, scene.orders.waiting, scene.orders.takes_more) == (OPENING, 3, False)
    assert scene.orders.used_at == 7.0
    assert not scene.orders.is_unused
    await turns()
    assert scene.opened_at == [7.0]
    assert scene.link.all_sent == [1, 2, 3]
    assert (scene.orders.state, scene.orders.waiting, scene.orders.in_flight) == (OPEN, 0, 3)
    assert scene.orders.is_open
    scene.post([4])
    assert scene.link.all_sent == [1, 2, 3, 4]
    assert scene.told == []


@driven
async def test_an_accepted_message_is_forwarded_and_a_final_refusal_is_the_messages_own() -> None:
    scene = Scene()
    scene.post([1, 2, 3])
    await turns()
    scene.link.answer()
    scene.link.answer(Rejected(FINAL))
    assert scene.told == [("forwarded", 1), ("refused", 2, FINAL)]
    assert scene.orders.state is OPEN
    assert scene.events == []


@driven
async def test_an_idle_destination_is_offered_to_its_host_a_moment_later() -> None:
    scene = Scene()
    scene.post()
    await turns()
    scene.link.answer()
    await asyncio.sleep(STALLED_AFTER - 0.01)
    assert scene.host == []
    await asyncio.sleep(0.02)
    assert scene.host == [("idle", STALLED_AFTER)]
    await asyncio.sleep(60.0)
    assert len(scene.host) == 1
    scene.post([2])  # the watch begins again
    scene.link.answer()
    await asyncio.sleep(1.0)
    assert len(scene.host) == 2


@driven
async def test_a_message_for_a_link_that_was_lost_opens_another() -> None:
    scene = Scene()
    scene.post()
    await turns()
    scene.link.answer()
    scene.link.detach()
    assert not scene.orders.is_open
    assert scene.orders.is_unused
    scene.post([2])
    assert scene.orders.state is OPENING
    await turns()
    assert (len(scene.links), scene.link.all_sent) == (2, [2])


@driven
async def test_a_link_that_opens_slowly_holds_its_messages_until_it_is_open() -> None:
    scene = Scene()
    opening: asyncio.Future[PlayedLink] = asyncio.get_running_loop().create_future()
    scene.opens.append(opening)
    await asyncio.sleep(100.0)
    scene.post([1])
    await asyncio.sleep(STALLED_AFTER - 0.01)
    scene.post([2])
    assert scene.told_of("held") == []
    await asyncio.sleep(0.02)
    assert scene.told_of("held") == [1, 2]
    scene.post([3])  # at once, now that it is known to be slow
    assert scene.told_of("held") == [1, 2, 3]
    assert (scene.host, scene.events) == ([], [])
    await asyncio.sleep(EMIT_HELD_AFTER)
    assert scene.host[0] == ("out of reach", 100.0)
    assert scene.orders.is_in_doubt
    opening.set_result(PlayedLink())
    await turns()
    assert scene.told_of("resumed") == [1, 2, 3]
    assert scene.link.all_sent == [1, 2, 3]
    assert scene.orders.state is OPEN
    scene.link.answer()
    assert [entry for entry in scene.host if entry[0] == "answered"] == [("answered", now())]
    assert not scene.orders.is_in_doubt
    scene.link.answer()
    assert len([entry for entry in scene.host if entry[0] == "answered"]) == 1


@driven
async def test_a_destination_in_doubt_is_sent_one_message_first() -> None:
    scene = Scene()
    scene.orders.is_in_doubt = True
    scene.post([1, 2, 3])
    assert scene.orders.state is PROBING
    await turns()
    assert scene.link.all_sent == [1]
    scene.link.answer()
    await turns()
    assert scene.link.all_sent == [1, 2, 3]
    assert [entry[0] for entry in scene.host] == ["answered"]


# --- a link that cannot be opened


@driven
async def test_a_lost_connection_is_tried_again_ever_more_rarely() -> None:
    scene = Scene(opens=[ConnectionLost("no route") for _ in range(7)])
    scene.post([1, 2])
    await asyncio.sleep(0.1)
    assert scene.orders.state is WAITING
    assert scene.told_of("held") == [1, 2]
    (held,) = scene.said(DestinationHeld)
    assert (held.path, held.reason, held.retry_in) == ("orders", "no route", 0.5)
    assert scene.host == [("out of reach", 0.0)]
    scene.post([3])
    assert scene.told_of("held") == [1, 2, 3]
    await asyncio.sleep(60.0)
    spans = [later - earlier for earlier, later in zip(scene.opened_at, scene.opened_at[1:], strict=False)]
    assert spans == [0.5, 1.0, 2.0, 4.0, LONGEST_RETRY, LONGEST_RETRY, LONGEST_RETRY]
    assert scene.link.all_sent[:1] == [1]


@driven
async def test_after_a_failure_one_message_probes_and_then_twice_as_many_go_each_time() -> None:
    scene = Scene(opens=[ConnectionLost("no route")])
    scene.post(range(1, 21))
    await asyncio.sleep(0.6)
    assert (scene.orders.state, scene.link.all_sent) == (PROBING, [1])
    assert scene.told_of("resumed") == [1]
    assert not scene.orders.takes_more
    scene.link.answer()
    assert scene.orders.state is METERED
    assert [each.path for each in scene.said(DestinationResumed)] == ["orders"]
    await turns()
    assert len(scene.link.sent) == 4  # progress doubled the first two
    scene.link.answer()
    await turns()
    assert len(scene.link.sent) == 8
    scene.link.answer()
    await turns()
    assert len(scene.link.sent) == 16
    assert scene.link.all_sent == list(range(1, 20))
    scene.link.answer()
    await turns()
    assert (scene.orders.state, scene.orders.waiting) == (OPEN, 0)
    assert scene.link.all_sent == list(range(1, 21))
    assert scene.orders.takes_more
    assert len(scene.said(DestinationResumed)) == 1


@driven
async def test_a_success_starts_the_back_off_over() -> None:
    scene = Scene(opens=[ConnectionLost("a"), ConnectionLost("b")])
    scene.post([1])
    await asyncio.sleep(2.0)
    scene.link.answer()
    scene.post([2])
    scene.link.answer(BUSY)
    assert [each.retry_in for each in scene.said(DestinationHeld)] == [0.5, 1.0, 0.5]


@pytest.mark.parametrize(
    ("condition", "host"),
    [
        (Condition("com.microsoft:server-busy"), []),
        (Condition("amqp:unauthorized-access"), []),
        (Condition("amqp:internal-error"), [("out of reach", 3.0)]),
        (None, [("out of reach", 3.0)]),
    ],
)
@driven
async def test_a_link_that_is_refused_for_now_is_waited_for(
    condition: Condition | None, host: list[object]
) -> None:
    error = LinkRefused("no link", condition)
    scene = Scene(opens=[error])
    await asyncio.sleep(3.0)
    scene.post([1, 2])
    await turns()
    assert scene.orders.state is WAITING
    assert scene.told_of("held") == [1, 2]
    assert scene.host == host
    assert [each.reason for each in scene.said(DestinationHeld)] == [str(error)]


@driven
async def test_a_link_that_is_refused_finally_refuses_all_that_wait() -> None:
    scene = Scene(opens=[LinkRefused("no link", FINAL)])
    scene.orders.is_in_doubt = True
    scene.post([1, 2])
    await turns()
    assert scene.told == [("held", 2), ("refused", 1, FINAL), ("refused", 2, FINAL)]
    assert (scene.orders.state, scene.orders.waiting, scene.events) == (CLOSED, 0, [])
    assert scene.host == [("answered", 0.0), ("idle", 0.0)]
    scene.post([3])
    await turns()
    assert scene.link.all_sent == [3]


# --- messages that are not accepted now


@driven
async def test_a_message_that_is_not_accepted_now_goes_again_before_those_posted_meanwhile() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    scene.link.answer(BUSY)
    assert scene.orders.state is WAITING
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "com.microsoft:server-busy: too fast"
    scene.post([3])
    scene.link.answer(BUSY)
    assert len(scene.said(DestinationHeld)) == 1  # it waits already
    assert scene.told_of("held") == [1, 3, 2]
    await turns()
    assert scene.host == [("idle", 0.0)] * 2  # its link may serve others
    await asyncio.sleep(0.49)
    assert scene.link.all_sent == [1, 2]
    await asyncio.sleep(0.02)
    assert scene.link.all_sent == [1, 2, 1]
    scene.link.answer()
    await turns()
    assert scene.link.all_sent == [1, 2, 1, 2, 3]
    assert scene.told_of("forwarded") == [1]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (Released(), "the message was answered with released"),
        (Modified(), "the message was answered with modified"),
        (INTERNAL, "amqp:internal-error"),
    ],
)
@driven
async def test_the_reason_of_a_hold_is_what_was_answered(state: object, reason: str) -> None:
    scene = Scene()
    scene.post()
    await turns()
    scene.link.answer(state)  # type: ignore[arg-type]
    (held,) = scene.said(DestinationHeld)
    assert held.reason.strip(": ") == reason
    assert scene.host[:1] == [("out of reach", 0.0)]
    assert scene.orders.is_in_doubt


@driven
async def test_messages_on_a_link_that_was_lost_are_held_with_its_reason() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    scene.link.detach(Condition("amqp:link:detach-forced", "moved"))
    assert scene.told_of("held") == [1, 2]
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "the link was lost: amqp:link:detach-forced: moved"
    await asyncio.sleep(0.5)
    await turns()
    assert (len(scene.links), scene.link.all_sent) == (2, [1])


@driven
async def test_a_busy_entity_is_in_reach() -> None:
    scene = Scene()
    scene.orders.is_in_doubt = True
    scene.post()
    await turns()
    scene.link.answer(BUSY)
    assert scene.host == [("answered", 0.0)]
    assert not scene.orders.is_in_doubt


@driven
async def test_a_probe_that_fails_waits_for_longer() -> None:
    scene = Scene()
    scene.post()
    await turns()
    for span in (0.5, 1.0, 2.0):
        scene.link.answer(BUSY)
        await asyncio.sleep(span - 0.01)
        assert scene.link.sent == []
        await asyncio.sleep(0.02)
        assert len(scene.link.sent) == 1


@driven
async def test_when_all_that_waited_was_withdrawn_the_next_message_goes_at_once() -> None:
    scene = Scene()
    (first,) = scene.post()
    await turns()
    scene.link.answer(BUSY)
    scene.orders.withdraw(first)
    scene.orders.withdraw(first)  # it is gone already
    await asyncio.sleep(0.6)
    assert scene.orders.state is OPEN
    scene.post([2])
    assert scene.link.all_sent == [1, 2]


# --- no progress


@driven
async def test_a_destination_without_an_answer_stalls_and_is_given_up_in_the_end() -> None:
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
async def test_a_peer_that_does_not_detach_a_link_either_is_unresponsive() -> None:
    scene = Scene()
    scene.post()
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
async def test_messages_without_credit_wait_here_and_go_as_credit_comes() -> None:
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
async def test_while_a_destination_stands_still_its_messages_go_one_then_two_then_four_at_a_time() -> None:
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
async def test_slow_progress_is_progress() -> None:
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


# --- messages that are skipped


@driven
async def test_in_place_of_a_probe_whose_lock_is_in_doubt_the_next_message_probes() -> None:
    scene = Scene(opens=[ConnectionLost("no route")])
    scene.post([1], lock_ends=0.2)
    scene.post([2, 3])
    await asyncio.sleep(0.6)
    assert scene.told_of("doubtful") == [1]
    assert scene.link.all_sent == [2]
    assert scene.orders.state is PROBING


@driven
async def test_in_place_of_a_metered_message_that_is_skipped_the_next_goes() -> None:
    scene = Scene(opens=[ConnectionLost("no route")])
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


@driven
async def test_a_message_goes_until_its_lock_may_have_ended() -> None:
    scene = Scene()
    kept = scene.message(1, lock_ends=10.0)
    assert kept.may_go(9.999)
    assert not kept.may_go(10.0)
    assert scene.told == [("doubtful", 1)]
    released = scene.message(2, is_released=True)
    assert not released.may_go(0.0)
    assert scene.told_of("doubtful") == [1]  # it is out of its origin's hands


@driven
async def test_a_machine_that_slept_has_each_lock_renewed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene()
    message = scene.message(1)
    monkeypatch.setattr("sbpair.syphon.in_flight.time_suspended", lambda: 0.5)
    assert message.may_go(1.0)
    monkeypatch.setattr("sbpair.syphon.in_flight.time_suspended", lambda: 1.1)
    assert not message.may_go(1.0)
    message.is_released = False
    assert message.may_go(1.0)
    assert scene.told_of("doubtful") == [1]


@driven
async def test_the_time_to_live_is_computed_again_half_a_second_later() -> None:
    scene = Scene()
    message = scene.message(1)
    message.restored_at = 1.0
    message.restore_again = lambda: Forward("orders", b"again", None)
    assert message.may_go(1.499)
    assert message.payload == PAYLOAD
    assert message.may_go(1.5)
    assert (message.payload, message.restored_at) == (b"again", 1.5)


# --- giving up the link, and the end


@driven
async def test_a_link_that_is_released_is_opened_again_for_the_next_message() -> None:
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
async def test_a_link_without_progress_that_is_released_is_waited_for() -> None:
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
async def test_after_its_end_a_destination_does_nothing(when: str) -> None:
    opening: asyncio.Future[PlayedLink] = asyncio.get_running_loop().create_future()
    scene = Scene(
        opens={
            "opening": [opening],
            "waiting": [ConnectionLost("no route")],
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
async def test_a_refusal_after_the_end_holds_and_schedules_nothing() -> None:
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
async def test_what_waits_and_what_comes_goes_by_the_detour_but_for_what_stays() -> None:
    scene = Scene(opens=[ConnectionLost("no route")] * 3)
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
async def test_in_a_detour_a_link_that_was_lost_is_opened_for_the_next_probe() -> None:
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
async def test_what_fails_while_a_diverted_destination_waits_is_diverted_too() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    gone = detour(scene)
    scene.link.answer(INTERNAL)
    scene.link.answer(INTERNAL)
    assert gone == [1, 2]
    assert len(scene.said(DestinationHeld)) == 1


@driven
async def test_a_link_without_progress_whose_messages_are_diverted_is_given_up() -> None:
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
async def test_a_stalled_destination_with_a_message_in_flight_keeps_its_link_when_it_is_diverted() -> None:
    scene = Scene()
    scene.post([1])
    await asyncio.sleep(1.0)
    assert scene.orders.state is METERED
    assert detour(scene) == []
    assert scene.link.let_go_at is None


def test_a_message_is_itself_and_equal_to_no_other() -> None:
    fields = dict.fromkeys(("origin", "destination"))
    one, other = (
        InFlightMessage(delivery_id=1, path="a", payload=b"", posted_at=0.0, lock_ends=0.0, lock_span=0.0,
                        tag=b"", **fields)  # type: ignore[arg-type]
        for _ in range(2)
    )  # fmt: skip
    assert one != other
    assert len({one, other}) == 2
