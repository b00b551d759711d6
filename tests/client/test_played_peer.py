"""A connection whose peer the test plays: what is written at each call, and what each answer becomes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from sbpair.amqp.events import (
    DispositionReceived,
)
from sbpair.amqp.link import ReceiverLink
from sbpair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.amqp.performatives import ACCEPTED, Condition, DeliveryState, Rejected, Released
from sbpair.amqp.types import Array, Timestamp
from sbpair.client.claims import FIRST_RETRY, REFRESH_MARGIN, check, renewal_due
from sbpair.client.errors import ConnectionLost, LinkRefused, TokenRefused, said
from sbpair.client.link import runs
from sbpair.client.locks import renew_locks
from sbpair.client.peek import peek
from sbpair.client.request import RequestNode, refusal_of, value_of
from tests.client.played import Played, status, turns

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
            LinkRefused, match=r"^no link to orders: amqp:not-found: no such queue$"
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
    settling = asyncio.ensure_future(receiver.settled(7, ACCEPTED))
    played.peer.silent.add("other")
    opening = asyncio.ensure_future(played.connection.open_sender("other"))
    draining = asyncio.ensure_future(receiver.drained())
    await turns()
    played.peer.lose()
    assert await sending is None
    assert await settling is None
    await draining
    with pytest.raises(ConnectionLost, match="no link to other"):
        await opening
    assert played.connection.closed.done()
    assert not sender.is_open
    assert await sender.send(b"late") is None
    assert await receiver.settled(8, ACCEPTED) is None
    with pytest.raises(ConnectionLost, match="a session cannot be opened: the connection has ended"):
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


def outcomes(played: Played, *states: DeliveryState) -> None:
    """The peer answers what it received, in order."""
    for event, state in zip(played.peer.received, states, strict=True):
        event.link.dispose(event.delivery_id, event.delivery_id, state)
    played.peer.received.clear()
    played.peer.speak()


async def test_each_message_has_its_outcome_whatever_the_order_of_the_answers(played: Played) -> None:
    sender = await played.connection.open_sender("orders")
    sends = [asyncio.ensure_future(sender.send(b"%d" % number, 5)) for number in range(3)]
    await turns()
    assert [event.payload for event in played.peer.received] == [b"0", b"1", b"2"]
    assert {event.message_format for event in played.peer.received} == {5}
    assert len({event.tag for event in played.peer.received}) == 3
    assert sender.in_flight == len(sender.unanswered()) == 3
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
    first, second = (asyncio.ensure_future(sender.send(each)) for each in (b"1", b"2"))
    await asyncio.sleep(0)
    first.cancel()
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
    assert await receiver.settled(first + 2, Released()) == Released()
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


# --- requests


async def test_a_request_has_its_own_answer(played: Played) -> None:
    held: list[Message] = []
    played.peer.nodes["orders/$management"] = lambda request: held.append(request)  # type: ignore[func-returns-value]
    node = RequestNode(played.connection, "orders/$management")
    asked = [asyncio.ensure_future(node.ask({"number": number}, [number])) for number in range(2)]
    await turns()
    assert [request.application_properties for request in held] == [{"number": 0}, {"number": 1}]
    assert [request.body for request in held] == [ValueBody([0]), ValueBody([1])]
    ids = [request.properties.message_id for request in held if request.properties]
    assert len(set(ids)) == 2
    assert {request.properties.reply_to for request in held if request.properties} == {
        str(ids[0]).rsplit("-", 1)[0]
    }
    for request in reversed(held):
        played.peer.answer(
            "orders/$management", request, status(200, body=request.application_properties["number"])
        )
    played.peer.speak()
    answers = await asyncio.gather(*asked)
    assert [answer.body for answer in answers] == [ValueBody(0), ValueBody(1)]
    await node.close()
    assert len(played.peer.detached) == 2


async def test_an_answer_that_cannot_be_read_fails_all_that_wait(played: Played) -> None:
    played.peer.nodes["n"] = lambda request: None
    node = RequestNode(played.connection, "n")
    asked = [asyncio.ensure_future(node.ask({}, None)) for _ in range(2)]
    await turns()
    played.peer.send("n", b"\xff")
    played.peer.speak()
    for each in asked:
        with pytest.raises(ConnectionLost, match="an answer from n is not valid AMQP"):
            await each
    await node.close()


async def test_an_answer_to_nobody_is_left(played: Played) -> None:
    held: list[Message] = []
    played.peer.nodes["n"] = lambda request: held.append(request)  # type: ignore[func-returns-value]
    node = RequestNode(played.connection, "n")
    asked = asyncio.ensure_future(node.ask({}, None))
    await turns()
    played.peer.send("n", Message(body=DataBody((b"x",))).encode())
    played.peer.send("n", Message(properties=Properties(correlation_id="other")).encode())
    played.peer.speak()
    await turns()
    assert not asked.done()
    played.peer.answer("n", held[0], status(200))
    played.peer.speak()
    await asked
    await node.close()


@pytest.mark.parametrize("end", ["to", "from"])
async def test_a_node_whose_link_is_lost_answers_no_more(played: Played, end: str) -> None:
    played.peer.nodes["n"] = lambda request: None
    node = RequestNode(played.connection, "n")
    asked = asyncio.ensure_future(node.ask({}, None))
    await turns()
    played.peer.links[f"{end} n"].detach(Condition("a:b", "moved"))
    played.peer.speak()
    with pytest.raises(ConnectionLost, match=r"^the link to n was lost before its answer: a:b: moved$"):
        await asked
    await node.close()


async def test_an_answer_that_is_too_large_is_refused_as_such(played: Played) -> None:
    played.peer.nodes["n"] = lambda request: None
    node = RequestNode(played.connection, "n")
    asked = asyncio.ensure_future(node.ask({}, None))
    await turns()
    played.peer.links["from n"].detach(Condition("amqp:link:message-size-exceeded", "big"))
    played.peer.speak()
    with pytest.raises(
        LinkRefused, match=r"^the answer from n is too large: amqp:link:message-size-exceeded: big$"
    ):
        await asked
    await node.close()


async def test_a_node_that_does_not_take_a_request_is_a_lost_connection(played: Played) -> None:
    node = RequestNode(played.connection, "n")
    asked = asyncio.ensure_future(node.ask({}, None))
    await turns()
    outcomes(played, Released())
    with pytest.raises(ConnectionLost, match=r"^n did not accept a request$"):
        await asked
    await node.close()


async def test_a_node_that_is_abandoned_or_refused_leaves_no_link(played: Played) -> None:
    node = RequestNode(played.connection, "n")
    await turns()
    node.abandon()
    await turns()
    assert len(played.peer.detached) == 2
    played.peer.refuses["m"] = Condition("a:b", "no")
    refused = RequestNode(played.connection, "m")
    with pytest.raises(LinkRefused, match="no link to m: a:b: no"):
        await refused.ask({}, None)
    await refused.close()


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (status(200), None),
        (status(204), None),
        (status(404, "gone"), Condition("amqp:not-found", "status 404: gone")),
        (status(401, "no"), Condition("amqp:unauthorized-access", "status 401: no")),
        (status(403, "no"), Condition("amqp:unauthorized-access", "status 403: no")),
        (status(429, "slow"), Condition("com.microsoft:server-busy", "status 429: slow")),
        (
            status(503, "busy", errorCondition="x:y"),
            Condition("com.microsoft:server-busy", "status 503: busy"),
        ),
        (status(500, "bad", errorCondition="x:y"), Condition("x:y", "status 500: bad")),
        (status(500, "bad", errorCondition=5), Condition("amqp:internal-error", "status 500: bad")),
        (status("odd", "bad"), Condition("amqp:internal-error", "status odd: bad")),
        (Message(), Condition("amqp:internal-error", "status None: None")),
    ],
)
def test_why_a_node_refused_is_read_from_its_answer(answer: Message, refusal: Condition | None) -> None:
    assert refusal_of(answer) == refusal


@pytest.mark.parametrize(
    ("body", "value"),
    [(ValueBody({"a": 1}), {"a": 1}), (ValueBody([1]), {}), (DataBody((b"x",)), {}), (None, {})],
)
def test_the_value_of_an_answer_is_a_map_or_nothing(body: object, value: dict[str, int]) -> None:
    assert value_of(Message(body=body)) == value  # type: ignore[arg-type]


# --- tokens


@pytest.mark.parametrize(
    ("code", "symbol"),
    [
        (401, "amqp:unauthorized-access"),
        (403, "amqp:unauthorized-access"),
        (404, "amqp:not-found"),
        (408, "com.microsoft:timeout"),
        (503, "com.microsoft:server-busy"),
        (500, "amqp:internal-error"),
        ("odd", "amqp:internal-error"),
        (None, "amqp:internal-error"),
    ],
)
def test_a_token_that_is_refused_says_so_with_status_and_condition(code: object, symbol: str) -> None:
    with pytest.raises(TokenRefused) as refused:
        check("sb://contoso/orders", status(code, "because"))
    assert refused.value.condition == Condition(symbol, f"status {code}: because")
    assert str(refused.value) == f"no access to sb://contoso/orders: {symbol}: status {code}: because"
    for accepted in (200, 202):
        check("sb://contoso/orders", status(accepted))


@pytest.mark.parametrize(
    ("life", "due"),
    [
        (3600.0, 3600.0 - REFRESH_MARGIN),
        (4 * REFRESH_MARGIN, 3 * REFRESH_MARGIN),
        (1000.0, 750.0),
        (100.0, 75.0),
        (1.0, FIRST_RETRY),
        (-50.0, FIRST_RETRY),
    ],
)
def test_a_token_is_renewed_six_minutes_before_its_end_or_after_most_of_its_life(
    life: float, due: float
) -> None:
    assert renewal_due(5000.0 + life, 5000.0) == 5000.0 + due


async def test_a_path_whose_token_is_refused_is_asked_for_again(played: Played) -> None:
    answers = [status(401, "no"), status(202)]
    played.peer.nodes["$cbs"] = lambda request: answers.pop(0)
    with pytest.raises(TokenRefused, match=r"no access to sb://contoso\.example:5671/orders"):
        await played.connection.open_sender("orders")
    assert played.connection.claims == 0
    await played.connection.open_sender("orders")
    assert played.connection.claims == 1


async def test_paths_are_authorized_once_however_many_ask_and_again_when_forgotten(played: Played) -> None:
    await asyncio.gather(*(played.connection.authorize(path) for path in ("a", "a", "b")))
    assert len(played.peer.requests) == 2
    played.connection.forget("a")
    await played.connection.authorize("a")
    await played.connection.authorize("b")
    assert len(played.peer.requests) == 3
    assert played.connection.claims == 2


async def test_a_connection_that_ends_with_the_answer_about_its_token_renews_nothing(played: Played) -> None:
    before = asyncio.all_tasks()

    def accept_and_end(request: Message) -> None:
        played.peer.answer("$cbs", request, status(200))
        played.peer.speak()
        asyncio.get_running_loop().call_soon(played.connection.abort)  # in the turn that reads the answer

    played.peer.nodes["$cbs"] = accept_and_end
    await played.connection.authorize("orders")
    await turns()
    assert asyncio.all_tasks() == before


async def test_a_cbs_node_that_was_lost_is_opened_again(played: Played) -> None:
    await played.connection.authorize("a")
    played.peer.nodes["$cbs"] = lambda request: None
    asking = asyncio.ensure_future(played.connection.authorize("b"))
    await turns()
    played.peer.links["to $cbs"].detach(Condition("a:b", "moved"))
    played.peer.speak()
    with pytest.raises(ConnectionLost, match=r"the link to \$cbs was lost"):
        await asking
    played.peer.nodes["$cbs"] = lambda request: status(200)
    await played.connection.authorize("b")


# --- what is asked of a node


async def test_messages_are_peeked_from_a_number_on(played: Played) -> None:
    answers = [
        status(200, body={"messages": [{"message": b"one"}, {"message": b"two"}]}),
        status(204),
        status(200, body={"messages": None}),
        status(404, "gone"),
        status(200, body={}),
        status(200, body={"messages": [{"other": 1}]}),
    ]
    played.peer.nodes["n"] = lambda request: answers.pop(0)
    node = RequestNode(played.connection, "n")
    assert await peek(node, "orders", 7, 50) == [b"one", b"two"]
    ((_, request),) = played.peer.requests
    assert request.application_properties == {
        "operation": "com.microsoft:peek-message",
        "type": "entity-mgmt",
    }
    assert request.body == ValueBody({"from-sequence-number": 7, "message-count": 50})
    assert await peek(node, "orders", 7, 50) == []
    assert await peek(node, "orders", 7, 50) == []
    with pytest.raises(LinkRefused, match=r"^orders cannot be peeked: amqp:not-found: status 404: gone$"):
        await peek(node, "orders", 7, 50)
    for _ in range(2):
        with pytest.raises(LinkRefused, match=r"^the answer to a peek at orders cannot be read: KeyError"):
            await peek(node, "orders", 7, 50)
    await node.close()


TAGS = [bytes([number]) * 16 for number in range(3)]


async def renewed(played: Played, *answers: Message, tags: list[bytes] = TAGS) -> list[float | None]:
    left = list(answers)
    path = "orders/$management"
    played.peer.nodes[path] = lambda request: left.pop(0)
    return await renew_locks(played.connection, "orders", tags)


def until(*seconds: int) -> Message:
    return status(200, body={"expirations": Array(0x83, tuple(Timestamp(each * 1000) for each in seconds))})


async def test_locks_are_renewed_together(played: Played) -> None:
    assert await renewed(played, until(5, 6, 7)) == [5.0, 6.0, 7.0]
    ((_, request),) = played.peer.requests
    assert request.application_properties == {"operation": "com.microsoft:renew-lock", "type": "entity-mgmt"}
    assert isinstance(request.body, ValueBody)
    tokens = request.body.value["lock-tokens"]  # type: ignore[index]
    assert tokens.code == 0x98
    assert [token.bytes_le for token in tokens.items] == TAGS
    assert len(played.peer.detached) == 2


async def test_when_a_lock_is_lost_the_others_are_renewed_each_on_its_own(played: Played) -> None:
    assert await renewed(played, status(410), until(5), status(410), until(7)) == [5.0, None, 7.0]
    assert await renewed(played, status(410), tags=TAGS[:1]) == [None]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (status(500, "bad"), "the locks on orders were not renewed: amqp:internal-error: status 500: bad"),
        (until(5), "the locks on orders were not renewed: amqp:internal-error: status 200: OK"),
        (status(200, body=None), "the locks on orders were not renewed: amqp:internal-error: status 200: OK"),
    ],
    ids=["refused", "too few", "none"],
)
async def test_locks_that_are_not_renewed_are_an_error(played: Played, answer: Message, told: str) -> None:
    with pytest.raises(LinkRefused) as refused:
        await renewed(played, answer)
    assert str(refused.value) == told


async def test_a_delivery_without_a_lock_is_refused_before_it_is_asked_for(played: Played) -> None:
    with pytest.raises(LinkRefused, match=r"^a delivery of orders has no lock: its tag is not a UUID$"):
        await renewed(played, tags=[b"short"])


# --- words


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        (None, "no condition given"),
        (Condition("a:b"), "a:b"),
        (Condition("a:b", ""), "a:b"),
        (Condition("a:b", "two\nlines\x07"), "a:b: two lines "),
        (Condition("a:b", "x" * 2000), "a:b: " + "x" * 995),
    ],
    ids=["none", "symbol", "empty", "lines", "long"],
)
def test_a_condition_is_one_line_of_bounded_length(condition: Condition | None, text: str) -> None:
    assert said(condition) == text
