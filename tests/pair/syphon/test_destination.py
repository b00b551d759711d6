"""One destination on a driven clock: opening its link, sending, and holding messages."""

from __future__ import annotations

import asyncio
import errno

import pytest

from sbpair.pair.amqp.performatives import Condition, Modified, Rejected, Released
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from sbpair.pair.syphon.events import DestinationHeld, DestinationResumed
from sbpair.pair.syphon.forward.delivery import (
    CLOSED,
    EMIT_HELD_AFTER,
    METERED,
    OPEN,
    OPENING,
    PROBING,
    STALLED_AFTER,
    WAITING,
)
from tests.pair.syphon.scripted import (
    BUSY,
    FINAL,
    INTERNAL,
    LONGEST_RETRY,
    PlayedLink,
    Scene,
    driven,
    now,
    turns,
)

pytestmark = pytest.mark.spec("R-66", "R-22")


# --- opening, and sending as messages come


@driven
async def test_messages_that_arrive_while_the_link_opens_go_in_order_on_one_link() -> None:
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
async def test_an_accepted_message_is_forwarded_and_a_final_refusal_concerns_only_the_message() -> None:
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
async def test_a_message_for_a_lost_link_opens_another() -> None:
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


@pytest.mark.parametrize("is_in_doubt", [False, True])
@driven
async def test_a_link_lost_before_its_use_is_reopened(is_in_doubt: bool) -> None:
    lost = PlayedLink()
    lost.detach(Condition("amqp:link:detach-forced", "moved"))
    scene = Scene(opens=[lost])
    scene.orders.is_in_doubt = is_in_doubt
    scene.post([1, 2])
    await turns()
    assert (scene.orders.state, scene.orders.waiting) == (WAITING, 2)
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "the link was lost: amqp:link:detach-forced: moved"
    await asyncio.sleep(0.6)
    scene.link.answer()
    await turns()
    assert scene.link.all_sent == [1, 2]
    assert lost.all_sent == []


@driven
async def test_a_slowly_opening_link_holds_its_messages_until_it_is_open() -> None:
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
    scene.post([3])  # at once, because it is known to be slow
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
async def test_a_destination_in_doubt_is_first_sent_one_message() -> None:
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
async def test_a_lost_connection_is_retried_ever_more_rarely() -> None:
    scene = Scene(opens=[ConnectionLostError("no route") for _ in range(7)])
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


@pytest.mark.spec("C-1")
@driven
async def test_only_a_waiting_destination_can_be_tried_at_once() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")] * 4)
    scene.orders.try_now()
    assert scene.opened_at == []
    scene.post([1, 2])
    await asyncio.sleep(4.0)
    assert scene.opened_at == [0.0, 0.5, 1.5, 3.5]
    scene.orders.try_now()
    await turns()
    assert (scene.opened_at[-1], scene.link.all_sent) == (4.0, [1])
    scene.orders.try_now()
    await asyncio.sleep(60.0)
    assert len(scene.opened_at) == 5


@pytest.mark.spec("C-1")
@driven
async def test_a_destination_whose_detour_ends_is_probed_by_the_next_message() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")])
    scene.post([1])
    await turns()
    gone: list[int] = []
    scene.orders.divert(lambda message: gone.append(message.delivery_id))
    scene.orders.try_now()
    assert (gone, scene.orders.state) == ([1], CLOSED)
    scene.post([2, 3])
    await turns()
    assert scene.link.all_sent == [2]
    scene.link.answer()
    await turns()
    assert (scene.link.all_sent, gone) == ([2, 3], [1])


@pytest.mark.spec("R-108")
@driven
async def test_a_lack_of_descriptors_holds_a_destination_without_blaming_it() -> None:
    short = ConnectionLostError("no connection")
    short.__cause__ = OSError(errno.EMFILE, "Too many open files")
    scene = Scene(opens=[short] * 3)
    scene.post([1])
    await asyncio.sleep(0.1)
    assert (scene.orders.state, scene.orders.is_in_doubt, scene.host) == (WAITING, False, [])
    await asyncio.sleep(10.0)
    assert scene.links[0].all_sent == [1]


@driven
async def test_after_a_failure_one_message_probes_and_each_success_doubles_the_number() -> None:
    scene = Scene(opens=[ConnectionLostError("no route")])
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
async def test_a_success_resets_the_back_off() -> None:
    scene = Scene(opens=[ConnectionLostError("a"), ConnectionLostError("b")])
    scene.post([1])
    await asyncio.sleep(2.0)
    scene.link.answer()
    scene.post([2])
    scene.link.detach()
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
async def test_a_temporarily_refused_link_is_waited_for(
    condition: Condition | None, host: list[object]
) -> None:
    error = LinkRefusedError("no link", condition)
    scene = Scene(opens=[error])
    await asyncio.sleep(3.0)
    scene.post([1, 2])
    await turns()
    assert scene.orders.state is WAITING
    assert scene.told_of("held") == [1, 2]
    assert scene.host == host
    assert [each.reason for each in scene.said(DestinationHeld)] == [str(error)]


@driven
async def test_a_finally_refused_link_refuses_all_waiting_messages() -> None:
    scene = Scene(opens=[LinkRefusedError("no link", FINAL)])
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
async def test_a_temporarily_refused_message_precedes_those_posted_meanwhile() -> None:
    scene = Scene()
    scene.post([1, 2])
    await turns()
    scene.link.answer(BUSY)
    assert (scene.orders.state, scene.events) == (OPEN, [])
    scene.link.answer(BUSY)  # nothing shows that any message is accepted
    assert scene.orders.state is WAITING
    (held,) = scene.said(DestinationHeld)
    assert held.reason == "com.microsoft:server-busy: too fast"
    scene.post([3])
    assert scene.told_of("held") == [1, 2, 3]
    await turns()
    assert scene.host[-1] == ("idle", 0.0)  # its link may serve others
    await asyncio.sleep(0.49)
    assert scene.link.all_sent == [1, 2]
    await asyncio.sleep(0.02)
    assert scene.link.all_sent == [1, 2, 1]
    scene.link.answer()
    await asyncio.sleep(0.1)  # evenly, after busy
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
async def test_a_hold_has_the_answer_as_its_reason(state: object, reason: str) -> None:
    scene = Scene()
    scene.post()
    await turns()
    scene.link.answer(state)  # type: ignore[arg-type]
    (held,) = scene.said(DestinationHeld)
    assert held.reason.strip(": ") == reason
    assert scene.host[:1] == [("out of reach", 0.0)]
    assert scene.orders.is_in_doubt


@driven
async def test_messages_on_a_lost_link_are_held_with_its_reason() -> None:
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
async def test_a_busy_entity_is_reachable() -> None:
    scene = Scene()
    scene.orders.is_in_doubt = True
    scene.post()
    await turns()
    scene.link.answer(BUSY)
    assert scene.host == [("answered", 0.0)]
    assert not scene.orders.is_in_doubt


@driven
async def test_a_failed_probe_lengthens_the_wait() -> None:
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
async def test_after_all_waiting_messages_were_withdrawn_the_next_is_sent_at_once() -> None:
    scene = Scene()
    (first,) = scene.post()
    await turns()
    scene.link.answer(BUSY)
    scene.orders.withdraw(first)
    scene.orders.withdraw(first)  # already withdrawn
    await asyncio.sleep(0.6)
    assert scene.orders.state is OPEN
    scene.post([2])
    assert scene.link.all_sent == [1, 2]
