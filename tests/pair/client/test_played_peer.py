"""A connection with a played peer: the frames of each call, and the result of each answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Rejected, Released
from sbpair.pair.client.errors import condition_text
from tests.pair.client.played import Played, outcomes, turns
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("R-66")


# --- sending


async def test_each_message_gets_its_outcome_in_any_order_of_answers(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    sends = [asyncio.ensure_future(sender.send(b"%d" % number, 5)) for number in range(3)]
    await turns()
    assert [event.payload for event in played.peer.received] == [b"0", b"1", b"2"]
    assert {event.message_format for event in played.peer.received} == {5}
    assert len({event.tag for event in played.peer.received}) == 3
    assert sender.in_flight == len(sender.unanswered_messages()) == 3
    played.peer.received.reverse()
    refused = Rejected(Condition("a:b", "c"))
    before = sender.progress
    outcomes(played, ACCEPTED, refused, Released())
    assert await asyncio.gather(*sends) == [Released(), refused, ACCEPTED]
    assert sender.progress > before
    assert sender.in_flight == 0


async def test_messages_wait_for_credit_in_order_and_can_be_withdrawn(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    link = played.peer.links["to orders"]
    assert isinstance(link, ReceiverLink)
    link.flow(1)
    played.peer.speak()
    await turns()
    moves: list[int] = []
    sender.on_progress = lambda: moves.append(sender.credit)
    sends = [asyncio.ensure_future(sender.send(b"%d" % number)) for number in range(4)]
    await turns()
    assert [event.payload for event in played.peer.received] == [b"0"]
    assert (sender.in_flight, sender.credit) == (4, -3)
    link.flow(1)
    played.peer.speak()
    await turns()
    assert [event.payload for event in played.peer.received] == [b"0", b"1"]
    assert moves
    assert [message.payload for message in sender.take_waiting()] == [b"2", b"3"]
    assert sender.take_waiting() == []
    for task in sends:
        task.cancel()


async def test_a_send_cancelled_while_it_waits_is_never_written(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    played.connection.pause_writing()
    first, second = (asyncio.ensure_future(sender.send(each)) for each in (b"1", b"2"))
    await turns()
    first.cancel()
    await turns()
    played.connection.resume_writing()
    await turns()
    assert [event.payload for event in played.peer.received] == [b"2"]
    second.cancel()


# --- receiving


async def a_receiver(played: Played, **callbacks: Callable) -> tuple:  # type: ignore[type-arg]
    receiver = await played.connection.open_receiver("orders", played.received.append, **callbacks)
    receiver.flow(10)
    await turns()
    return receiver, played.peer.links["from orders"]


async def test_an_unanswered_drain_is_reported(played: Played) -> None:
    receiver, link = await a_receiver(played)
    receiver.flow(3)
    assert not await receiver.withdraw(within=0.0)
    await turns()
    assert link.drain
    link.drained()
    played.peer.speak()
    assert await receiver.withdraw(within=PATIENCE)


# --- descriptions


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (None, "the peer gave no reason"),
        (Condition("a:b"), "a:b"),
        (Condition("a:b", ""), "a:b"),
        (Condition("a:b", "two\nlines\x07"), "a:b: two lines "),
        (Condition("a:b", "x" * 2000), "a:b: " + "x" * 995),
    ],
    ids=["none", "symbol", "empty", "lines", "long"],
)
def test_a_condition_is_one_line_of_bounded_length(condition: Condition | None, text: str) -> None:
    assert condition_text(condition) == text
