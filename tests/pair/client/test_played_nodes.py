"""Requests to a played node: answers, tokens, peeks and lock renewals."""

from __future__ import annotations

import asyncio
import gc

import pytest

from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import Condition, Released
from sbpair.pair.amqp.types import Array, Timestamp
from sbpair.pair.client.claims import MIN_RETRY_SECONDS, REFRESH_MARGIN, check, renewal_due
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError, TokenRefusedError
from sbpair.pair.client.locks import renew_locks
from sbpair.pair.client.request import RequestNode, peek, refusal_of, value_of
from sbpair.pair.syphon.land.transaction import NODE as COORDINATOR
from sbpair.pair.syphon.land.transaction import TransactionController
from tests import waiting
from tests.pair.client.played import Played, outcomes, status, turns

pytestmark = pytest.mark.spec("R-66")
DAY = 86_400.0

# --- requests


async def test_a_request_has_its_own_answer(played: Played) -> None:
    held: list[Message] = []
    played.peer.nodes["orders/$management"] = lambda request: held.append(request)  # type: ignore[func-returns-value]
    node = RequestNode(played.connection, "orders/$management")
    assert not node.is_open
    asked = [asyncio.ensure_future(node.ask({"number": number}, [number])) for number in range(2)]
    await turns()
    assert node.is_open
    held.sort(key=lambda request: request.application_properties["number"])  # the two wait for the same links
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
    assert not node.is_open


async def test_an_answer_that_cannot_be_read_fails_all_that_wait(played: Played) -> None:
    played.peer.nodes["n"] = lambda request: None
    node = RequestNode(played.connection, "n")
    asked = [asyncio.ensure_future(node.ask({}, None)) for _ in range(2)]
    await turns()
    played.peer.send("n", b"\xff")
    played.peer.speak()
    for each in asked:
        with pytest.raises(ConnectionLostError, match="an answer from n is not valid AMQP"):
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
    with pytest.raises(ConnectionLostError, match=r"^the link to n was lost before its answer: a:b: moved$"):
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
        LinkRefusedError, match=r"^the answer from n is too large: amqp:link:message-size-exceeded: big$"
    ):
        await asked
    await node.close()


async def test_a_node_that_does_not_take_a_request_is_a_lost_connection(played: Played) -> None:
    node = RequestNode(played.connection, "n")
    asked = asyncio.ensure_future(node.ask({}, None))
    await turns()
    outcomes(played, Released())
    with pytest.raises(ConnectionLostError, match=r"^n did not accept a request$"):
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
    with pytest.raises(LinkRefusedError, match="no link to m: a:b: no"):
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
    with pytest.raises(TokenRefusedError) as refused:
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
        (1.0, MIN_RETRY_SECONDS),
        (-50.0, MIN_RETRY_SECONDS),
    ],
)
def test_a_token_is_renewed_six_minutes_before_its_end_or_after_most_of_its_life(
    life: float, due: float
) -> None:
    assert renewal_due(5000.0 + life, 5000.0) == 5000.0 + due


async def test_a_path_whose_token_is_refused_is_asked_for_again(played: Played) -> None:
    answers = [status(401, "no"), status(202)]
    played.peer.nodes["$cbs"] = lambda request: answers.pop(0)
    with pytest.raises(TokenRefusedError, match=r"no access to sb://contoso\.example:5671/orders"):
        await played.connection.open_sender("orders")
    assert played.connection.claims == 1  # a peer may keep a claim that it refuses (S-26)
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


@pytest.mark.slow
@pytest.mark.spec("F-41")
async def test_a_token_that_is_put_later_and_ends_sooner_is_renewed_in_time(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    lives = [DAY, 0.01, DAY]
    monkeypatch.setattr("sbpair.pair.client.claims.renewal_due", lambda expires, now: now + lives.pop(0))
    puts = played.connection._tokens._puts
    await played.connection.authorize("a")
    await turns()  # the connection waits for a day
    first = puts["a"]
    await played.connection.authorize("b")
    await waiting.until(lambda: not lives)
    assert puts["a"] is first


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
    with pytest.raises(ConnectionLostError, match=r"the link to \$cbs was lost"):
        await asking
    played.peer.nodes["$cbs"] = lambda request: status(200)
    await played.connection.authorize("b")


# --- management operations


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
    with pytest.raises(
        LinkRefusedError, match=r"^orders cannot be peeked: amqp:not-found: status 404: gone$"
    ):
        await peek(node, "orders", 7, 50)
    for _ in range(2):
        with pytest.raises(
            LinkRefusedError, match=r"^the answer to a peek at orders cannot be read: KeyError"
        ):
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
    with pytest.raises(LinkRefusedError) as refused:
        await renewed(played, answer)
    assert str(refused.value) == told


async def test_a_delivery_without_a_lock_is_refused_before_it_is_asked_for(played: Played) -> None:
    with pytest.raises(LinkRefusedError, match=r"^a delivery of orders has no lock: its tag is not a UUID$"):
        await renewed(played, tags=[b"short"])


# --- the coordinator of transactions


async def test_an_opening_whose_caller_was_cancelled_fails_without_a_word(played: Played) -> None:
    unheard: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: unheard.append(context))
    played.peer.silent.add(COORDINATOR)
    controller = TransactionController(played.connection)
    asking = asyncio.ensure_future(controller.ready())
    await turns()
    opening = controller._opening
    assert opening is not None
    asking.cancel()
    await asyncio.wait([asking])
    played.connection.abort()
    await asyncio.wait([opening])
    assert not opening.cancelled()
    del asking, controller, opening
    gc.collect()  # asyncio reports unretrieved exceptions here
    assert unheard == []


@pytest.mark.spec("R-99")
async def test_a_path_that_is_forgotten_while_its_token_is_put_is_not_renewed(played: Played) -> None:
    putting = asyncio.ensure_future(played.connection.authorize("a"))
    await asyncio.sleep(0)
    played.connection.forget("a")
    await putting
    assert played.connection._tokens._puts == {}
    await played.connection.authorize("a")
    assert set(played.connection._tokens._puts) == {"a"}
