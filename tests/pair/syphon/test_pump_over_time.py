"""The pump of one backlog over time, on a driven clock: credit, locks, transactions and the end."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.performatives import (
    Accepted,
    Condition,
    Modified,
    Released,
    TransactionalState,
)
from sbpair.pair.syphon.events import MessagesForwarded
from sbpair.pair.syphon.forward.credit import FIRST_LIMIT, RECEIVE_SPAN
from sbpair.pair.syphon.forward.in_flight import InFlightMessage
from sbpair.pair.syphon.forward.pump import LINK_USED_EVERY
from tests.pair.syphon.played_backlog import Pumped, Renewals, parked, renewals
from tests.pair.syphon.scripted import BUSY, PlayedLink, driven, now, turns
from tests.trials.simulation.virtual_loop import VirtualLoop

__all__ = ["renewals"]

pytestmark = pytest.mark.spec("R-66", "G-20")


# --- credit over time


@driven
async def test_a_drain_ends_one_long_poll_and_the_next_begins() -> None:
    pumped = Pumped()
    await turns()
    await asyncio.sleep(LINK_USED_EVERY - 1.0)
    assert pumped.receiver.flows == [(FIRST_LIMIT, False)]
    await asyncio.sleep(2.0)
    assert pumped.receiver.flows[1:] == [(FIRST_LIMIT, False)]  # so that the link is not idle
    assert pumped.counters.receives == 1
    await asyncio.sleep(RECEIVE_SPAN - now() - 0.5)
    before = len(pumped.receiver.flows)
    assert before == 1 + int(RECEIVE_SPAN // LINK_USED_EVERY)
    await asyncio.sleep(1.0)
    assert pumped.receiver.flows[before:] == [(FIRST_LIMIT, True)]
    await asyncio.sleep(0.1)
    pumped.pump._settle_soon()
    await turns()
    assert pumped.receiver.flows[before + 1 :] == []  # until the peer has answered
    pumped.receiver.drain()
    assert pumped.receiver.flows[before + 1 :] == [(FIRST_LIMIT, False)]
    assert pumped.counters.receives == 2


@driven
async def test_a_message_restarts_the_long_poll(renewals: Renewals) -> None:
    pumped = Pumped()
    await turns()
    await asyncio.sleep(500.0)
    await pumped.deliver(parked(1))
    await pumped.accept(1)
    pumped.receiver.confirm(1, 1)
    await asyncio.sleep(RECEIVE_SPAN - 1.0)
    assert not any(drain for _, drain in pumped.receiver.flows)
    await asyncio.sleep(2.0)
    assert pumped.receiver.flows[-1][1]


@driven
async def test_a_backlog_that_does_not_answer_settlements_is_unresponsive(renewals: Renewals) -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    await pumped.accept(1)
    await asyncio.sleep(30.5)
    assert pumped.unresponsive == []
    await asyncio.sleep(1.0)
    assert pumped.unresponsive == ["the backlog b0 does not answer settlements"]


@driven
async def test_a_drain_takes_available_messages_and_ends_when_none_come() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    pump = pumped.pump
    pump.is_empty.set()
    pump.drain()
    assert not pump.is_empty.is_set()
    assert not any(drain for _, drain in pumped.receiver.flows)  # something is unsettled
    await pumped.accept(1)
    pumped.receiver.confirm(1, 1)
    await turns()
    assert pumped.receiver.flows[-1][1]
    flows = len(pumped.receiver.flows)
    pumped.receiver.deliver(parked(2))
    pumped.receiver.drain()
    await turns()
    assert not pump.is_empty.is_set()  # something came
    await pumped.accept(1)
    pumped.receiver.confirm(2, 2)
    await turns()
    assert pumped.receiver.flows[flows:] != []
    assert pumped.receiver.flows[-1][1]
    pumped.receiver.drain()
    assert pump.is_empty.is_set()
    after = len(pumped.receiver.flows)
    await asyncio.sleep(1000.0)
    assert len(pumped.receiver.flows) == after


@driven
async def test_a_message_whose_completion_was_lost_prolongs_a_drain() -> None:
    pumped = Pumped()
    await turns()
    pumped.pump.drain()
    pumped.receiver.deliver(parked(1))
    await turns()
    await pumped.accept(1)
    pumped.receiver.confirm(1, 1, Modified())
    pumped.receiver.drain()
    await turns()
    assert not pumped.pump.is_empty.is_set()
    pumped.receiver.drain()
    assert pumped.pump.is_empty.is_set()


# --- locks


@driven
async def test_locks_are_renewed_when_a_third_of_their_duration_is_left(renewals: Renewals) -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1), parked(2))
    await asyncio.sleep(39.5)
    assert renewals.asked == []
    await asyncio.sleep(2.0)
    assert renewals.asked == [(41.0, [b"lock-1", b"lock-2"])]
    assert {each.lock_ends for each in pumped.link.sent} == {101.0}
    await asyncio.sleep(39.0)
    assert len(renewals.asked) == 1
    await asyncio.sleep(3.0)
    assert len(renewals.asked) == 2


@driven
async def test_a_delivery_with_a_doubtful_lock_is_renewed_before_it_is_posted(
    renewals: Renewals,
) -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1, lock=60.0))
    pumped.attached_a_minute_ago()
    await pumped.deliver(parked(2, lock=20.0), parked(3, lock=25.0))
    assert renewals.asked == [(0.0, [b"lock-2", b"lock-3"])]
    assert pumped.link.all_sent == [1, 2, 3]
    assert {each.lock_ends for each in pumped.link.sent} == {60.0}
    renewals.gone.add(b"lock-4")
    await pumped.deliver(parked(4, lock=20.0))
    assert pumped.link.all_sent == [1, 2, 3]
    assert pumped.receiver.given_back == [(4, 4, Released())]
    assert pumped.counted() == {"received": 4, "released": 1, "pending": 3}


@driven
async def test_messages_whose_locks_cannot_be_renewed_are_released(renewals: Renewals) -> None:
    pumped = Pumped()
    renewals.fails = True
    await pumped.deliver(parked(1, lock=60.0))
    pumped.attached_a_minute_ago()
    await pumped.deliver(parked(2, lock=20.0))
    assert pumped.link.all_sent == [1]
    assert pumped.receiver.given_back == [(2, 2, Released())]


@driven
async def test_a_message_whose_lock_expired_while_it_waited_is_renewed_and_sent(
    renewals: Renewals,
) -> None:
    pumped = Pumped(link=PlayedLink(credit=0))
    await pumped.deliver(parked(1))
    renewals.fails = True
    await asyncio.sleep(59.9)
    assert len(renewals.asked) == 19  # once a second
    renewals.fails = False
    pumped.pump._messages[1].lock_ends = now()
    pumped.link.grant(1)
    await turns()
    assert pumped.link.all_sent == [1]
    assert (pumped.link.sent[0].lock_ends, pumped.link.sent[0].posted_at) == (119.9, 59.9)
    assert pumped.counted() == {"received": 1, "pending": 1}


@pytest.mark.parametrize("later", range(6))
@driven
async def test_an_answer_that_arrives_as_the_link_ends_renews_nothing(renewals: Renewals, later: int) -> None:
    """``later``: turns of the event loop between the end of the link and the answer."""
    pumped = Pumped()
    renewals.answered.clear()
    renewals.gone.add(b"lock-2")
    await pumped.deliver(parked(1))
    pumped.attached_a_minute_ago()
    await pumped.deliver(parked(2, lock=20.0), parked(3, lock=20.0))
    renewing = pumped.pump._locks._keeper._renewing
    assert renewing is not None
    pumped.receiver.detached.set_result(None)
    for _ in range(later):
        await asyncio.sleep(0)
    renewals.answered.set()
    await asyncio.wait([pumped.running, renewing])
    assert renewing.cancelled() or renewing.exception() is None
    assert pumped.link.all_sent == [1]
    assert pumped.receiver.given_back == []


# --- transactions


def landing(message: InFlightMessage) -> InFlightMessage:
    message.is_landing = True
    return message


@pytest.mark.spec("C-2")
@driven
async def test_a_message_landed_in_a_transaction_needs_no_settlement() -> None:
    pumped = Pumped(report_forwards=True)
    await pumped.deliver(*map(parked, range(1, 5)))
    one, two, three, _ = sent = list(map(landing, pumped.link.sent))
    for message in (one, two):
        pumped.pump.reported(message)
    assert pumped.scene.said(MessagesForwarded) == []
    assert await pumped.pump.complete_in([one, two], b"txn")
    assert pumped.receiver.in_transaction == [(1, 2, TransactionalState(b"txn", Accepted()))]
    (event,) = pumped.scene.said(MessagesForwarded)
    assert (event.message_ids, event.side, event.path) == (("m1", "m2"), "secondary", "orders")
    for message in (one, two):
        message.is_settled = True
        pumped.pump.forwarded(message)
    assert pumped.counted() == {"received": 4, "forwarded": 2, "landed": 2, "completed": 2, "pending": 2}
    assert pumped.budget.used == 2 * one.size
    assert len(pumped.scene.said(MessagesForwarded)) == 1
    pumped.pump.forwarded(one)  # its link is closed and it was counted
    assert pumped.counted()["pending"] == 2
    assert await pumped.pump.complete_in([three], b"two")
    pumped.receiver.loses_locks = True
    assert not await pumped.pump.complete_in(sent[2:], b"three")
    assert not await pumped.pump.complete_in([one, three], b"four")  # one delivery is no longer known
    assert len(pumped.receiver.in_transaction) == 3


@pytest.mark.spec("C-2")
@driven
async def test_messages_whose_locks_were_released_are_redelivered() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1), parked(2))
    messages = list(pumped.link.sent)
    pumped.pump.lock_given_up(messages)
    pumped.pump.lock_given_up(messages)
    assert [each.is_released for each in messages] == [True, True]
    assert pumped.counted() == {"received": 2, "lock_lost": 2}
    assert pumped.pump.is_idle.is_set()
    assert pumped.budget.used == 0


# --- the end


@driven
async def test_a_stop_finishes_messages_in_flight_and_releases_the_rest() -> None:
    pumped = Pumped(window=2)
    await pumped.deliver(parked(1), parked(2))
    pumped.link.answer(BUSY)
    await turns()
    stopping = asyncio.ensure_future(pumped.pump.stop(10.0))
    await turns()
    assert pumped.receiver.flows[-1][1]
    assert pumped.receiver.given_back == [(1, 1, Released())]
    assert pumped.scene.orders.waiting == 0
    pumped.receiver.deliver(parked(3))
    assert pumped.receiver.given_back[1:] == [(3, 3, Released())]
    assert not stopping.done()
    pumped.link.answer()
    await turns()
    pumped.receiver.confirm(2, 2)
    await stopping
    assert pumped.receiver.closed_at == 0.0
    assert pumped.counted() == {"received": 3, "forwarded": 1, "completed": 1, "released": 2}


@driven
async def test_a_stop_releases_messages_not_answered_in_time() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1), parked(2))
    await pumped.pump.stop(7.0)
    assert pumped.receiver.closed_at == 7.0
    assert pumped.receiver.given_back == [(1, 2, Released())]
    assert pumped.counted() == {"received": 2, "released": 2}
    pumped.link.answer()
    assert pumped.counted() == {"received": 2, "forwarded": 1, "released": 2, "lock_lost": 1}


@pytest.mark.parametrize("earlier", range(-1, 6))
@driven
async def test_a_stop_that_times_out_as_the_link_is_lost_releases_nothing(earlier: int) -> None:
    """``earlier``: turns of the loop from the end of the link to that of the time; -1: after it, in one turn."""
    pumped = Pumped()
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    await pumped.deliver(parked(1), parked(2))
    stopping = asyncio.ensure_future(pumped.pump.stop(5.0))
    await asyncio.sleep(4.999)
    if earlier < 0:
        loop.call_at(5.0005, pumped.receiver.detached.set_result, None)
    else:
        pumped.receiver.detached.set_result(None)
    for _ in range(earlier):
        await asyncio.sleep(0)
    loop.seconds += 0.002
    await stopping
    await pumped.running
    assert pumped.counted() == {"received": 2}
    assert pumped.pump.unsettled == 0


@driven
async def test_a_message_held_after_a_stop_is_released_at_once() -> None:
    pumped = Pumped()
    await pumped.deliver(parked(1))
    stopping = asyncio.ensure_future(pumped.pump.stop(10.0))
    await turns()
    pumped.link.answer(BUSY)
    await stopping
    assert pumped.receiver.given_back == [(1, 1, Released())]


@driven
async def test_a_stop_without_a_link_ends_at_once() -> None:
    pumped = Pumped()
    await turns()
    pumped.receiver.detached.set_result(Condition("amqp:link:detach-forced"))
    assert await pumped.running == Condition("amqp:link:detach-forced")
    await pumped.pump.stop(10.0)
    assert (now(), pumped.receiver.closed_at) == (0.0, None)


@driven
async def test_a_pump_that_loses_its_link_forgets_its_messages() -> None:
    pumped = Pumped(window=2)
    await pumped.deliver(parked(1), parked(2))
    pumped.link.answer(BUSY)
    pumped.link.answer()
    await turns()
    await pumped.deliver(parked(3, path="forbidden"))
    assert (pumped.pump.unsettled, pumped.pump.is_open) == (3, True)
    first = pumped.receiver
    first.detached.set_result(None)
    assert await pumped.running is None
    assert (pumped.pump.unsettled, pumped.pump.is_open, pumped.pump.is_waiting) == (0, False, False)
    assert pumped.counted() == {"received": 3, "forwarded": 1}
    assert (pumped.budget.used, pumped.budget.held, pumped.scene.orders.waiting) == (0, 0, 0)
    assert pumped.pump.is_idle.is_set()
    first.confirm(2, 3)
    assert pumped.counted() == {"received": 3, "forwarded": 1}
    pumped.running = pumped.run()
    await pumped.deliver(parked(4))
    await asyncio.sleep(0.6)
    await pumped.accept(1)
    assert pumped.receiver.settled == [(1, 1, Accepted())]
    assert pumped.attached == ["b0", "b0"]


@driven
async def test_a_missing_backlog_waits_until_it_is_attached() -> None:
    pumped = Pumped()
    pumped.pump.is_missing = True
    assert pumped.pump.is_waiting
    await turns()
    assert not pumped.pump.is_missing
