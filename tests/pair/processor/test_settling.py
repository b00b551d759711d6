"""Settlements that their link could not send."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from sbpair.pair.amqp.performatives import ACCEPTED
from sbpair.pair.client.locks import LockClock
from sbpair.pair.ground.side import Side
from sbpair.pair.processor.delivery import Delivery
from sbpair.pair.processor.link import EntityLink
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.settlement import Verb
from tests.pair.processor.pair import numbered


class OneLink(EntityLink):
    """A link that notes its strays."""

    def __init__(self, context: Any) -> None:
        super().__init__(context, Side.PRIMARY, LockClock())
        self.strays: list[tuple[Delivery, bool]] = []

    def _arrived(self, payload: bytes, now: float) -> float:
        return 60.0

    def _admit(self, delivery: Delivery) -> None: ...
    def next_timer(self) -> None: ...
    def handle_timer(self, now: float) -> None: ...

    def _stray(self, delivery: Delivery, was_sent: bool) -> None:
        self.strays.append((delivery, was_sent))


@pytest.mark.spec("C-19")
async def test_a_handled_message_whose_link_ends_before_its_settlement_is_reported() -> None:
    told: list[Any] = []
    context = SimpleNamespace(
        path="orders",
        counters=SimpleNamespace(in_flight=1),
        dispatcher=SimpleNamespace(left=lambda _: None),
        changed=lambda: None,
        reports_messages=lambda: True,
        emit=told.append,
    )
    link, receiver = OneLink(context), SimpleNamespace(detached=asyncio.get_running_loop().create_future())
    link._attached(None, receiver)  # type: ignore[arg-type]
    message = ReceivedMessage(numbered(1), b"t" * 16, Side.PRIMARY)
    delivery = Delivery(link, receiver, 1, b"t" * 16, message, 0.0, 60.0)  # type: ignore[arg-type]
    delivery.is_handled = True
    link._open[delivery.tag] = delivery

    link.settle(delivery, Verb.COMPLETE, ACCEPTED)
    receiver.detached.set_result(None)
    await asyncio.sleep(0)
    assert (told, link.strays) == ([], [])
    link._detached()

    assert [event.message_ids for event in told] == [("m1",)]
    assert link.strays == [(delivery, False)]
