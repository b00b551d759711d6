"""Which messages the dispatcher releases, and to which link, without a broker."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from sbpair.pair.amqp.message import Message, Properties
from sbpair.pair.processor.deduplication import Deduplication
from sbpair.pair.processor.delivery import Delivery, DeliveryPhase
from sbpair.pair.processor.dispatcher import Dispatcher
from sbpair.pair.processor.message import ReceivedMessage
from sbpair.pair.processor.status import ProcessorCounters


class Idle:
    """An invoker whose handlers never return."""

    def start(self, delivery: Delivery, finished: object) -> None:
        pass

    def cancel(self, delivery: Delivery, why: Exception) -> None:
        raise AssertionError


class Link:
    """The link of the deliveries, which records what it releases."""

    def __init__(self) -> None:
        self.dispatcher = Dispatcher(
            cast(Any, Idle()),
            calls=1,
            autosettle=True,
            memory=Deduplication(600.0),
            counters=ProcessorCounters(),
            failed=lambda *_: None,
            duplicate=lambda *_: None,
            changed=lambda: None,
        )
        self.given_back: list[int] = []

    def take(self, number: int, message_id: str, now: float) -> None:
        message = ReceivedMessage(Message(properties=Properties(message_id=message_id)).encode())
        self.dispatcher.take(Delivery(cast(Any, self), cast(Any, None), number, b"", message, now, now + 60))

    def returned(self, delivery: Delivery) -> None:
        pass

    def give_back(self, delivery: Delivery) -> None:
        delivery.phase = DeliveryPhase.GONE
        self.given_back.append(delivery.delivery_id)
        self.dispatcher.left(delivery)


@pytest.mark.spec("C-12", "C-15")
@pytest.mark.parametrize(("now", "left"), [(None, 0), (1000.0, 1)])
async def test_a_released_message_releases_its_waiting_duplicate(now: float | None, left: int) -> None:
    link = Link()
    for number, message_id in enumerate(("runs", "a", "a", "b")):
        link.take(number, message_id, 0.0)
    if now is not None:
        link.take(4, "new", now)

    link.dispatcher.give_back_waiting(now)

    assert sorted(link.given_back) == [1, 2, 3]
    assert link.dispatcher.in_hand == 1 + left


class Returns(Idle):
    """Handlers that return at once and settle nothing."""

    def start(self, delivery: Delivery, finished: Any) -> None:
        finished(delivery, None)


async def test_a_processor_waiting_for_manual_settlement_logs_it_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    later: list[Any] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "call_later", lambda seconds, call: later.append(call))
    link = Link()
    link.dispatcher = Dispatcher(
        cast(Any, Returns()),
        calls=1,
        autosettle=False,
        memory=None,
        counters=ProcessorCounters(),
        failed=lambda *_: None,
        duplicate=lambda *_: None,
        changed=lambda: None,
    )
    for number in range(5000):
        link.take(number, f"m{number}", 0.0)
    for call in later:
        call()
    (told,) = [each for each in caplog.records if each.levelname == "WARNING"]
    assert "are not settled" in told.getMessage()
