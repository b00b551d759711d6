"""A peer that sends deliveries and finishes none is bounded in bytes (R-119)."""

from __future__ import annotations

import pytest

from sbpair.pair.amqp.composite import encode_composite
from sbpair.pair.amqp.encoding import frame
from sbpair.pair.amqp.errors import RESOURCE_LIMIT_EXCEEDED
from sbpair.pair.amqp.events import LinkDetached, MessageReceived
from sbpair.pair.amqp.performatives import Transfer
from tests.pair.client.played import Played, turns

pytestmark = pytest.mark.spec("R-119")
KIB = 1024
LIMIT = 1000 * KIB


async def receiving(played: Played, *paths: str) -> list[MessageReceived]:
    """Open a receiver of each path; return what they receive."""
    received: list[MessageReceived] = []
    for path in paths:
        receiver = await played.connection.open_receiver(path, received.append)
        receiver.flow(10)
    await turns()
    return received


def piece(played: Played, path: str, size: int, *, more: bool = True, delivery: int = 0) -> None:
    """Let the peer send ``size`` bytes of a delivery."""
    link = played.peer.links[f"from {path}"]
    transfer = Transfer(link.handle, delivery, b"t" * 16, 0, settled=False, more=more)
    raw = frame(link.session.channel, encode_composite(transfer), size) + bytes(size)
    played.connection.data_received(raw)


def detached(played: Played) -> list[str]:
    return [
        path for path, link in played.peer.links.items() for each in played.peer.detached if each.link is link
    ]


async def test_above_the_limit_only_the_most_complete_partial_delivery_is_kept(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    played.connection.unfinished_limit = LIMIT
    received = await receiving(played, "a", "b", "c")
    for path, size in (("a", 400), ("b", 500), ("c", 80)):
        piece(played, path, size * KIB)
    assert played.connection.unfinished > 980 * KIB
    piece(played, "a", 200 * KIB)
    piece(played, "b", 500 * KIB)  # sent before the peer saw the detach
    await turns()
    assert detached(played) == ["from b"]
    assert 680 * KIB < played.connection.unfinished < 700 * KIB
    assert "is detached: unfinished deliveries take more than 1024000 bytes" in caplog.text
    piece(played, "c", 0, more=False)
    piece(played, "a", 0, more=False)
    assert sorted(len(event.payload) for event in received) == [80 * KIB, 600 * KIB]
    assert played.connection.unfinished == 0


async def test_a_link_beyond_the_limit_ends_even_if_the_peer_never_answers(played: Played) -> None:
    played.connection.unfinished_limit = LIMIT
    links = [await played.connection.open_receiver(path, lambda _: None) for path in ("a", "b")]
    for link in links:
        link.flow(10)
    await turns()
    played.peer.is_lost = True
    piece(played, "a", 600 * KIB)
    piece(played, "b", 500 * KIB)
    assert not links[0].detached.done()
    condition = links[1].detached.result()
    assert condition is not None
    assert condition.symbol == RESOURCE_LIMIT_EXCEEDED


async def test_a_single_delivery_may_exceed_the_limit(played: Played) -> None:
    played.connection.unfinished_limit = LIMIT
    received = await receiving(played, "a")
    for _ in range(3):
        piece(played, "a", 600 * KIB)
    piece(played, "a", 0, more=False)
    assert [len(event.payload) for event in received] == [1800 * KIB]
    assert not detached(played)


async def test_an_ended_connection_holds_no_memory(played: Played) -> None:
    await receiving(played, "a")
    piece(played, "a", 600 * KIB)
    played.connection.data_received(b"no frame" * 4)
    assert played.connection.closed.done()
    assert played.connection.unfinished == 0


async def test_an_ended_link_returns_its_memory(played: Played) -> None:
    await receiving(played, "a", "b")
    piece(played, "a", 600 * KIB)
    piece(played, "b", 600 * KIB)
    played.peer.links["from a"].detach()
    played.peer.speak()
    await turns()
    assert 600 * KIB < played.connection.unfinished < 601 * KIB
    assert isinstance(played.peer.detached[0], LinkDetached)
