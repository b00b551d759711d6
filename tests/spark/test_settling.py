"""Which messages does a round complete, and which does it give back?"""

from __future__ import annotations

import pytest

from sbpair.amqp.events import MessageReceived
from sbpair.amqp.message import Message
from sbpair.amqp.performatives import Released
from sbpair.spark.settling import Settler


class Link:
    """A receiver that notes what becomes of what has arrived."""

    def __init__(self) -> None:
        self.given_back: list[tuple[int, int, object]] = []
        self.settled: list[tuple[int, int, object]] = []

    def flow(self, credit: int, *, drain: bool) -> None: ...

    async def drained(self) -> None: ...

    def give_back(self, first: int, last: int, state: object) -> None:
        self.given_back.append((first, last, state))

    def settle(self, first: int, last: int, state: object) -> None:
        self.settled.append((first, last, state))


@pytest.mark.parametrize("payload", [b"", Message().encode()], ids=["nothing", "no annotations"])
async def test_a_message_without_a_number_is_given_back(payload: bytes) -> None:
    settler, link = Settler("orders"), Link()
    settler._receiver = link  # type: ignore[assignment]
    arrived = MessageReceived(None, 7, b"", payload, False, 0, None)  # type: ignore[arg-type]
    link.flow = lambda credit, *, drain: settler._arrived.append(arrived)  # type: ignore[method-assign]
    assert await settler._round(10, 100) is None
    assert link.given_back == [(7, 7, Released())]
    assert link.settled == []
