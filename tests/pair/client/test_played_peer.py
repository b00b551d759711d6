"""A connection with a played peer: the frames of each call, and the result of each answer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from sbpair.pair.amqp.events import (
    DispositionReceived,
)
from sbpair.pair.amqp.link import ReceiverLink
from sbpair.pair.amqp.message import ValueBody
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, Rejected, Released
from sbpair.pair.amqp.types import Timestamp
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError, condition_text
from sbpair.pair.client.link import runs
from tests.pair.client.played import Played, outcomes, turns
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("R-66")

# --- opening links


async def test_a_path_is_authorized_once_and_then_attached(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    await played.connection.open_sender("orders")
    ((node, request),) = played.peer.requests
    assert node == "$cbs"
    said_of_it = request.application_properties
    audience = "sb://contoso.example:5671/orders"
    assert (said_of_it["operation"], said_of_it["name"]) == ("put-token", audience)
    assert said_of_it["type"] == "servicebus.windows.net:sastoken"
    assert isinstance(said_of_it["expiration"], Timestamp)
    assert abs(said_of_it["expiration"] / 1000 - time.time()) < 86_400
    assert isinstance(request.body, ValueBody)
    assert str(request.body.value).startswith("SharedAccessSignature ")
    assert f"{int(said_of_it['expiration']) // 1000}" in str(request.body.value)
    attach = played.peer.links["to orders"].remote_attach
    assert attach is not None
    assert (attach.snd_settle_mode, attach.rcv_settle_mode) == (0, 1)
    assert sender.is_open
    assert sender.path == "orders"
    assert played.connection.claims == 1
    assert played.peer.high == 4 * 1024 * 1024


async def test_an_entity_that_is_sent_to_via_another_is_named_in_the_attach(played: Played) -> None:
    await played.connection.open_sender("orders", via="inbox")
    names = [request.application_properties["name"] for _, request in played.peer.requests]
    assert [str(name).rsplit("/", 1)[1] for name in names] == ["orders", "inbox"]
    attach = played.peer.links["to inbox"].remote_attach
    assert attach is not None
    assert attach.properties == {"com.microsoft:transfer-destination-address": "orders"}


async def test_a_receiver_has_a_session_of_its_own_that_ends_with_it(played: Played) -> None:
    receiver = await played.connection.open_receiver("orders", played.received.append)
    assert receiver.link.session is not played.connection.session
    assert receiver.credit == 0
    before = len(played.peer.engine.sessions)
    await receiver.close()
    await turns()
    assert len(played.peer.engine.sessions) == before - 1
    assert not receiver.is_open


async def test_a_link_that_is_refused_names_path_and_condition_and_the_token_is_put_anew(
    played: Played,
) -> None:
    played.peer.refuses["orders"] = Condition("amqp:not-found", "no such queue")
    for attempt in (1, 2):
        with pytest.raises(
            LinkRefusedError, match=r"^no link to orders: amqp:not-found: no such queue$"
        ) as refused:
            await played.connection.open_sender("orders")
        assert refused.value.condition == played.peer.refuses["orders"]
        assert len(played.peer.requests) == attempt


async def test_an_attach_without_an_answer_is_given_up_in_the_end(played: Played) -> None:
    played.peer.silent.add("orders")
    opening = asyncio.ensure_future(played.connection.open_sender("orders"))
    await turns()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await turns()
    assert [event.link.name for event in played.peer.detached] == [
        event.link.name for event in played.peer.detached if event.link.name.startswith("sbpair-sender-")
    ]
    assert played.peer.detached


async def test_a_connection_that_is_lost_is_lost_to_all_that_use_it(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    receiver = await played.connection.open_receiver("orders", played.received.append)
    receiver.flow(5)
    sending = asyncio.ensure_future(sender.send(b"x"))
    await turns()
    settling = asyncio.ensure_future(receiver.settle_and_wait(7, ACCEPTED))
    played.peer.silent.add("other")
    opening = asyncio.ensure_future(played.connection.open_sender("other"))
    draining = asyncio.ensure_future(receiver.drained())
    await turns()
    played.peer.lose()
    assert await sending is None
    assert await settling is None
    await draining
    with pytest.raises(ConnectionLostError, match="no link to other"):
        await opening
    assert played.connection.closed.done()
    assert not sender.is_open
    assert await sender.send(b"late") is None
    assert await receiver.settle_and_wait(8, ACCEPTED) is None
    with pytest.raises(ConnectionLostError, match="a session cannot be opened: the connection has ended"):
        played.connection.begin()


async def test_a_session_that_the_peer_ends_takes_its_links_and_the_next_link_begins_another(
    played: Played,
) -> None:
    sender = await played.connection.open_sender("orders")
    receiver = await played.connection.open_receiver("orders", played.received.append)
    old = played.connection.session
    played.peer.links["to orders"].session.end(Condition("amqp:internal-error", "moved"))
    played.peer.speak()
    await turns()
    assert sender.detached.result() == Condition("amqp:internal-error", "moved")
    assert receiver.is_open
    assert (await played.connection.open_sender("orders")).is_open
    assert played.connection.session is not old


# --- sending


async def test_each_message_has_its_outcome_whatever_the_order_of_the_answers(played: Played) -> None:
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


async def test_messages_wait_for_credit_in_order_and_can_be_taken_back(played: Played) -> None:
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


async def test_a_send_that_is_cancelled_before_it_goes_never_goes(played: Played) -> None:
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


async def test_while_the_socket_is_full_nothing_is_written(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    played.connection.pause_writing()
    sending = asyncio.ensure_future(sender.send(b"x"))
    await turns()
    assert played.peer.received == []
    played.connection.resume_writing()
    await turns()
    assert len(played.peer.received) == 1
    outcomes(played, ACCEPTED)
    assert await sending == ACCEPTED


async def test_a_drain_of_the_peer_leaves_no_credit(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    link = played.peer.links["to orders"]
    assert isinstance(link, ReceiverLink)
    link.flow(10, drain=True)
    played.peer.speak()
    await turns()
    assert link.credit == 0
    assert sender.credit == 0


# --- receiving


async def a_receiver(played: Played, **callbacks: Callable) -> tuple:  # type: ignore[type-arg]
    receiver = await played.connection.open_receiver("orders", played.received.append, **callbacks)
    receiver.flow(10)
    await turns()
    return receiver, played.peer.links["from orders"]


async def test_messages_are_passed_on_and_settled_in_runs(played: Played) -> None:
    told: list[DispositionReceived] = []
    receiver, _ = await a_receiver(played, on_disposition=told.append)
    for number in range(4):
        played.peer.send("orders", b"%d" % number)
    played.peer.speak()
    await turns()
    assert [event.payload for event in played.received] == [b"0", b"1", b"2", b"3"]
    first = played.received[0].delivery_id
    answers = await receiver.settled_run(first, first + 1, ACCEPTED)
    assert answers == [ACCEPTED, ACCEPTED]
    assert await receiver.settle_and_wait(first + 2, Released()) == Released()
    assert [(each.first, each.last) for each in told] == [(first, first + 1), (first + 2, first + 2)]
    receiver.give_back(first + 3, first + 3, Released())
    await turns()
    final = played.peer.dispositions[-1]
    assert (final.first, final.settled, final.state) == (first + 3, True, Released())


async def test_a_drain_ends_when_no_credit_is_left(played: Played) -> None:
    drained: list[bool] = []
    receiver, link = await a_receiver(played, on_drained=lambda: drained.append(True))
    receiver.flow(3, drain=True)
    waiting = asyncio.ensure_future(receiver.drained())
    await turns()
    assert not waiting.done()
    played.peer.send("orders", b"last")
    link.drained()
    played.peer.speak()
    await waiting
    assert receiver.credit == 0
    assert drained
    await receiver.drained()  # nothing to wait for


async def test_what_waits_is_received_with_a_drain_and_a_lost_link_ends_it(played: Played) -> None:
    receiver, link = await a_receiver(played)
    receiving = asyncio.ensure_future(receiver.drain(3))
    await turns()
    assert (link.credit, link.drain) == (3, True)
    link.drained()
    played.peer.speak()
    await receiving
    again = asyncio.ensure_future(receiver.drain(3))
    await turns()
    link.detach(Condition("a:b", "gone"))
    played.peer.speak()
    with pytest.raises(ConnectionLostError, match=r"^the link to orders was detached: a:b: gone$"):
        await again


async def test_credit_that_a_peer_does_not_clear_in_time_is_told(played: Played) -> None:
    receiver, link = await a_receiver(played)
    receiver.flow(3)
    assert not await receiver.withdraw(within=0.0)
    await turns()
    assert link.drain
    link.drained()
    played.peer.speak()
    assert await receiver.withdraw(within=PATIENCE)


async def test_what_is_done_on_a_receiver_that_is_gone_has_no_effect(played: Played) -> None:
    receiver, link = await a_receiver(played)
    played.peer.dispositions.clear()
    link.detach(Condition("a:b", "gone"))
    played.peer.speak()
    await turns()
    assert receiver.detached.result() == Condition("a:b", "gone")
    assert receiver.credit == 0
    receiver.flow(5)
    receiver.settle(0, 0, ACCEPTED)
    receiver.give_back(0, 0, ACCEPTED)
    await receiver.close()
    await turns()
    assert played.peer.dispositions == []


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], []),
        ([5], [(5, 5)]),
        ([3, 1, 2], [(1, 3)]),
        ([0, 1, 3, 4, 9], [(0, 1), (3, 4), (9, 9)]),
        ([2**32 - 1, 0], [(0, 0), (2**32 - 1, 2**32 - 1)]),
    ],
)
def test_delivery_ids_are_settled_in_runs(ids: list[int], expected: list[tuple[int, int]]) -> None:
    assert list(runs(ids)) == expected


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
