"""A node that is closed while it opens: no link is left, and nobody who waits for it is cancelled."""

from __future__ import annotations

import asyncio

import pytest

from sbpair.pair.amqp.endpoint import CLOSED
from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.client.request import RequestNode
from tests.pair.client.played import Played, turns

pytestmark = pytest.mark.spec("R-93")


@pytest.mark.parametrize("how", ["close", "abandon"])
@pytest.mark.parametrize("begun", [0, 1, 30])  # turns of the loop
async def test_a_node_closed_during_its_opening_leaves_no_links_and_cancels_no_caller(
    played: Played, how: str, begun: int
) -> None:
    played.peer.silent.add("orders/$management")
    node = RequestNode(played.connection, "orders/$management")
    asking = asyncio.ensure_future(node.ask({}, None))
    for _ in range(begun):
        await asyncio.sleep(0)
    closing = asyncio.ensure_future(node.close()) if how == "close" else None
    if closing is None:
        node.abandon()
    with pytest.raises(ConnectionLostError):
        await asking
    await turns()
    assert all(link.link.local is CLOSED for link in played.connection._links.values())
    if closing is not None:
        closing.cancel()
