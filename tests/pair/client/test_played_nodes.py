"""Requests to a played node: answers, tokens, peeks and lock renewals."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.amqp.types import Array, Timestamp
from sbpair.pair.client.claims import MIN_RETRY_SECONDS, REFRESH_MARGIN, check, renewal_due
from sbpair.pair.client.errors import LinkRefusedError, TokenRefusedError
from sbpair.pair.client.locks import renew_locks
from sbpair.pair.client.request import RequestNode
from tests import waiting
from tests.pair.client.played import Played, status, turns

pytestmark = pytest.mark.spec("R-66")
DAY = 86_400.0

# --- requests


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
async def test_a_later_token_that_expires_sooner_is_renewed_in_time(
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


# --- management operations


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


async def test_after_a_lost_lock_the_others_are_renewed_singly(played: Played) -> None:
    assert await renewed(played, status(410), until(5), status(410), until(7)) == [5.0, None, 7.0]
    assert await renewed(played, status(410), tags=TAGS[:1]) == [None]


# --- the coordinator of transactions


@pytest.mark.spec("R-99")
async def test_a_path_that_is_forgotten_while_its_token_is_put_is_not_renewed(played: Played) -> None:
    putting = asyncio.ensure_future(played.connection.authorize("a"))
    await asyncio.sleep(0)
    played.connection.forget("a")
    await putting
    assert played.connection._tokens._puts == {}
    await played.connection.authorize("a")
    assert set(played.connection._tokens._puts) == {"a"}
